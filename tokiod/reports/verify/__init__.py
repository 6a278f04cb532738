"""Verify: windows collected again into a scratch archive and compared with the archive, cell by cell."""
