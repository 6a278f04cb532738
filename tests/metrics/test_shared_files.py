"""Counts outlive the processes, are summed over all of them, and take a fixed amount of disk."""

import os
import re
import subprocess
import sys

import pytest
from counted import configured, counting_here, process, run, values

from tokiod.metrics import catalogue, shared_files

COUNT = 'catalogue.WINDOWS.inc("a", "stored"); catalogue.STAGE.observe(0.3, "a", "collect"); catalogue.UNACKNOWLEDGED_WINDOWS.set(3); '
DIE = "os.kill(os.getpid(), signal.SIGKILL)"
COUNTED = {
    ("tokiod_windows_total", "a", "stored"): 1,
    ("tokiod_stage_seconds_sum", "a", "collect"): 0.3,
    ("tokiod_stage_seconds_count", "a", "collect"): 1,
}


def without_buckets(found):
    return {key: value for key, value in found.items() if not key[0].endswith("_bucket")}


def test_counters_go_on_where_a_killed_process_has_left_them_and_its_gauges_are_gone(tmp_path):
    for times in range(1, 4):
        run(tmp_path, "collectors", COUNT + DIE)
        expected = {key: pytest.approx(times * value) for key, value in COUNTED.items()}
        assert without_buckets(values(tmp_path)) == expected


def test_the_gauges_of_a_process_are_reported_while_it_lives(tmp_path):
    with process(tmp_path, "collectors", COUNT + "print(flush=True); signal.pause()") as running:
        running.stdout.readline()
        assert values(tmp_path)["tokiod_bus_unacknowledged_windows",] == 3
        assert shared_files.process(tmp_path / "metrics", "collectors") == running.pid
        running.kill()
    assert ("tokiod_bus_unacknowledged_windows",) not in values(tmp_path)
    assert shared_files.process(tmp_path / "metrics", "collectors") is None


def test_gauges_of_an_ended_process_do_not_come_back_with_the_next(tmp_path):
    run(tmp_path, "collectors", COUNT + DIE)
    with process(tmp_path, "collectors", "print(flush=True); signal.pause()") as running:
        running.stdout.readline()
        assert ("tokiod_bus_unacknowledged_windows",) not in values(tmp_path)
        running.kill()


def test_a_histogram_counts_a_value_in_every_bucket_that_it_fits_into(tmp_path):
    run(tmp_path, "collectors", COUNT)
    buckets = {key[3]: value for key, value in values(tmp_path).items() if key[0].endswith("_bucket")}
    assert buckets == {str(bound): 1 for bound in (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)} | {"+Inf": 1}


def test_the_roles_are_summed_up_each_from_its_own_process(tmp_path):
    run(tmp_path, "collectors", COUNT)
    run(tmp_path, "writer", 'catalogue.WRITER_CELLS.inc(by=600); catalogue.WINDOWS.inc("a", "stored")')
    assert without_buckets(values(tmp_path)) == {key: pytest.approx(value) for key, value in COUNTED.items()} | {
        ("tokiod_writer_cells_total",): 600
    }


def test_ten_thousand_deaths_leave_as_many_files_as_one(tmp_path):
    """A few stand for them: what a process opens has its role's name, and no process's."""
    listed = set()
    for _ in range(3):
        run(tmp_path, "collectors", COUNT + DIE)
        listed.add(tuple(sorted(path.name for path in (tmp_path / "metrics").iterdir())))
    assert listed == {("collectors.alive", "counter_collectors.db", "gauge_livesum_collectors.db", "histogram_collectors.db")}


@pytest.mark.parametrize("sources", [0, 1, 50])
def test_the_files_are_allocated_in_advance_so_that_a_full_disk_ends_no_process(tmp_path, sources):
    """A write into a mapped page that the disk has no room for ends the process with SIGBUS."""
    config = configured(tmp_path, *[f"a-source-of-a-rather-long-name-{number}" for number in range(sources)])
    for role in catalogue.ROLES:
        with counting_here(config, role):
            for prefix in shared_files.PREFIXES:
                path = tmp_path / "metrics" / f"{prefix}_{role}.db"
                used = int.from_bytes(path.read_bytes()[:4], sys.byteorder)
                assert used <= shared_files.FILE_BYTES + shared_files.BYTES_PER_SOURCE * sources == path.stat().st_size
                assert path.stat().st_blocks * 512 >= path.stat().st_size


def test_a_torn_file_is_replaced_and_stops_no_process(tmp_path):
    run(tmp_path, "collectors", COUNT)
    (tmp_path / "metrics" / "counter_collectors.db").write_bytes(b"\xff\x00\x00\x7f" + bytes(range(256)) * 16)
    (tmp_path / "metrics" / "histogram_collectors.db").write_bytes(b"")
    run(tmp_path, "collectors", COUNT)
    assert without_buckets(values(tmp_path)) == {key: pytest.approx(value) for key, value in COUNTED.items()}


def test_a_second_process_in_a_role_runs_on_uncounted(tmp_path):
    with process(tmp_path, "collectors", COUNT + "print(flush=True); signal.pause()") as running:
        running.stdout.readline()
        output = run(tmp_path, "collectors", f"{COUNT}print('still here')")
        assert f"process {running.pid} already " in output
        assert output.endswith("still here\n")
        assert values(tmp_path)["tokiod_windows_total", "a", "stored"] == 1
        running.kill()


def test_clear_deletes_the_files_of_vacant_roles_only(tmp_path):
    run(tmp_path, "collectors", COUNT)
    with process(tmp_path, "writer", "catalogue.WRITER_CELLS.inc(by=5); print(flush=True); signal.pause()") as running:
        running.stdout.readline()
        shared_files.clear(tmp_path / "metrics", catalogue.ROLES)
        assert values(tmp_path) == {("tokiod_writer_cells_total",): 5}
        running.kill()
    shared_files.clear(tmp_path / "metrics", catalogue.ROLES)
    assert values(tmp_path) == {}


def test_labels_that_are_no_configured_source_or_known_word_are_not_counted(tmp_path):
    with counting_here(configured(tmp_path, "a"), "collectors"):
        catalogue.WINDOWS.inc("a", "stored")
        catalogue.WINDOWS.inc("somebody's text", "stored")
        catalogue.WINDOWS.inc("a", "something new")
        catalogue.STAGE.observe(1.0, "c", "collect")
        assert values(tmp_path) == {("tokiod_windows_total", "a", "stored"): 1}


def test_every_label_set_exists_from_the_start_so_that_a_first_increase_is_seen(tmp_path):
    with counting_here(configured(tmp_path, "a", "b"), "collectors"):
        (family,) = (one for one in shared_files.collect(tmp_path / "metrics", catalogue.ROLES) if one.name == "tokiod_windows")
    found = {(sample.labels["source"], sample.labels["outcome"]): sample.value for sample in family.samples}
    assert found == {(source, outcome): 0 for source in ("a", "b") for outcome in catalogue.OUTCOMES}


def test_sources_of_another_configuration_are_counted_too_and_the_others_go_on(tmp_path):
    with counting_here(configured(tmp_path, "a"), "collectors"):
        catalogue.WINDOWS.inc("a", "stored")
        other = configured(tmp_path, "b", "a")
        catalogue.start_counting(other.counters, "collectors", other.source)
        catalogue.WINDOWS.inc("a", "stored")
        catalogue.WINDOWS.inc("b", "lost")
        assert values(tmp_path) == {("tokiod_windows_total", "a", "stored"): 2, ("tokiod_windows_total", "b", "lost"): 1}


def test_without_metrics_nothing_is_imported_made_or_counted(tmp_path):
    code = """
import sys
from pathlib import Path
from types import SimpleNamespace
import tokiod.polling.process, tokiod.writer.process, tokiod.supervisor.supervisor
from tokiod.supervisor.health import serve_unit_health
from tokiod.metrics import catalogue
from tokiod.runtime.service import Service
catalogue.start_counting(None, "collectors", ())
catalogue.WINDOWS.inc("a", "stored")
service = Service(lambda: SimpleNamespace(metrics=None))
print(serve_unit_health(service, None) is service, {"aiohttp", "prometheus_client"} & sys.modules.keys())
"""
    output = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300).stdout
    assert (output, list(tmp_path.iterdir())) == ("True set()\n", [])


def test_a_directory_that_cannot_be_created_is_logged_and_stops_no_process(tmp_path):
    (tmp_path / "metrics").write_text("in the way")
    assert re.search("metrics.failed.*File exists.*\nNone", run(tmp_path, "collectors", COUNT + "print(None)"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_a_full_disk_means_no_metrics_and_no_sigbus(tmp_path):
    (tmp_path / "metrics").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(tmp_path / "metrics")]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can't be mounted here")
    try:
        with process(tmp_path, "collectors", COUNT + "print('still here')") as running:
            output = running.communicate(timeout=150)[0]
        assert (running.returncode, output.splitlines()[-1]) == (0, "still here")
        assert "No space left" in output
    finally:
        subprocess.run(["umount", "-l", str(tmp_path / "metrics")], check=True)
