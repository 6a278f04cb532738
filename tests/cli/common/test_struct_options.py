"""Options that are made from a struct: a struct of numbers is one option."""

from typing import Annotated

import click
import msgspec
import pytest
from click.testing import CliRunner

from tokiod.cli.common.struct_options import options_of
from tokiod.collector import MaxRate


class Saved(msgspec.Struct, kw_only=True):
    max_rate: Annotated[MaxRate, msgspec.Meta(description="Largest rates.")] = MaxRate(bytes=5e10)


def given(*words):
    """Return exit code and output of a command that prints the struct it was given."""
    command = click.Command("archive", params=list(options_of(Saved)), callback=lambda **given: click.echo(given["max_rate"]))
    done = CliRunner().invoke(command, list(words))
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("words", "rates"),
    [
        ([], MaxRate(bytes=5e10)),
        (["--max-rate", "operations=20"], MaxRate(operations=20.0)),
        (["--max-rate", "bytes=1e9,operations=20"], MaxRate(bytes=1e9, operations=20.0)),
    ],
)
def test_numbers_that_are_not_named_keep_their_defaults(words, rates):
    assert given(*words) == (0, f"{rates}\n")


FORM = "is not of the form bytes=NUMBER,operations=NUMBER, as in bytes=1e+11,operations=1e+07"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("foo", f"'foo' {FORM}"),
        ("bytes=fast", f"'bytes=fast' {FORM}"),
        ("bytes=1e9,", f"'bytes=1e9,' {FORM}"),
        ("", f"'' {FORM}"),
        ("bites=5", "bites: unknown key, did you mean bytes?"),
        ("bytes=0", "bytes: expected a number > 0.0"),
        ("bytes=inf,operations=-1", "bytes: expected a number <= 1e+18; operations: expected a number > 0.0"),
    ],
)
def test_other_texts_are_refused_with_the_form_and_an_example(text, sentence):
    code, output = given("--max-rate", text)
    assert (code, output.splitlines()[-1]) == (2, f"Error: Invalid value for '--max-rate': {sentence}")


def test_the_help_shows_the_form_and_the_defaults():
    text = " ".join(given("--help")[1].split())
    assert "--max-rate bytes=NUMBER,operations=NUMBER Largest rates. [default: (bytes=5e+10,operations=1e+07)]" in text
