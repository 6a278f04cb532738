"""What users see of compute nodes and their jobs, over agents, hub and daemon that run: no command or view needs to know of nodes."""

import json
import subprocess
from datetime import UTC, datetime

import numpy as np
import pytest
from node_agents import METRICS, STEP, job_rows, value
from node_site import NodeSite
from page import faults, show, text
from waiting import PATIENCE, wait_for
from web_site import WebProcess

import tokiod
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.sources import free_port

pytestmark = pytest.mark.system
MINUTES = 8
NODES = [f"nid{number:05}" for number in range(5)]
# In one script each: the page may draw the table again between two commands of the driver.
HEADINGS = "return [...document.querySelectorAll('#jobtable th')].map((one) => one.textContent)"
SORT = """
const choice = document.getElementById("jobby");
choice.value = [...choice.options].find((one) => one.textContent === arguments[0]).value;
choice.dispatchEvent(new Event("change", { bubbles: true }));
"""
JOB_ROWS = """
return [...document.querySelectorAll("#jobtable tbody tr")].map((row) => [...row.cells].map((cell) => cell.innerText));
"""


class Plant:
    """MINUTES of five nodes, stored; the daemon and the agents are stopped after it."""

    def __init__(self, directory):
        site = NodeSite(directory, len(NODES), 1, 20.0, gather=20)
        try:
            self.start, self.end = site.first, site.first + MINUTES * STEP
            wait_for(lambda: site.stored_until() >= self.end, 200 * PATIENCE, "nothing is stored")
            wait_for(lambda: site.wrong(self.end)[1:] == (0, 0), 200 * PATIENCE, "cells are wrong")
            self.once = self.run_with(site.path, "once", "nodes", "--json", "--clock", str(site.clock))
            self.listed = self.run_with(site.path, "nodes", "--json")
        finally:
            site.close()
        self.path, self.clock = site.path, f"{self.end}@0x0"
        self.port = free_port()
        with self.path.open("a") as file:
            file.write(f'[web]\naddress = "127.0.0.1:{self.port}"\n')

    @staticmethod
    def run_with(path, *words):
        line = python_command("tokiod.cli.tokioctl", *words, "--config", str(path))
        done = subprocess.run(line, capture_output=True, text=True, timeout=100 * PATIENCE, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *words):
        return self.run_with(self.path, *words, "--clock", self.clock)

    def ends(self):
        """{node: [CPU seconds of each job that ended]} of all minutes."""
        return {node: [values[0] for start in self.rows() for _, _, _, ended, values in job_rows(node, start) if ended] for node in NODES}

    def rows(self):
        return range(self.start, self.end, STEP)

    def long_jobs(self):
        """{job of the hour: its nodes}."""
        found = {}
        for node in NODES:
            for job, _, _, ended, _ in job_rows(node, self.start):
                if not ended:
                    found.setdefault(job.removeprefix("slurm:"), []).append(node)
        return found


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    return Plant(tmp_path_factory.mktemp("nodes"))


def iso(time):
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_once_and_nodes_show_what_the_agents_have_now(plant):
    once = json.loads(plant.once)
    assert {one["dataset"]: one["columns"] for one in once["datasets"]} == {f"nodes/{metric.name}": 5 for metric in METRICS}
    assert [(one["table"], one["rows"], one["targets"]) for one in once["tables"]] == [("jobs/operations", 10, 5)]
    assert [one["node"] for one in json.loads(plant.listed)] == NODES


def test_ls_and_plot_and_export_have_the_datasets_of_nodes(plant):
    listed = plant.run_with(plant.path, "ls", f"cluster.nodes:{iso(plant.start)[:10]}", "--json")
    assert {one["name"]: (one["units"], one["columns"]) for one in json.loads(listed)["datasets"]} == {
        f"nodes/{metric.name}": (metric.unit, 5) for metric in METRICS
    }
    drawn = plant.run("plot", "cluster.nodes", "nodes/load_1min", "--start", iso(plant.start), "--end", iso(plant.end))
    assert [line.split()[0] for line in drawn.splitlines() if line.startswith("nid")] == NODES
    exported = plant.run("export", "cluster.nodes", "nodes/net_sent", "--start", iso(plant.start), "--end", iso(plant.end), "--csv", "-")
    head, *lines = [line.split(",") for line in exported.splitlines()]
    assert head == ["time", *NODES]
    expected = [[iso(start), *(value(node, start, "net_sent") for node in NODES)] for start in plant.rows()]
    assert [[line[0], *(float(cell) if cell else None for cell in line[1:])] for line in lines] == expected


def test_top_sorts_jobs_by_cores_or_memory_and_the_nodes_are_named(plant):
    found = json.loads(plant.run("top", "cluster.nodes", "--since", iso(plant.start), "--until", iso(plant.end), "--json"))
    assert (found["by"], found["units"], found["of"]) == ("cpu", "cores", "nodes")
    lines = {one["job"]: (one["nodes"], [target["target"] for target in one["busiest"]]) for one in found["lines"]}
    long = plant.long_jobs()
    # Those of the hour began before the span: what they used in it is half a core on each node.
    assert {job: sorted(lines[job][1]) for job in long} == long
    rates = {one["job"]: one["rate"] for one in found["lines"]}
    assert {job: pytest.approx(0.5 * len(nodes), rel=0.2) for job, nodes in long.items()} == {job: rates[job] for job in long}
    memory = json.loads(plant.run("top", "cluster.nodes", "--by", "memory", "--limit", "1", "--json"))
    assert memory["lines"][0]["rate"] == pytest.approx(1e9 * max(map(len, long.values())), rel=0.01)
    assert "nid0000" in plant.run("top", "cluster.nodes", "--once")


def test_a_jobs_summary_has_what_it_used_on_its_nodes(plant, tmp_path):
    (job, nodes), *_ = plant.long_jobs().items()
    csv = tmp_path / "jobs.csv"
    csv.write_text(f"jobid,start,end,system\n{job},{iso(plant.start)},{iso(plant.end)},cluster.nodes\n")
    found = json.loads(plant.run("job", "--csv", str(csv), "--json"))
    assert found["job_nodes"] == len(nodes)
    assert found["job_max_node_mem_bytes"] == pytest.approx(1e9, rel=1e-6)
    # The job goes on after the span, and a minute more is its own.
    seconds = [last - plant.start // 3600 * 3600 for last in (plant.end - 1, plant.end + STEP - 1)]
    assert found["job_cpu_seconds"] in [pytest.approx(0.5 * len(nodes) * of, abs=0.001) for of in seconds]


def test_open_and_export_have_each_row_of_a_job(plant):
    with tokiod.open("cluster.nodes", plant.start, plant.end, config=str(plant.path)) as archive:
        whole = archive.jobs("target")
        ended = whole[whole.job.str.len() > 12]
        short = {node: ended[ended.target == node].cpu_usecs.tolist() for node in NODES}
        assert short == {node: [round(seconds * 1e6) for seconds in of] for node, of in plant.ends().items()}
        (job, nodes), *_ = plant.long_jobs().items()
        rows = archive.job(job)
        assert sorted(set(rows.target)) == nodes
        # From the hour's begin on, then minute by minute.
        np.testing.assert_allclose(rows.cpu_usecs[len(nodes) :], 30e6)
    exported = plant.run("export", "cluster.nodes", "jobs/operations", "--start", iso(plant.start), "--end", iso(plant.end), "--json")
    table = json.loads(exported)
    place = {name: table["columns"].index(name) for name in ("target", "cpu_usecs", "mem_bytes")}
    assert len(table["rows"]) == 2 * MINUTES * len(NODES)
    assert {row[place["target"]] for row in table["rows"]} == set(NODES)


def test_the_page_draws_nodes_and_lists_their_jobs(plant, browser, tmp_path):
    site = WebProcess(plant.path, plant.port, tmp_path / "log")
    where = f"?system=cluster.nodes&start={plant.start}&end={plant.end}"
    with site.served(plant.clock):
        show(browser, site, f"{where}&dataset=nodes/load_1min")
        wait_for(lambda: browser.execute_script("return Number(document.getElementById('picture').dataset.drawn || 0)"), 30, "not drawn")
        assert "nodes/load_1min" in text(browser, "title") or "load_1min" in browser.page_source
        show(browser, site, f"{where}&view=jobs")
        wait_for(lambda: browser.execute_script(JOB_ROWS), 30, "no jobs")
        assert browser.execute_script(HEADINGS) == ["job", "nodes", "cores", "memory", "read", "written", "share", "busiest"]
        long = plant.long_jobs()
        largest = max(long, key=lambda job: len(long[job]))
        rows = browser.execute_script(JOB_ROWS)
        assert rows[0][1] == str(len(long[largest]))
        assert rows[0][7].startswith("nid0000")
        assert browser.execute_script("return document.getElementById('jobby').selectedOptions[0].textContent") == "cpu"
        browser.execute_script(SORT, "mem_bytes")
        wait_for(lambda: "by=mem_bytes" in browser.current_url and browser.execute_script(JOB_ROWS), 30, "not sorted by memory")
        wait_for(lambda: "mem_bytes" in browser.execute_script(HEADINGS), 30, "no column")
        assert faults(browser) == []
