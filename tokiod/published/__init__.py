"""What processes publish of themselves: a file each, which commands, metrics and other processes read while they run, and after."""
