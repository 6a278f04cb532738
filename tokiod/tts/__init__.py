"""The TOKIO Time Series (TTS) file: created, filled in place, grown, sealed and read. Independent of the daemon."""
