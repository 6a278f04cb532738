"""Real servers for the tests that need one."""

import asyncio
import itertools
import os

import browser as chromium_browser
import kafka_server
import kerberos_realm
import pytest
import slurm_site
from elasticsearch_server import LOGIN, SECURED, SearchServer, missing
from mariadb_server import MariaDb, installed
from web_site import WebSite

from tokiod.bus.feed import Feed
from tokiod.simulator.sources import free_port

_numbers = itertools.count()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory):
    """A running MariaDB; a test that stops it starts it again."""
    if not installed():
        absent("mariadbd is not installed: apt-get install mariadb-server")
    server = MariaDb(tmp_path_factory.mktemp("mariadb"))
    server.install()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def chromium():
    if sentence := chromium_browser.missing():
        absent(sentence)
    driver = chromium_browser.started()
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """A browser without a page of another test and without its log."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    return chromium


@pytest.fixture
def web_site(tmp_path):
    """A site for tests with a browser, with a feed."""
    made = WebSite(tmp_path, free_port())
    made.feed = Feed(made.config.feed.endpoint, "one")
    yield made
    made.feed.close()


@pytest.fixture(scope="session")
def slurm(tmp_path_factory, mariadb):
    """A running Slurm of one node, with its accounting."""
    if sentence := slurm_site.missing():
        absent(sentence)
    slurm = slurm_site.Slurm(tmp_path_factory.mktemp("slurm"), mariadb)
    asyncio.run(slurm.fill())
    with slurm:
        yield slurm


@pytest.fixture(scope="session")
def realm():
    """A running Kerberos realm, None where there can be none."""
    if kerberos_realm.missing():
        yield None
        return
    with kerberos_realm.KerberosRealm() as made:
        yield made


@pytest.fixture(scope="session")
def kafka(realm):
    """A running Kafka; a test that stops it starts it again, and a test uses topics of its own."""
    if sentence := kafka_server.missing():
        absent(sentence)
    with kafka_server.KafkaServer(realm=realm) as server:
        yield server


@pytest.fixture
def ticket(realm, monkeypatch, tmp_path):
    """The key of Kafka's only user, for this process and its children."""
    if realm is None:
        absent(kerberos_realm.missing())
    monkeypatch.setenv("KRB5_CONFIG", str(realm.config))
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(realm.keytab(kafka_server.LOGIN[0])))


@pytest.fixture
def topic():
    """The name of a topic of one test."""
    return f"own-{next(_numbers)}"


@pytest.fixture(scope="session", params=["elasticsearch", "opensearch"])
def search_server(request):
    """A running Elasticsearch, and then an OpenSearch. pytest sorts the tests by server and runs one server at a time.

    A test of one of them, or of SECURED (with TLS, LOGIN is its only user), uses parametrize("search_server", [...], indirect=True).
    """
    flavour, login = ("elasticsearch", LOGIN) if request.param == SECURED else (request.param, None)
    if sentence := missing(flavour):
        absent(sentence)
    with SearchServer(flavour, login=login) as server:
        yield server


@pytest.fixture
def own(search_server):
    """A prefix for the indices of one test, which are removed after it."""
    name = f"own-{next(_numbers)}"
    yield name
    search_server.ask("DELETE", f"/{name}*?expand_wildcards=all")


def absent(reason):
    """Skip a test whose server is missing; in CI it fails."""
    pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
