"""What Lustre prints as job_stats, written as the kernel does, in the forms of its versions."""

OST = ("getattr", "setattr", "punch", "sync", "destroy", "create", "statfs", "get_info", "set_info", "quotactl", "prealloc")
PLAIN = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-"


def target(jobs, name=None, *, version="2.15"):
    """Return a target's text. jobs: (id as bytes, counts by operation as (samples, sum), snapshot, start) each."""
    head = b"" if name is None else b"%s.%s.job_stats=\n" % (b"mdt" if "-MDT" in name else b"obdfilter", name.encode())
    return head + b"job_stats:\n" + b"".join(block(*job, version=version) for job in jobs)


def block(identity, counts, snapshot, start, *, version="2.15"):
    is_new = version == "2.15"
    stamp = b"%d.%09d secs.nsecs" if is_new else b"%d"
    times = [(b"snapshot_time", snapshot)] + ([(b"start_time", start)] if is_new else [])
    lines = [b"- %-16s %s" % (b"job_id:", written(identity) if is_new else identity)]
    lines += [b"  %-16s %s" % (key + b":", stamp % (divmod(ns, 10**9) if is_new else ns // 10**9)) for key, ns in times]
    lines += [operation(name.encode(), *both, version=version) for name, both in counts.items()]
    return b"\n".join(lines) + b"\n"


def operation(name, samples, total, *, version):
    unit = b"bytes" if name.endswith(b"_bytes") else b"usecs"
    if version == "2.5" and name in {b"read_bytes", b"write_bytes"}:
        name = name.removesuffix(b"_bytes")
    if unit == b"usecs" and version != "2.15":
        return b"  %-16s { samples: %11d, unit: %5s }" % (name + b":", samples, b"reqs")
    sizes = b", min: %8d, max: %8d, sum: %16d" % (min(samples, 1), total, total)
    more = (
        b", sumsq: %18d" % (total**2 % 2**64) + (b", hist: { 4K: %d }" % samples if unit == b"bytes" else b"") if version == "2.15" else b""
    )
    return b"  %-16s { samples: %11d, unit: %s%s%s }" % (name + b":", samples, unit, sizes, more)


def written(identity):
    """Quote and escape an id as Lustre 2.15 does."""
    if all(byte in PLAIN for byte in identity):
        return identity
    return b'"%s"' % b"".join(bytes([byte]) if 32 <= byte < 127 and byte not in b'"\\' else b"\\x%02X" % byte for byte in identity)
