"""A simulated LMT database."""
