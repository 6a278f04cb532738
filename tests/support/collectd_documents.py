"""Documents of collectd as Elasticsearch gives them back, and the cells that are right for them, computed the slow and obvious way."""

from __future__ import annotations

import datetime as dt
import random
from collections import defaultdict

KINDS = {
    ("disk", "disk_octets", None): {"read": "datatargets/readrates", "write": "datatargets/writerates"},
    ("disk", "disk_ops", None): {"read": "datatargets/readoprates", "write": "datatargets/writeoprates"},
    ("memory", "memory", "cached"): {"value": "dataservers/memcached"},
    ("memory", "memory", "buffered"): {"value": "dataservers/membuffered"},
    ("memory", "memory", "free"): {"value": "dataservers/memfree"},
    ("memory", "memory", "used"): {"value": "dataservers/memused"},
    ("memory", "memory", "slab_recl"): {"value": "dataservers/memslab"},
    ("memory", "memory", "slab_unrecl"): {"value": "dataservers/memslab_unrecl"},
    ("cpu", "percent", "idle"): {"value": "dataservers/cpuload"},
    ("cpu", "percent", "user"): {"value": "dataservers/cpuuser"},
    ("cpu", "percent", "system"): {"value": "dataservers/cpusys"},
}
DATASETS = {dataset for fields in KINDS.values() for dataset in fields.values()}
CPU = {"dataservers/cpuload", "dataservers/cpuuser", "dataservers/cpusys"}


class Documents:
    """What collectd on some hosts reports every `period` seconds, each host at its own phase; a pure function of the seed and the time."""

    def __init__(self, seed=0, hosts=3, devices=2, cores=3, *, period=10, prefix="bb"):
        chance = random.Random(seed)
        self.seed, self.period = seed, period
        self.hosts = {f"{prefix}{n}": chance.randrange(period * 1000) for n in range(1, hosts + 1)}
        self.devices = [f"nvme{n}n1" for n in range(devices)]
        self.cores = [str(n) for n in range(cores)]

    def hits(self, start, end):
        """The documents of [start, end), shuffled, as a list of hits."""
        found = [hit(source) for source in self.sources(start, end)]
        random.Random(f"{self.seed} {start} {end}").shuffle(found)
        return found

    def sources(self, start, end):
        for host, phase in self.hosts.items():
            first = -(-(start * 1000 - phase) // (self.period * 1000))
            for time in range(first * self.period * 1000 + phase, end * 1000, self.period * 1000):
                yield from self._of_host(host, time)

    def _of_host(self, host, time):
        chance = random.Random(f"{self.seed} {host} {time}")
        stamp = iso(time)
        for (plugin, kind, instance), fields in KINDS.items():
            for part in {"disk": self.devices, "memory": [None], "cpu": self.cores}[plugin]:
                source = {"plugin": plugin, "@timestamp": stamp, "hostname": host, "collectd_type": kind}
                source |= {"type_instance": instance} if instance else {}
                source |= {"plugin_instance": part} if part is not None else {}
                yield source | {field: _value(chance, plugin) for field in fields}

    def cells(self, start, end, step):
        """{dataset: {(time, column): value}} of [start, end), of all datasets."""
        return cells(self.hits(start, end), start, end, step)


def hit(source):
    return {"_score": 1.0, "_type": "doc", "_id": "AWBO_-3H2X0enMg5iLMN", "_index": "cori-collectd-2017.12.13", "_source": source}


def cells(hits, start, end, step):
    """The right cells for any hits that are well-formed: duplicates once, the last by time, of CPU the mean of all; negative ones never."""
    values = defaultdict(dict)
    for one in hits:
        source = one["_source"]
        time = milliseconds(source["@timestamp"])
        fields = KINDS.get((source["plugin"], source["collectd_type"], source.get("type_instance")), {})
        for field, dataset in fields.items():
            if (source.get(field) or 0) >= 0 and source.get(field) is not None and start * 1000 <= time < end * 1000:
                part = source.get("plugin_instance", "")
                column = f"{source['hostname']}:{part}" if source["plugin"] == "disk" else source["hostname"]
                row = start + (time - start * 1000) // (step * 1000) * step
                value = 100.0 - source[field] if dataset.endswith("/cpuload") else float(source[field])
                samples = values[dataset, row, column]
                samples[part, time] = max(value, samples.get((part, time), value))
    found = {dataset: {} for dataset in DATASETS}
    for (dataset, row, column), samples in values.items():
        last = max(samples, key=lambda sample: sample[1])
        found[dataset][row, column] = sum(samples.values()) / len(samples) if dataset in CPU else samples[last]
    return found


def milliseconds(stamp):
    """The epoch milliseconds of an ISO 8601 time stamp, by the standard library."""
    return (dt.datetime.fromisoformat(stamp) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def iso(time):
    """2017-12-13T08:30:43.951Z of epoch milliseconds."""
    return f"{dt.datetime.fromtimestamp(time // 1000, dt.UTC):%Y-%m-%dT%H:%M:%S}.{time % 1000:03d}Z"


def _value(chance, plugin):
    return {"disk": chance.random() * 1e6, "memory": float(chance.randrange(2**36)), "cpu": chance.random() * 100}[plugin]
