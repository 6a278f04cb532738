"""The archive: windows into TTS files, one file for each system and day."""
