"""The collectors' process: a poller for each source, retries, recounts, backfills, watched folders."""
