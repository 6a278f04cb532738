"""What is read of LMT's schema 1.1, and which datasets it fills.

TIMESTAMP_INFO   TS_ID, TIMESTAMP                       a TS_ID for every 5 s of the LMT server
OST_DATA         OST_ID, TS_ID, READ_BYTES, ...         running sums since the OST was mounted, and free and used space now
OSS_DATA         OSS_ID, TS_ID, PCT_CPU, PCT_MEMORY
MDS_DATA         MDS_ID, TS_ID, PCT_CPU, ...            an "MDS" is an MDT: MDS_NAME is the MDT's, HOSTNAME its server's
MDS_OPS_DATA     MDS_ID, TS_ID, OPERATION_ID, SAMPLES   running sums; no primary key, so the same row may be there twice
*_INFO           the names of OSTs, OSSs, MDSs, operations and file systems
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from tokiod.batch import Form

MdtNames = Literal["mdt", "host"]
"""What the columns of mdtargets are named after: the "mdt", or its server as in pytokio."""

NULL_INTEGER = -(2**63 - 1)
"""NULL among integers. Running sums exceed 2^53, so they never pass through a float."""
NOT_AN_INTEGER = -(2**63)
"""A value that is not an integer of 64 bits, among integers. It is the least one, so that one pass finds it."""
NOT_A_NUMBER = 1.7976931348623157e308
"""A value that is not a number, among floats: the greatest one, as infinity has no literal in SQL."""

OPERATIONS = {
    "open": "opens",
    "close": "closes",
    "mknod": "mknods",
    "link": "links",
    "unlink": "unlinks",
    "mkdir": "mkdirs",
    "rmdir": "rmdirs",
    "rename": "renames",
    "getxattr": "getxattrs",
    "statfs": "statfss",
    "setattr": "setattrs",
    "getattr": "getattrs",
}
"""LMT's names of operations, and those of TTS. LMT's numbers of operations differ between databases."""


class Quantity(msgspec.Struct, frozen=True):
    """A dataset that is the sum of some columns of a row.

    operation: only rows of this one count; optional: there is no such dataset where the table lacks its columns.
    """

    dataset: str
    form: Form
    columns: tuple[str, ...]
    operation: str | None = None
    optional: bool = False


class Table(msgspec.Struct, frozen=True):
    """A table with a row per component and TS_ID. roster: the components that `key` identifies; exact: all columns are integers."""

    name: str
    key: str
    roster: Literal["osts", "osss", "mdss", "mdts"]
    exact: bool
    quantities: tuple[Quantity, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read in addition to TS_ID and key."""
        return self.identity[2:] + tuple(dict.fromkeys(column for quantity in self.quantities for column in quantity.columns))

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that say which row it is: integers in all tables."""
        return "TS_ID", self.key, *(("OPERATION_ID",) if self.by_operation else ())

    @property
    def info(self) -> str:
        """The table that lists its components."""
        return self.key.replace("_ID", "_INFO")

    def place(self, ts_id: int, identity: int, column: str = "") -> str:
        """Return where a row is, for a person."""
        return f"{self.name}{column and '.'}{column} of {self.key} {identity}, TS_ID {ts_id}"

    @property
    def by_operation(self) -> bool:
        """Whether a row belongs to one operation."""
        return any(quantity.operation for quantity in self.quantities)


TABLES = (
    Table(
        "OST_DATA",
        "OST_ID",
        "osts",
        exact=True,
        quantities=(
            Quantity("datatargets/readbytes", "counter", ("READ_BYTES",)),
            Quantity("datatargets/writebytes", "counter", ("WRITE_BYTES",)),
            Quantity("fullness/bytes", "gauge", ("KBYTES_USED",)),
            Quantity("fullness/bytestotal", "gauge", ("KBYTES_USED", "KBYTES_FREE")),
            Quantity("fullness/inodes", "gauge", ("INODES_USED",)),
            Quantity("fullness/inodestotal", "gauge", ("INODES_USED", "INODES_FREE")),
        ),
    ),
    Table(
        "OSS_DATA",
        "OSS_ID",
        "osss",
        exact=False,
        quantities=(
            Quantity("dataservers/cpuload", "gauge", ("PCT_CPU",)),
            Quantity("dataservers/memused", "gauge", ("PCT_MEMORY",)),
        ),
    ),
    Table(
        "MDS_DATA",
        "MDS_ID",
        "mdss",
        exact=False,
        quantities=(
            Quantity("mdservers/cpuload", "gauge", ("PCT_CPU",)),
            # Schema 1.1 has it of OSSs alone; a site that added the column has it of MDSs too.
            Quantity("mdservers/memused", "gauge", ("PCT_MEMORY",), optional=True),
        ),
    ),
    Table(
        "MDS_OPS_DATA",
        "MDS_ID",
        "mdts",
        exact=True,
        quantities=tuple(Quantity(f"mdtargets/{name}", "counter", ("SAMPLES",), lmt) for lmt, name in OPERATIONS.items()),
    ),
)

COUNTERS = tuple(quantity.dataset for table in TABLES for quantity in table.quantities if quantity.form == "counter")
DATASETS = frozenset(quantity.dataset for table in TABLES for quantity in table.quantities if not quantity.optional)
OWN_UNITS = {"dataservers/memused": "%", "mdservers/memused": "%"}
"""LMT stores the share of the memory that is used. Each dataset's units are in its file."""

REQUIRED_COLUMNS = {
    "TIMESTAMP_INFO": ("TS_ID", "TIMESTAMP"),
    "OST_INFO": ("OST_ID", "OST_NAME"),
    "OSS_INFO": ("OSS_ID", "HOSTNAME"),
    "MDS_INFO": ("MDS_ID", "HOSTNAME"),
    "OPERATION_INFO": ("OPERATION_ID", "OPERATION_NAME"),
    "OST_DATA": ("OST_ID", "TS_ID"),
    "OSS_DATA": ("OSS_ID", "TS_ID"),
    "MDS_DATA": ("MDS_ID", "TS_ID"),
    "MDS_OPS_DATA": ("MDS_ID", "TS_ID", "OPERATION_ID"),
}
"""Tables and columns that every LMT database has; FILESYSTEM_INFO and columns of values may be missing."""
