"""Damage: records whose stored numbers or texts have changed since they were written, as by a flipped bit on a disk.

A store keeps a digest beside each record, over the whole row and all its arrays. A record that no longer has its digest
is left out of what the store returns, its run counts as missing, and the next sweep trains it again. Stores of earlier
versions have no digests: their records are read as they are.
"""

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...untrusted import escape_controls
from .store_rows import COLUMNS

logger = logging.getLogger("cwrnn")

TABLE = "digests"
TABLE_DEFINITION = f"{TABLE} (key TEXT PRIMARY KEY REFERENCES runs (key) ON DELETE CASCADE, digest TEXT NOT NULL)"
MOST_NAMED = 5
"""The number of damaged records that one warning names."""

StoredArray = tuple[str, str, str, bytes]
"""Name, dtype, shape and bytes of an array."""


def digest_record(row: Sequence[Any], arrays: Iterable[StoredArray]) -> str:
    """The hash of a record as it is stored: its row in the order of COLUMNS, and its arrays in any order.

    >>> first, second = ("curve", "<f4", "[1]", b"0000"), ("output", "<f4", "[1]", b"0000")
    >>> digest_record([1, 0.5], [first, second]) == digest_record([1, 0.5], [second, first])
    True
    """
    digest = hashlib.sha256(json.dumps(list(row)).encode())
    for name, dtype, shape, data in sorted(arrays):
        digest.update(json.dumps([name, dtype, shape, len(data)]).encode())
        digest.update(data)
    return digest.hexdigest()


def add_digest(connection: sqlite3.Connection, key: str) -> None:
    """Adds the digest of a record that was just written, as the store gives it back. A transaction must be open."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS {TABLE_DEFINITION}")
    connection.execute(f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?)", (key, _digest_stored(connection, key)))


def is_damaged(connection: sqlite3.Connection, key: str) -> bool:
    """True if the record does not match its stored digest."""
    stored = read_digests(connection, [key]).get(key)
    return stored is not None and stored != _digest_stored(connection, key)


def find_damaged(connection: sqlite3.Connection) -> list[str]:
    """The keys of all damaged records, at one moment: another process may be writing."""
    connection.execute("BEGIN")
    try:
        return [key for key in read_digests(connection) if is_damaged(connection, key)]
    finally:
        connection.execute("COMMIT")


def read_digests(connection: sqlite3.Connection, keys: Sequence[str] | None = None) -> dict[str, str]:
    """The digests that are stored, by key: all of them, or those of `keys`."""
    known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = ?", (TABLE,)).fetchone()[0]
    if not known:
        return {}
    if keys is None:
        return dict(connection.execute(f"SELECT key, digest FROM {TABLE}"))
    return {
        key: digest
        for key in keys
        for (digest,) in connection.execute(f"SELECT digest FROM {TABLE} WHERE key = ?", (key,))
    }


def read_arrays(connection: sqlite3.Connection, key: str) -> list[StoredArray]:
    """The arrays of a record, in the order in which they were written.

    Digests and records read them by this same statement: SQLite finds them by the index, and another statement could
    find other arrays after damage to the table or to the index.
    """
    return connection.execute(
        "SELECT name, dtype, shape, data FROM arrays WHERE key = ? ORDER BY rowid", (key,)
    ).fetchall()


def describe_damaged(values: Mapping[str, Any]) -> str:
    """The name of a damaged record, from the row that is left of it, as a text that a terminal prints as it is."""
    return escape_controls(
        f"{str(values['key'])[:12]} ({values['method']} of size {values['size']} on {values['data']!r}, "
        f"seed {values['seed']})"
    )


def warn_about_damage(path: Path, names: Sequence[str]) -> None:
    """Logs a warning that names the damaged records, of which there is at least one."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    logger.warning(
        "%s: left out, because these records do not match their digests: %s%s; --resume (resume=True) trains them "
        "again",
        escape_controls(str(path)),
        ", ".join(names[:MOST_NAMED]),
        more,
    )


def _digest_stored(connection: sqlite3.Connection, key: str) -> str | None:
    """The hash of a record as it is stored now; None if there is no such record."""
    row = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM runs WHERE key = ?", (key,)).fetchone()
    return None if row is None else digest_record(row, read_arrays(connection, key))
