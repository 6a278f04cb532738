"""Run lfs for each mount, twice with inodes, and lctl: all at once, and what failed at once a second time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tokiod.errors import CollectError, Fatal, Transient
from tokiod.toolkit.commands import Commands, CommandTimeout, Output, Stuck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.lustre.config import Config
    from tokiod.clock import Clock
    from tokiod.window import Window

LCTL = "lctl"
INODES = "inodes of "
"""Before the mount, in the name of its command for inodes."""
RETRY_SECONDS = 1.0
"""After this time a failed command runs a second time: its window can't be collected later."""


class TooLate(Transient):
    """A command ended after its window, so its output may belong to the next one."""


# lfs df exits with an error when any target failed, and its output about the others is right all the same. So the output counts, and the
# exit code only if there is no output. Each mount has its own command: a dead server makes lfs df hang in the kernel, and without a mount
# point an error on one file system ends the list of all.
class LustreCommands:
    """The commands of one source, named by their mount, INODES and their mount, or LCTL."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._commands = Commands()

    async def run(self, window: Window) -> list[tuple[str, Output | CollectError]]:
        """Return the output of each command, or why it failed; lctl comes last. Raises TooLate."""
        inodes = [f"{INODES}{mount}" for mount in self._config.mounts if self._config.fullness and self._config.inodes]
        names = [*self._config.mounts, *inodes, *([LCTL] if self._config.failover else [])]
        outcomes = await self._run_all(names, window)
        failed = [place for place, outcome in enumerate(outcomes) if _may_succeed_now(outcome)]
        if 0 < len(failed) < len(outcomes) and self._clock.time() + RETRY_SECONDS < window.end:
            await self._clock.sleep(RETRY_SECONDS)
            for place, outcome in zip(failed, await self._run_all([names[place] for place in failed], window), strict=True):
                if not isinstance(outcome, TooLate):
                    outcomes[place] = outcome
        for outcome in outcomes:
            if isinstance(outcome, TooLate):
                raise outcome
        return list(zip(names, map(_unless_unexpected, outcomes), strict=True))

    async def close(self) -> None:
        """Wait for commands that are being killed."""
        await self._commands.close()

    async def _run_all(self, names: Sequence[str], window: Window) -> list[Output | BaseException]:
        return await asyncio.gather(*(self._run(name, window) for name in names), return_exceptions=True)

    def _argv(self, name: str) -> list[str]:
        if name == LCTL:
            return [*self._config.lctl, "dl", "-t"]
        mount = name.removeprefix(INODES)
        return [*self._config.lfs, "df", "-l", *(["-i"] if mount != name else []), mount]

    async def _run(self, name: str, window: Window) -> Output:
        argv = self._argv(name)
        output = await self._commands.run(argv, key=name, seconds=float(self._config.command_timeout))
        if self._clock.time() >= window.end:
            raise TooLate(f"{argv[0]} for {name} ended after {window}: its output may belong to another window")
        if output.code and not output.stdout.strip():
            complaint = f": {output.complaint}" if output.complaint else ""
            is_fatal = "not a lustre" in complaint.lower() or "permission denied" in complaint.lower()
            raise (Fatal if is_fatal else Transient)(f"{' '.join(argv)}: exit code {output.code}{complaint}")
        return output


def reason(error: CollectError) -> str:
    """Return in a few words why a command failed."""
    match error:
        case Stuck():
            return "command cannot be killed"
        case CommandTimeout():
            return "no answer in time"
        case _:
            return "no answer"


def _may_succeed_now(outcome: Output | BaseException) -> bool:
    """Return whether a failure may be over in a moment; a command that hung has used its time already."""
    return isinstance(outcome, Transient) and not isinstance(outcome, (CommandTimeout, Stuck, TooLate))


def _unless_unexpected(outcome: Output | BaseException) -> Output | CollectError:
    if isinstance(outcome, (Output, CollectError)):
        return outcome
    raise outcome
