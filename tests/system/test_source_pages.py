"""docs/sources: every stanza is one that the configuration takes, and the rights that a page names suffice, on real servers."""

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path

import collectd_loader
import lmt_database
import pytest
from booted import wait
from collectd_documents import Documents
from elasticsearch_server import SECURED
from search_client import Refused, SearchClient

from collectors import collectd_es, lmt
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.config.plugins import kinds
from tokiod.errors import Fatal
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import collected
from tokiod.window import Calendar, Window

DIRECTORY = Path(__file__).parents[2] / "docs" / "sources"
PAGES = sorted(DIRECTORY.glob("*.md"))
SCHEMA = Path(__file__).with_name("lmt_schema.sql")
ARCHIVE = 'timezone = "UTC"\n[archive]\npath = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"\n'
SPAN = Window(lmt_database.START, lmt_database.START + 60)
PASSWORD = "correct horse"


def block(page, language):
    """Return the first block of a page in a language."""
    return re.search(rf"(?ms)^( *)```{language}\n(.*?)^ *```$", (DIRECTORY / f"{page}.md").read_text())[2]


def site(zone):
    return Site(Calendar(zone), FakeClock(), {"env:PASSWORD": PASSWORD}.__getitem__)


def test_every_kind_has_its_page():
    assert {page.stem for page in PAGES} == {*kinds(), "watched_folders"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_stanza_of_a_page_is_taken_by_itself_and_beside_all_others(page, tmp_path):
    stanza = re.search(r"(?ms)^```toml\n(.*?)^```$", page.read_text())[1]
    (tmp_path / "tokiod.toml").write_text(ARCHIVE + stanza)
    assert len(configuration.load(tmp_path / "tokiod.toml").source) == 1


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "watched_folders"], ids=lambda page: page.stem)
def test_a_page_names_the_datasets_that_its_stanza_fills(page, tmp_path):
    stanza = re.search(r"(?ms)^```toml\n(.*?)^```$", page.read_text())[1].replace("failover = false", "failover = true")
    (tmp_path / "tokiod.toml").write_text(ARCHIVE + stanza)
    told = re.search(r"(?s)## What is collected\n(.*?)\n## ", page.read_text())[1]
    (source,) = configuration.load(tmp_path / "tokiod.toml").source
    assert set(re.findall(r"`(\w+/\w+)`", told)) == source.datasets() | source.tables


def test_the_stanzas_go_together(tmp_path):
    stanzas = [re.search(r"(?ms)^```toml\n(.*?)^```$", page.read_text())[1] for page in PAGES]
    lctl = block("lustre", "toml lctl").strip()
    (tmp_path / "tokiod.toml").write_text(ARCHIVE + "".join(stanzas).replace("failover = false", f"fullness = false\n{lctl}"))
    assert len(configuration.load(tmp_path / "tokiod.toml").source) == len(PAGES)


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        ("env LC_ALL=C TZ=UTC COLUMNS=30000 /usr/lpp/mmfs/bin/mmperfmon query usage 2026-11-21-10:00:00 2026-11-21-10:06:00 -b 60", True),
        ("env LC_ALL=C TZ=UTC COLUMNS=30000 /usr/lpp/mmfs/bin/mmperfmon query a_b,c_d 2026-11-21-10:00:00 -b 60 -N nsdservers", True),
        ("env LC_ALL=C TZ=UTC COLUMNS=30000 /usr/lpp/mmfs/bin/mmperfmon config show", False),
        ("env LC_ALL=C TZ=UTC COLUMNS=30000 /usr/lpp/mmfs/bin/mmperfmon query usage; id", False),
        ("env LC_ALL=C TZ=UTC COLUMNS=30000 /usr/lpp/mmfs/bin/mmperfmon query $(id)", False),
        ("env LC_ALL=C TZ=UTC COLUMNS=30000 /usr/lpp/mmfs/bin/mmperfmon query usage\nid", False),
        ("id", False),
        ("", False),
    ],
)
def test_the_gate_for_mmperfmon_lets_questions_through_and_nothing_else(asked, passes, tmp_path):
    fake = tmp_path / "mmperfmon"
    fake.write_text('#!/bin/sh\necho ran "$@"\n')
    fake.chmod(0o755)
    gate = re.sub(r"(?m)^   ", "", block("mmperfmon", "sh gate")).replace(
        "exec $SSH", f"set -- $SSH_ORIGINAL_COMMAND; shift 5; exec {fake} $@ #"
    )
    environment = {"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": asked}
    done = subprocess.run(["sh", "-c", gate], env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode == 0, done.stdout.startswith("ran query ")) == (passes, passes)


STATS = "lctl get_param obdfilter.*.job_stats mdt.*.job_stats"
INTERVALS = "lctl get_param obdfilter.*.job_cleanup_interval mdt.*.job_cleanup_interval"


@pytest.mark.parametrize(
    ("asked", "passes"),
    [(STATS, True), (INTERVALS, True), (f"{STATS}; id", False), (f"{STATS} version", False), ("lctl set_param x=1", False), ("", False)],
)
def test_the_gate_for_jobstats_lets_two_questions_through_and_nothing_else(asked, passes, tmp_path):
    lctl = tmp_path / "lctl"
    lctl.write_text('#!/bin/sh\necho lctl "$@"\n')
    lctl.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SSH_ORIGINAL_COMMAND": asked}
    gate = block("lustre_jobstats", "sh gate")
    done = subprocess.run(["sh", "-c", gate], env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode == 0, done.stdout == f"{asked}\n") == (passes, passes)


@pytest.mark.system
@pytest.mark.parametrize("language", ["sql", "sql tables"])
def test_the_grants_for_lmt_suffice(mariadb, language):
    name, content = f"filesystem_page{len(language)}", lmt_database.tables()
    mariadb.load(name, SCHEMA.read_text(), content)
    made, granted = block("lmt", "sql").split(";\n", 1)
    grants = granted if language == "sql" else block("lmt", language)
    statements = [made, *re.findall(r"GRANT .*?;", grants)]
    told = [one.rstrip(";").replace("filesystem_snx11168", name).replace("the password", PASSWORD) for one in statements]
    asyncio.run(mariadb.execute("DROP USER IF EXISTS 'tokiod'@'%'", *told))
    config = lmt.Config(
        name="lmt", kind="lmt", system="lc1", url=f"mysql://tokiod@127.0.0.1:{mariadb.port}/{name}", password_env="PASSWORD",
        timezone=lmt_database.ZONE,
    )  # fmt: skip
    assert lmt_database.samples_of(told_by(lmt.live(config, site(lmt_database.ZONE)), SPAN), SPAN) == lmt_database.meaning(content, SPAN)


@pytest.mark.system
@pytest.mark.parametrize("search_server", [SECURED], indirect=True)
def test_the_role_for_elasticsearch_suffices_and_lets_nothing_be_written(search_server):
    index, documents = "cori-collectd-page", Documents(seed=3)
    collectd_loader.load(search_server, index, documents.hits(SPAN.start, SPAN.end))
    # This distribution can't keep roles in an index; the same words in a file, which JSON is YAML enough for.
    (search_server.home / "config" / "roles.yml").write_text(json.dumps({"tokiod": json.loads(block("collectd_es", "json role"))}))
    search_server._run(["elasticsearch-users", "useradd", "tokiod", "-p", PASSWORD, "-r", "tokiod"], subprocess.run, check=True)
    client = SearchClient(search_server.url, ca=search_server.ca, login=("tokiod", PASSWORD))
    wait(lambda: may(client, index), 30)
    options = {"user": "tokiod", "password_env": "PASSWORD", "tls_ca": search_server.ca, "host_prefix": "bb", "device_prefix": "nvme"}
    stanza = {"name": "es", "kind": "collectd_es", "system": "bb", "url": search_server.url}
    for read in ("scroll", "pit"):
        found = told_by(collectd_es.live(collectd_es.Config(**stanza, index="cori-collectd-*", read=read, **options), site("UTC")), SPAN)
        assert sum(len(batch.value) for batch in found) > 100
    with pytest.raises(Fatal, match="its permission to read other-"):
        told_by(collectd_es.live(collectd_es.Config(**stanza, index="other-index", **options), site("UTC")), SPAN)
    with pytest.raises(Refused):
        client.ask("DELETE", f"/{index}")
    collectd_loader.remove(search_server, index)


def may(client, index):
    """Whether the server has read its files of users and roles again."""
    try:
        return client.ask("GET", f"/{index}/_count")["count"] > 0
    except Refused:
        return False


def told_by(collector, window):
    """Return what a collector tells of a window, and close it."""

    async def ask():
        try:
            return await collected(collector, window)
        finally:
            await collector.close()

    return asyncio.run(ask())
