"""A simulated site: real sources over synthetic load, for which every correct cell is known."""
