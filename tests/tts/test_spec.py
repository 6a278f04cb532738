import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.tts.schema import DATASETS, GROUPS
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

NAMES = ("readbytes", "writebytes", "readops")


@st.composite
def specs(draw):
    groups = {group: GroupSpec(5, draw(st.sampled_from(["lmt", "lustre"]))) for group in ("datatargets", "mdtargets")}
    datasets = draw(st.lists(st.sampled_from([f"{g}/{n}" for g in groups for n in NAMES]), unique=True))
    columns = st.lists(st.sampled_from("abcdef"), min_size=1, unique=True).map(tuple)
    return FileSpec(0, 60, groups, {dataset: MatrixSpec(draw(columns), dataset.startswith("d")) for dataset in datasets})


@given(specs(), specs())
def test_a_merged_spec_keeps_all_old_places_and_has_room_for_everything_new(old, new):
    merged = old.merged(new)
    assert merged.groups == old.groups
    assert merged.matrices.keys() == old.matrices.keys() | new.matrices.keys()
    for dataset, matrix in merged.matrices.items():
        before = old.matrices[dataset].columns if dataset in old.matrices else ()
        asked = new.matrices[dataset].columns if dataset in new.matrices else ()
        assert matrix.columns == before + tuple(c for c in asked if c not in before)


@given(specs(), specs())
def test_merging_the_same_twice_changes_nothing(old, new):
    merged = old.merged(new)
    assert merged.merged(new) is merged
    assert merged.merged(old) is merged


def test_a_contradiction_names_everything_that_differs():
    old = FileSpec(0, 60, {"datatargets": GroupSpec(5, "lmt")}, {"datatargets/readbytes": MatrixSpec(("a",), counter=True)})
    new = FileSpec(0, 120, {"datatargets": GroupSpec(10, "lmt")}, {"datatargets/readbytes": MatrixSpec(("a",), counter=False)})
    faults = [
        "the file spans [0, 60), not [0, 120)",
        "datatargets: rows are 5 s apart, not 10 s",
        "datatargets/readbytes: stored as counter, not gauge",
    ]
    with pytest.raises(ValueError, match=re.escape("; ".join(faults)) + "$"):
        old.merged(new)


@given(st.integers(1, 1000), st.integers(1, 100))
def test_there_is_a_row_for_every_second_of_the_span(length, step):
    if step > length:
        return
    spec = FileSpec(50, 50 + length, {"fullness": GroupSpec(step, "lustre")}, {})
    assert spec.rows("fullness") == len(range(50, 50 + length, step))


def test_matrices_are_ordered_as_in_files_whatever_order_they_were_given_in():
    matrices = {name: MatrixSpec(("a",), counter=False) for name in reversed(DATASETS)}
    spec = FileSpec(0, 60, {group: GroupSpec(5, "x") for group in GROUPS}, matrices)
    assert [dataset for dataset, _ in spec.ordered()] == list(DATASETS)


@pytest.mark.parametrize(
    ("groups", "matrices", "reason"),
    [
        ({"datatarget": 5}, {}, "unknown TTS group 'datatarget'"),
        ({"datatargets": 0}, {}, "datatargets: a step of 0 s in a file of 60 s"),
        ({"datatargets": 61}, {}, "datatargets: a step of 61 s in a file of 60 s"),
        ({"datatargets": 5}, {"datatargets/nonsense": ("a",)}, "unknown TTS dataset 'datatargets/nonsense'"),
        ({"datatargets": 5}, {"mdtargets/opens": ("a",)}, "mdtargets/opens: its group has no step"),
        ({"datatargets": 5}, {"datatargets/readops": ()}, "datatargets/readops: it has no columns"),
        (
            {"datatargets": 5},
            {"datatargets/readops": ("a", "a")},
            "datatargets/readops: a column name is empty, duplicate or has a NUL",
        ),
        (
            {"datatargets": 5},
            {"datatargets/readops": ("a", "")},
            "datatargets/readops: a column name is empty, duplicate or has a NUL",
        ),
        ({"datatargets": 5}, {"datatargets/readops": ("a\0",)}, "datatargets/readops: a column name is empty, duplicate or has a NUL"),
    ],
)
def test_what_no_file_can_hold_is_refused_with_its_name(groups, matrices, reason):
    with pytest.raises(ValueError, match=re.escape(reason) + "$"):
        FileSpec(
            0,
            60,
            {name: GroupSpec(step, "lmt") for name, step in groups.items()},
            {name: MatrixSpec(columns, counter=False) for name, columns in matrices.items()},
        )
