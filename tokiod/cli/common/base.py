"""What every command shares: errors as one sentence on stderr, and the options that mean the same in all of them."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tokiod import __version__
from tokiod.cli.common.output import printable
from tokiod.clock import Clock, SimulatedClock, SystemClock
from tokiod.errors import ConfigError, TokiodError, nearest
from tokiod.runtime.full_disk import FULL
from tokiod.runtime.interruption import lasting_interrupts
from tokiod.runtime.secrets import mask

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

INTERRUPTED = 130
REMEDY = "join the group tokiod-readers, or run this as the daemon's user: `runuser -u tokiod -- COMMAND` (docs/security.md)"
"""What a user without a right can do."""
HELP = ["-h", "--help"]


class Failed(click.ClickException):
    """An error of the user or the site: print its sentence and exit with 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message)
        context = click.get_current_context(silent=True)
        self.program = "tokiod" if context is None else context.find_root().info_name

    def show(self, file: Any = None) -> None:
        """Print every line of the message after the program's name."""
        for line in mask(self.message).splitlines():
            click.echo(printable(f"{self.program}: {line}"), file=file, err=file is None)  # noqa: TID251 - click passes the file


# A command is imported when it is called: HDF5, numpy and rich, which few commands need, take half a second to import.
class PlainGroup(click.Group):
    """A group of commands that prints a TokiodError as a sentence instead of a traceback.

    modules: the names of modules in tokiod.cli.commands that each hold one more command, NAME_command.
    """

    def __init__(self, *args: Any, modules: tuple[str, ...] = (), **options: Any) -> None:
        super().__init__(*args, context_settings={"help_option_names": HELP}, **options)
        self._modules = modules

    # CPython's stack is made of chunks of 16 KiB, and it frees a chunk as soon as the first frame there ends. Code that calls functions
    # just there takes twice as long: below click's frames that was numpy's import, in some commands, by 20 ms.
    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Import the command before click has its frames on the stack, and run it."""
        try:
            for name in (sys.argv[1:] if args is None else args)[:1]:
                with lasting_interrupts(), suppress(Exception):  # raised again where the command is looked up
                    if name in self._modules:
                        _module(name)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        return super().main(args, *rest, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names, sorted."""
        return sorted({*super().list_commands(ctx), *self._modules})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None for an unknown name."""
        if cmd_name in self._modules and cmd_name not in self.commands:
            self.add_command(getattr(_module(cmd_name), f"{cmd_name}_command"))
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Report an unknown command with the most similar known one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not (similar := nearest(args[0], self.list_commands(ctx))):
                raise
            raise click.UsageError(error.message.rstrip(".") + similar, ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            with lasting_interrupts():
                return super().invoke(ctx)
        except ConfigError as error:
            raise Failed("\n".join(error.faults)) from error
        except TokiodError as error:
            raise Failed(str(error)) from error
        except BrokenPipeError:
            raise SystemExit(0) from None
        except PermissionError as error:
            if error.filename is None:
                raise
            raise Failed(f"no permission: {error.filename}; {REMEDY}") from error
        except OSError as error:
            if error.errno not in FULL or error.filename is not None:
                raise
            raise Failed(f"cannot write to stdout: {error.strerror}") from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None


def _module(command: str) -> ModuleType:
    return import_module(f"tokiod.cli.commands.{command}")


class ClockType(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on only
    """A simulation's clock, EPOCH@ORIGINxRATE."""

    name = "clock"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Clock:
        """Parse the text that a simulation passes to its processes."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # click passes a default through unchanged
        try:
            return SimulatedClock.parse(value)
        except ValueError:
            self.fail(f"{value!r} is not EPOCH@ORIGINxRATE", param, ctx)


class Finite(click.FloatRange):
    """A number in a range. NaN is refused too: it is neither below the range nor above it, so click's own takes it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("/etc/tokiod/tokiod.toml"),
    show_default=True,
    envvar="TOKIOD_CONFIG",
    show_envvar=True,
    help="The configuration file.",
)
clock_option = click.option(
    "--clock", type=ClockType(), default=SystemClock(), hidden=True, help="Run in a simulation's time: EPOCH@ORIGINxRATE."
)
parent_option = click.option("--parent", type=int, hidden=True, help="End when this process ends.")
origin_option = click.option("--origin", type=click.Path(path_type=Path), hidden=True, help="The file that the configuration is a copy of.")
host_option = click.option("--host", "host_name", help="The [[host]] that this machine is.  [default: by its name]")
version_option = click.version_option(__version__)
