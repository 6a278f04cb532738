"""The sentence of each log event, for people who read the journal or a terminal. Programs use the event's name and its fields.

A sentence begins with the source, if the event has one, and ends with how often the event occurred since the last line about it.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SENTENCES = {
    "backfill.broken": "the backfill failed by a fault in tokiod",
    "backfill.cancelled": "backfill {job} was cancelled",
    "backfill.done": "backfill {job} is done",
    "backfill.failed": "backfill {job} failed: {error}",
    "backfill.started": "backfill {job} of {span} has started",
    "backfill.waiting": "backfill {job} waits with {window}: {error}",
    "bus.connected": "connected to the writer, version {wire} of the wire, {in_flight} windows in flight",
    "bus.lost": "the connection to the writer was lost: {reason}; {in_flight} windows in flight",
    "bus.refused": "the writer refuses the collectors: {reason}",
    "child.died": "{child} ended with code {code}; it is started again in {restart_in} s",
    "child.hung": "{child} made no progress for {silent_for} s and was killed; its last status: {status}",
    "child.killed": "{child} did not stop within {after} s and was killed",
    "child.not_started": "{child} could not be started: {error}; it is tried again in {restart_in} s",
    "child.started": "{child} was started as process {pid}",
    "clock.jumped": "the wall clock jumped by {seconds} s",
    "collectors.ready": "the collectors are ready, {sources} sources",
    "collectors.stopped": "the collectors stopped; {unanswered} windows were not acknowledged",
    "collectors.stuck": "the collectors make no progress: {reason}",
    "config.failed": "the new configuration could not be applied: {error}",
    "config.refused": "the new configuration was refused and the old one stays: {faults}",
    "config.reloaded": "the configuration was reloaded: added {added}, removed {removed}, changed {changed}, restarted {restarted}",
    "config.warning": "configuration: {warning}",
    "control.failed": "the control socket {path} can't be served: {error}",
    "disk.low": "{free_mib} MiB are free at {path}, {daily_mib} MiB are used per day, {days_left} days are left: {reason}",
    "feed.accepted": "a subscriber at {address} was accepted",
    "feed.ended": "the feed ended: {reason}",
    "feed.overloaded": "the feed is overloaded: {reason}; {action}",
    "feed.ready": "the feed is ready at {endpoint}",
    "feed.refused": "a subscriber at {address} was refused: {reason}",
    "feed.stopped": "the feed stopped",
    "file.collected": "{path} was collected: {cells} cells, dropped {dropped}",
    "file.failed": "{path} can't be collected now: {error}",
    "file.gone": "{path} is gone: {reason}",
    "file.grown": "{path} has more columns",
    "file.made": "{path} was created",
    "file.not_grown": "{path} can't get more columns: {error}",
    "file.not_made": "{path} can't be created: {error}",
    "file.not_moved": "{path} can't be moved to the rejected files: {error}",
    "file.not_opened": "{path} can't be reopened: {error}",
    "file.not_sealed": "{path} can't be sealed: {error}",
    "file.not_synced": "{path} can't be synced: {error}",
    "file.older": "{path} is older than {number} collected files with samples of the same time, which are collected again: {newer}",
    "file.opened": "{path} was reopened",
    "file.rejected": "{path} was rejected: {reason}",
    "file.sealed": "{path} was sealed",
    "file.set_aside": "{path} was quarantined as {aside}: {reason}",
    "file.skipped": "{path} is left alone: {error}",
    "folder.broken": "the watched folder failed by a fault in tokiod",
    "folder.failed": "the watched folder can't be read: {error}",
    "folder.incomplete": "{path} is not watched completely: {reason}",
    "host.clock": "the clock of host {host} is {seconds} s ahead of that of the writer's host, the limit is {limit} s",
    "host.connected": "host {host} has connected from {address}, tokiod {version}, version {wire} of the wire",
    "host.disconnected": "host {host} is not connected to the writer's host: {reason}",
    "host.lost": "host {host} is {state}: {reason}",
    "host.refused": "a message of host {host} at {address} was refused, {reason}: {detail}",
    "host.welcome": "host {host} is connected to the writer's host, version {wire} of the wire",
    "hosts.accepted": "a host at {address} was accepted",
    "hosts.failed": "other hosts can't connect: {error}",
    "hosts.overloaded": "the relay is overloaded: {reason}; {action}",
    "hosts.refused": "a host at {address} was refused: {reason}",
    "hub.accepted": "an agent at {address} was accepted",
    "hub.ended": "the hub ended: {reason}",
    "hub.missing": "{nodes} of {known} nodes did not answer for {window}, such as {some}; tokioctl nodes --missing lists them",
    "hub.overloaded": "the hub is overloaded: {reason}; {action}",
    "hub.ready": "the hub is ready at {endpoint} for the classes {classes}",
    "hub.refused": "an agent at {address} was refused: {reason}",
    "hub.request_malformed": "a request to the hub is malformed: {error}",
    "hub.session": "node {node} has a new session from {newer}, the one before was from {older}, silent for {silent_for} s",
    "hub.stopped": "the hub stopped",
    "jobs.file_skipped": "{path} can't be read and is left out of the job table: {error}",
    "jobs.key_made": "a key of job ids was made, {path}: {reason}",
    "jobs.merged": "{files} files of job rows were merged into {path}",
    "jobs.not_merged": "the job rows of {path} could not be merged, {reason}: {error}",
    "jobs.removed": "the job rows of {path} were removed: {reason}",
    "ledger.failed": "the ledger can't be read or written: {error}",
    "ledger.file_skipped": "{path} proves nothing for the ledger: {error}",
    "ledger.lost": "the ledger {path} was lost: {reason}",
    "ledger.not_published": "the readers' copy of the ledger {path} can't be written: {error}",
    "ledger.rebuilt": "the ledger was rebuilt from {files} files, {windows} windows: {reason}",
    "ledger.set_aside": "the ledger {path} was quarantined as {aside}: {reason}",
    "maintenance.failed": "maintenance failed at {task} {path}: {error}",
    "metrics.connection_ended": "a connection to the metrics was ended: {reason}",
    "metrics.failed": "metrics: {reason}",
    "metrics.serving": "metrics are served at {address}",
    "orphan.killed": "process {pid} was left over and was killed: {command}",
    "process.crashed": "the process ended by a fault in tokiod",
    "reader.not_isolated": "{reason}",
    "records.dropped": "{records} records were dropped: {reason}, for example {example}; {remedy}",
    "recount.failed": "the recount failed: {error}",
    "relay.ended": "the relay ended: {reason}",
    "relay.ready": "the relay is ready for other hosts at {endpoint}",
    "relay.stopped": "the relay stopped",
    "reload.requested": "a reload was requested by process {pid} of user {uid}",
    "run.started": "tokiod {version}, configuration {config}, archive {archive}, {sources}",
    "secret.exposed": "{path} has mode {mode}: {hint}",
    "sink.broken": "sink {sink}: {error}",
    "sink.close_failed": "sink {sink} can't be closed",
    "sink.cursor_damaged": "the cursor {path} is damaged, and all rows are sent again: {error}",
    "sink.fatal": "sink {sink}: fatal: {reason}",
    "sink.file_damaged": "sink {sink}: the rows of {window} are not sent: {error}",
    "sink.from_files": "sink {sink} sends all rows of the files, because of: {reason}",
    "sink.ready": "sink {sink} is ready, kind {kind}",
    "sink.rejected": "sink {sink}: the receiver rejected {records} records: {reason}",
    "sink.removed": "sink {sink} is no longer configured, and its state {path} was removed",
    "sink.rewound": "sink {sink} sends all rows from {start} on again",
    "sink.stopped": "sink {sink} stopped",
    "sink.up": "sink {sink} sends again",
    "sink.waiting": "sink {sink}: waiting: {reason}",
    "source.down": "{state}: {reason}",
    "source.empty": "empty: {reason}",
    "source.fatal": "fatal: {reason}",
    "source.partial": "a part of it does not answer, the rest is stored: {reason}",
    "source.up": "running again",
    "stages.failed": "stages: {reason}",
    "web.failed": "{path} could not be answered: {reason}",
    "web.ready": "the archive is served at {address}",
    "web.stopped": "tokiod web stopped",
    "window.collected": "{window} was collected",
    "window.failed": "{window} failed: {error}",
    "window.grown": "{window} has {found} records instead of {records} and is collected again",
    "window.lost": "{window} is lost: {reason}",
    "window.not_yet": "{window} is not available yet: {reason}",
    "window.overcounted": "{window} has {found} records by count and returned {records}",
    "window.postponed": "{window} waits: {reason}",
    "window.refused": "the writer refused {window}: {reason}",
    "window.shrunk": "{window} has {found} records instead of {records}; nothing is replaced",
    "window.stored": "{window} was stored, {cells} cells",
    "writer.failed": "the writer can't start: {error}; {reason}",
    "writer.ready": "the writer is ready, archive {archive}",
    "writer.stopped": "the writer stopped",
}


class _Absent(string.Formatter):
    """Formats fields that an event does not have as a dash."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG002 - of string.Formatter
        value = kwargs.get(str(key))
        if isinstance(value, dict):
            return ", ".join(f"{count} {name}" for name, count in value.items()) or "nothing"
        if isinstance(value, (list, tuple, set, frozenset)):
            return ", ".join(map(str, value)) or "nothing"
        return "-" if value is None else value


def sentence(event: str, fields: Mapping[str, Any]) -> str:
    """Return the sentence of an event, of a library its own text. fields: of the event."""
    text = _Absent().vformat(SENTENCES[event], (), fields) if event in SENTENCES else event
    source, times = fields.get("source"), fields.get("times", 1)
    text = f"{source}: {text}" if source and event in SENTENCES else text
    return f"{text} ({times} times)" if isinstance(times, int) and times > 1 else text
