"""What collectors share: commands, saved files, gzip, worker processes, TLS."""
