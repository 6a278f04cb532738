"""One module for each command, and one for each table that a command prints."""
