"""Run lctl on every server at the same time: job_stats at each poll, job_cleanup_interval now and then."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from collectors.lustre_jobstats.config import SERVER
from tokiod.errors import CollectError, Fatal, Transient
from tokiod.toolkit.commands import Commands, CommandTimeout

if TYPE_CHECKING:
    from collectors.lustre_jobstats.config import Config

# Never read by path: job_stats moves between /proc, sysfs and debugfs.
_STATS = ("get_param", "obdfilter.*.job_stats", "mdt.*.job_stats")
_INTERVALS = ("get_param", "obdfilter.*.job_cleanup_interval", "mdt.*.job_cleanup_interval")
_INTERVAL = re.compile(
    rb"^(?:[A-Za-z0-9._-]{1,255}: )?(?:obdfilter|mdt)\.([!-~]{1,90}-(?:OST|MDT)[0-9a-f]{4})\.job_cleanup_interval=(\d{1,9})\r?$",
    re.MULTILINE,
)


# A server has OSTs or MDTs, so lctl complains about the pattern of the others and exits with an error. So its output counts, and the exit
# code only without output.
class ServerCommands:
    """The commands of one source, one per server at a time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._commands = Commands()

    async def job_stats(self) -> dict[str, bytes | CollectError]:
        """Return what each server printed, or why it did not."""
        outcomes = await asyncio.gather(*(self._run(server, _STATS) for server in self._config.servers), return_exceptions=True)
        return dict(zip(self._config.servers, map(_expected, outcomes), strict=True))

    async def cleanup_intervals(self, server: str) -> dict[str, int]:
        """Return the job_cleanup_interval of each target of a server in seconds, 0 for never. Raises CollectError."""
        return {found[1].decode(): int(found[2]) for found in _INTERVAL.finditer(await self._run(server, _INTERVALS))}

    async def close(self) -> None:
        """Wait for commands that are being killed."""
        await self._commands.close()

    async def _run(self, server: str, arguments: tuple[str, ...]) -> bytes:
        argv = [*(part.replace(SERVER, server) for part in self._config.lctl), *arguments]
        seconds = float(self._config.command_timeout)
        try:
            output = await self._commands.run(argv, key=server, seconds=seconds)
        except CommandTimeout as error:
            raise CommandTimeout(f"lctl on {server}: {error}") from None
        if output.code and not output.stdout.strip():
            complaint = f": {output.complaint}" if output.complaint else ""
            is_fatal = "permission denied" in complaint.lower() or "operation not permitted" in complaint.lower()
            raise (Fatal if is_fatal else Transient)(f"lctl on {server}: exit code {output.code}{complaint}")
        return output.stdout


def _expected(outcome: bytes | BaseException) -> bytes | CollectError:
    if isinstance(outcome, (bytes, CollectError)):
        return outcome
    raise outcome
