"""A live file with more room, made at once: sinks make it in pieces, between windows (sinks.tts.rewrites)."""

from tokiod.tts.live.create import no_pause
from tokiod.tts.live.rewrite import GrowFile


def grow(live, spec, created):
    """Give a live file room for `spec` too; return the file to go on with. The given one is closed, unless this raises."""
    if (wider := live.spec.merged(spec)) is live.spec:
        return live
    growing = GrowFile(live, wider, created)
    try:
        growing.work(no_pause)
        grown = growing.finish()
    except Exception:
        growing.abandon()
        raise
    growing.release()
    return grown
