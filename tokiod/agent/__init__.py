"""The agent: the sensors of one node. It needs the standard library alone, of Python 3.9 or newer."""
