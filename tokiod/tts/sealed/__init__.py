"""Sealed files: written, and opened up again."""
