"""Random documents in each documented form, damaged at random: each is stored right, or what was found is named."""

import itertools
import json
import os
import random
import re

import archived_input
from collectd_documents import KINDS, hit, iso

FILES = 30
SEED = int(os.environ.get("TOKIOD_SEED", random.SystemRandom().randrange(10**6)))
START = 1_717_230_600
ROWS = 6
SPAN = START, START + 10 * ROWS
FORMS = (
    "usual", "text", "lists", "codec", "ecs", "dotted", "write_http", "milliseconds", "seconds", "Graylog", "objects", "fields",
)  # fmt: skip
FILE_FORMS = ("pages", "pages", "list", "hits", "documents", "answer", "answers")


def measured(chance):
    """Documents of a random site: (kind, host, part, epoch milliseconds, {field: value}) each."""
    found = []
    for host, device, cores in itertools.product(chance.sample(["n1", "n2.example.org", "oss-3"], 2), ["sda", "nvme0n1"], [("0", "1")]):
        phase = chance.randrange(10_000)
        for kind, fields in KINDS.items():
            parts = {"disk": [device], "memory": [""], "cpu": cores}[kind[0]] if kind[0] == "disk" or device == "sda" else []
            for part, row in itertools.product(parts, range(ROWS)):
                found.append((kind, host, part, START * 1000 + row * 10_000 + phase, {field: value(chance, kind[0]) for field in fields}))
    return chance.sample(found, chance.randint(1, 60))


def value(chance, plugin):
    return {"disk": round(chance.random() * 1e6, 3) + 0.5, "memory": chance.randrange(2**36), "cpu": round(chance.random() * 100, 4)}[
        plugin
    ]


def document(one, form):
    """A document as a form has it."""
    (plugin, kind, instance), host, part, time, values = one
    names = {"plugin": plugin, "plugin_instance": part, "type_instance": instance or ""}
    if form == "write_http":
        arrays = {"values": list(values.values()), "dsnames": list(values), "dstypes": ["gauge"] * len(values)}
        return names | arrays | {"host": host, "type": kind, "time": time / 1000, "interval": 10.0}
    if form == "objects":
        tree = {"plugin": plugin, "type": kind, **{name: text for name, text in names.items() if text}}
        return {
            "@timestamp": iso(time),
            "hostname": host,
            "collectd": tree | {plugin: {kind: values if plugin == "disk" else values["value"]}},
        }
    stamp = {"milliseconds": time, "seconds": f"{time / 1000:.3f}"}.get(form, iso(time))
    found = (
        names
        | {"collectd_type": kind}
        | {"text": {f: repr(v) for f, v in values.items()}, "lists": {f: [v] for f, v in values.items()}}.get(form, values)
    )
    if form == "Graylog":
        return found | {"timestamp": iso(time).replace("T", " ").removesuffix("Z"), "source": host}
    hosts = {"codec": {"host": host}, "ecs": {"host": {"name": host}}, "dotted": {"host.name": host}}
    return found | hosts.get(form, {"hostname": [host] if form == "lists" else host}) | {"@timestamp": stamp}


def wrapped(chance, one):
    form = chance.choice(FORMS)
    if form == "fields":
        return {"_index": "i", "fields": {name: [value] for name, value in document(one, "usual").items()}}
    return hit(document(one, form))


def written(chance, hits, form):
    """The text of a file of hits."""
    cut = chance.randrange(len(hits) + 1)
    pages = [page for page in (hits[:cut], hits[cut:]) if page]
    answers = [{"took": 1, "timed_out": False, "hits": {"total": len(page), "hits": page}} for page in pages]
    lines = [one if form == "hits" else one.get("_source", one) for one in hits]
    return {
        "pages": lambda: json.dumps(pages, indent=chance.choice([None, 0])),
        "list": lambda: json.dumps(hits),
        "answer": lambda: json.dumps({"took": 1, "timed_out": False, "hits": {"total": len(hits), "hits": hits}}),
        "answers": lambda: "\n".join(map(json.dumps, answers)),
    }.get(form, lambda: "".join(json.dumps(one) + "\n" for one in lines))()


def changed(chance, hits):
    """Hits of which one is damaged, and what was done."""
    hits, at = list(hits), chance.randrange(len(hits))
    place = "fields" if "fields" in hits[at] else "_source"
    source, kind = dict(hits[at][place]), chance.choice(["lose", "again", "column", "name", "unit", "time"])
    fields = [name for name in source if name in {"read", "write", "value", "values"}]
    if kind == "lose":
        return hits[:at] + hits[at + 1 :], kind
    if kind == "again":
        return [*hits, hits[at]], kind
    if kind == "column":
        source.pop(chance.choice([*source]))
    elif kind == "name":
        source = {name.upper() if name == chance.choice([*source]) else name: value for name, value in source.items()}
    elif kind == "unit" and fields:
        source[fields[0]] = chance.choice(["5 KB", "1,5", "nan", -3.5, 1e300, True, {"max": 1}, "0x10"])
    else:
        stamp = next((name for name in ("@timestamp", "timestamp", "time") if name in source), None)
        source |= {stamp: chance.choice(["yesterday", "2024-06-01T08:30:02", "", -1, "2024-06-01T08:30:02+25:00", True])} if stamp else {}
    hits[at] = hits[at] | {place: source}
    return hits, kind


def damaged(chance, text):
    lines, kind = text.split("\n"), chance.choice(["cut", "cut left", "lose line", "join", "cut inside"])
    place = chance.randrange(len(lines))
    if kind == "cut":
        return text[: chance.randrange(len(text) + 1)], kind
    if kind == "cut left":
        return text[chance.randrange(len(text) + 1) :], kind
    if kind == "cut inside":
        lines[place] = lines[place][: chance.randrange(len(lines[place]) + 1)]
    elif kind == "join" and place + 1 < len(lines):
        lines[place : place + 2] = [lines[place] + lines[place + 1]]
    else:
        del lines[place]
        kind = "lose line"
    return "\n".join(lines), kind


def right(found):
    """{(dataset, column, row): values that are right}: of CPUs the mean of any of the cores, since one may be dropped."""
    cells = {}
    for kind, host, part, time, values in found:
        for field, dataset in KINDS[kind].items():
            column = f"{host}:{part}" if kind[0] == "disk" else host
            place = dataset, column, START + (time // 1000 - START) // 10 * 10
            cells.setdefault(place, []).append(100.0 - values[field] if dataset.endswith("cpuload") else float(values[field]))
    some = {place: [[*each] for n in range(len(of)) for each in itertools.combinations(of, n + 1)] for place, of in cells.items()}
    return {place: [sum(each) / len(each) for each in lists][::-1] for place, lists in some.items()}


def test_every_file_is_stored_right_or_what_was_found_is_named(tmp_path):
    for number in range(FILES):
        chance = random.Random(f"{SEED} {number}")
        form = FILE_FORMS[number % len(FILE_FORMS)]
        known = measured(chance)
        hits, done = [wrapped(chance, one) for one in known], []
        if form == "documents":
            hits = [one for one in hits if "_source" in one] or [hit(document(known[0], "usual"))]
        whole = [dict(one) for one in hits]
        for _ in range(chance.choice([0, 1, 1, 2])):
            hits, kind = changed(chance, hits or whole)
            done.append(kind)
        text = written(chance, hits, form) if hits else "[[]]"
        if chance.random() < 0.3:
            text, kind = damaged(chance, text)
            done.append(kind)
        path = tmp_path / "a"
        path.write_text(text)
        check(path, right(known), done, f"TOKIOD_SEED={SEED}, file {number}, {form}, {done}:\n{text}", is_complete=form != "documents")


def check(path, cells, done, what, *, is_complete):
    """Check what a file gives: every cell is right, and what is missing is counted or refused."""
    out, message = archived_input.archived("collectd_es", path, SPAN, "--parse-workers", 0)
    if out is None:
        assert re.search(r"for example|byte \d+|page|truncated", message) or {"lose", "lose line"} & {*done}, (message, what)
        assert done, (message, what)
        return
    found = archived_input.cells(out)
    wrong = {place: value for place, value in found.items() if not any(abs(value - one) <= 1e-9 * abs(one) for one in cells.get(place, []))}
    assert not wrong, (wrong, {place: cells.get(place) for place in wrong}, message, what)
    is_lost = "dropped" in message or {"lose", "lose line", "cut left"} & {*done} or not is_complete
    # A disk's document may have only one of its two figures.
    is_lost = is_lost or len(cells.keys() - found.keys()) <= len({"column", "name"} & {*done})
    assert found.keys() == cells.keys() or is_lost, (cells.keys() - found.keys(), message, what)
    assert done or not message, (message, what)
