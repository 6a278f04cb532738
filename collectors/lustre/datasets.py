"""What the outputs of both commands fill."""

FULLNESS = ("fullness/bytes", "fullness/bytestotal")
"""lfs df: used KiB and all."""
FAILOVER = ("failover/datatargets", "failover/mdtargets")
"""lctl dl -t: who is away from home."""
