"""Load documents of collectd into a real server, as a site's Logstash would have done. Standard library only."""

import itertools
import json

STRINGS = ("hostname", "plugin", "plugin_instance", "collectd_type", "type_instance")
NUMBERS = ("read", "write", "value")

PROPERTIES = {
    # The default mapping of Elasticsearch for strings: text with .keyword.
    "text": {},
    "keyword": {
        "@timestamp": {"type": "date"},
        **{name: {"type": "keyword"} for name in STRINGS},
        **{name: {"type": "double"} for name in NUMBERS},
    },
    # Text alone: a mapping that nothing can be sorted or filtered by.
    "unsortable": {"@timestamp": {"type": "date"}, **{name: {"type": "text"} for name in STRINGS}},
}


def create(server, index, *, mapping="text", shards=1, **settings):
    """Make an index; mapping: a name of PROPERTIES, or properties; settings: of the index, e.g. refresh_interval="-1".

    A document that does not fit the mapping is kept whole and its field not indexed, as sites have it that can't lose any.
    """
    own = {"number_of_shards": shards, "number_of_replicas": 0, "mapping.ignore_malformed": True}
    properties = PROPERTIES[mapping] if isinstance(mapping, str) else mapping
    server.ask("PUT", f"/{index}", {"settings": {"index": own | settings}, "mappings": {"properties": properties}})


def add(server, index, hits, *, refresh=True):
    """Index the `_source` of hits (dicts as pytokio saved them), in their order and under new ids, so that twice is twice."""
    for page in _pages(hits):
        lines = "".join(f'{{"index":{{}}}}\n{json.dumps(hit["_source"])}\n' for hit in page)
        answer = server.ask("POST", f"/{index}/_bulk", lines.encode())
        faults = [item["index"]["error"] for item in answer["items"] if "error" in item["index"]]
        assert not faults, f"{len(faults)} of {len(page)} documents are refused, the first with {faults[0]}"
    if refresh:
        server.ask("POST", f"/{index}/_refresh")


def _pages(hits, size=5_000):
    hits = iter(hits)
    while page := list(itertools.islice(hits, size)):
        yield page


def load(server, index, hits, **options):
    """Make an index with these hits, all of them to be seen by the next search."""
    create(server, index, **options)
    add(server, index, hits)


def alias(server, name, *indices):
    """Point an alias at indices, and at nothing else; without any there is no such alias any more."""
    actions = [{"remove": {"index": "*", "alias": name, "must_exist": False}}, *({"add": {"index": i, "alias": name}} for i in indices)]
    server.ask("POST", "/_aliases", {"actions": actions})


def remove(server, index):
    """Delete an index with all that is in it."""
    server.ask("DELETE", f"/{index}")
