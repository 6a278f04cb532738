"""The datasets that the outputs of both commands fill."""

FULLNESS = ("fullness/bytes", "fullness/bytestotal")
"""lfs df: used and total KiB."""
FAILOVER = ("failover/datatargets", "failover/mdtargets")
"""lctl dl -t: 1 where a target is served by another server than its home."""
