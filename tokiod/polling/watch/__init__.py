"""Watched folders: each file that is put into one is collected once, as `tokioctl archive` would."""
