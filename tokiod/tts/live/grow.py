"""Growing a live file: a wider one is made beside it, takes over every bit, and takes its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.tts.live.create import Plan, build, no_pause
from tokiod.tts.live.files import replacing
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.live.rewrite import Growing, content_of

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.tts.live.create import Pause
    from tokiod.tts.spec import FileSpec


def grow(live: LiveFile, spec: FileSpec, created: int, pause: Pause = no_pause) -> LiveFile:
    """Give a live file room for `spec` too; return the file to go on with, opened; the given one is closed.

    Nothing is done where there is room already. A kill at any step leaves the old or the new file whole. Raises ValueError where the
    specs contradict each other, FileLost or SyncFailed where the old file can't be trusted, OSError(ENOSPC); then `live` stays open.
    """
    wider = live.spec.merged(spec)
    if wider is live.spec:
        return live
    growing = Growing(live, wider, created)
    try:
        growing.work(pause)
        return growing.finish()
    except Exception:
        growing.abandon()
        raise


def copy(live: LiveFile, path: Path, spec: FileSpec, created: int, pause: Pause = no_pause) -> LiveFile:
    """Make a live file at `path`, in place of what is there, with the shape of `spec` and the bits of `live`; return it, opened.

    spec: live.spec or one that was merged with it.
    """
    with replacing(path, live.files) as temporary:
        build(temporary, Plan(spec, created, content_of(live), live.sealed_raw), live.files, pause)
    return LiveFile.open(path, live.files)
