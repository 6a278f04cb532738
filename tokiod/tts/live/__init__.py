"""Live files: created, filled in place, grown."""
