"""Random saved rates in each documented form, damaged at random: each is stored right, or refused with what was found."""

import gzip
import json
import os
import random
import re

import archived_input

FILES = 30
SEED = int(os.environ.get("TOKIOD_SEED", random.SystemRandom().randrange(10**6)))
START = 1_717_230_600
ROWS = 20
SPAN = START, START + 30 * ROWS
DATASETS = {"in": "datatargets/readrates", "out": "datatargets/writerates"}


def rate(chance):
    return chance.choice([None, 0, 0.5, chance.randrange(10**6), chance.uniform(0, 1e10), chance.uniform(0, 1e10), chance.uniform(0, 1e10)])


def rates(chance):
    """{(router, interface, direction): {epoch: rate}} of a random site."""
    names = chance.sample([("r1", "if_10"), ("r1", "xe-0/0/0"), ("r1", "a:b"), ("sunn-cr5", "to_nersc_ip-d_v4"), ("r2", "if_10")], 3)
    return {
        (*name, way): {START + 30 * row: rate(chance) for row in sorted(chance.sample(range(ROWS), chance.randint(1, ROWS)))}
        for name in names
        for way in chance.choice([("in", "out"), ("in",), ("out",)])
    }


def written(chance, known):
    """The text of a file, as pytokio writes it or on one line."""
    tree = {}
    for (router, interface, way), points in known.items():
        directions = tree.setdefault(router, {}).setdefault(interface, {"units": "bytes/sec"} if chance.random() < 0.8 else {})
        directions[way] = {str(time): value for time, value in points.items()}
    text = json.dumps(tree, indent=chance.choice([None, 0, 4, 4, 4]))
    return text.replace("null", "NaN") if chance.random() < 0.2 else text


def damaged(chance, text):
    """A text with some damage, and what was done."""
    lines, kind = (
        text.split("\n"),
        chance.choice(["cut", "unit", "name", "again", "again", "again but other", "block", "lose", "value", "time"]),
    )
    place, points = chance.randrange(len(lines)), list(re.finditer(r'"(\d+)": ([^,{}\n]+)(,?)', text))
    point = chance.choice(points) if points else None
    if kind == "cut":
        text = text[: chance.randrange(len(text) + 1)]
    elif kind == "unit":
        text = text.replace("bytes/sec", chance.choice(["bits/sec", "KB/s", "", "Bytes/Sec"]), 1)
    elif kind == "name":
        text = re.sub(r'"(in|out)"', chance.choice(['"In"', '"input"', '"in/out"']), text, count=1)
    elif kind == "lose":
        text = "\n".join(lines[:place] + lines[place + 1 :])
    elif kind == "block":
        found = re.search(r'"(?:in|out)": \{[^{}]*\}', text)
        other = f'"in": {{"{START}": 3.5}}'
        text = text.replace(found[0], f"{found[0]}, {other}", 1) if found else text
    elif point:
        start, end = point.span()
        others = {
            "again": f"{point[0]}{'' if point[3] else ','}{point[0]}".rstrip(",") + point[3],
            "again but other": f'{point[0]}{"" if point[3] else ","}"{point[1]}": 77.25{point[3]}',
            "value": f'"{point[1]}": {chance.choice(["-5", "1e300", chr(34) + "12" + chr(34), "true", "[1.5]", "1e19"])}{point[3]}',
            "time": f'"{chance.choice([point[1] + "000", point[1] + ".5", "x", "-" + point[1]])}": {point[2]}{point[3]}',
        }
        text = text[:start] + others[kind] + text[end:]
    return text, kind


def test_every_file_is_stored_right_or_what_was_found_is_named(tmp_path):
    for number in range(FILES):
        chance = random.Random(f"{SEED} {number}")
        known = rates(chance)
        whole = text = written(chance, known)
        done = []
        for _ in range(chance.choice([0, 1, 1, 2])):
            text, kind = damaged(chance, text)
            done.append(kind)
        path = tmp_path / "a"
        path.write_bytes(gzip.compress(text.encode()) if chance.random() < 0.2 else text.encode())
        check(path, known, done, f"TOKIOD_SEED={SEED}, file {number}, {done}:\n{text}", is_whole=text == whole)


def check(path, known, done, what, *, is_whole):
    """Check what a file gives: every cell is right, and what is missing is counted or refused."""
    right = {
        (DATASETS[way], f"{router}:{interface}", time): value
        for (router, interface, way), points in known.items()
        for time, value in points.items()
        if value is not None
    }
    # Points of one row in a file are rows of that length.
    out, message = archived_input.archived("esnet_snmp", path, SPAN, "--interval", 30)
    if out is None:
        assert re.search(r"for example|not saved rates|could be read", message) or not right or {"lose", "cut", "time"} & {*done}, (
            message,
            what,
        )
        assert not (is_whole and right), (message, what)
        return
    found = archived_input.cells(out)
    # A direction that occurs twice may have points of its own, and so may a point after its null.
    added = {value for value, kind in ((3.5, "block"), (77.25, "again but other")) if kind in done}
    wrong = {place: value for place, value in found.items() if right.get(place) != value and (place in right or value not in added)}
    wrong = {place: value for place, value in wrong.items() if value != 3.5 or "block" not in done}
    wrong = {place: value for place, value in wrong.items() if value != 77.25 or "time" not in done}
    assert not wrong or "occurs twice with different values" in message, (
        wrong,
        {place: right.get(place) for place in wrong},
        message,
        what,
    )
    assert found.keys() >= right.keys() or "dropped" in message or {"lose"} & {*done}, (right.keys() - found.keys(), message, what)
    assert not is_whole or (found == right and not message), (message, what)
