"""What a connection to a SQLite file from elsewhere may do: read LMT's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from collectors.lmt.datasets import REQUIRED_COLUMNS, TABLES
from collectors.lmt.parse_inventory import INFO
from tokiod.errors import Fatal

if TYPE_CHECKING:
    from pathlib import Path

MAX_VALUE_BYTES = 16 << 20
"""The longest text, blob or row."""
MAX_SCHEMA_ENTRIES = 1000

PRAGMAS = frozenset({"data_version", "table_info", "table_list", "index_list", "index_info"})
FUNCTIONS = frozenset({"min", "max", "count", "substr", "datetime", "group_concat", "ifnull", "coalesce", "upper", "typeof", "glob"})
READABLE = frozenset(
    {"SQLITE_MASTER", "SQLITE_SCHEMA", *INFO, *REQUIRED_COLUMNS, *(table.name for table in TABLES)}
    | {f"PRAGMA_{name.upper()}" for name in PRAGMAS}
)
"""Tables that statements may read, pragmas and functions that they may use."""


# A copy comes from elsewhere, and its schema is a program: a view, a virtual table, a trigger or a generated column runs any SQL when a
# table is read. So nothing but tables and plain indexes is accepted, and the connection can do nothing but read LMT's tables.
def restrict(db: apsw.Connection) -> None:
    """Let a connection open nothing but plain tables, and end with an error where a value is too long."""
    for option, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    ):
        db.config(option, value)
    for limit, count in (
        (apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (apsw.SQLITE_LIMIT_ATTACHED, 0),
        (apsw.SQLITE_LIMIT_COMPOUND_SELECT, 2),
    ):
        db.limit(limit, count)
    db.execute("PRAGMA cell_size_check = ON").fetchall()


def check_tables_only(db: apsw.Connection, path: Path) -> None:
    """Raise Fatal for a file with anything but tables and plain indexes."""
    entries = db.execute("SELECT type, name, upper(sql) FROM sqlite_master LIMIT ?", (MAX_SCHEMA_ENTRIES + 1,)).fetchall()
    if len(entries) > MAX_SCHEMA_ENTRIES:
        raise Fatal(f"{path} is not a copy of an LMT database: it has more than {MAX_SCHEMA_ENTRIES} tables and indexes")
    for kind, name, sql in entries:
        if kind not in {"table", "index"} or str(sql).startswith("CREATE VIRTUAL"):
            what = kind if kind in {"view", "trigger"} else "virtual table"
            raise Fatal(f"{path} has a {what}, {name!r}: only copies with nothing but tables are read")
    generated = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' AND c.hidden"
    for table, column in db.execute(generated):
        raise Fatal(f"{path} has a generated column, {table}.{column}: only copies with nothing but tables are read")


def authorize(operation: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """Permit what client_sqlite.py and collector.py execute."""
    if operation == apsw.SQLITE_READ:
        is_permitted = (first or "").upper() in READABLE
    elif operation == apsw.SQLITE_FUNCTION:
        is_permitted = (second or "").lower() in FUNCTIONS
    elif operation == apsw.SQLITE_PRAGMA:
        is_permitted = (first or "").lower() in PRAGMAS
    else:
        is_permitted = operation == apsw.SQLITE_SELECT
    return apsw.SQLITE_OK if is_permitted else apsw.SQLITE_DENY
