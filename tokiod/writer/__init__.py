"""The writer's process: the one loop that stores windows, and the maintenance of the archive."""
