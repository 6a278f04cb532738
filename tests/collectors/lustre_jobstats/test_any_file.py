"""Random outputs of job_stats in each documented form, damaged at random: each is stored right, or what was found is named."""

import os
import random
import re

import archived_input
from jobstats_text import OST, target

FILES = 30
SEED = int(os.environ.get("TOKIOD_SEED", random.SystemRandom().randrange(10**6)))
START = 1_717_230_600
SPAN = START - 600, START + 1200
FORMS = ("lctl", "lctl", "BEGIN", "BEGIN", "pdsh", "pdsh BEGIN", "/proc", "/proc BEGIN", "-n")
VERSIONS = ("2.15", "2.12", "2.5")
IDS = {
    b"4711:1000:nid1": ("4711", "1000", None, "nid1"),
    b"4712:1001:nid2": ("4712", "1001", None, "nid2"),
    b"bash.0": (None, "0", "bash", None),
    b"kworker/86:1.0": (None, "0", "kworker/86:1", None),
    b"7z.1000": (None, "1000", "7z", None),
    b"12_3:5:n": ("12_3", "5", None, "n"),
    b'a"b.7': (None, "7", 'a"b', None),
    b":0:login1": (None, "0", None, "login1"),
    b"x y.3": (None, "3", "x y", None),
}
"""What each names: job, user, command, node."""


class Site:
    """What the targets of a file system counted at each poll: {(poll, target): {job id: {operation: (samples, sum)}}}."""

    def __init__(self, chance, form):
        count = 1 if form.startswith("/proc") else chance.randint(1, 4)
        kinds = [chance.choice(["OST", "OST", "MDT"]) for _ in range(count)]
        self.targets = [f"fs-{kind}{index:04x}" for kind, index in zip(kinds, chance.sample(range(300), count), strict=True)]
        self.times = [START + 60 * poll for poll in range(chance.randint(1, 3) if "BEGIN" in form else 1)]
        self.version = chance.choice(VERSIONS)
        self.known, self.texts = {}, {}
        for name in self.targets:
            jobs = chance.sample([*IDS], chance.randint(1, 5))
            begins = {job: (START - chance.randrange(100, 500)) * 10**9 + chance.randrange(10**9) for job in jobs}
            counts = {job: dict.fromkeys(self.operations(name), (0, 0)) for job in jobs}
            for time in self.times:
                counts = {job: {name: grown(chance, name, *pair) for name, pair in of.items()} for job, of in counts.items()}
                moments = {job: time * 10**9 - chance.randrange(10**9, 20 * 10**9) for job in jobs}
                self.known[time, name] = counts
                listed = [(job, counts[job], moments[job], begins[job]) for job in jobs]
                self.texts[time, name] = target(listed, None if form in {"/proc", "/proc BEGIN", "-n"} else name, version=self.version)

    def operations(self, name):
        return ("open", "close", "mknod", "unlink") if "MDT" in name else ("read_bytes", "write_bytes", *OST[:4])

    def lines(self, form):
        """The lines of a file of a form."""
        found = []
        for time in self.times:
            found += [f"BEGIN {time}".encode()] if "BEGIN" in form else []
            of_hosts = {f"oss{n % 2}": [] for n in range(len(self.targets))}
            for n, name in enumerate(self.targets):
                of_hosts[f"oss{n % 2}"] += self.texts[time, name].splitlines()
            for host, lines in of_hosts.items():
                found += [host.encode() + b": " + line for line in lines] if "pdsh" in form else lines
        return found

    def right(self, time, name, job):
        """Return the counts of a job, without zeros."""
        is_old = self.version != "2.15"
        found = {}
        for operation, (samples, total) in self.known.get((time, name), {}).get(job, {}).items():
            has_sum = operation.endswith("_bytes") or not is_old
            found |= {f"{operation}.samples": samples, f"{operation}.sum": total if has_sum else 0}
        return {count: value for count, value in found.items() if value}


def grown(chance, name, samples, total):
    more = chance.choice([0, chance.randrange(1, 9), chance.randrange(10**6)])
    return samples + more, total + more * (4096 if name.endswith("_bytes") else chance.randrange(1, 50))


def damaged(chance, lines):
    """Lines with some damage, and what was done."""
    lines, place = list(lines), chance.randrange(len(lines))
    counts = [n for n, line in enumerate(lines) if b"samples:" in line]
    kind = chance.choice(["cut", "cut left", "end", "begin", "lose", "again", "join", "again but other", "unit", "block", "digit"])
    if kind == "cut":
        lines[place] = lines[place][: chance.randrange(len(lines[place]) + 1)]
    elif kind == "cut left":
        lines[place] = lines[place][chance.randrange(len(lines[place]) + 1) :]
    elif kind == "again":
        lines.insert(place + 1, lines[place])
    elif kind == "join" and place + 1 < len(lines):
        lines[place : place + 2] = [lines[place] + lines[place + 1]]
    elif kind in {"unit", "again but other", "digit"} and counts:
        at = chance.choice(counts)
        changed = {
            "unit": re.sub(rb"unit: +\w+", chance.choice([b"unit: KB", b"", b"unit: kilo1"]), lines[at]),
            "again but other": re.sub(rb"samples: +(\d+)", rb"samples: 1\1", lines[at]),
            "digit": re.sub(rb"samples: +\d+", b"samples: " + chance.choice([b"-1", b"18446744073709551615", b"1e5", b""]), lines[at]),
        }[kind]
        lines[at : at + (kind != "again but other")] = [changed]
    elif kind == "block":
        begins = [n for n, line in enumerate(lines) if b"- job_id:" in line]
        if begins:
            at = chance.choice(begins)
            following = [n for n in range(at + 1, len(lines)) if b"  " not in lines[n][:8]]
            lines[at:at] = lines[at : following[0] if following else len(lines)]
    else:
        lines = {"end": lines[:place], "begin": lines[place:]}.get(kind, lines[:place] + lines[place + 1 :])
    return lines, kind


def test_every_output_is_stored_right_or_what_was_found_is_named(tmp_path):
    for number in range(FILES):
        chance = random.Random(f"{SEED} {number}")
        form = FORMS[number % len(FORMS)]
        site = Site(chance, form)
        whole = lines = site.lines(form)
        done = []
        for _ in range(chance.choice([0, 1, 1, 2])):
            lines, kind = damaged(chance, lines or [b""])
            done.append(kind)
        path = tmp_path / (f"{site.targets[0]}.job_stats" if form.startswith("/proc") else "a")
        path.write_bytes(b"\n".join(lines) + b"\n")
        what = f"TOKIOD_SEED={SEED}, file {number}, {form}, {site.version}, {done}:\n" + path.read_text("latin-1")
        check(path, site, form, done, what, is_whole=lines == whole)


def check(path, site, form, done, what, *, is_whole):
    """Check what a file gives: every row is right, and what is missing is counted or refused."""
    options = ("--time", START, "--jobid-name", "%j:%u:%H", "--jobid-name", "%e.%u")
    out, message = archived_input.archived("lustre_jobstats", path, SPAN, *options)
    lost = {"lose", "begin", "end", "cut", "cut left", "join"} & {*done}
    if out is None:
        assert re.search(r"for example|job_stats|could be read", message) or (lost and "no data" in message), (message, what)
        assert not is_whole or form == "-n", (message, what)
        return
    seen = set()
    rows = archived_input.rows(out)
    for parts, name, time, ended, counts in rows:
        job = next((job for job, named in IDS.items() if named == parts), None)
        right = [site.right(one, name, job) for one in site.times if one == time or ended or lost]
        if job is None and {"cut", "cut left", "join"} & {*done}:
            # A job id that was cut is another one.
            right = [counts for one in site.times for counts in (site.right(one, name, job) for job in IDS)]
        if lost and sum(found[1:3] == (name, time) for found in rows) <= len(done):
            # Nothing says which lines the only job of a target had, or all of them.
            right += [counts for one in right if counts.items() <= one.items()]
        assert counts in right, (parts, name, time, ended, counts, right, message, what)
        seen.add((name, job))
    known = {(name, job) for (_, name), jobs in site.known.items() for job in jobs}
    assert not is_whole or (seen == known and "dropped" not in message), (known - seen, message, what)
    assert seen == known or "dropped" in message or lost, (known - seen, message, what)
