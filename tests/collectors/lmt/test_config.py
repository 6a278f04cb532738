"""The section of a source: its errors and its collector."""

import datetime as dt
import re
from zoneinfo import ZoneInfo

import pytest

from collectors import lmt
from collectors.lmt import client_mysql
from tokiod.collector import Site
from tokiod.config import load as config
from tokiod.config.watched_folder import watched
from tokiod.errors import ConfigError
from tokiod.testing.clock import FakeClock
from tokiod.units import Duration
from tokiod.window import Calendar

SQLITE, MYSQL = "sqlite:///var/lib/lmt/copy.sqlite3", "mysql://lwatchclient@lmt1:3307/filesystem_lc1"


def section(url, **options):
    return lmt.Config(name="lc1-lmt", kind="lmt", system="lc1", url=url, **options)


@pytest.mark.parametrize("url", [SQLITE, MYSQL, "mysql://u@h/db", "mysql://u%40site@[::1]:3306/db"])
def test_urls_of_files_and_servers_are_right(url):
    assert section(url).faults() == []


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("mysql://u:hunter2@h/db", "url: must not contain a password"),
        ("mysql://u:hunter2/x@h/db", "url: is malformed; does it contain a password?"),
        ("mysql://h/db", "missing: user"),
        ("mysql://u@/db", "missing: host"),
        ("mysql://u@h", "missing: database"),
        ("mysql://", "missing: user, host, database"),
        ("mysql://u@h:0/db", "missing: port"),
        ("mysql://u@h:99999/db", "url: is malformed"),
        ("sqlite://var/lib/copy", "url: expected three slashes"),
        ("sqlite:copy", "url: expected three slashes"),
        ("postgres://u@h/db", 'url: expected "sqlite:///path" or'),
        ("/var/lib/copy.sqlite3", 'url: expected "sqlite:///path" or'),
        ("", 'url: expected "sqlite:///path" or'),
    ],
)
def test_a_wrong_url_is_one_fault_that_does_not_repeat_it(url, fault):
    (error,) = section(url).faults()
    assert fault in error
    assert "hunter2" not in error


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"timezone": "America/Los_Angles"}, "timezone"),
        ({"interval": Duration(0)}, "interval"),
        ({"read_timeout": Duration(0)}, "read_timeout"),
        ({"password_file": "a", "password_env": "B"}, "password_env"),
        ({"tls": True, "tls_cert": "a.pem"}, "tls_cert"),
        ({"tls_ca": "ca.pem"}, "tls"),
    ],
)
def test_invalid_options_are_reported_by_their_field(options, field):
    (error,) = section(MYSQL, **options).faults()
    assert error.startswith(f"{field}: ")


@pytest.mark.parametrize("options", [{"password_file": "a"}, {"password_env": "A"}, {"tls": True}])
def test_a_file_has_no_password_and_no_tls(options):
    assert section(SQLITE, **options).faults() == ["url: a SQLite file has no password and no TLS"]


def test_it_has_its_step_and_all_its_datasets():
    assert (section(SQLITE).step, section(SQLITE, interval=Duration(10)).step) == (5, 10)
    operations = "opens closes mknods links unlinks mkdirs rmdirs renames getxattrs statfss setattrs getattrs"
    assert section(SQLITE).datasets() == {
        *(f"datatargets/{name}" for name in ("readbytes", "writebytes")),
        *(f"dataservers/{name}" for name in ("cpuload", "memused")),
        *(f"fullness/{name}" for name in ("bytes", "bytestotal", "inodes", "inodestotal")),
        "mdservers/cpuload",
        *(f"mdtargets/{name}" for name in operations.split()),
    }


def test_a_configuration_file_may_hold_it(tmp_path):
    path = tmp_path / "tokiod.toml"
    head = f'timezone = "Europe/Berlin"\n[archive]\npath = "{tmp_path}/%Y-%m-%d/{{system}}.hdf5"\n'
    source = '[[source]]\nname = "lc1-lmt"\nkind = "lmt"\nsystem = "lc1"\nurl = "%s"\n%s\n'
    path.write_text(head + source % (MYSQL, 'password_file = "lmt"\nmdt_names = "host"\nread_timeout = "5s"'))
    (found,) = config.load(path).source
    assert found == section(MYSQL, password_file="lmt", mdt_names="host", read_timeout=Duration(5))
    path.write_text(head + source % (MYSQL, 'mdt_names = "mds"\nfilesytem = "lc1"'))
    with pytest.raises(ConfigError) as caught:
        config.load(path)
    assert [re.search(r"mdt_names|filesytem", fault)[0] for fault in caught.value.faults] == ["mdt_names", "filesytem"]


def test_a_password_is_not_shown_by_what_holds_it():
    server = client_mysql.Server("h", 1, "u", "db", 5, password=lambda: "hunter2", tls=lambda: None)
    assert "hunter2" not in repr(server) + str(server)


@pytest.mark.parametrize(
    ("setting", "system", "zone"),
    [
        ("SYSTEM", "UTC", ZoneInfo("UTC")),
        ("SYSTEM", "PST", None),
        ("SYSTEM", "EST", None),
        ("SYSTEM", "America/Denver", ZoneInfo("America/Denver")),
        ("Europe/Berlin", "UTC", ZoneInfo("Europe/Berlin")),
        ("+05:30", "UTC", dt.timezone(dt.timedelta(hours=5, minutes=30))),
        ("-08:00", "PST", dt.timezone(dt.timedelta(hours=-8))),
        ("SYSTEM", "Mars/Olympus", None),
        ("SYSTEM", "../../etc/passwd", None),
        ("SYSTEM", "", None),
    ],
)
def test_a_servers_zone_counts_if_it_is_one(setting, system, zone):
    assert client_mysql.zone(setting, system) == zone


def test_nothing_is_opened_before_the_first_window_is_collected(tmp_path):
    assert lmt.live(section((tmp_path / "not-there-yet").as_uri().replace("file", "sqlite")), Site(Calendar("UTC"), FakeClock()))
    assert list(tmp_path.iterdir()) == []


def test_the_memory_of_servers_is_a_percentage_live_and_saved():
    expected = {"dataservers/memused": "%", "mdservers/memused": "%"}
    assert (lmt.Config.units, lmt.Saved.units, watched(lmt.Saved).units) == (expected, expected, expected)


def loaded(tmp_path, max_rate):
    path = tmp_path / "tokiod.toml"
    path.write_text(
        f"""timezone = "UTC"
[archive]
path = "/var/lib/tokiod/%Y-%m-%d/{{system}}.hdf5"
[[source]]
name = "lc1-lmt"
kind = "lmt"
system = "lc1"
url = "{SQLITE}"
max_rate = {max_rate}
"""
    )
    (source,) = config.load(path).source
    return source.max_rates()


def test_a_counter_of_bytes_may_rise_by_50_gb_a_second_one_of_operations_by_ten_million():
    rates = section(SQLITE).max_rates()
    assert rates.pop("datatargets/readbytes") == rates.pop("datatargets/writebytes") == 5e10
    assert len(rates) == 12
    assert rates == {dataset: 1e7 for dataset in rates if dataset.startswith("mdtargets/")}
    assert lmt.Saved().max_rates() == section(SQLITE).max_rates()


def test_a_limit_that_is_not_given_keeps_its_default(tmp_path):
    rates = loaded(tmp_path, "{ operations = 5e6 }")
    assert (rates["datatargets/readbytes"], rates["mdtargets/opens"]) == (5e10, 5e6)
    assert loaded(tmp_path, "{ bytes = 100_000_000_000 }")["datatargets/writebytes"] == 1e11


@pytest.mark.parametrize(
    ("max_rate", "sentence"),
    [
        ("{ bytes = 0 }", "tokiod.toml:9: source lc1-lmt: max_rate.bytes: expected a number > 0.0"),
        ("{ operations = nan }", "tokiod.toml:9: source lc1-lmt: max_rate.operations: expected a number > 0.0"),
        ("{ bytes = inf }", "tokiod.toml:9: source lc1-lmt: max_rate.bytes: expected a number <= 1e+18"),
        ('{ bytes = "50 GB" }', "tokiod.toml:9: source lc1-lmt: max_rate.bytes: expected a number, got text in quotes"),
        ("{ byte = 5e10 }", "tokiod.toml:9: source lc1-lmt: max_rate.byte: unknown key, did you mean bytes?"),
        ("5e10", "tokiod.toml:9: source lc1-lmt: max_rate: expected a table, got a number"),
    ],
)
def test_a_wrong_limit_is_reported_with_its_line(tmp_path, max_rate, sentence):
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        loaded(tmp_path, max_rate)
