"""One package per kind of source; its name is the `kind` of the configuration.

All kinds have the same modules:

config           what a [[source]] and `tokioctl archive` take
datasets         which datasets it fills, and with what
collector        live data: fetch, parse and join, one window at a time
client, command  fetch, over a network or by running a command
parse            pure: bytes to values; several modules where there are several formats
to_batches       pure: values to batches
saved_files      saved inputs, one window at a time
"""
