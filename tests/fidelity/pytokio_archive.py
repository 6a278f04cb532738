"""Run in pytokio's own environment: one line of JSON per command on stdin, [kind, arguments of its program].

Lustre has no program: what its connectors read of two files is written as JSON.
"""

import contextlib
import io
import json
import sys
import warnings
from functools import partialmethod
from pathlib import Path

import h5py
import tokio.cli.archive_collectdes
import tokio.cli.archive_esnet_snmp
import tokio.cli.archive_lmtdb
import tokio.cli.archive_mmperfmon
import tokio.config
from tokio.connectors.nersc_lfsstate import NerscLfsOstFullness, NerscLfsOstMap


def lustre(paths):
    """Read outputs of lfs df and lctl dl -t, and write the fullness of targets, and which are on a server with an unusual number."""
    fullness, served = NerscLfsOstFullness(paths[0]), NerscLfsOstMap(paths[1])
    abnormal = {}
    for time, of_time in served.items():
        with contextlib.suppress(KeyError):  # of an output without a target that it knows
            abnormal[time] = of_time.get_failovers()
    found = {
        "fullness": {
            time: {
                f"{system}-{name}": [one["used_kib"], one["total_kib"]] for system, some in of_time.items() for name, one in some.items()
            }
            for time, of_time in fullness.items()
        },
        "failover": {
            time: {
                f"{system}-{name}": [float(any(name in names for names in abnormal[time][system]["abnormal_ips"].values()))]
                for system, some in of_time.items()
                for name in some
            }
            for time, of_time in served.items()
        },
    }
    Path(paths[2]).write_text(json.dumps(found))


PROGRAMS = {
    "collectd_es": tokio.cli.archive_collectdes.main,
    "esnet_snmp": tokio.cli.archive_esnet_snmp.main,
    "lmt": tokio.cli.archive_lmtdb.main,
    "lustre": lustre,
    "mmperfmon": tokio.cli.archive_mmperfmon.main,
}

warnings.simplefilter("ignore")
# It was written for h5py 2, which opened files for writing by default.
h5py.File.__init__ = partialmethod(h5py.File.__init__, mode="a")
tokio.config.CONFIG["mmperfmon_lun_map"] = {r"nsd\d+": "datatarget", r"md\d+": "mdtarget"}
for line in sys.stdin:
    kind, arguments = json.loads(line)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.filterwarnings("ignore")
        PROGRAMS[kind](arguments)
