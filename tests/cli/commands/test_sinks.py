"""`tokioctl sinks rewind`: what it requests, prints and refuses."""

import json

import pytest
from click.testing import CliRunner
from commanded import configured

from tokiod.cli.tokioctl import main
from tokiod.forwarding import rewind

NOON = 1_517_184_000 + 12 * 3600


@pytest.fixture
def path(tmp_path):
    path = configured(tmp_path)
    sink = '[[sink]]\nname = "k"\nkind = "kafka"\nservers = ["127.0.0.1:9"]\ntopic = "t"\n'
    path.write_text(f'sink_state = "{tmp_path}/sinks"\n{path.read_text()}{sink}')
    (tmp_path / "sinks" / "k").mkdir(parents=True)
    return path


def rewound(path, start, *options):
    arguments = ["sinks", "rewind", "k", "--from", start, *options, "--config", str(path), "--clock", f"{NOON}@0x0"]
    return CliRunner().invoke(main, arguments)


def test_a_rewind_is_requested_and_printed_as_a_sentence_or_as_the_state_in_json(path, tmp_path):
    done = rewound(path, "2018-01-29")
    sentence = "k sends all rows from 2018-01-29T00:00:00Z on again; tokioctl sinks shows its backlog\n"
    assert (done.exit_code, done.stdout) == (0, sentence)
    done = rewound(path, "2018-01-28", "--json")
    assert (done.exit_code, [(one["name"], one["kind"]) for one in json.loads(done.stdout)]) == (0, [("k", "kafka")])
    assert sorted(rewind.requested(tmp_path / "sinks" / "k").values()) == [NOON - 36 * 3600, NOON - 12 * 3600]


def test_a_rewind_to_a_time_that_has_not_come_is_refused(path, tmp_path):
    done = rewound(path, "2038-01-29")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "main: --from: 2038-01-29T00:00:00Z is after now, 2018-01-29T12:00:00Z\n"
    assert rewind.requested(tmp_path / "sinks" / "k") == {}
