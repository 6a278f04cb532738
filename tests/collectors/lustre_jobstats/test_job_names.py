"""What the formats of jobid_name make of job ids."""

import re
import shutil
import subprocess
import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from collectors.lustre_jobstats.job_names import MAX_BYTES, JobName, JobNames
from tokiod.errors import TokiodError


@pytest.mark.parametrize(
    ("formats", "identity", "expected"),
    [
        (["%j"], b"SLURM_JOB10", JobName(job="SLURM_JOB10")),
        (["%j:%u:%H"], b"SLURM_JOB10:0:es18-co-client", JobName(job="SLURM_JOB10", user="0", node="es18-co-client")),
        (["%e.%u"], b"a.out.1000", JobName(command="a.out", user="1000")),
        (["%j:%u:%H", "%e.%u"], b"kworker/3:1.0", JobName(command="kworker/3:1", user="0")),
        (["%e.%p@%h"], b"dd.77@n1.site.example", JobName(command="dd", node="n1.site.example")),
        (["job=%j;%g"], b"job=12[3];100", JobName(job="12[3]")),
        (["%j:%u"], b"4711", JobName(is_known=False)),
        (["%j:%u"], b"4711:root", JobName(is_known=False)),
        (["%e.%u"], b"\x1b[31m.1000", JobName(command="\\x1b[31m", user="1000")),
        (["%e.%u"], b"\xc3\xa4.1000", JobName(command="\\xc3\\xa4", user="1000")),
        (["%j"], b"", JobName(is_known=False)),
        (["%j"], b"4711:1000:n1", JobName(is_known=False)),
    ],
)
def test_an_id_names_what_its_format_put_there(formats, identity, expected):
    assert JobNames(formats).of(identity) == expected


@pytest.mark.parametrize("formats", [["%j", "%e.%u"], ["%e.%u", "%j"]])
@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (b"bash.0", JobName(command="bash", user="0")),
        (b"7z.1000", JobName(command="7z", user="1000")),
        (b"2to3.1000", JobName(command="2to3", user="1000")),
        (b"kworker/86:1.0", JobName(command="kworker/86:1", user="0")),
        (b"4711", JobName(job="4711")),
        (b"1234[5].pbs01.site", JobName(job="1234[5].pbs01.site")),
        (b"SLURM_JOB10", JobName(job="SLURM_JOB10")),
    ],
)
def test_a_job_alone_is_what_no_narrower_format_matches(formats, identity, expected):
    assert JobNames(formats).of(identity) == expected


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (b":17627127:r01c01", JobName(user="17627127", node="r01c01")),
        (b"11317854:17627127:", JobName(job="11317854", user="17627127")),
        (b"11317854::r01c01", JobName(job="11317854", node="r01c01")),
        (b"11317854:17627127:r01c01.bullx", JobName(job="11317854", user="17627127", node="r01c01")),
        (b"wget.", JobName(command="wget")),
        (b".0", JobName(user="0")),
        (b"::", JobName(is_known=False)),
        (b":1317854:17627127:r01c01", JobName(is_known=False)),
        (b"11317854:17627127", JobName(is_known=False)),
    ],
)
def test_any_part_of_an_id_may_be_empty(identity, expected):
    """As Lustre 2.12 wrote them on a large site, where a job's environment can't be read."""
    assert JobNames(["%j:%u:%H", "%e.%u"]).of(identity) == expected


@pytest.mark.parametrize(
    ("form", "identity", "expected"),
    [
        ("%j?%H:%e:%u", b"login1:cp:0", JobName(node="login1", command="cp", user="0")),
        ("%j?%H:%e:%u", b"4711:cp:1000", JobName(job="4711", command="cp", user="1000")),
        ("%j?%H:%e:%u", b":cp:1000", JobName(command="cp", user="1000")),
        ("%j?%H:%e:%u", b"4711?n1:cp:1000", JobName(is_known=False)),
        ("%j?%e.%u", b"a.out.1000", JobName(command="a.out", user="1000")),
        ("%j?%e.%u", b"1234.pbs01.1000", JobName(job="1234.pbs01", user="1000")),
        ("%.3e.%u", b"cp.500", JobName(command="cp", user="500")),
        ("%.3e.%u", b"tou.500", JobName(command="tou", user="500")),
        ("%.3e.%u", b"touch.500", JobName(is_known=False)),
        ("%.3e.%u.%.2h", b"tou.500.lo", JobName(command="tou", user="500", node="lo")),
        ("%.3e", b"tou", JobName(command="tou")),
        ("%.2p", b"12", JobName()),
        ("%e:%.4u", b"a:100", JobName(command="a", user="100")),
        ("%e:%.4u", b"a:1000", JobName(command="a")),
        ("%j %e", b"7", JobName(is_known=False)),
    ],
)
def test_formats_of_lustre_2_16(form, identity, expected):
    """Its tests 205k and 205m of sanity.sh. A uid that fills its width may be the begin of another one."""
    if form == "%j %e":  # Lustre leaves out blanks, and then nothing separates the parts
        with pytest.raises(TokiodError, match="a separator between two codes"):
            JobNames([form])
        return
    assert JobNames([form]).of(identity) == expected


@pytest.mark.parametrize(
    ("formats", "identity", "expected", "is_cut"),
    [
        (["%j:%u"], b"1234567.pbs01.cluster.exa:10012", JobName(job="1234567.pbs01.cluster.exa"), True),
        (["%j:%u"], b"1234567.pbs01.cluster.ex:10012", JobName(job="1234567.pbs01.cluster.ex", user="10012"), False),
        (["%e:%u:%H"], b"node_exporter:989:es-2-virt3-co", JobName(command="node_exporter", user="989"), True),
        (["%j:%u:%H", "%e.%u"], b"SLURM_JOB_machine184_74186:0:ma", JobName(job="SLURM_JOB_machine184_74186", user="0"), True),
        (["%j:%u:%H", "%e.%u"], b"1234567.pbs01.cluster.exa:10012", JobName(job="1234567.pbs01.cluster.exa"), True),
        (["%j:%u:%H", "%e.%u"], b"1234567.pbs01.cluster.ex:10012:", JobName(job="1234567.pbs01.cluster.ex", user="10012"), True),
        (["%j:%u:E"], b"1234567.pbs01.cluster.ex:1000:E", JobName(job="1234567.pbs01.cluster.ex", user="1000"), False),
        (["%j"], b"1234567.pbs01.cluster.example.o", JobName(), True),
        (["%j:%u"], b"1234567.pbs01.cluster.example.o", JobName(is_known=False), False),
    ],
)
def test_the_last_part_of_an_id_of_31_bytes_is_unknown_for_lustre_cut_it(formats, identity, expected, is_cut):
    name = JobNames(formats).of(identity)
    assert (name, name.is_cut) == (expected, is_cut)


def test_a_text_in_the_place_of_a_job_is_known_to_be_one_only_if_it_is_a_schedulers():
    names = JobNames(["%j?%H:%u"])
    assert [names.of(one).may_be_job for one in (b"4711:1000", b"alice:1000", b":1000")] == ["", "alice", ""]


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
        ("%.3x", "no code %x; it has %e, %g"),
        ("%j?H", "expected %h, %H or %e after %j?, and no width"),
        ("%j?%.3H", "expected %h, %H or %e after %j?, and no width"),
        ("%j?%u", "expected %h, %H or %e after %j?, and no width"),
        ("%j?%H%e", "a separator between two codes"),
        ("%H.%j?%h", "no part of an id twice"),
    ],
)
def test_a_format_that_can_not_be_read_is_refused(form, message):
    with pytest.raises(TokiodError, match=re.escape(message)):
        JobNames([form])


@given(st.from_regex(r"\A[a-z0-9]{1,8}\Z"), st.from_regex(r"\A[ -~]{1,8}\Z"), st.integers(0, 2**32), st.from_regex(r"\A[a-z0-9-]{1,8}\Z"))
def test_what_was_put_in_comes_out(job, command, user, node):
    identity = f"{job}:{user}:{node}:{command}".encode()
    assume(len(identity) != MAX_BYTES)
    assert JobNames(["%j:%u:%H:%e"]).of(identity) == JobName(job, command, str(user), node)


@given(st.binary(max_size=128))
def test_names_are_printable_whatever_the_id_is(identity):
    name = JobNames(["%e.%u", "%e:%h", "%j"]).of(identity)
    assert all(part.isascii() and part.isprintable() for part in (name.job, name.command, name.user, name.node) if part is not None)


def test_ids_are_read_by_the_python_of_the_distribution():
    """Packages use it; that of Debian 12, 3.11.2, matches some possessive repeats with nothing."""
    python = shutil.which("python3.11", path="/usr/bin")
    if python is None:
        pytest.skip("no /usr/bin/python3.11")
    (form,) = JobNames(["%j:%u:%H"])._formats
    code = f"import re; print(re.fullmatch({form.whole.pattern!r}, b'4711:1000:nid00012').groups())"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("(b'4711', b'1000', b'nid00012')\n", "")


def test_no_id_takes_long():
    names, begin = JobNames(["%e.%u.%h.%p", "%j.%e.%H"]), time.process_time()
    for identity in (b"." * 128, b"1." * 64, b"a" * 128):
        names.of(identity)
    assert time.process_time() - begin < 0.2
