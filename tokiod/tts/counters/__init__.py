"""Counters to cells: the rule of differences and the rows that an update can affect."""
