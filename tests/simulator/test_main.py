import http.client
import json
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from tokiod.simulator.__main__ import simulator
from tokiod.simulator.lmt.database import Database
from tokiod.simulator.site import Site
from tokiod.simulator.sources import COLLECTD, ESNET, LUSTRE, free_port

MIDNIGHT = 1_517_126_400


def arguments(path, *more):
    return ["lmt", "--database", str(path), *more]


@pytest.mark.system
def test_it_runs_until_sigterm_and_leaves_a_whole_file_of_the_site_that_its_options_describe(tmp_path):
    path = tmp_path / "lmt.sqlite3"
    clock = f"{MIDNIGHT + 3}.0@{time.time()}x1"
    sizes = (
        "--seed",
        "7",
        "--osts",
        "3",
        "--osss",
        "2",
        "--mdts",
        "1",
        "--timezone",
        "UTC",
        "--history",
        "10m",
        "--growth",
        "5m",
        "--no-trouble",
    )
    command = [sys.executable, "-m", "tokiod.simulator", *arguments(path, "--clock", clock, *sizes)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert (process.communicate(timeout=300)[1], process.returncode) == (b"", 0)
    assert [p.name for p in tmp_path.iterdir()] == ["lmt.sqlite3"]
    site = Site(MIDNIGHT - 600, 7, "UTC", osts=3, osss=2, mdts=1, trouble=False, growth=300)
    database = Database(path, site)
    assert database.next_step() >= 119
    database.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clock", "noon"], "Invalid value for '--clock'"),
        (["--clock", "0@0x1", "--history", "2 fortnights"], "Invalid value for '--history'"),
        (["--clock", f"{MIDNIGHT}@0x1", "--osts", "0"], "at least one OST"),
        (["--clock", f"{MIDNIGHT}@0x1", "--timezone", "Mars/Olympus"], "Mars/Olympus"),
        ([], "Missing option '--clock'"),
    ],
)
def test_a_mistake_is_one_message_and_not_a_traceback(tmp_path, options, message):
    result = CliRunner().invoke(simulator, arguments(tmp_path / "lmt.sqlite3", *options))
    assert message in result.output
    assert result.exit_code in (1, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", ["other site", "text"])
def test_a_file_that_is_not_this_sites_is_refused_by_name(tmp_path, make):
    path = tmp_path / "lmt.sqlite3"
    if make == "text":
        path.write_text("not a database at all, but long enough to be read as one" * 20)
    else:
        Database(path, Site(MIDNIGHT, seed=9)).close()
    result = CliRunner().invoke(simulator, arguments(path, "--clock", f"{MIDNIGHT}@0x1"))
    assert f"{path} is not this site's" in result.output
    assert result.exit_code == 1


@pytest.mark.system
def test_collectd_answers_until_sigterm(tmp_path):
    port = free_port()
    site = tmp_path / "site.json"
    Site(MIDNIGHT - 600, hosts=2, devices=1, cores=1, trouble=False).save(site)
    clock = f"{MIDNIGHT}.0@{time.time()}x1"
    command = [sys.executable, "-m", "tokiod.simulator", "collectd", "--listen", f"127.0.0.1:{port}", "--clock", clock, "--site", str(site)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not COLLECTD.ready(tmp_path, port) and process.poll() is None:
            time.sleep(0.02)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        connection.request("GET", "/_all/_count")
        counted = json.loads(connection.getresponse().read())["count"]
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert (process.communicate(timeout=300)[1], process.returncode) == (b"", 0)
    assert 2 * 13 * 58 <= counted <= 2 * 13 * 62


@pytest.mark.system
def test_esnet_answers_until_sigterm(tmp_path):
    port = free_port()
    site = tmp_path / "site.json"
    Site(MIDNIGHT - 600, interfaces=1, trouble=False).save(site)
    clock = f"{MIDNIGHT}.0@{time.time()}x1"
    command = [sys.executable, "-m", "tokiod.simulator", "esnet", "--listen", f"127.0.0.1:{port}", "--clock", clock, "--site", str(site)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not ESNET.ready(tmp_path, port) and process.poll() is None:
            time.sleep(0.02)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
        connection.request("GET", "/snmp/west/snx1-cr1/interface/to_site_ip-0_v4/in")
        points = json.loads(connection.getresponse().read())["data"]
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert (process.communicate(timeout=300)[1], process.returncode) == (b"", 0)
    assert [time for time, _ in points[:2]] == [MIDNIGHT - 600, MIDNIGHT - 570]
    assert sum(rate is not None for _, rate in points) >= 18


@pytest.mark.system
def test_programs_answer_until_sigterm(tmp_path):
    site = tmp_path / "site.json"
    Site(MIDNIGHT - 600, trouble=False).save(site)
    clock = f"{MIDNIGHT}.0@{time.time()}x1"
    command = [sys.executable, "-m", "tokiod.simulator", "lustre", "--bin", str(tmp_path / "bin"), "--clock", clock, "--site", str(site)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not LUSTRE.ready(tmp_path, 0) and process.poll() is None:
            time.sleep(0.02)
        listed = subprocess.run(
            [tmp_path / "bin" / "lfs", "df", "-l", "/scratch1"], capture_output=True, text=True, check=True, timeout=100
        )
        process.send_signal(signal.SIGTERM)
        assert (process.communicate(timeout=300)[1], process.returncode) == (b"", 0)
    assert listed.stdout.count("_UUID ") == 26


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["collectd", "--listen", "203.0.113.1:9"], "203.0.113.1"),
        (["esnet", "--listen", "here"], "Invalid value for '--listen'"),
        (["esnet", "--listen", "203.0.113.1:9"], "203.0.113.1"),
        (["mmperfmon", "--bin", "/proc/nowhere"], "/proc/nowhere"),
        (["lustre", "--clock", "noon"], "Invalid value for '--clock'"),
    ],
)
def test_a_mistake_about_the_others_is_one_message_and_not_a_traceback(tmp_path, line, message):
    Site(MIDNIGHT).save(tmp_path / "site.json")
    result = CliRunner().invoke(
        simulator, [*line, *("--clock", "0@0x1")[: 2 * ("--clock" not in line)], "--site", str(tmp_path / "site.json")]
    )
    assert message in result.output
    assert result.exit_code in (1, 2)
