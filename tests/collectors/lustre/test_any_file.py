"""Random files of each documented form, damaged at random: each is stored right, or refused with what was found."""

import os
import random
import re

from collectors import lustre
from collectors.lustre import parse_dl
from tokiod.collector import Site
from tokiod.errors import TokiodError
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import within
from tokiod.window import Calendar, Window

FILES = 30
SEED = int(os.environ.get("TOKIOD_SEED", random.SystemRandom().randrange(10**6)))
START = 1_517_126_400
WINDOW = Window(START, START + 60)
SITE = Site(Calendar("UTC"), FakeClock())
FORMS = ("plain", "-h", "-H", "-i", "-ih", "-iH", "--output", "-h --output", "-s", "-N")
FIELDS = ("UUID", "1K-blocks", "Used", "Free", "Available", "Use%", "Inodes", "IUsed", "IFree", "IUse%", "Mounted on")
WIDTHS = {"UUID": 20, "Use%": 4, "IUse%": 4, "Mounted on": 0}


class Target:
    """What statfs returns of a target."""

    def __init__(self, chance, name):
        self.name = name
        self.size = chance.choice([chance.randrange(2**6, 2**12), chance.randrange(2**28, 2**36), chance.randrange(2**36, 2**46)]) << 10
        self.free = chance.randrange(self.size + 1) >> 10 << 10
        self.available = chance.choice([self.free, self.free - self.free // 20 >> 10 << 10])
        self.inodes = chance.choice([chance.randrange(1, 900), chance.randrange(10**4, 10**9)])
        self.inodes_free = chance.randrange(self.inodes + 1)

    def figures(self):
        return {
            "1K-blocks": self.size,
            "Used": self.size - self.free,
            "Free": self.free,
            "Available": self.available,
            "Inodes": self.inodes,
            "IUsed": self.inodes - self.inodes_free,
            "IFree": self.inodes_free,
        }


def share(used, available, up):
    percent = 100 * used / (used + available) if used + available else 0
    return f"{-int(-percent // 1) if up else int(percent + 0.5):>3}%"


def shown(value, form):
    """A figure as lfs prints it."""
    if not {"h", "H"} & set(form):
        return f"{value:>11}"
    base, radix, cooked = (1000, -1, float(value)) if "H" in form else (1024, -1, float(value))
    while cooked > base:
        cooked, radix = cooked / base, radix + 1
    return f"{value:>11}" if radix < 0 else f"{cooked:>8.1f}{('kMGTPEZY' if 'H' in form else 'KMGTPEZY')[radix]}"


def cell(target, field, mount, options):
    figures, (form, up) = target.figures(), options
    if field == "UUID":
        return f"{target.name + '_UUID':<20}"
    if field == "Mounted on":
        return f" {mount}[{target.name[-7:-4]}:{int(target.name[-4:], 16)}]"
    if field.endswith("%"):
        used, free = ("Used", "Available") if field == "Use%" else ("IUsed", "IFree")
        return share(figures[used], figures[free], up)
    is_size = field in FIELDS[1:5] and not {"h", "H"} & set(form)
    return shown(figures[field] >> 10 if is_size else figures[field], form)


def listing(chance, targets, mount, form):
    """Lines of a listing."""
    fields = ["UUID", *(FIELDS[6:10] if "i" in form.split()[0] else ("1K-blocks", "Used", "Available", "Use%")), "Mounted on"]
    if "output" in form:
        fields = chance.sample(FIELDS, chance.randint(3, len(FIELDS)))
    options = form.replace("--output", ""), chance.random() < 0.5
    is_rounded = bool({"h", "H"} & set(options[0]))
    names = {"1K-blocks": "bytes"} if is_rounded else {}
    header = " ".join(f"{names.get(field, field):{'<' if field == 'UUID' else '>'}{WIDTHS.get(field, 11)}}" for field in fields)
    rows = [" ".join(cell(target, field, mount, options) for field in fields) + chance.choice(["", " ", " DR", " f"]) for target in targets]
    if form == "-s":
        return [rows[0].replace(f"{targets[0].name}_UUID", "filesystem_summary:").partition("[")[0]]
    if form == "-N":
        return rows
    return [header, *rows, "", rows[0].replace(f"{targets[0].name}_UUID", "filesystem_summary:").partition("[")[0], ""]


def damaged(chance, lines):
    """Lines with some damage, and what was done."""
    lines, place = list(lines), chance.randrange(len(lines))
    rows = [n for n, line in enumerate(lines) if "_UUID" in line]
    header = next((n for n, line in enumerate(lines) if "Mounted on" in line), None)
    if header is not None and rows and chance.random() < 0.3:
        return lines, damage_columns(chance, lines, header, rows)
    kind = chance.choice(["cut", "cut left", "end", "begin", "lose", "again", "again but other", "join"])
    if kind == "cut":
        lines[place] = lines[place][: chance.randrange(len(lines[place]) + 1)]
    elif kind == "cut left":
        lines[place] = lines[place][chance.randrange(len(lines[place]) + 1) :]
    elif kind.startswith("again") and rows:
        at, other = chance.choice(rows), chance.choice(rows)
        changed = re.sub(r"(\d)(?=\d* +\S+ +\S+%)", lambda found: str((int(found[1]) + 1) % 10), lines[at])
        lines.insert(at + 1, changed if kind.endswith("other") else lines[other])
    elif kind == "join" and place + 1 < len(lines):
        lines[place : place + 2] = [lines[place] + lines[place + 1]]
    else:
        lines = {"end": lines[:place], "begin": lines[place:]}.get(kind, lines[:place] + lines[place + 1 :])
    return lines, kind


def damage_columns(chance, lines, header, rows):
    """Lose a column of the header, of the rows or both, or rename it; return what was done."""
    kind = chance.choice(["column", "name", "unit"])
    if kind == "column":
        gone = chance.randrange(5)
        for n in chance.choice([[header], rows, [header, *rows]]):
            lines[n] = " ".join(word for at, word in enumerate(re.findall(r"Mounted on|\S+", lines[n])) if at != gone)
    elif kind == "name":
        lines[header] = lines[header].replace(chance.choice(["Used", "Available", "UUID", "Inodes"]), "Strange")
    else:
        lines[header] = re.sub("1K-blocks|bytes", chance.choice(["1M-blocks", "bytes"]), lines[header])
    return kind


def right(target, dataset, form):
    """The value of a cell, and how much of it the form rounds away."""
    figures = target.figures()
    field = {"bytes": "Used", "bytestotal": "1K-blocks", "inodes": "IUsed", "inodestotal": "Inodes"}[dataset.partition("/")[2]]
    value, unit = figures[field], 1024 if dataset.startswith("fullness/bytes") else 1
    text = shown(value, form).strip()
    if text[-1].isdigit():
        return value / unit, 0
    base = 1000 if "H" in form else 1024
    scale = base ** (1 + "KMGTPEZY".index(text[-1].upper()))
    return float(text[:-1]) * scale / unit, 0.5


def test_every_listing_is_stored_right_or_refused(tmp_path):
    for number in range(FILES):
        chance = random.Random(f"{SEED} {number}")
        form = FORMS[number % len(FORMS)]
        lines, known, done = [], {}, []
        for system in chance.sample(["scratch", "a-b", "fs_1", "OST"], chance.randint(1, 2)):
            names = [f"{system}-{kind}{index:04x}" for kind in ("MDT", "OST") for index in chance.sample(range(300), chance.randint(1, 4))]
            targets = [Target(chance, name) for name in names]
            known |= {target.name: target for target in targets}
            lines += listing(chance, targets, f"/{system}", form)
        whole = list(lines)
        for _ in range(chance.choice([0, 1, 1, 2])):
            if lines:
                lines, kind = damaged(chance, lines)
                done.append(kind)
            if done and done[-1] in ("column", "again but other"):
                break  # with more, it could be a right listing of other figures
        if "cut left" in done and any(block.count("_UUID") == 1 for block in "\n".join(lines).split("Mounted on")):
            continue  # a name alone can't be told from one that lost its beginning
        checked(
            tmp_path / "a",
            "\n".join(lines) + "\n",
            known,
            form,
            f"TOKIOD_SEED={SEED}, file {number}, {form}, {done}",
            is_whole=lines == whole,
        )


def checked(path, text, known, form, what, *, is_whole):
    """Check what a file gives: every cell is right, and what is missing is counted or refused."""
    what = f"{what}:\n{text}"
    data, sentence = outcome(text, path)
    if sentence is not None:
        assert re.search(r": nothing could be read.*for example|is not an output of", sentence), what
        is_enough = form not in ("-s", "-N") and "output" not in form
        assert not (is_whole and is_enough), (sentence, what)
        return
    rounded = data.why.get("digits that lfs df -h rounds away")
    is_taken = rounded is not None and "powers of 1024, as -h prints them and not -H" in rounded.remedy
    for batch in data.batches:
        for column, value in zip(batch.column, batch.value.tolist(), strict=True):
            name = batch.columns[column]
            if batch.dataset.startswith("fullness/"):
                assert name in known, (name, what)
                if "H" in form and is_taken:
                    continue  # the sentence says what was taken
                expected, within_ = right(known[name], batch.dataset, form)
                assert abs(value - expected) <= within_, (batch.dataset, name, value, expected, what)
    # Read in powers of 1024, a share may contradict figures in powers of 1000.
    if is_whole and "output" not in form and not ("H" in form and is_taken):
        assert set(data.dropped) <= {"digits that lfs df -h rounds away"}, (data.dropped, what)
        kind = "inodes" if "i" in form else "bytes"
        assert {len(batch) for batch in data.batches if batch.dataset.startswith(f"fullness/{kind}")} == {len(known)}, what


def outcome(text, path):
    """The data of a window, or the sentence of a refusal."""
    path.write_text(text)
    try:
        return within(lustre.saved([path], lustre.Saved(time=START), SITE), lambda c: c.collect(WINDOW)), None
    except TokiodError as error:
        return None, str(error)


def device(number, state, kind, name, nid):
    suffix, uuid = "ffff9a3b4c5d6000", "8dbdc7f6-8f86-86ea-052f-357e2db2a7d9"
    return f"{number:>3} {state} {kind} {name}-{kind}-{suffix} {uuid} 4{f' {nid}' if nid else ''}"


def devices(chance, form):
    """{target: NID}, the targets that are up, and the lines of a list."""
    network = chance.choice(["tcp", "o2ib", "o2ib2", "o2ib12", "kfi"])
    known = {
        f"{system}-{kind}{index:04x}": f"10.{chance.randrange(256)}.0.{chance.randrange(256)}@{network}"
        for system in chance.sample(["scratch", "a-b"], chance.randint(1, 2))
        for kind in ("MDT", "OST")
        for index in chance.sample(range(300), 3)
    }
    up = {target for target in known if chance.random() < 0.9}
    if form == "-y":
        return known, up, ["devices:", *(line for target in known for line in ("- index: 1", "  status: UP", f"  name: {target}"))]
    if form == "server":
        return known, up, [f"{at:>3} UP obdfilter {target} {target}_UUID 7" for at, target in enumerate(known)]
    lines = ["  0 UP mgc MGC10.0.0.5@tcp 3547302e-74a0-7260-9a61-ddecc4161901 4"]
    for target, nid in known.items():
        kind, state = "osc" if "-OST" in target else "mdc", "UP" if target in up else "IN"
        lines.append(device(len(lines), state, kind, target, nid if form == "-t" else ""))
    return known, up, lines


def test_every_list_of_devices_is_read_right_or_refused(tmp_path):
    for number in range(FILES):
        chance = random.Random(f"{SEED} devices {number}")
        form = ("-t", "-t", "-t", "without -t", "-y", "server")[number % 6]
        known, up, lines = devices(chance, form)
        kind, place = chance.choice(["", "cut", "lose", "again", "again but other"]), chance.randrange(len(lines))
        if kind == "cut":
            lines[place] = lines[place][: chance.randrange(5, len(lines[place]) + 1)]
        elif kind == "lose":
            del lines[place]
        elif kind:
            lines.insert(place + 1, lines[place].replace("@", "9@") if kind.endswith("other") else lines[place])
        text = "\n".join(lines) + "\n"
        what = f"TOKIOD_SEED={SEED}, devices {number}, {form}, {kind}:\n{text}"
        found = parse_dl.parse(text.encode())
        parse_dl.drop_rest(found)
        assert found.served.items() <= known.items(), (found.served.items() - known.items(), what)
        assert set(found.served) == up or form != "-t" or kind not in {"", "again"}, what
        assert set(found.served) >= up or kind == "lose" or found.dropped.counts.total(), what
        data, sentence = outcome(text, tmp_path / "a")
        assert found.served or sentence or data.dropped, what
