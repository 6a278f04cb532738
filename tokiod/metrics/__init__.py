"""All metrics, their types, and the memory-mapped files in which processes count."""
