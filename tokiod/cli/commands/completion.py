"""`tokioctl completion SHELL`: the completion script of a shell, including names from the configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from tokiod.cli.common.examples import examples
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from tokiod.config.schema import Config

PROGRAMS = ("tokiod", "tokioctl")
SHELLS = ("bash", "zsh", "fish")


# \b keeps click from filling the lines that follow. For fish it is no file in completions/: one of those is read for one program alone.
_HELP = """\
Print the completion script of a shell for both programs.

The script completes commands, options, file names, and the names of sources, systems and datasets in the configuration.

\b
bash, in ~/.bashrc:                   eval "$(tokioctl completion bash)"
zsh, in ~/.zshrc after compinit:      eval "$(tokioctl completion zsh)"
fish, in ~/.config/fish/config.fish:  tokioctl completion fish | source

Exit 0 printed, 2 unknown shell.
"""


@click.command("completion", epilog=examples("tokioctl completion bash > /etc/bash_completion.d/tokiod"), help=_HELP)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a shell's script for both programs."""
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"unknown shell {shell}")
    for program in PROGRAMS:
        one = made(click.Command(program), {}, program, f"_{program.upper()}_COMPLETE")
        # Not source(), which runs bash to look at its version.
        click.echo(one.source_template % one.source_vars())  # noqa: TID251 - a script, not text from outside


def source_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """Complete the name of a [[source]]."""
    config = _config(ctx)
    return _matching([] if config is None else [source.name for source in config.source], incomplete)


def sink_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - as above
    """Complete the name of a [[sink]]."""
    config = _config(ctx)
    return _matching([] if config is None else [sink.name for sink in config.sink], incomplete)


def system_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - as above
    """Complete the name of a system."""
    config = _config(ctx)
    return _matching([] if config is None else [source.system for source in config.source], incomplete)


def file_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - as above
    """Complete a file name, as the shell does."""
    return [CompletionItem(incomplete, type="file")]


def system_or_file_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str] | list[CompletionItem]:
    """Complete the name of a system, or a file name if no system matches. bash shows one or the other."""
    return system_names(ctx, param, incomplete) or file_names(ctx, param, incomplete)


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - as above
    """Complete SYSTEM/DATASET."""
    config = _config(ctx)
    names = [] if config is None else [f"{source.system}/{dataset}" for source in config.source for dataset in source.datasets()]
    return _matching(names, incomplete)


def dataset_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - as above
    """Complete the logical name of a dataset that a source fills."""
    config = _config(ctx)
    return _matching([] if config is None else [name for source in config.source for name in source.datasets()], incomplete)


def _config(ctx: click.Context) -> Config | None:
    """Return the configuration that the command would read, or None if it has errors: completion reports none."""
    # Most commands complete file names, and do without the 15 ms that reading a configuration takes to import.
    from tokiod.config import load as configuration  # noqa: PLC0415 - as above

    path = ctx.params.get("config_path") or os.environ.get("TOKIOD_CONFIG") or "/etc/tokiod/tokiod.toml"
    try:
        return configuration.load(Path(path))
    except (TokiodError, OSError):
        return None


def _matching(names: list[str], incomplete: str) -> list[str]:
    return [name for name in sorted(set(names)) if name.startswith(incomplete)]
