"""What else ran, by a slow reference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.analysis.concurrent_jobs import KEYS, RunJobs
from tokiod.reader.span import Span

JOB = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 5)).map(lambda job: (job[0], job[0] + job[1], job[2]))


@given(st.lists(JOB, max_size=8), st.integers(0, 30), st.integers(1, 12))
def test_a_job_counts_in_the_hours_of_the_span_in_which_it_ran(jobs, start, length):
    hours = {*range(start, start + length)}
    ran = [(len(hours & {*range(begin, end)}), nodes) for begin, end, nodes in jobs]
    found = RunJobs.of((begin * 3600, end * 3600, nodes) for begin, end, nodes in jobs).during(Span(start * 3600, (start + length) * 3600))
    figures = sum(both > 0 for both, _ in ran), sum(nodes for both, nodes in ran if both), sum(both * nodes for both, nodes in ran)
    assert found == dict(zip(KEYS, figures, strict=True))


def test_a_part_of_an_hour_is_that_part():
    assert RunJobs.of([(0, 90, 4)]).during(Span(60, 600))["jobsdb_concurrent_nodehrs"] == pytest.approx(120 / 3600)
