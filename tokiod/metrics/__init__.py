"""All metrics, their types, and the memory-mapped files that processes count in."""
