"""What the formats of jobid_name make of job ids."""

import re
import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.lustre_jobstats.job_names import JobName, JobNames
from tokiod.errors import TokiodError


@pytest.mark.parametrize(
    ("formats", "identity", "expected"),
    [
        (["%j"], b"SLURM_JOB10", JobName(job="SLURM_JOB10")),
        (["%j:%u:%H"], b"SLURM_JOB10:0:es18kxe-co-client", JobName(job="SLURM_JOB10", user="0", node="es18kxe-co-client")),
        (["%e.%u"], b"a.out.1000", JobName(command="a.out", user="1000")),
        (["%j:%u:%H", "%e.%u"], b"kworker/3:1.0", JobName(command="kworker/3:1", user="0")),
        (["%e.%p@%h"], b"dd.77@n1.site.example", JobName(command="dd", node="n1.site.example")),
        (["job=%j;%g"], b"job=12[3];100", JobName(job="12[3]")),
        (["%j:%u"], b"4711", JobName(is_known=False)),
        (["%j:%u"], b"4711:root", JobName(is_known=False)),
        (["%e.%u"], b"\x1b[31m.1000", JobName(is_known=False)),
        (["%e.%u"], b"\xc3\xa4.1000", JobName(is_known=False)),
        (["%j"], b"", JobName(is_known=False)),
    ],
)
def test_an_id_names_what_its_format_put_there(formats, identity, expected):
    assert JobNames(formats).of(identity) == expected


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("%j%u", "a separator between two codes"),
        ("%x", "no code %x; it has %e, %g"),
        ("%j:%", "a code after each %"),
        ("job", "at least one code"),
        ("%j:%j", "no part of an id twice"),
        ("%h:%H", "no part of an id twice"),
        ("%j\n%u", "printable ASCII"),
    ],
)
def test_a_format_that_can_not_be_read_is_refused(form, message):
    with pytest.raises(TokiodError, match=re.escape(message)):
        JobNames([form])


@given(st.from_regex(r"\A[a-z0-9]{1,8}\Z"), st.from_regex(r"\A[ -~]{1,8}\Z"), st.integers(0, 2**32), st.from_regex(r"\A[a-z0-9-]{1,8}\Z"))
def test_what_was_put_in_comes_out(job, command, user, node):
    assert JobNames(["%j:%u:%H:%e"]).of(f"{job}:{user}:{node}:{command}".encode()) == JobName(job, command, str(user), node)


@given(st.binary(max_size=128))
def test_names_are_printable_whatever_the_id_is(identity):
    name = JobNames(["%e.%u", "%e:%h", "%j"]).of(identity)
    assert all(part.isascii() and part.isprintable() for part in (name.job, name.command, name.user, name.node) if part is not None)


def test_ids_are_read_by_the_python_of_the_distribution():
    """Packages use it; that of Debian 12, 3.11.2, matches some possessive repeats with nothing."""
    python = shutil.which("python3.11", path="/usr/bin")
    if python is None:
        pytest.skip("no /usr/bin/python3.11")
    (pattern,) = JobNames(["%j:%u:%H"])._patterns
    code = f"import re; print(re.fullmatch({pattern.pattern!r}, b'4711:1000:nid00012').groups())"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("(b'4711', b'1000', b'nid00012')\n", "")


def test_no_id_takes_long():
    names, begin = JobNames(["%e.%u.%h.%p", "%j.%e.%H"]), time.process_time()
    for identity in (b"." * 128, b"1." * 64, b"a" * 128):
        names.of(identity)
    assert time.process_time() - begin < 0.2
