"""The TOKIO Time Series (TTS) file: made, filled in place, grown, sealed and read. Knows nothing of the daemon."""
