"""For collectors: commands, saved files, gzip, worker processes, TLS."""
