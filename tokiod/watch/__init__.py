"""Watched folders: whatever is put into one is collected, once, as `tokioctl archive` would.

stanza.py    a [[source]] with `watch`: the folder, and the kind's options for saved files
folder.py    which files have come: inotify, and a look at everything now and then
received.py  the ledger's record of them, by content
intake.py    a file in, windows out, and what becomes of a file that is no such thing
"""
