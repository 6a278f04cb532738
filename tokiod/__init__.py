"""tokiod: a complete, correct, always readable archive of what an HPC centre's storage did."""

__version__ = "0.1.0"
