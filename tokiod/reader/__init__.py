"""Read an archive: which files there are, and what is in them. No daemon is needed."""
