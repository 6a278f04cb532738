"""Read one Darshan log with pydarshan in this process, and print what tokiod.analysis.darshan_log decodes. It has limits and no network."""

from __future__ import annotations

import os
import resource
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokiod.analysis.darshan_log import LOG_SECONDS, DarshanLog, FileTransfers, Performance, Read, Statistics, Unreadable
from tokiod.runtime.landlock import restrict_files
from tokiod.runtime.process_setup import die_with_parent, leave_network

MAX_DATA_BYTES = 1 << 30
MAX_ADDRESS_BYTES = 8 << 30
MAX_OUTPUT_BYTES = 256 << 20
PROGRAMS = ("/usr", "/lib", "/lib64", "/proc", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/null")
APIS = {"POSIX": "POSIX", "MPI-IO": "MPIIO", "STDIO": "STDIO", "H5D": "H5D", "DFS": "DFS", "DAOS": "DAOS"}
"""Modules with transfers of files, and the prefix of their counters."""
WITHOUT_OWN_TRANSFERS = frozenset(
    {"LUSTRE", "HEATMAP", "DXT_POSIX", "DXT_MPIIO", "H5F", "PNETCDF_FILE", "PNETCDF_VAR", "BG/Q", "MDHIM"}
    | {f"{name}{part}" for name in ("APXC", "APMPI") for part in ("", "-HEADER", "-PERF")}
)
"""Modules whose transfers, if any, a module of APIS has too."""
OF_DAOS = ("dfs", "daos")
"""Interfaces whose files are in containers of DAOS, below no mount point."""
COUNTERS = (
    "BYTES_READ",
    "BYTES_WRITTEN",
    "READS",
    "WRITES",
    "OPENS",
    "SEQ_READS",
    "SEQ_WRITES",
    "STATS",
    "FILE_NOT_ALIGNED",
    "MEM_NOT_ALIGNED",
)
SECONDS = ("F_READ_TIME", "F_WRITE_TIME", "F_META_TIME")


def main() -> None:
    """Read the log that is named by the second argument; the first one is the parent."""
    die_with_parent(int(sys.argv[1]))
    path = Path(sys.argv[2])
    # What a library prints must not get into the response.
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        import darshan  # noqa: PLC0415 - trusted code, which may need files that the log must not reach

        leave_network()
        programs = {sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path), *PROGRAMS}
        restrict_files([path, *map(Path, programs)], ())
        _limit()
        try:
            found: Read | Unreadable = Read(_read(darshan, str(path)))
        except Exception as error:  # noqa: BLE001 - pydarshan raises anything for a damaged log
            found = Unreadable(str(error).partition("\n")[0] or type(error).__name__)
        output.write(msgspec.msgpack.encode(found))


def _limit() -> None:
    limits = {
        resource.RLIMIT_DATA: MAX_DATA_BYTES,
        resource.RLIMIT_AS: MAX_ADDRESS_BYTES,
        resource.RLIMIT_CPU: LOG_SECONDS,
        resource.RLIMIT_FSIZE: MAX_OUTPUT_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, allowed))


def _read(darshan: Any, path: str) -> DarshanLog:
    report = darshan.DarshanReport(path, read_all=False)
    # DAOS counts what DFS moved a second time.
    job, apis = report.metadata["job"], [api for api in report.modules if api in APIS and not (api == "DAOS" and "DFS" in report.modules)]
    records = {api: _records(report, api) for api in apis}
    return DarshanLog(
        jobid=int(job["jobid"]),
        nprocs=int(job["nprocs"]),
        start=int(job["start_time_sec"]),
        end=int(job["end_time_sec"]),
        seconds=int(job["run_time"]),
        command=str(report.metadata["exe"]),
        mounts=sorted({str(mount[0]) for mount in report.mounts}, key=lambda name: (-len(name), name)),
        apis=[api.lower() for api in apis],
        files=[one for api, found in records.items() for one in _files(report, api, found)],
        osts=_osts(report),
        counters=_statistics(records["POSIX"]) if "POSIX" in records else {},
        performance=_performance(darshan, report, int(job["nprocs"])) if "POSIX" in records else None,
        partial=[api.lower() for api, module in report.modules.items() if module["partial_flag"]],
        unread=sorted({*report.modules} - APIS.keys() - WITHOUT_OWN_TRANSFERS),
    )


def _records(report: Any, api: str) -> list[dict[str, Any]]:
    """Return the records of a module: id, and the counters by name without their prefix."""
    report.mod_read_all_records(api, dtype="numpy", warnings=False)
    names = [[name.removeprefix(f"{APIS[api]}_") for name in report.counters[api][kind]] for kind in ("counters", "fcounters")]
    return [
        {"id": record["id"]}
        | dict(zip(names[0], record["counters"].tolist(), strict=True))
        | dict(zip(names[1], record["fcounters"].tolist(), strict=True))
        for record in report.records[api]
    ]


def _files(report: Any, api: str, records: list[dict[str, Any]]) -> list[FileTransfers]:
    of_files: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        name = str(report.name_records[record["id"]])
        of_files[f"{api.lower()}:{name}" if api.lower() in OF_DAOS else name].append(record)
    return [_file(api.lower(), name, of_file) for name, of_file in of_files.items()]


def _file(api: str, name: str, records: list[dict[str, Any]]) -> FileTransfers:
    """Return the transfers of a file. A counter that is not recorded is -1 or absent."""
    read, written = ([max(0, record.get(key, 0)) for record in records] for key in ("BYTES_READ", "BYTES_WRITTEN"))
    seconds = max(sum(max(0.0, record.get(key, 0.0)) for key in SECONDS) for record in records)
    return FileTransfers(api, name, sum(read), sum(written), int(np.count_nonzero(read)), int(np.count_nonzero(written)), seconds)


def _osts(report: Any) -> dict[str, list[int]]:
    """Return the OSTs of each file: those of the stripes of all its components."""
    if "LUSTRE" not in report.modules:
        return {}
    report.mod_read_all_lustre_records(dtype="dict", warnings=False)
    found: dict[str, set[int]] = defaultdict(set)
    for record in report.records["LUSTRE"]:
        for component in record["components"]:
            found[str(report.name_records[record["id"]])].update(int(ost) for ost in component["ost_ids"])
    return {name: sorted(ost for ost in osts if ost >= 0) for name, osts in found.items()}


def _statistics(records: list[dict[str, Any]]) -> dict[str, Statistics]:
    found = {name: [record[name] for record in records if name in record] for name in (*COUNTERS, *SECONDS)}
    return {name: Statistics(sum(values), len(values), min(values), max(values)) for name, values in found.items() if values}


def _performance(darshan: Any, report: Any, nprocs: int) -> Performance | None:
    """Return the estimates of Darshan's own library; None for records that it can't combine."""
    report.mod_read_all_records("POSIX", dtype="pandas", warnings=False)
    if not report.records["POSIX"] or report.records["POSIX"][0]["counters"] is None:
        return None
    try:
        found = darshan.backend.cffi_backend.accumulate_records(report.records["POSIX"][0], "POSIX", nprocs).derived_metrics
    except RuntimeError:
        return None
    return Performance(int(found.total_bytes), float(found.agg_perf_by_slowest), float(found.agg_time_by_slowest))


if __name__ == "__main__":
    main()
