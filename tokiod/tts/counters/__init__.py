"""Counters to cells: the rule of differences and the rows that a window can affect."""
