"""The section [jobs]: what is stored of users, and for how long. What jobs do comes from sources of kinds such as lustre_jobstats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from tokiod.config.convert import Fault
from tokiod.option import option
from tokiod.units import DurationOrNever

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "jobs"
_PROCESSES = "reload (the processes restart)"


class JobsConfig(msgspec.Struct, kw_only=True, frozen=True):
    """How the job table treats personal data, and how long days are kept."""

    users: Annotated[
        Literal["names", "hashed", "no"],
        option(
            "What is stored of users and commands, which are personal data: as job ids name them; hashed with the key, so that one user "
            "has one hash; or nothing. A job id that matches no format of jobid_name, or may be a command, is then stored as a hash too.",
            effect=_PROCESSES,
        ),
    ] = "names"
    key_file: Annotated[
        str | None,
        option(
            "The secret key of hashes, at least 16 characters; required for hashed users. Without the key it can't be computed which hash "
            "a user has. With another key users get other hashes.",
            '"jobs.key"',
            effect=_PROCESSES,
        ),
    ] = None
    retention: Annotated[
        DurationOrNever,
        option("How long a day of the job table is kept.", values='a time span, or "never" for no limit', effect="reload"),
    ] = DurationOrNever(400 * 86400)
    users_retention: Annotated[
        DurationOrNever,
        option(
            "How long users and commands are kept; then they are removed from a day, and its jobs stay.",
            values='a time span, or "never" for no limit',
            effect="reload",
        ),
    ] = DurationOrNever(90 * 86400)
    users_in: Annotated[
        tuple[Literal["page", "export"], ...],
        option(
            "Where users and commands are shown besides the commands of those who may read the files: on the page and in the API of "
            "`tokiod web`, and in what `tokioctl export` writes.",
            '["page", "export"]',
            values='any of "page" and "export"',
            effect="reload of tokiod web; at once for commands",
        ),
    ] = ()

    def users_of(self, place: Literal["page", "export"]) -> Literal["names", "hashed", "no"]:
        """Return what is shown of users in a place."""
        return self.users if place in self.users_in else "no"


def faults(jobs: JobsConfig) -> Iterator[Fault]:
    """Check that hashes have a key, and that a day outlives its users."""
    if jobs.users == "hashed" and jobs.key_file is None:
        yield Fault((KEY, "users"), "needs key_file: a hash without a key can be computed for every user name")
    if min(jobs.retention, jobs.users_retention) < 2 * 86400:
        short = "retention" if jobs.retention < 2 * 86400 else "users_retention"
        yield Fault((KEY, short), "must be at least two days: days are removed whole")
