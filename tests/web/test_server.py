"""The API over a real Unix socket, from real files, in a process of its own."""

import json
import shutil
import socket
import stat
import time
import zlib
from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families
from recorded_stages import save, work
from waiting import wait_for
from web_site import COLUMNS, COUNTER, DAY, FAILED, GAUGE, LOST, NOW, ROWS, START, STEP, WebSite, decoded, values, window

from tokiod.ledger.ledger import Ledger
from tokiod.reports.gaps import Gap
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.web.matrix import level_of
from tokiod.web.views import Views

RATE = "datatargets/readrates"
MISSING, GONE, NOT_DUE = 1, 2, 4
END = START + (ROWS + 12) * STEP
WHY = [
    {"start": window(*LOST).start, "end": window(*LOST).end, "state": "lost", "reason": "the source deleted it"},
    {"start": window(*FAILED).start, "end": window(*FAILED).end, "state": "failed", "reason": "no answer"},
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = WebSite(tmp_path_factory.mktemp("web"))
    with made.served():
        yield made


@pytest.fixture
def own_site(tmp_path):
    """A site that a test changes."""
    made = WebSite(tmp_path)
    with made.served():
        yield made


def matrix(dataset=GAUGE, start=START, end=END, **more):
    return f"/api/v1/matrix?system=fs&dataset={dataset}&start={start}&end={end}" + "".join(f"&{k}={v}" for k, v in more.items())


def expected(rows_per_pixel):
    """The levels and flags of the gauge, pixel by pixel."""
    cells, why = np.full((ROWS + 12, len(COLUMNS)), np.nan), np.full(ROWS + 12, MISSING)
    cells[:ROWS], why[slice(*LOST)], why[ROWS:] = values(), GONE, NOT_DUE
    levels, flags = [], []
    for first in range(0, len(cells), rows_per_pixel):
        block = cells[first : first + rows_per_pixel]
        levels.append([level_of(np.array([max(found, default=np.nan)]))[0] for found in (c[~np.isnan(c)] for c in block.T)])
        missing = np.isnan(block) * why[first : first + rows_per_pixel, np.newaxis]
        flags.append(np.bitwise_or.reduce(missing, axis=0))
    return np.array(levels), np.array(flags)


# ---- pictures


@pytest.mark.parametrize("rows_per_pixel", [1, 7, 12, 300])
def test_every_pixel_has_the_largest_value_of_its_rows_and_states_why_others_are_missing(site, rows_per_pixel):
    header, levels, flags = decoded(site.get(matrix(width=-(-(ROWS + 12) // rows_per_pixel))).body)
    pixels = -(-(ROWS + 12) // rows_per_pixel)
    assert (header["start"], header["seconds"]) == (START, -(-(ROWS + 12) // pixels) * STEP)
    rows = header["seconds"] // STEP
    assert np.array_equal(levels, expected(rows)[0])
    assert np.array_equal(flags, expected(rows)[1])


def test_value_zero_missing_lost_and_not_yet_due_are_five_different_pairs_of_bytes(site):
    _, levels, flags = decoded(site.get(matrix(width=4096)).body)
    rows = {"value": (2, 1), "zero": (3, 1), "missing": (150, 1), "failed": (135, 1), "lost": (125, 1), "not due": (245, 1)}
    found = {name: (levels[at] if levels[at] < 2 else "level", flags[at]) for name, at in rows.items()}
    assert found == {
        "value": ("level", 0), "zero": (1, 0), "missing": (0, MISSING), "failed": (0, MISSING), "lost": (0, GONE), "not due": (0, NOT_DUE),
    }  # fmt: skip


def test_the_header_names_columns_steps_and_the_reasons_of_the_ledger(site):
    header, _, _ = decoded(site.get(matrix(width=21)).body)
    assert header == {
        "system": "fs",
        "dataset": GAUGE,
        "units": "%",
        "pixels": 21,
        "start": START,
        "seconds": 12 * STEP,
        "step": STEP,
        "columns": list(COLUMNS),
        "due": START + ROWS * STEP,
        "why": WHY,
        "scale": {"lowest_log2": -11, "per_octave": 4, "first": 2},
        "version": 1,
    }


def test_a_cell_of_a_counter_is_lost_with_the_sample_at_either_edge(site):
    _, _, flags = decoded(site.get(matrix(COUNTER, width=4096)).body)
    assert [flags[row, 0] for row in (118, 120, 131, 132, 143)] == [0, GONE, GONE, MISSING, MISSING]
    assert flags[ROWS - 1 :, 0].tolist() == [0] + [NOT_DUE] * 12


def test_the_same_picture_is_sent_once_and_another_one_after_a_commit(own_site):
    first = own_site.get(matrix())
    assert own_site.get(matrix(), If_None_Match=first.headers["ETag"]).status == 304
    healed = values()
    healed[slice(*FAILED)] = 7.0
    own_site.write(healed)
    with Ledger.open(own_site.config.archive.ledger) as ledger:
        own_site.store(ledger, *FAILED)
    second = own_site.get(matrix(), If_None_Match=first.headers["ETag"])
    header, levels, flags = decoded(second.body)
    assert (second.status, [one["state"] for one in header["why"]]) == (200, ["lost"])
    rows = header["seconds"] // STEP
    assert set(levels[FAILED[0] // rows : FAILED[1] // rows, 0]) == {level_of(np.array([7.0]))[0]}
    assert not flags[FAILED[0] // rows : FAILED[1] // rows].any()


def test_a_picture_is_deflated_for_those_who_accept_it_and_the_same_for_others(site):
    deflated, plain = (site.get(matrix(), Accept_Encoding=accepted) for accepted in ("gzip, deflate, br", "gzip"))
    assert (deflated.headers["Content-Encoding"], plain.headers["Content-Encoding"]) == ("deflate", None)
    assert zlib.decompress(deflated.body) == plain.body
    assert {one.headers["Vary"] for one in (deflated, plain)} == {"Accept-Encoding"}
    assert deflated.headers["ETag"] == plain.headers["ETag"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("deflate", "deflate"),
        ("gzip, Deflate; q=0.5", "deflate"),
        ("gzip, deflate;q=0", None),
        ("deflate;q=0.0, identity", None),
        ("", None),
    ],
)
def test_a_picture_is_never_deflated_for_those_who_forbid_it(site, accepted, encoding):
    answer = site.get(matrix(), Accept_Encoding=accepted)
    assert (answer.status, answer.headers.get("Content-Encoding")) == (200, encoding)
    assert decoded(zlib.decompress(answer.body) if encoding else answer.body)[0]["columns"] == list(COLUMNS)
    assert site.get(matrix(), If_None_Match=f"W/{answer.headers['ETag']}").status == 304


def test_a_past_span_keeps_its_tag_while_the_present_is_stored(own_site):
    past = matrix(end=START + 600)
    tag = own_site.get(past).headers["ETag"]
    with Ledger.open(own_site.config.archive.ledger) as ledger:
        own_site.store(ledger, ROWS, ROWS + 12)
    assert own_site.get(past).headers["ETag"] == tag


# ---- the other answers


def test_a_line_has_the_exact_doubles_of_one_column(site):
    path = f"{matrix(width=4096)}&column=OST0000".replace("/matrix", "/line")
    answer = json.loads(site.get(path).body)
    stored = [None if np.isnan(value) else value for value in values()[:, 1]] + [None] * 12
    missing, flags = [int(one is None) for one in stored], expected(1)[1][:, 1].tolist()
    span = {"column": "OST0000", "units": "%", "start": START, "seconds": STEP}
    assert answer == span | {"values": stored, "missing": missing, "flags": flags, "why": WHY}
    assert site.error(path.replace("OST0000", "no")) == (404, "unknown_column")


def test_a_line_without_a_column_is_the_sum_of_those_that_have_a_value(site):
    answer = json.loads(site.get(matrix(width=20).replace("/matrix", "/line")).body)
    cells = np.full((ROWS + 12, len(COLUMNS)), np.nan)
    cells[:ROWS] = values()
    assert (answer["column"], answer["seconds"]) == ("", 13 * STEP)
    blocks = [cells[first : first + 13] for first in range(0, len(cells), 13)]
    sums = [[row[~np.isnan(row)].sum() for row in block if not np.isnan(row).all()] for block in blocks]
    assert answer["values"] == [max(one, default=None) for one in sums]
    assert answer["missing"] == [np.isnan(block).sum() for block in blocks]
    assert answer["flags"] == np.bitwise_or.reduce(expected(13)[1], axis=1).tolist()


def test_a_line_is_also_the_largest_of_all_columns_or_the_sum_of_several_datasets(site):
    path = matrix(width=4096).replace("/matrix", "/line")
    with np.errstate(all="ignore"):
        largest = np.fmax.reduce(values(), axis=1)
    answer = json.loads(site.get(f"{path}&across=max").body)
    assert answer["values"] == [None if np.isnan(value) else value for value in largest] + [None] * 12
    one, twice = (json.loads(site.get(path.replace(GAUGE, names)).body) for names in (GAUGE, f"{GAUGE},{GAUGE}"))
    assert twice["values"] == [None if value is None else 2 * value for value in one["values"]]
    assert twice["missing"] == [2 * count for count in one["missing"]]
    assert (twice["flags"], twice["why"]) == (one["flags"], WHY)
    assert site.error(path.replace(GAUGE, f"{GAUGE},{COUNTER}")) == (400, "bad_parameter")
    assert site.error(path.replace(GAUGE, f"{GAUGE},")) == (400, "bad_parameter")


def test_the_largest_of_several_datasets_is_that_of_one_target(tmp_path):
    site = WebSite(tmp_path)
    names = ["mdtargets/opens", "mdtargets/closes"]
    columns = {names[0]: ("MDT0000", "MDT0001"), names[1]: ("MDT0001", "MDT0002")}
    specs = {name: MatrixSpec(found, counter=False) for name, found in columns.items()}
    site.file.unlink()
    create(site.file, FileSpec(START, START + 86400, {"mdtargets": GroupSpec(STEP, "lmt")}, specs), created=START)
    file = LiveFile.open(site.file)
    file.cells[names[0]].write_rows(0, np.array([[1000.0, 0.0], [5.0, 6.0], [-0.0, 7.0], [-0.0, -0.0]]))
    file.cells[names[1]].write_rows(0, np.array([[900.0, 3.0], [-0.0, 4.0], [8.0, 1.0], [-0.0, -0.0]]))
    file.commit()
    file.close()
    views = Views(site.config, FakeClock(NOW))
    given = {"system": "fs", "dataset": ",".join(names), "start": str(START), "end": str(START + 4 * STEP), "width": "4", "how": "max"}
    largest, total = (views.line({**given, "column": "", "across": across}) for across in ("max", "sum"))
    assert (largest.values, total.values) == ([1000, 6, 15, None], [1903, 15, 16, None])
    assert largest.missing == total.missing == [0, 1, 1, 4]
    assert views.line({**given, "column": "MDT0001", "across": "sum"}).values == [900, 6, 15, None]


def test_points_are_the_line_with_times_in_milliseconds(site):
    path = f"{matrix(width=20)}&column=OST0001"
    line = json.loads(site.get(path.replace("/matrix", "/line")).body)
    points = json.loads(site.get(path.replace("/matrix", "/points")).body)
    times = [1000 * (START + number * line["seconds"]) for number in range(20)]
    assert [(one["time"], one["value"], one["missing"], one["flags"]) for one in points] == list(
        zip(times, line["values"], line["missing"], line["flags"], strict=True)
    )


def test_a_line_of_a_counter_is_lost_with_the_sample_at_either_edge_as_in_its_picture(site):
    _, _, flags = decoded(site.get(matrix(COUNTER, width=4096)).body)
    line = json.loads(site.get(f"{matrix(COUNTER, width=4096)}&column=OST0001".replace("/matrix", "/line")).body)
    assert line["flags"] == flags[:, 2].tolist()
    assert [line["flags"][row] for row in (118, 120, 131, 132, ROWS)] == [0, GONE, GONE, MISSING, NOT_DUE]


def test_the_rate_of_a_counter_is_lost_and_not_due_as_the_counter_is(site):
    (header, _, flags), (of_rate, _, rate_flags) = (decoded(site.get(matrix(name, width=4096)).body) for name in (COUNTER, RATE))
    assert (of_rate["due"], of_rate["why"]) == (header["due"], WHY)
    np.testing.assert_array_equal(rate_flags, flags)
    both = [matrix(name, width=4096).replace("/matrix", "/line") for name in (COUNTER, RATE)]
    line, of_rate = (json.loads(site.get(f"{path}&column=OST0001").body) for path in both)
    assert (of_rate["flags"], of_rate["why"]) == (line["flags"], WHY)


def test_a_line_without_missing_cells_has_no_flags_and_one_beside_a_gap_no_reason_of_it(site):
    line = json.loads(site.get(f"{matrix(width=20, end=START + 600)}&column=OST0001".replace("/matrix", "/line")).body)
    assert (set(line["flags"]), line["why"]) == ({0}, [])


def test_days_have_what_is_stored_due_and_lost_of_each_source(site):
    answer = json.loads(site.get(f"/api/v1/days?system=fs&start={START - 3600}&end={START + 3600}").body)
    before = {"date": "2018-01-28", "start": START - 86400, "end": START, "system": "fs", "source": "one", "stored": 0, "due": 0, "lost": 0}
    stored = (LOST[0] + ROWS - FAILED[1]) * STEP
    today = {"date": DAY, "start": START, "end": START + 86400, "system": "fs", "source": "one"}
    assert answer["days"] == [before, today | {"stored": stored, "due": ROWS * STEP, "lost": 12 * STEP}]
    assert site.error(f"/api/v1/days?system=no&start={START}") == (404, "unknown_system")


def test_systems_lists_datasets_and_the_state_of_each_source(site):
    answer = json.loads(site.get("/api/v1/systems").body)
    datasets = [{"name": name, "units": units, "step": STEP, "columns": 3} for name, units in ((COUNTER, "bytes"), (GAUGE, "%"))]
    assert answer["systems"] == [{"name": "fs", "datasets": datasets, "day": DAY, "fault": ""}]
    assert (answer["time"], answer["timezone"], answer["health"], answer["writer"]) == (NOW, "UTC", "down", False)
    (source,) = answer["sources"]
    assert (source["name"], source["system"], source["lag"], source["gaps"]["lost"]) == ("one", "fs", 20, 60)


@pytest.mark.parametrize("days", [1, 2, 9, 399, 400])
def test_a_system_has_the_datasets_of_its_newest_file_while_nothing_is_collected(site, days):
    (system,) = Views(site.config, FakeClock(NOW + days * 86400)).systems().systems
    assert (system.day, len(system.datasets)) == ((DAY, 2) if days < 400 else ("", 0))


def test_gaps_have_their_reasons_and_only_those_of_the_span_are_listed(site):
    answer = json.loads(site.get(f"/api/v1/gaps?start={START}&end={END}").body)
    assert [(gap["state"], gap["start"], gap["end"], gap["reason"]) for gap in answer["gaps"]] == [
        ("lost", window(*LOST).start, window(*LOST).end, "the source deleted it"),
        ("failed", window(*FAILED).start, window(*FAILED).end, "no answer"),
    ]
    later = json.loads(site.get(f"/api/v1/gaps?source=one&start={window(*FAILED).start}&end={END}").body)
    assert [gap["state"] for gap in later["gaps"]] == ["failed"]


def test_of_many_gaps_the_newest_of_all_sources_are_listed(site, monkeypatch):
    def gap(source, start):
        return Gap(source, start, start + 60, "due")

    found = [gap(source, start) for source in ("a", "b") for start in range(START, START + 600, 60)]
    monkeypatch.setattr("tokiod.web.views.MAX_GAPS", 4)
    monkeypatch.setattr(Views, "_gaps", lambda *_: found)
    listed = Views(site.config, FakeClock(NOW)).gaps({"source": "", "start": str(START), "end": str(START + 600)})
    assert listed.gaps == [gap("a", START + 480), gap("a", START + 540), gap("b", START + 480), gap("b", START + 540)]
    assert listed.left_off == 16


def test_health_and_metrics(site):
    assert site.get("/healthz").body == b"alive\n"
    families = text_string_to_metric_families(site.get("/metrics").body.decode())
    samples = {(one.name, one.labels.get("path"), one.labels.get("status")): one.value for family in families for one in family.samples}
    assert samples["tokiod_web_requests_total", "/healthz", "200"] >= 1


# ---- hostile requests


def test_every_answer_has_the_strict_policy_and_names_are_data(site):
    for path in (matrix(), "/api/v1/systems", "/nothing", "/metrics"):
        headers = site.get(path).headers
        assert headers["Content-Security-Policy"].startswith("default-src 'self';")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert not headers["Content-Type"].startswith("text/html")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"])
def test_nothing_but_get_is_allowed(site, method):
    answer = site.get("/api/v1/systems", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "storage.example.org.evil.example", "xn--storage"])
def test_a_forged_host_is_refused(site, host):
    assert site.error("/api/v1/systems", host=host) == (403, "forbidden_host")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "storage.example.org", "Storage.Example.org:8443"])
def test_the_names_of_the_configuration_are_accepted(site, host):
    assert site.get("/api/v1/systems", Host=host).status == 200


BASE = f"/api/v1/matrix?system=fs&dataset={GAUGE}"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        (f"{BASE}&start={START - 10 * 365 * 86400}&end={START}", 400, "span_too_long"),
        (f"/api/v1/gaps?start={START - 10 * 365 * 86400}", 400, "span_too_long"),
        (f"{BASE}&start={END}&end={START}", 400, "bad_parameter"),
        (f"{BASE}&start=&end={START}", 400, "missing_parameter"),
        (f"{BASE}&start=99999999999999999999", 400, "bad_parameter"),
        (f"{BASE}&start=-99999999999999w", 400, "bad_parameter"),
        (f"{BASE}&start=nan", 400, "bad_parameter"),
        (f"{BASE}&start=2018-01-29T00:00:00", 400, "bad_parameter"),
        (f"{BASE}&start={START}&end={END}&width=1e9", 400, "bad_parameter"),
        (f"{BASE}&start={START}&end={END}&width=4097", 400, "bad_parameter"),
        (f"{BASE}&start={START}&end={END}&width=٣", 400, "bad_parameter"),
        (f"{BASE}&start={START}&end={END}&how=sum", 400, "bad_parameter"),
        (f"{BASE}&start={START}&end={END}&width=1&width=2", 400, "bad_parameter"),
        (f"{BASE}&start={START}&end={END}&witdh=3", 400, "unknown_parameter"),
        (f"/api/v1/matrix?system=../../etc&dataset={GAUGE}&start={START}&end={END}", 404, "unknown_system"),
        (f"/api/v1/matrix?system=fs&dataset=../../../etc/passwd&start={START}&end={END}", 400, "bad_parameter"),
        (f"/api/v1/matrix?system=fs&dataset=datatargets/no&start={START}&end={END}", 404, "unknown_dataset"),
        (f"/api/v1/matrix?system=fs&dataset=_tokiod/raw&start={START}&end={END}", 400, "bad_parameter"),
        (f"/api/v1/matrix?system=fs&dataset={'a' * 1000}&start={START}&end={END}", 400, "bad_parameter"),
        (f"{BASE}&start={START - 9 * 86400}&end={START - 8 * 86400}", 404, "no_data"),
        ("/api/v1/gaps?source=no&start=-1h", 404, "unknown_source"),
        ("/../../etc/passwd", 404, "not_found"),
        ("/%2e%2e/etc/passwd", 404, "not_found"),
    ],
)  # fmt: skip
def test_a_request_that_is_wrong_gets_a_typed_error(site, path, status, kind):
    assert site.error(path.replace("٣", "%D9%A3")) == (status, kind)


@pytest.mark.parametrize(("clients", "refusal"), [(1, 429), (1000, 503)])
def test_a_thousand_simultaneous_requests_are_answered_or_told_to_come_again(own_site, clients, refusal):
    """From one client, while another one has its turn, and from a thousand. All are sent before the first answer is read."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(own_site.connected()) for _ in range(1000)]
        for number, one in enumerate(sockets):
            head = f"Host: localhost\r\nX-Forwarded-For: 10.0.0.{number % clients}"
            picture = matrix(width=number + 1)  # each another one, so that no two are answered by the same work
            one.sendall(f"GET {picture} HTTP/1.0\r\n{head}\r\n\r\n".encode())
        other = [own_site.get(matrix(), X_Forwarded_For="10.0.1.1") for _ in range(3 if clients == 1 else 0)]
        answers = [one.makefile("rb").read().partition(b"\r\n\r\n")[0].decode() for one in sockets]
    statuses = Counter(int(answer.split()[1]) for answer in answers)
    assert set(statuses) <= {200, refusal}
    assert statuses[200] >= 32
    assert [one.status for one in other] == [200] * len(other)
    assert {"Retry-After: 1" in answer for answer in answers if answer.split()[1] == str(refusal)} <= {True}
    assert own_site.get(matrix(), X_Forwarded_For="10.0.1.2").status == 200


def test_a_client_that_does_not_read_its_answers_may_not_ask_for_more(own_site):
    wide = MatrixSpec(tuple(f"OST{number:04x}" for number in range(400)), counter=False)
    own_site.file.unlink()
    create(own_site.file, FileSpec(START, START + 86400, {"dataservers": GroupSpec(STEP, "lmt")}, {GAUGE: wide}), created=START)
    picture = matrix(width=4096, end=START + 86400)
    with ExitStack() as stack:
        for _ in range(8):
            one = stack.enter_context(own_site.connected())
            one.sendall(f"GET {picture} HTTP/1.0\r\nHost: localhost\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n".encode())
        wait_for(lambda: own_site.get(picture, X_Forwarded_For="10.0.0.1").status == 429, 30, "the client may ask for more")
        assert own_site.get(picture, X_Forwarded_For="10.0.0.2").status == 200
    wait_for(lambda: own_site.get(picture, X_Forwarded_For="10.0.0.1").status == 200, 30, "the client may not ask any more")


@pytest.mark.parametrize(
    "words", [b"\x00\xff\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET " + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"]
)
def test_what_is_no_request_ends_with_its_connection(site, words):
    with site.connected() as client:
        client.sendall(words)
        assert client.recv(100).startswith((b"HTTP/1.1 400", b"HTTP/1.0 400", b"HTTP/1.1 403"))
    assert site.get("/healthz").status == 200


# ---- the process


def test_the_socket_is_for_the_group_and_a_second_process_does_not_take_it(site):
    assert stat.S_IMODE(site.socket.stat().st_mode) == 0o660
    with site.served() as second:
        assert second.wait(100) == 2
    assert f"another process listens on {site.socket}; stop it first" in (site.directory / "log").read_text()
    assert site.get("/healthz").status == 200


def test_the_socket_that_a_killed_process_left_is_taken(tmp_path):
    site = WebSite(tmp_path)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(site.socket))
    with site.served():
        assert site.get("/healthz").status == 200


def test_a_ledger_that_can_not_be_read_is_a_typed_error_and_the_process_stays(own_site):
    own_site.config.archive.ledger.write_bytes(b"no ledger at all" * 1000)
    assert own_site.error(matrix()) == (503, "archive_unreadable")
    assert own_site.get("/healthz").body == b"degraded: the archive can't be read\n"


def test_viewers_of_an_archive_that_can_not_be_read_do_not_fill_the_log(own_site):
    own_site.config.archive.ledger.write_bytes(b"no ledger at all" * 1000)
    for _ in range(40):
        assert own_site.error(matrix()) == (503, "archive_unreadable")
    assert (own_site.directory / "log").read_text().count("web.failed") == 1


# ---- stages


def test_the_stages_of_the_slowest_windows_and_of_all_are_answered(own_site):
    assert json.loads(own_site.get("/api/v1/stages").body)["count"] == 0
    wall = (int(time.time()) - 100) * 10**9
    collectors = [
        work(1, "collection", 1, 2, 3, 6, 7, name="one"),
        work(2, "submission", 7, 8, 20, name="one"),
        work(3, "collection", 1, 2, 3, 4, 5, name="gone"),
    ]
    save(own_site.config.stages, "collectors", [replace(one, wall=wall) for one in collectors])
    own_site.config.stages.chmod(0o750)
    wait_for(lambda: json.loads(own_site.get("/api/v1/stages").body)["count"] == 2, 30, "the rings are not read again")
    found = json.loads(own_site.get("/api/v1/stages?slowest=1&start=-1h").body)
    assert [(one["name"], one["seconds"], one["stages"][0]) for one in found["slowest"]] == [
        ("one", 19.0, {"stage": "due", "start": wall / 1e9 + 1, "seconds": 1.0, "open": False})
    ]
    assert {row["stage"]: row["n"] for row in found["stages"]} == {"due": 2, "ask": 2, "fetch": 2, "parse": 2, "submit": 1, "bus": 1}
    assert [one["name"] for one in json.loads(own_site.get("/api/v1/stages?source=one").body)["slowest"]] == ["one"]
    assert json.loads(own_site.get("/api/v1/stages?start=-30s").body)["count"] == 0
    assert own_site.error("/api/v1/stages?source=none") == (404, "unknown_source")
    assert own_site.error("/api/v1/stages?slowest=201") == (400, "bad_parameter")


def test_a_file_that_can_not_be_read_is_named_with_its_system(own_site):
    own_site.file.unlink()
    own_site.file.write_bytes(b"no HDF5")
    (system,) = json.loads(own_site.get("/api/v1/systems").body)["systems"]
    assert (system["datasets"], system["day"]) == ([], "")
    assert system["fault"].startswith(f"{own_site.file}: ")


@pytest.mark.parametrize("day", [DAY, "2016-02-29"])
def test_a_system_whose_files_are_in_an_archive_of_the_site_is_listed_with_its_day_and_datasets(tmp_path, day):
    """Its pictures were drawn, but the list, and with it the page, had no dataset to choose."""
    names = f'[site]\nnames = {{ gone = "The file system before" }}\narchives = ["{tmp_path}/old/%Y/%m/%d/{{system}}.hdf5"]\n'
    made = WebSite(tmp_path, sections=names)
    old = tmp_path / "old" / day.replace("-", "/") / "gone.hdf5"
    old.parent.mkdir(parents=True)
    shutil.copy(made.file, old)
    with made.served():
        found = {system["name"]: system for system in json.loads(made.get("/api/v1/systems").body)["systems"]}
    assert {name: system["day"] for name, system in found.items()} == {"fs": DAY, "gone": day}
    assert found["gone"]["datasets"] == found["fs"]["datasets"] != []
