"""The trace follows the rules of Chrome's trace-event format for metadata and nestable asynchronous events.

No registry has a program that reads the format. The importer of chrome://tracing (catapult 6fd8bbe, by tracing/bin/trace2html) was executed
once in Chromium, on the trace of the works below: it had the same processes, threads and stages, and warned only of what is open.
"""

import msgspec
from recorded_stages import START, work

from tokiod.reports.stages import _Timed, joined
from tokiod.reports.stages_trace import trace

COLLECTORS = [
    work(1, "collection", 10, 20, 21, 24, 25),
    work(2, "submission", 25, 26, 40),
    work(3, "collection", 22, 24, 26, None, None, outcome="open", window=1),
    work(4, "collection", None, 24, 26, 27, 28, name="<b>", window=1),
]
COMMIT = work(1, "commit", 28, 29, 32, 33, 34)


def parsed(works):
    return msgspec.json.decode(msgspec.json.encode(trace(works)))


def validate(document):
    """Check the rules: required fields by phase, and, in the order of time, ends that match the last begin of their process and id.

    Return the names of the events that never end.
    """
    assert {*document} == {"displayTimeUnit", "traceEvents"}
    assert document["displayTimeUnit"] in {"ms", "ns"}
    named, opened = set(), {}
    for event in sorted(document["traceEvents"], key=lambda event: event.get("ts", 0)):
        assert isinstance(event["name"], str)
        assert all(isinstance(event[field], int) for field in ("pid", "tid"))
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "thread_name"}
            assert isinstance(event["args"]["name"], str)
            named.add((event["pid"], event["tid"]) if event["name"] == "thread_name" else event["pid"])
            continue
        assert {event["pid"], (event["pid"], event["tid"])} <= named
        assert isinstance(event["ts"], int | float)
        assert isinstance(event["cat"], str)
        assert {*event["id2"]} == {"local"}
        stack = opened.setdefault((event["pid"], event["cat"], int(event["id2"]["local"], 16)), [])
        if event["ph"] == "b":
            stack.append(event)
        else:
            begun = stack.pop()
            assert (event["ph"], event["name"], event["tid"]) == ("e", begun["name"], begun["tid"])
            assert event["ts"] >= begun["ts"]
    return [event["name"] for stack in opened.values() for event in stack]


def test_a_trace_is_valid_and_what_is_open_has_no_end():
    works = list(joined(_Timed(COLLECTORS, 50 * 10**9), _Timed([COMMIT], 50 * 10**9)))
    document = parsed(works)
    assert validate(document) == ["a 2018-01-29T00:01:00Z", "fetch"]


def test_each_stage_is_in_the_process_that_worked_and_in_the_thread_of_its_source():
    document = parsed(list(joined(_Timed(COLLECTORS, 50 * 10**9), _Timed([COMMIT], 50 * 10**9))))
    processes = {event["pid"]: event["args"]["name"] for event in document["traceEvents"] if event["name"] == "process_name"}
    threads = {event["tid"]: event["args"]["name"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    begun = [event for event in document["traceEvents"] if event["ph"] == "b"]
    stages = {(processes[event["pid"]], event["name"]) for event in begun if threads[event["tid"]] == "a" and "args" not in event}
    assert stages == {("collectors", stage) for stage in ("due", "ask", "fetch", "parse", "submit", "bus", "ack")} | {
        ("writer", stage) for stage in ("apply", "sync", "ledger", "feed")
    }
    first = next(event for event in begun if event["name"] == "a 2018-01-29T00:00:00Z")
    assert first["ts"] == (START + 10) * 1e6
    assert first["args"] == {"state": "stored", "window": "2018-01-29T00:00:00Z - 2018-01-29T00:01:00Z", "bytes": 7}


def test_a_trace_of_nothing_is_valid():
    assert validate(parsed([])) == []
