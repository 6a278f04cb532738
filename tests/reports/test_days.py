"""How much of each of the site's days is stored, due and lost, by a real ledger."""

from commanded import configured, ledger_of, source
from ledger_entries import entry

from tokiod.config import load as configuration
from tokiod.reports.days import days
from tokiod.window import Window

DAY = 1_517_184_000
HOUR, WHOLE = 3600, 86400
NOW = DAY + 13 * HOUR + 30


def test_what_a_backfill_stored_of_the_time_before_the_registration_is_due_too(tmp_path):
    path = configured(tmp_path, source(), source("folder", system="hs", watch="/nowhere"))
    config = configuration.load(path)
    with ledger_of(path) as ledger:
        for one in config.source:
            ledger.register(one, DAY + 12 * HOUR)
        ledger.store([entry(DAY - WHOLE, DAY + 6 * HOUR, "one", system="fs")], DAY)
        ledger.lost("one", Window(DAY + 12 * HOUR, DAY + 12 * HOUR + 1800), "NoData", "gone", DAY)
        found = days(config.source[:1], ledger, config.calendar, Window(DAY - 2 * WHOLE, DAY + 2 * WHOLE), NOW)
        assert [(one.date, one.stored, one.due, one.lost) for one in found] == [
            ("2018-01-27", 0, 0, 0),
            ("2018-01-28", WHOLE, WHOLE, 0),
            ("2018-01-29", 6 * HOUR, 7 * HOUR, 1800),
            ("2018-01-30", 0, 0, 0),
        ]
        assert [one.due for one in days(config.source, ledger, config.calendar, Window(DAY, DAY + 1), NOW)] == [None, 7 * HOUR]
