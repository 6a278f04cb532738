"""The record of the seeds that were played adds up over sessions and commits."""

from types import SimpleNamespace

from tests.simulation.tally import MAX_SEEDS, Run, add, parts, runs_of, summary


def run(begin, seeds, commit="abc", failed=(), **injected):
    return Run(begin=begin, seeds=seeds, commit=commit, failed=list(failed), days=2.5, processor=10.0, injected=injected)


def test_seeds_that_follow_on_the_same_commit_become_part_of_the_run(tmp_path):
    path = tmp_path / "runs.jsonl"
    for one in (run(100, 20, seal=1), run(120, 20, failed=[121], reopen=2, seal=3), run(140, 20, "def"), run(200, 20, "def")):
        add(path, one)
    assert [(one.begin, one.seeds, one.commit, one.failed) for one in runs_of(path)] == [
        (100, 40, "abc", [121]),
        (140, 20, "def", []),
        (200, 20, "def", []),
    ]
    assert (runs_of(path)[0].injected, runs_of(path)[0].days) == ({"reopen": 2, "seal": 4}, 5.0)
    assert [one.name for one in tmp_path.iterdir()] == ["runs.jsonl"]


def test_no_run_is_longer_than_the_longest(tmp_path):
    path = tmp_path / "runs.jsonl"
    add(path, run(0, MAX_SEEDS))
    add(path, run(MAX_SEEDS, 1))
    assert [one.seeds for one in runs_of(path)] == [MAX_SEEDS, 1]


def test_the_sum_names_what_ran_on_the_present_commit_and_which_failures_are_kept(tmp_path):
    runs = [run(0, 100, failed=[3, 5], seal=1), run(100, 50, "def", seal=2, reopen=1)]
    assert summary(runs, kept=[5, 9], commit="def").splitlines() == [
        "seeds 150 failed 2, kept of these 1 days 5.0 days_per_processor_hour 900",
        "of these on def: seeds 50 failed 0",
        "injected in all: reopen 1, seal 3",
    ]
    assert summary(runs_of(tmp_path / "none"), kept=[], commit="def").startswith("seeds 0 failed 0")


def test_parts_come_complete_and_in_the_order_of_their_seeds():
    order = [0, 2, *range(20, 40), *range(3, 20), *range(44, 46), 1, *range(40, 44)]
    outcomes = [SimpleNamespace(plan=SimpleNamespace(seed=1000 + seed)) for seed in order]
    seeds = [[outcome.plan.seed for outcome in part] for part in parts(outcomes, range(1000, 1046))]
    assert seeds == [list(range(1000, 1020)), list(range(1020, 1040)), list(range(1040, 1046))]
    assert [len(part) for part in parts(outcomes[:-1], range(1000, 1046))] == [20, 20]
