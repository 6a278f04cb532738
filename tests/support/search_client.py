"""Query an Elasticsearch or OpenSearch for tests. Standard library only."""

import base64
import json
import ssl
import urllib.error
import urllib.request


class SearchClient:
    """url: of the server; ca: the PEM file that its certificate is checked against; login: (user, password)."""

    def __init__(self, url=None, *, ca=None, login=None):
        self.url, self.ca, self.login = url, ca, login

    def ask(self, method, path, body=None, *, seconds=30):
        """Send a request and return the JSON of the answer; body: an object for JSON, or bytes of newline-delimited JSON.

        Raises Refused for any status that is not 2xx, OSError where no server answers.
        """
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        headers = {"Content-Type": "application/x-ndjson" if path.endswith("_bulk") else "application/json"}
        if self.login:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        try:
            with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")) from None

    def set(self, **settings):
        """Change settings of the running cluster, named with __ for a dot; None gives one its default back."""
        self.ask("PUT", "/_cluster/settings", {"transient": {name.replace("__", "."): value for name, value in settings.items()}})

    def open_contexts(self):
        """Return how many scrolls and points in time the server holds open."""
        nodes = self.ask("GET", "/_nodes/stats/indices/search")["nodes"]
        return sum(node["indices"]["search"]["open_contexts"] for node in nodes.values())


class Refused(Exception):  # noqa: N818 - the server did that
    """An answer that is not 2xx."""

    def __init__(self, status, text):
        super().__init__(f"{status}: {text}")
        self.status = status
