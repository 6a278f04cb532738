"""What a seed means: a site, how long it is simulated, and all that happens to it, as a list that can be shortened."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections.abc import Iterable

NIGHTS = {
    "UTC": 1_517_184_000,
    "America/Los_Angeles": 1_541_228_400,
    "Europe/Berlin": 1_521_846_000,
    "Asia/Kolkata": 1_517_164_200,
}
"""A midnight of each zone; two of them come the day before the clocks change: the second day has 24, 25, 23 and 24 hours."""
MEDIAN_HOURS, MAX_HOURS = 6.0, 40 * 24
EVENTS_PER_HOUR = 0.9
MIN_EVENTS, MAX_EVENTS = 3, 60

KINDS = {
    "kill writer": 6,
    "kill writer at an operation": 16,
    "kill writer at a statement": 5,
    "kill collectors": 5,
    "kill collectors at a statement": 4,
    "power loss": 5,
    "power loss at an operation": 10,
    "operation fails": 10,
    "statement fails": 4,
    "disconnection": 4,
    "network frozen": 3,
    "writer stopped for a while": 3,
    "clock jump": 3,
    "source sick": 8,
    "seal": 5,
    "reopen": 3,
    "backfill": 4,
    "backfill an old day": 5,
    "correction": 5,
    "restart": 2,
    "reload": 2,
    "remove file": 3,
    "damage file": 3,
    "foreign file": 1,
    "remove ledger": 1,
    "older ledger": 1,
}
"""What may happen, and how often of all."""
FOLDER_KINDS = {"put file": 7, "put file slowly": 2, "put held file": 1, "put malformed file": 1}
"""What also happens at a site with a watched folder, and how often of all."""
FOLDER_MORE_KINDS = {"put corrected file": 2, "put file at a start": 1}
"""What else happens at a site with a watched folder, and how often of all: these came later, so the older events of a seed stay."""
MORE_KINDS = {"kill writer at a kind of operation": 8, "disk sick": 2}
"""What also happens at a part of all sites, and how often of all: these came later as well."""
NAME_KINDS = {"kill writer before a name is durable": 1}
"""What also happens at NAMES of all sites."""
JOB_KINDS = {"server silent": 3}, {"server silent": 1, "clock jump": 3}, {"server silent": 1, "server clock jump": 3}
"""What also happens at sites with jobs, of one of these sorts: either the machine's clock jumps, or those of servers do."""
NODES, MAX_NODES_HOURS, MAX_NODES_WINDOW = 0.3, 12, 5400
"""The share of sites with compute nodes, the longest time because they have many windows, and the longest window of other sources: nodes
can be asked again for an hour."""
NODE_KINDS = {"node clock jump": 2, "node restart": 1, "agent restart": 2, "kill hub": 2, "detach disk": 4}
"""What also happens at sites with nodes, and how often of all."""
NODE_SECONDS = 3 * 3600
"""In which it happens."""
UNREADABLE = "job table unreadable"
"""What happens at half of the sites with jobs or nodes, MAX_UNREADABLE times at most."""
MAX_UNREADABLE = 4
NEW_KINDS = ("server silent", "server clock jump", *NODE_KINDS, UNREADABLE)
"""Of the last three, those that are not above."""
RARE_KINDS = {"remove ledger": 1, "older ledger": 1, "reload": 1, "remove file": 2}
"""Some of those above that most seeds do not have: they happen there, too."""
FOLLOWERS = ("reload", "restart", "kill writer", "kill collectors", "power loss", "kill writer at a kind of operation")
MORE, FOLLOWED = 0.6, 0.25
"""The share of these sites, and the share of their events that one of FOLLOWERS follows at once, or within MAX_FOLLOWS_SECONDS."""
MAX_FOLLOWS_SECONDS = 600.0
START_SECONDS = 10.0
"""A process that was killed has certainly started again by then."""
SWARM = (0.0, 0.0, 0.5, 1.0, 8.0)
"""Factors of these shares, drawn for each kind and seed: a seed in which a few kinds are frequent goes deeper into their combinations."""
NAMES, MAX_NAMES = 0.3, 3
"""The share of sites with events of NAME_KINDS, and how many there are at most."""
FOLDERS = 0.3
"""The share of sites with a watched folder."""
JOBS, MAX_JOBS_WINDOW = 0.3, 14400
"""The share of sites with jobs, and the longest window with which they are polled, in seconds."""
MOMENTARY, MAX_MOMENTARY_HOURS = 0.3, 60
"""The share of sites with a source without a past, and the longest time, because it has many windows."""
AROUND_MIDNIGHT = frozenset({"seal", "source sick", "correction", "remove file", "reopen", "kill writer"})
"""What matters most where one day follows another: half of these happen within two hours of a midnight that is simulated."""


@dataclass(frozen=True, order=True)
class Event:
    """Something that happens. at: seconds after the beginning; number: chooses among what it may happen to, whatever that is then."""

    at: float
    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.at:.0f} {self.kind} {self.number}"


@dataclass(frozen=True)
class Plan:
    """A site and its fate. old_midnight: the beginning of a day that only a backfill reaches; first_midnight: of the data that are polled;
    begin: epoch seconds.
    """

    seed: int
    zone: str
    old_midnight: int | None
    first_midnight: int
    begin: int
    hours: float
    step: int
    window: int
    systems: int
    columns: int
    faults: float
    max_step: float
    has_folder: bool
    has_jobs: bool
    has_momentary: bool
    has_nodes: bool
    events: tuple[Event, ...]

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Return the plan of a seed."""
        rng = random.Random(f"plan/{seed}")
        hours = min(MAX_HOURS, max(1.0, rng.lognormvariate(0.0, 1.2) * MEDIAN_HOURS))
        past = rng.choice((1, 1, 1, 2, 3, 20)) if hours < 60 else 1
        step = 3600 if past > 3 or hours > 96 else rng.choice((900, 1800)) if hours > 20 else rng.choice((600, 900, 1800))
        window = step * rng.choice((2, 4, 6)) * (3 if past > 3 or hours > 96 else 1)
        zone = rng.choice(tuple(NIGHTS))
        calendar, day = Calendar(zone), None
        day = calendar.day(NIGHTS[zone] - rng.choice((0, 0, 1, past)) * 86400 + 43200)
        last = day
        for _ in range(past):
            last = calendar.day(last.end)
        # Most of what is intricate happens at midnight.
        begin = last.end - int(rng.random() * min(hours, 20) * 3600) if hours < 48 else last.start + rng.randrange(80000)
        count = min(MAX_EVENTS, max(MIN_EVENTS, int(hours * EVENTS_PER_HOUR * rng.choice((0.3, 1, 1, 3)))))
        weights = [weight * rng.choice(SWARM) for weight in KINDS.values()]
        chosen = rng.choices(tuple(KINDS), weights if any(weights) else tuple(KINDS.values()), k=count)
        events = sorted(Event(_when(rng, kind, hours, last.end - begin), kind, rng.randrange(2**32)) for kind in chosen)
        # Out of reach of polling, which goes back as far as it is simulated, half a day and a few windows more.
        gap = 4 + int(hours / 24) + (window > 43200)
        old = calendar.day(day.start - gap * 86400 + 43200).start if rng.random() < 0.4 else None
        folder = random.Random(f"folder/{seed}")
        has_folder = folder.random() < FOLDERS
        if has_folder:
            count = min(40, max(3, int(hours / 2)))
            kinds = folder.choices(tuple(FOLDER_KINDS), tuple(FOLDER_KINDS.values()), k=count)
            events = sorted([*events, *(Event(folder.random() * hours * 3600, kind, folder.randrange(2**32)) for kind in kinds)])
        events = sorted([*events, *_more(random.Random(f"more/{seed}"), hours, events)])
        if has_folder:
            folder = random.Random(f"folder/more/{seed}")
            kinds = folder.choices(tuple(FOLDER_MORE_KINDS), tuple(FOLDER_MORE_KINDS.values()), k=min(12, max(2, int(hours / 3))))
            events = sorted([*events, *(Event(folder.random() * hours * 3600, kind, folder.randrange(2**32)) for kind in kinds)])
        names = random.Random(f"names/{seed}")
        kinds = names.choices(tuple(NAME_KINDS), tuple(NAME_KINDS.values()), k=names.randint(1, MAX_NAMES) if names.random() < NAMES else 0)
        events = sorted([*events, *(Event(names.random() * hours * 3600, kind, names.randrange(2**32)) for kind in kinds)])
        has_jobs = random.Random(f"jobs/{seed}").random() < JOBS and window <= MAX_JOBS_WINDOW
        events = sorted([*events, *(_of_jobs(random.Random(f"jobs/events/{seed}"), hours) if has_jobs else ())])
        nodes = random.Random(f"nodes/{seed}")
        has_nodes = nodes.random() < NODES and hours <= MAX_NODES_HOURS and window <= MAX_NODES_WINDOW
        events = sorted([*events, *(_of_nodes(nodes, hours) if has_nodes else ())])
        reads = random.Random(f"reads/{seed}")
        times = reads.choice((0, reads.randint(1, MAX_UNREADABLE))) if has_jobs or has_nodes else 0
        events = sorted([*events, *(Event(reads.random() * hours * 3600, UNREADABLE, reads.randrange(2**32)) for _ in range(times))])
        return cls(
            seed=seed,
            zone=zone,
            old_midnight=old,
            first_midnight=day.start,
            begin=begin - begin % 60,
            hours=hours,
            step=step,
            window=window,
            systems=rng.choice((1, 1, 2, 3)),
            columns=rng.choice((1, 2, 3)),
            faults=rng.choice((0.0, 0.01, 0.05)),
            max_step=rng.choice((0.0, 0.0, 60.0)),
            has_folder=has_folder,
            has_jobs=has_jobs,
            has_momentary=random.Random(f"momentary/{seed}").random() < MOMENTARY and hours <= MAX_MOMENTARY_HOURS,
            has_nodes=has_nodes,
            events=tuple(events),
        )

    def only(self, events: Iterable[Event]) -> Plan:
        """Return the plan with fewer events."""
        return replace(self, events=tuple(events))

    @property
    def end(self) -> int:
        """Epoch seconds after which nothing happens and the sources hold no more: the end of a window."""
        return Calendar(self.zone).window(int(self.begin + self.hours * 3600), self.window).end


def _of_jobs(rng: random.Random, hours: float) -> list[Event]:
    """Return the events that sites with jobs have besides."""
    shares = rng.choice(JOB_KINDS)
    kinds = rng.choices(tuple(shares), tuple(shares.values()), k=min(8, max(2, int(hours / 3))))
    return [Event(rng.random() * hours * 3600, kind, rng.randrange(2**32)) for kind in kinds]


def _of_nodes(rng: random.Random, hours: float) -> list[Event]:
    """Return the events that sites with nodes have besides."""
    kinds = rng.choices(tuple(NODE_KINDS), tuple(NODE_KINDS.values()), k=rng.randint(2, 8))
    return [Event(rng.random() * min(hours * 3600, NODE_SECONDS), kind, rng.randrange(2**32)) for kind in kinds]


def _more(rng: random.Random, hours: float, events: list[Event]) -> list[Event]:
    """Return the events that are added to older ones."""
    if rng.random() >= MORE:
        return []
    shares = {**MORE_KINDS, **RARE_KINDS}
    kinds = rng.choices(tuple(shares), tuple(shares.values()), k=min(12, max(2, int(hours / 3))))
    more = [Event(rng.random() * hours * 3600, kind, rng.randrange(2**32)) for kind in kinds]
    # What operators do matters most while a process starts.
    starts = [event.at - rng.random() * START_SECONDS for event in more if event.kind in RARE_KINDS and rng.random() < 0.5]
    more += [Event(max(0.0, at), "kill writer", rng.randrange(2**32)) for at in starts]
    for event in [*events, *more]:
        if rng.random() < FOLLOWED:
            at = event.at + rng.random() * rng.choice((10.0, MAX_FOLLOWS_SECONDS))
            more.append(Event(min(at, hours * 3600), rng.choice(FOLLOWERS), rng.randrange(2**32)))
    return more


def _when(rng: random.Random, kind: str, hours: float, midnight: float) -> float:
    """Return when an event happens. midnight: seconds after the beginning."""
    if kind in AROUND_MIDNIGHT and rng.random() < 0.5 and 0 < midnight < hours * 3600:
        return min(hours * 3600, max(0.0, midnight + rng.uniform(-3600, 7200)))
    return rng.random() * hours * 3600
