"""The recipes of docs/web.md: real reverse proxies with TLS and a login in front of a real web process."""

import base64
import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from waiting import wait_for
from web_site import WebSite

from tokiod.simulator.sources import free_port

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
SBIN = f"{os.environ['PATH']}:/usr/sbin"
NAME = "storage.example.org"
LOGIN = {"Authorization": f"Basic {base64.b64encode(b'me:secret').decode()}"}
NGINX = "pid {0}/pid; error_log {0}/log; daemon off; worker_processes 1; events {{}}\nhttp {{ access_log off;\n{1}\n}}\n"
APACHE = """\
PidFile {0}/pid
ErrorLog {0}/log
DefaultRuntimeDir {0}
Listen {2}
User www-data
Group www-data
{3}
{1}
"""
MODULES = (
    "mpm_event", "ssl", "headers", "proxy", "proxy_http", "auth_basic", "authn_core", "authn_file", "authz_core", "authz_user",
    "authz_host", "socache_shmcb",
)  # fmt: skip
APACHE_MODULES = Path("/usr/lib/apache2/modules")


def recipe(language):
    """The block of the document in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "web.md").read_text(), re.MULTILINE | re.DOTALL)
    return found


class Proxy:
    """A reverse proxy of a recipe, whose files are in one directory."""

    def __init__(self, program, directory, site):
        self.program, self.directory, self.port = program, directory, free_port()
        language = {"nginx": "nginx", "apache2": "apache"}[program]
        text = recipe(language)
        for theirs, ours in (
            ("/run/tokiod-web/http", str(site.socket)),
            (f"/etc/ssl/certs/{NAME}.pem", f"{directory}/certificate"),
            (f"/etc/ssl/private/{NAME}.key", f"{directory}/key"),
            (f"/etc/{program}/tokiod.users", f"{directory}/users"),
            ("listen 443", f"listen 127.0.0.1:{self.port}"),
            ("*:443", f"127.0.0.1:{self.port}"),
        ):
            text = text.replace(theirs, ours)
        modules = "\n".join(f"LoadModule {one}_module {APACHE_MODULES}/mod_{one}.so" for one in MODULES)
        form = NGINX if program == "nginx" else APACHE
        (directory / program).write_text(form.format(directory, text, f"127.0.0.1:{self.port}", modules))
        hashed = subprocess.run(["openssl", "passwd", "-apr1", "secret"], capture_output=True, text=True, check=True).stdout
        (directory / "users").write_text(f"me:{hashed}")

    @contextmanager
    def running(self):
        options = ["-c"] if self.program == "nginx" else ["-X", "-f"]
        command = [shutil.which(self.program, path=SBIN), *options, str(self.directory / self.program)]
        with (self.directory / "output").open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                wait_for(lambda: process.poll() is not None or self._listens(), 30, "the proxy does not answer")
                assert process.poll() is None, (self.directory / "output").read_text()
                yield self
            finally:
                # Apache, one process by -X, would wait for the end of the events.
                process.kill() if self.program == "apache2" else process.terminate()

    def _listens(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    @contextmanager
    def connected(self):
        context = ssl.create_default_context(cafile=self.directory / "certificate")
        with closing(HTTPSConnection("127.0.0.1", self.port, timeout=30)) as connection:
            plain = socket.create_connection(("127.0.0.1", self.port), 30)
            connection.sock = context.wrap_socket(plain, server_hostname=NAME)
            yield connection

    def get(self, path, method="GET", login=LOGIN):
        """Send a request and return the answer, read as far as it is there at once."""
        with self.connected() as connection:
            connection.request(method, path, headers={"Host": NAME} | login)
            with connection.getresponse() as answer:
                answer.first = answer.read1()
                return answer


@pytest.fixture(scope="module")
def site():
    """Below a directory that the proxy's user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="web-proxy-") as directory:
        Path(directory).chmod(0o755)
        subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
        files = ["-keyout", f"{directory}/key", "-out", f"{directory}/certificate"]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        subprocess.run(["openssl", "req", "-x509", *key, *subject, *files], check=True, capture_output=True)
        made = WebSite(Path(directory))
        with made.served():
            made.socket.chmod(0o666)  # the group of the unit is tested with systemd
            yield made


@pytest.fixture(params=["nginx", "apache2"])
def proxy(site, request):
    if shutil.which(request.param, path=SBIN) is None:
        pytest.fail("run `make servers`") if os.environ.get("CI") == "true" else pytest.skip(f"{request.param} is not installed")
    with Proxy(request.param, site.directory, site).running() as running:
        yield running


def test_a_recipe_gives_the_page_and_the_api_to_those_with_a_login_and_passes_events_on_at_once(proxy):
    assert proxy.get("/", login={}).status == 401
    page = proxy.get("/")
    assert (page.status, "default-src 'self'" in page.headers["Content-Security-Policy"]) == (200, True)
    assert proxy.get("/api/v1/systems").first.startswith(b'{"time":')
    assert proxy.get("/api/v1/systems", method="POST").status == 405
    assert proxy.get("/api/v1/events").first.partition(b"\n")[2] == b'event: hello\ndata: {"feed":false}\n\n'
    assert [proxy.get("/metrics", login=login).status for login in ({}, LOGIN)] == [403, 403]


def test_behind_a_recipe_a_client_can_not_take_another_clients_address(proxy):
    """Clients at the same time, and connections that no proxy closes: on a busy machine one client is below the limit."""
    statuses = Counter()

    def send(client):
        with proxy.connected() as connection:
            for number in range(50):
                name = f"10.0.{client}.{number}"
                connection.request("GET", "/api/v1/systems", headers={"Host": NAME, "X-Forwarded-For": name} | LOGIN)
                with connection.getresponse() as answer:
                    answer.read()
                    statuses[answer.status] += 1

    with ThreadPoolExecutor(16) as clients:
        for found in [clients.submit(send, client) for client in range(20)]:
            found.result()
    assert statuses[200] > 0
    assert statuses[429] > 0
