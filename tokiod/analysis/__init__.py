"""Answers to questions about the archive: what a day or a job read and wrote. No daemon is needed."""
