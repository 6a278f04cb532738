"""Why cells are missing, of datasets that are computed from those of several sources."""

import numpy as np
import pytest
from web_site import CONFIG, LOST, NOW, ROWS, START, STEP, window

from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.reader.span import Span
from tokiod.web.absence import Absence
from tokiod.web.matrix import LOST as LOST_FLAG
from tokiod.web.matrix import MISSING as MISSING_FLAG
from tokiod.web.matrix import NOT_DUE, Reason
from tokiod.window_data import WindowMeta

OTHER = """\
[[source]]
name = "two"
kind = "lmt"
system = "fs2"
url = "sqlite:///none"
window = "60s"
settle = "75s"
"""


def test_a_cell_of_several_sources_is_lost_and_not_due_with_that_of_either(tmp_path):
    path = tmp_path / "tokiod.toml"
    path.write_text(CONFIG.format(tmp_path, tmp_path / "http") + OTHER)
    config = configuration.load(path)
    config.archive.ledger.parent.mkdir(parents=True)
    with Ledger.open(config.archive.ledger) as ledger:
        for source, first in zip(config.source, (LOST[0], 0), strict=True):
            ledger.register(source, START)
            ledger.lost(source.name, window(first, first + 12), "NoData", f"{source.name} deleted it", NOW)
            for lower, upper in ((0, first), (first + 12, ROWS - 12)):
                if lower < upper:
                    meta = WindowMeta(source.name, "lmt", source.system, window(lower, upper))
                    ledger.store([StoredEntry(meta, 10)], START + upper * STEP)
    span = Span(START, NOW + 60)
    of_both, one, two = (
        Absence.read(config.archive.ledger, sources, config.calendar, span, NOW) for sources in (config.source, *zip(config.source))
    )
    lost = [
        Reason(START + first * STEP, START + (first + 12) * STEP, "lost", f"{name} deleted it")
        for name, first in (("two", 0), ("one", LOST[0]))
    ]
    assert [reason for reason in of_both.why if reason.state == "lost"] == lost
    assert set(of_both.why) == {*one.why, *two.why}
    assert (one.due, two.due, of_both.due) == (START + ROWS * STEP, START + (ROWS - 12) * STEP, START + (ROWS - 12) * STEP)
    assert of_both.stored == (one.stored[0] + two.stored[0], START + (ROWS - 12) * STEP)
    assert Absence.read(config.archive.ledger, (), config.calendar, span, NOW) == Absence((), int(NOW))


@pytest.mark.parametrize(("is_counter", "flags"), [(False, "..LL..NN"), (True, ".LLL.NNN")])
def test_a_difference_is_lost_or_not_due_with_the_sample_at_either_of_its_edges(is_counter, flags):
    times = START + STEP * np.arange(8)
    absence = Absence((Reason(START + 2 * STEP, START + 4 * STEP, "lost", "deleted"),), START + 6 * STEP)
    found = absence.flags(times, STEP, is_counter=is_counter)
    assert found.tolist() == [{".": MISSING_FLAG, "L": LOST_FLAG, "N": NOT_DUE}[flag] for flag in flags]


def test_a_gap_that_is_collected_again_is_missing_and_not_lost():
    absence = Absence((Reason(START, START + 4 * STEP, "gap", "timeout"),), START + 8 * STEP)
    assert absence.flags(START + STEP * np.arange(3), STEP, is_counter=True).tolist() == [MISSING_FLAG] * 3
