"""The command lines: `tokiod` and `tokioctl`."""
