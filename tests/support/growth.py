"""Whether the time of a parser grows with its input, and not with the square of it."""

import time

import pytest

ROUNDS, MAX_SECONDS = 8, 20.0
"""A square takes sixteen times as long in each of them; so much processor time shows it in fewer."""
LEAST_SECONDS = 0.02


def seconds(run, argument):
    """Return the seconds of processor time of run(argument)."""
    begun = time.process_time()
    run(argument)
    return time.process_time() - begun


def check(run, short, long):
    """Fail if run(long), of four times the length, takes more than eight times as long as run(short).

    The shortest of some rounds counts: other processes slow some of them.
    """
    took = []
    while len(took) < ROUNDS and sum(b for _, b in took) < MAX_SECONDS:
        took.append((seconds(run, short), seconds(run, long)))
        if min(b for _, b in took) < 8 * max(min(a for a, _ in took), LEAST_SECONDS):
            return
    pytest.fail(f"seconds of n and 4n: {took}")
