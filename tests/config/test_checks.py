import datetime as dt
import errno
from zoneinfo import available_timezones

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tokiod.collector import SourceConfig
from tokiod.config import checks
from tokiod.config.convert import Fault
from tokiod.units import Duration

AT = ("source", 0)


class Source(SourceConfig):
    """A source whose every answer is a field."""

    every: int = 5
    fills: tuple[str, ...] = ("datatargets/readbytes",)
    wrong: tuple[str, ...] = ()
    named: tuple[tuple[str, int], ...] = ()

    @property
    def step(self):
        return self.every

    def datasets(self):
        return frozenset(self.fills)

    def columns(self):
        return dict(self.named)

    def faults(self):
        return list(self.wrong)


def source(**changes):
    return Source(**{"name": "a", "kind": "k", "system": "s"} | changes)


@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Asia/Kathmandu"])
def test_a_time_zone_that_exists_is_fine(zone):
    assert list(checks.timezone(zone, ("timezone",))) == []


@pytest.mark.parametrize(
    ("zone", "nearest"),
    [("Europe/Berlyn", ", did you mean Europe/Berlin?"), ("America", ""), ("../passwd", ""), ("", ""), ("\0", ""), ("zone.tab", "")],
)
def test_a_time_zone_that_does_not_exist_is_told_with_the_nearest(zone, nearest):
    (fault,) = checks.timezone(zone, ("timezone",))
    assert fault.key == ("timezone",)
    assert fault.sentence.startswith(f"unknown time zone {zone!r}")
    assert fault.sentence.endswith(nearest)


@pytest.mark.parametrize(
    "path",
    [
        "/tts/%Y-%m-%d/{system}.hdf5",
        "/tts/{system}/%Y/%j",
        "/tts/%F{system}",
        "/tts/%s-{system}",
        "/tts/%G-W%V-%u/{system}.%%.hdf5",
        "/tts/%y%m%d/{system}/{system}",
    ],
)
def test_a_template_that_tells_days_and_systems_apart_is_fine(path):
    assert list(checks.template(path, ("archive", "path"), {"a", "ab", "b"})) == []


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        (
            "/tts/%m-%d/{system}",
            "no file for each day: 2024-01-01 of a and 2025-01-01 of a would both be /tts/01-01/a",
        ),
        (
            "/tts/%Y-%d/{system}",
            "no file for each day: 2024-01-01 of a and 2024-02-01 of a would both be /tts/2024-01/a",
        ),
        (
            "/tts/{system}.hdf5",
            "no file for each day: 2024-01-01 of a and 2024-01-02 of a would both be /tts/a.hdf5",
        ),
        (
            "/tts/%Y%-m%-d/{system}",
            "no file for each day: 2024-01-11 of a and 2024-11-01 of a would both be /tts/2024111/a",
        ),
        ("/tts/%Y-%m-%d.hdf5", "has no {system}: all systems would share a file"),
        ("/tts/{date}/{system}", "unknown field {date}: the only field is {system}; write the day as %Y-%m-%d"),
        ("/tts/%Y%m%d/{{system}}", "unknown field {, }: the only field is {system}; write the day as %Y-%m-%d"),
        ("/tts/%Y%m%d/{system", "unknown field {: the only field is {system}; write the day as %Y-%m-%d"),
        ("tts/%Y%m%d/{system}", "expected an absolute path, got 'tts/%Y%m%d/{system}'"),
        ("/tts/%Y%m%d/\0{system}", "expected a path of printable characters, got '/tts/%Y%m%d/\\x00{system}'"),
    ],
)
def test_a_template_that_does_not_is_refused(path, sentence):
    assert list(checks.template(path, ("archive", "path"), {"a"})) == [Fault(("archive", "path"), sentence)]


def test_systems_whose_names_run_into_the_date_are_told():
    (fault,) = checks.template("/tts/%Y-%m-%-d{system}", ("archive", "path"), {"x", "1x"})
    assert fault.sentence.startswith("no file for each day: ")
    assert {word for word in fault.sentence.split() if word in ("x", "1x")} == {"x", "1x"}


@pytest.mark.parametrize(
    ("bus", "feed"),
    [
        ("ipc:///run/tokiod/bus", "ipc:///run/tokiod/feed"),
        ("ipc:///run/tokiod/bus", "tcp://127.0.0.1:5556"),
        ("ipc:///x", "tcp://[::1]:65535"),
        ("ipc:///x", "tcp://localhost:1"),
    ],
)
def test_endpoints_of_this_machine_are_valid(bus, feed):
    assert list(checks.endpoints(bus, feed)) == []


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:5555", "tcp://0.0.0.0:5555", "tcp://name", "tcp://u:p@127.0.0.1:5555"])
@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_bus_on_tcp_is_refused_and_host_is_named_instead(endpoint, is_keyed):
    sentence = "the bus is a Unix socket: use ipc, and [[host]] for sources that other hosts collect (docs/hosts.md)"
    assert list(checks.endpoints(endpoint, "ipc:///x", is_keyed=is_keyed)) == [Fault(("bus", "endpoint"), sentence)]


CURVE = "tcp beyond loopback needs keys: set secret_key_file (docs/security.md), or use ipc or 127.0.0.1"
SHAPE = 'expected "ipc:///an/absolute/path" or "tcp://127.0.0.1:PORT"'
PORT = 'expected a port, as in "tcp://127.0.0.1:5556"'


@pytest.mark.parametrize(
    ("endpoint", "sentence"),
    [
        ("tcp://10.0.0.1:5555", CURVE),
        ("tcp://0.0.0.0:5555", CURVE),
        ("tcp://*:5555", CURVE),
        ("tcp://host.example:5555", CURVE),
        ("tcp://u:p@127.0.0.1:5555", CURVE),
        ("tcp://127.0.0.1", PORT),
        ("tcp://127.0.0.1:*", PORT),
        ("tcp://127.0.0.1:0", PORT),
        ("tcp://127.0.0.1:123456", PORT),
        ("tcp://127.0.0.1:65536", PORT),
        ("tcp://127.0.0.1:5555/x", PORT),
    ],
)
def test_a_feed_that_strangers_reach_or_nobody_does_is_refused(endpoint, sentence):
    assert list(checks.endpoints("ipc:///x", endpoint)) == [Fault(("feed", "endpoint"), sentence)]


@pytest.mark.parametrize("endpoint", ["ipc://run/bus", "ipc://@abstract", "ipc:///run/", "ipc:///run/\0", "inproc://bus", "/run/bus", ""])
def test_an_endpoint_that_is_no_path_is_refused_and_tcp_is_named_for_the_feed_alone(endpoint):
    assert list(checks.endpoints(endpoint, "ipc:///x")) == [Fault(("bus", "endpoint"), SHAPE.partition(" or ")[0])]
    assert list(checks.endpoints("ipc:///x", endpoint)) == [Fault(("feed", "endpoint"), SHAPE)]


@pytest.mark.parametrize("endpoint", ["tcp://10.0.0.1:5555", "tcp://0.0.0.0:5555", "tcp://[::]:5555", "tcp://127.0.0.1:5555"])
def test_with_keys_a_feed_may_be_reached_by_strangers(endpoint):
    assert list(checks.endpoints("ipc:///x", endpoint, is_keyed=True)) == []
    beyond = [] if "127" in endpoint else [Fault(("feed", "endpoint"), CURVE)]
    assert list(checks.endpoints("ipc:///x", endpoint)) == beyond


@pytest.mark.parametrize(
    "endpoint", ["tcp://*:5555", "tcp://host.example:5555", "tcp://u:p@127.0.0.1:5555", "tcp://eth0:5555", "tcp://:5555"]
)
def test_even_with_keys_names_are_not_looked_up(endpoint):
    sentence = 'expected an IP address of this machine, "0.0.0.0" for all; names are not resolved'
    assert list(checks.endpoints("ipc:///x", endpoint, is_keyed=True)) == [Fault(("feed", "endpoint"), sentence)]


@pytest.mark.parametrize(
    ("named", "faults"),
    [
        ({"a": None, "b": None}, []),
        ({"a": "x", "b": "y"}, []),
        ({"a": "x", "b": None}, [Fault(("feed", "b"), "missing: it is needed together with a", ("feed", "a"))]),
        ({"a": "", "b": "y"}, [Fault(("feed", "a"), "missing: it is needed together with b", ("feed", "b"))]),
    ],
)
def test_keys_that_go_together_are_all_named_or_none(named, faults):
    assert list(checks.keys("feed", named)) == faults


@pytest.mark.parametrize("feed", ["ipc:///run/x", "ipc:///run/tokiod/..//x"])
def test_one_endpoint_for_bus_and_feed_is_refused(feed):
    assert list(checks.endpoints("ipc:///run/x", feed)) == [
        Fault(("feed", "endpoint"), "the bus and the feed have the same endpoint", ("bus", "endpoint"))
    ]


HUB, METRICS = ("hub", "endpoint"), ("metrics", "address")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("tcp://10.0.0.1:5", "tcp://10.0.0.1:5"),
        ("tcp://0.0.0.0:5", "127.0.0.1:5"),
        ("tcp://127.0.0.1:5", "0.0.0.0:5"),
        ("tcp://[::]:5", "[::1]:5"),
        ("tcp://[::1]:5", "[0::1]:5"),
        ("tcp://localhost:5", "127.0.0.1:5"),
        ("ipc:///run/tokiod/feed", "/run//tokiod/feed"),
    ],
)
def test_of_sockets_at_one_address_the_second_is_refused(one, two):
    (fault,) = checks.listeners({HUB: one, METRICS: two})
    assert (fault.key, fault.other, fault.sentence[:26]) == (METRICS, HUB, "[hub] has the same address")


def test_sockets_at_different_addresses_are_valid_and_no_address_is_compared_that_is_invalid():
    apart = ("tcp://10.0.0.1:5", "10.0.0.2:5", "10.0.0.1:6", "[::]:5", "/run/a", "ipc:///run/b", "tcp://name:5", "10.0.0.1", "")
    assert list(checks.listeners({("x", at): at for at in apart})) == []


def test_the_longest_socket_path_is_the_longest_that_zeromq_binds(tmp_path):
    path = f"{tmp_path}/ä"
    longest = f"ipc://{path}" + "x" * (checks.MAX_IPC_PATH_BYTES - len(path.encode()))
    assert list(checks.endpoints(longest, "ipc:///x")) == []
    assert list(checks.endpoints(longest + "x", "ipc:///x")) == [
        Fault(("bus", "endpoint"), "the path of a socket has at most 107 bytes, this one has 108")
    ]
    with zmq.Context() as context, context.socket(zmq.PUB) as socket:
        socket.bind(longest)
        with pytest.raises(zmq.ZMQError) as caught:
            socket.bind(longest + "x")
    assert caught.value.errno == errno.ENAMETOOLONG


def test_a_source_as_the_design_has_it_is_fine():
    assert list(checks.source(source(), AT, "America/Los_Angeles")) == []


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"name": "-a"}, [Fault((*AT, "name"), "expected letters, digits, '_', '.' and '-', a letter or digit first, got '-a'")]),
        ({"system": "a/b"}, [Fault((*AT, "system"), "expected letters, digits, '_', '.' and '-', a letter or digit first, got 'a/b'")]),
        ({"system": ""}, [Fault((*AT, "system"), "expected letters, digits, '_', '.' and '-', a letter or digit first, got ''")]),
        ({"timeout": Duration(0)}, [Fault((*AT, "timeout"), "must be greater than zero")]),
        ({"window": Duration(0)}, [Fault((*AT, "window"), "window (0 s) and step (5 s) must be greater than zero")]),
        ({"every": 0}, [Fault((*AT, "window"), "window (60 s) and step (0 s) must be greater than zero")]),
        ({"every": 7}, [
            Fault((*AT, "window"), "60 s is not a multiple of the source's step of 7 s"),
            Fault(AT, "steps of 7 s do not divide the days of America/Los_Angeles, which begin and end at multiples of 3600 s (UTC)"),
        ]),
        ({"window": Duration(420)}, [Fault((*AT, "window"), "24 h must be a whole number of windows of 420 s; 400 s or 450 s would do")]),
        ({"window": Duration(2 * 86400)}, [Fault((*AT, "window"), "24 h must be a whole number of windows of 172800 s; 86400 s would do")]),
        ({"retention": Duration(30)}, [Fault((*AT, "retention"), "30 s is shorter than the window of 60 s")]),
        ({"wrong": ("name: is odd", "url: is: odd", "no field: of this", "plain")}, [
            Fault((*AT, "name"), "is odd"), Fault(AT, "url: is: odd"), Fault(AT, "no field: of this"), Fault(AT, "plain"),
        ]),
    ],
)  # fmt: skip
def test_a_source_that_is_wrong_by_itself_is_told(changes, faults):
    assert list(checks.source(source(**changes), AT, "America/Los_Angeles")) == faults


@pytest.mark.parametrize(
    ("zone", "grid"),
    [
        ("UTC", 86400),
        ("America/Los_Angeles", 3600),
        ("Asia/Kolkata", 1800),
        ("Australia/Lord_Howe", 1800),
        ("Asia/Kathmandu", 900),
        ("Africa/Casablanca", 3600),
        ("America/Santiago", 3600),
        ("Pacific/Apia", 3600),
    ],
)
def test_a_step_must_divide_every_midnight_of_the_zone(zone, grid):
    def refused(step):
        return bool(list(checks.source(source(every=step, window=Duration(86400)), AT, zone)))

    assert [step for step in (60, 300, 450, 900, 1800, 3600, 7200, 86400) if not refused(step)] == [
        step for step in (60, 300, 450, 900, 1800, 3600, 7200, 86400) if grid % step == 0
    ]


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Australia/Lord_Howe", "Africa/Casablanca", "Africa/Cairo", "Asia/Gaza"])
def test_looking_at_weeks_finds_what_looking_at_every_day_does(zone):
    calendar = checks.Calendar(zone)
    days = (calendar.day_of_date(dt.date(2000, 1, 1) + dt.timedelta(days=n)) for n in range(14600))
    grid = checks._grid(zone)
    assert [day for day in days if day.start % grid or day.end % grid] == []


def test_every_zone_that_there_is_has_days_of_whole_quarters_of_an_hour():
    assert [zone for zone in available_timezones() if checks._grid(zone) % checks.DAY_GRANULARITY_SECONDS] == []


FIELDS = st.sampled_from(["%Y", "%m", "%d", "%j", "%y", "/", "-", "x", "1", "{system}", "%H", "%B", "%-d"])


@given(st.lists(FIELDS, min_size=1, max_size=7).map("".join))
def test_templates_that_are_not_looked_at_date_by_date_clash_nowhere(path):
    systems = ("a", "1", "11", "1x")
    names = [date.strftime(path).replace("{system}", system) for date in checks._dates() for system in systems]
    assert len(set(names)) == len(names) or not checks._is_plain(path)


@pytest.mark.parametrize("path", ["/tts/%Y-%m-%d/{system}.hdf5", "/tts/{system}/%Y/%j.hdf5", "/tts/%Y%m%d{system}"])
def test_usual_templates_need_no_look_at_every_date(path):
    assert checks._is_plain(path)


def test_without_a_time_zone_the_rest_is_still_looked_at():
    assert list(checks.source(source(every=7), AT, None)) == [Fault((*AT, "window"), "60 s is not a multiple of the source's step of 7 s")]


READ, WRITE = "datatargets/readbytes", "datatargets/writebytes"
DAY_OF_SECONDS = {"every": 1, "window": Duration(86400)}


@pytest.mark.parametrize(
    ("changes", "faults"),
    [
        ({"named": ((READ, 100),), **DAY_OF_SECONDS}, []),
        ({"named": ((READ, 310),), **DAY_OF_SECONDS}, []),
        (
            {"named": ((READ, 311),), **DAY_OF_SECONDS},
            [Fault((*AT, "window"), "a window of 86400 s would have 513 MiB, the limit is 512 MiB; 43200 s would do")],
        ),
        (
            {"named": ((READ, 500), (WRITE, 500)), **DAY_OF_SECONDS},
            [Fault((*AT, "window"), "a window of 86400 s would have 1648 MiB, the limit is 512 MiB; 21600 s would do")],
        ),
        (
            {"named": ((READ, 900), (WRITE, 1001)), **DAY_OF_SECONDS},
            [Fault(AT, "datatargets/writebytes would have 1001 columns, archive.max_columns allows 1000")],
        ),
    ],
)
def test_a_window_of_the_columns_that_are_named_must_fit(changes, faults):
    assert list(checks.source(source(**changes), AT, "UTC", 1000)) == faults


def test_a_row_that_is_too_large_needs_fewer_columns():
    named = source(named=((READ, 30_000_000),), window=Duration(5))
    assert list(checks.source(named, AT, "UTC")) == [
        Fault((*AT, "window"), "a window of 5 s would have 573 MiB, the limit is 512 MiB; name fewer columns")
    ]


@pytest.mark.parametrize(
    ("changes", "most"),
    [
        ({}, None),
        ({"window": Duration(3600)}, 37_282),
        ({"window": Duration(3600), "fills": tuple(f"mdtargets/{n}" for n in range(21))}, 1775),
        ({"window": Duration(3600), "named": ((READ, 10),)}, None),
        ({"window": Duration(3600), "fills": (READ, WRITE), "named": ((READ, 30_000),)}, 7282),
    ],
)
def test_windows_that_max_columns_lets_grow_too_large_are_warned_of(changes, most):
    warning = checks.size_warning(source(**changes), 50_000)
    if most is None:
        assert warning is None
    else:
        assert f"have more than {most} columns each (512 MiB); archive.max_columns allows 50000: set a shorter window" in warning
        assert checks.size_warning(source(**changes), most) is None


ONE, TWO = ("source", 0), ("source", 1)


@pytest.mark.parametrize(
    ("first", "second", "faults"),
    [
        ({}, {"name": "b", "system": "t"}, []),
        ({}, {"name": "b", "fills": ("mdtargets/opens",), "every": 10}, []),
        ({"every": 10}, {"name": "b", "system": "t"}, []),
        ({}, {"system": "t"}, [Fault((*TWO, "name"), "another source has the same name", (*ONE, "name"))]),
        ({}, {"name": "b"}, [Fault(TWO, "datatargets/readbytes of s is also filled by source a", ONE)]),
        (
            {"fills": ("mdtargets/opens", "fullness/bytes", "fullness/inodes")},
            {"name": "b", "fills": ("fullness/inodes", "fullness/bytes", "mdtargets/opens", "mdtargets/closes")},
            [Fault(TWO, "fullness/bytes and 2 more of s is also filled by source a", ONE)],
        ),
        (
            {},
            {"name": "b", "fills": ("datatargets/writebytes",), "every": 10},
            [Fault(TWO, "has steps of 10 s in datatargets of s, but source a has 5 s", ONE)],
        ),
        (
            {"fills": ("mdtargets/opens", "fullness/bytes")},
            {"name": "b", "fills": ("mdtargets/closes", "fullness/inodes"), "every": 10},
            [Fault(TWO, "has steps of 10 s in fullness and 1 more of s, but source a has 5 s", ONE)],
        ),
        ({"wrong": ("broken",)}, {"name": "b"}, []),
    ],
)  # fmt: skip
def test_two_sources_that_contradict_each_other_are_both_named(first, second, faults):
    assert list(checks.sources({ONE: source(**first), TWO: source(**second)}, {ONE, TWO})) == faults


def test_a_step_that_may_be_a_default_is_held_against_nobody():
    other = {"name": "b", "every": 10}
    clash = Fault(TWO, "datatargets/readbytes of s is also filled by source a", ONE)
    for whole in (set(), {ONE}, {TWO}):
        assert list(checks.sources({ONE: source(), TWO: source(**other)}, whole)) == [clash]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("st"), st.sets(st.sampled_from("wxyz"))), max_size=6))
def test_sources_are_fine_exactly_when_names_and_datasets_are_unique(drawn):
    configs = {("source", n): source(name=a, system=s, fills=tuple(f"g/{x}" for x in fills)) for n, (a, s, fills) in enumerate(drawn)}
    names = [name for name, _, _ in drawn]
    cells = [(system, dataset) for _, system, fills in drawn for dataset in fills]
    unique = len(set(names)) == len(names) and len(set(cells)) == len(cells)
    assert (not list(checks.sources(configs, configs))) == unique


@pytest.mark.parametrize("address", ["127.0.0.1:9464", "0.0.0.0:1", "[::1]:65535", "[::]:9464", "10.1.2.3:80"])
def test_an_ip_address_and_a_port_can_be_listened_at(address):
    assert list(checks.http_address(address, ("metrics", "address"))) == []


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":9464",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "localhost:9464",
        "::1:9464",
        "[127.0.0.1]:80",
        "[::1:80",
        "9464",
    ],
)
def test_what_is_no_ip_address_and_port_is_refused(address):
    (fault,) = checks.http_address(address, ("metrics", "address"))
    sentence = 'expected an IP address of this machine and a port, as in "127.0.0.1:9464" or "[::1]:9464", got '
    assert (fault.key, fault.sentence) == (("metrics", "address"), f"{sentence}{address!r}")


@pytest.mark.parametrize(
    ("address", "is_loopback"), [("127.0.0.1:1", True), ("127.8.8.8:1", True), ("[::1]:1", True), ("0.0.0.0:1", False)]
)
def test_strangers_do_not_reach_loopback(address, is_loopback):
    assert checks.is_loopback(address) == is_loopback


OWN = ("control", "feed.in")


def test_the_daemons_other_sockets_fit_next_to_the_bus_and_have_their_names_to_themselves():
    longest = f"/{'x' * (107 - len('//feed.in'))}"
    assert list(checks.daemon_sockets(f"ipc://{longest}/b", "ipc:///run/feed", OWN)) == []
    assert list(checks.daemon_sockets(f"ipc://{longest}x/b", None, OWN)) == [
        Fault(("bus", "endpoint"), f"{longest}x/control, next to it, would have 108 bytes, a socket has at most 107")
    ]
    sentence = "the daemon has another socket of this name there (control, feed.in): choose another name"
    assert list(checks.daemon_sockets("ipc:///run/control", "ipc:///run/./feed.in", OWN)) == [
        Fault(("bus", "endpoint"), sentence),
        Fault(("feed", "endpoint"), sentence),
    ]
    assert list(checks.daemon_sockets("ipc:///run/private/bus", "ipc:///run/control", OWN)) == []
    for other in (None, "tcp://127.0.0.1:5555", "http://x", "ipc://relative"):
        assert list(checks.daemon_sockets(other, "ipc:///run/control", OWN)) == []


@pytest.mark.parametrize("address", ["/run/tokiod-web/http", "127.0.0.1:8080", "[::1]:8080"])
def test_the_web_process_listens_on_a_socket_or_on_this_machine(address):
    assert list(checks.web(address, ["storage.example.org"])) == []


@pytest.mark.parametrize(
    ("address", "hosts", "sentence"),
    [
        ("0.0.0.0:8080", (), "0.0.0.0:8080 is reachable from other machines: use a Unix socket or 127.0.0.1, and a reverse proxy"),
        ("localhost:8080", (), "expected an IP address of this machine and a port"),
        ("/run/" + "a" * 107, (), "the path of a socket has at most 107 bytes, this one has 112"),
        ("/run/", (), "expected the absolute path of a socket"),
        ("/run/http", ("a:80",), "expected names without a port, got 'a:80'"),
    ],
)
def test_an_address_that_other_machines_reach_is_refused_and_so_is_what_is_no_address(address, hosts, sentence):
    (fault,) = checks.web(address, hosts)
    assert fault.sentence.startswith(sentence)
