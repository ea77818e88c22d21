"""The history as an SQLite database: opened for each call, so that nothing of it is held.

Several launchers and commands write at once: SQLite's write-ahead log and its lock keep that in
order. What stands in it is data: each row is judged as it is read.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from relkit.files.private_file import is_private_folder, open_private
from relkit.history.model import Event, Mention, What
from relkit.history.place import NAME, HistoryBusy, NoHistory, prepared_folder

SCHEMA = 1
MAX_BYTES = 64 << 20
MAX_AGE_S = 400 * 86400.0
# How long a writer waits for others.
BUSY_S = 5.0
_PAGE_BYTES = 4096
# Beyond what is kept: a write that would need more fails.
_MAX_PAGES = (MAX_BYTES + (16 << 20)) // _PAGE_BYTES
_MAX_TEXT, _MAX_NODES = 500, 1024
MAX_READ = 100_000
_LOOK_S = 0.05
_TABLES = """
CREATE TABLE IF NOT EXISTS event (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, what TEXT NOT NULL, job TEXT NOT NULL,
  run TEXT NOT NULL, host TEXT NOT NULL, text TEXT NOT NULL, finding TEXT NOT NULL,
  status TEXT NOT NULL, ranks TEXT NOT NULL, speaks INTEGER NOT NULL, of_nodes INTEGER NOT NULL,
  step INTEGER NOT NULL, seconds REAL NOT NULL);
CREATE INDEX IF NOT EXISTS event_at ON event (at);
CREATE INDEX IF NOT EXISTS event_job ON event (job, at);
CREATE TABLE IF NOT EXISTS named (
  event INTEGER NOT NULL REFERENCES event (id) ON DELETE CASCADE, node TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS named_node ON named (node);
CREATE INDEX IF NOT EXISTS named_event ON named (event);
"""
_ADD = "INSERT INTO event VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_READ = """
SELECT * FROM event WHERE at >= :since AND (:job = '' OR job = :job)
  AND (:node = '' OR host = :node OR id IN (SELECT event FROM named WHERE node = :node))
ORDER BY at DESC, id DESC LIMIT :most
"""


def write(folder: Path, events: Sequence[Event], now_s: float | None = None) -> None:
    """Add events, and drop what is too old or too much.

    Args:
        folder: of the history, made where it is missing.
        now_s: Unix time; now where left out.

    Raises:
        NoHistory: it cannot be written.
    """
    now_s = time.time() if now_s is None else now_s
    path = prepared_folder(folder) / NAME
    with _told_apart(path):
        os.close(open_private(path, os.O_RDWR | os.O_CREAT))
        with closing(_opened(path, writes=True)) as database:
            _prepare(database)
            with _transaction(database):
                for event in events:
                    _add(database, event)
                database.execute("DELETE FROM event WHERE at < ?", (now_s - MAX_AGE_S,))
            _shrink(database)


def read(
    folder: Path, since_s: float, *, node: str = "", job: str = "", most: int = MAX_READ
) -> list[Event]:
    """Events, the newest last.

    Args:
        folder: of the history; since_s: Unix time.
        node: only those that name it, or that it has noted; job: only those of it.
        most: the newest of them.

    Raises:
        NoHistory: it cannot be read.
    """
    path = folder / NAME
    asked = {"since": since_s, "node": node, "job": job, "most": most}
    with _reading(path) as database:
        if database is None:
            return []
        rows = database.execute(_READ, asked).fetchall()
        events = []
        for number, *row in reversed(rows):
            nodes = database.execute(
                "SELECT node FROM named WHERE event = ? LIMIT ?", (number, _MAX_NODES)
            )
            event = _event(row, tuple(str(name) for (name,) in nodes))
            if event is not None:
                events.append(event)
        return events


def mentions(folder: Path, since_s: float, now_s: float) -> list[Mention]:
    """Where verdicts have said something of nodes.

    Args:
        since_s, now_s: Unix time; what is from the future was written by a clock that was wrong.

    Raises:
        NoHistory: it cannot be read.
    """
    query = (
        "SELECT node, at, job || ' ' || run, finding, of_nodes FROM named JOIN event ON event = id"
        " WHERE at >= ? AND at <= ? AND speaks = 1 ORDER BY at DESC LIMIT ?"
    )
    with _reading(folder / NAME) as database:
        if database is None:
            return []
        rows = database.execute(query, (since_s, now_s, MAX_READ)).fetchall()
        return [
            Mention(str(node), float(at), str(run), str(finding), of_nodes == 1)
            for node, at, run, finding, of_nodes in rows
        ]


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection | None]:
    """The database; None where there is none yet."""
    with _told_apart(path):
        if not path.exists():
            yield None
            return
        if not is_private_folder(path.parent):
            raise NoHistory(f"{path.parent} belongs to another user, or others may read it")
        os.close(open_private(path))
        with closing(_opened(path, writes=False)) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA:
                raise _other_version(version)
            yield database


def _opened(path: Path, *, writes: bool) -> sqlite3.Connection:
    mode = "rw" if writes else "ro"
    # A path may have what means something in an address.
    address = f"{path.absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(address, timeout=BUSY_S, uri=True, isolation_level=None)
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _prepare(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA foreign_keys = ON")
    database.execute(f"PRAGMA max_page_count = {_MAX_PAGES}")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, SCHEMA):
        raise _other_version(version)
    if version == SCHEMA:
        return
    database.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    _use_log(database)
    with _transaction(database):
        for statement in filter(str.strip, _TABLES.split(";")):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {SCHEMA}")


def _use_log(database: sqlite3.Connection) -> None:
    """Write ahead. SQLite does not wait for others here, who may do the same."""
    end_s = time.monotonic() + BUSY_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_locked(error) or time.monotonic() >= end_s:
                raise
            time.sleep(_LOOK_S)


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    # At once, not at the first write: waiting is possible only before anything was read.
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # After some errors SQLite has rolled it back itself.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _add(database: sqlite3.Connection, event: Event) -> None:
    texts = (event.job, event.run, event.host, event.text, event.finding, event.status, event.ranks)
    values = (
        *(event.at_unix_s, event.what.value),
        *map(_storable, texts),
        *(int(event.speaks_of_nodes), event.of_nodes, event.step, event.seconds),
    )
    added = database.execute(_ADD, values).lastrowid
    names = [(added, _storable(node)) for node in event.nodes[:_MAX_NODES]]
    database.executemany("INSERT INTO named (event, node) VALUES (?, ?)", names)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:_MAX_TEXT]


def _event(row: Sequence[Any], nodes: tuple[str, ...]) -> Event | None:
    at, what, job, run, host, text, finding, status, ranks, speaks, of_nodes, step, seconds = row
    try:
        return Event(
            float(at), What(what), str(job), str(run), str(host), str(text), str(finding),
            str(status), str(ranks), nodes, bool(speaks), int(of_nodes), int(step), float(seconds),
        )  # fmt: skip
    except (ValueError, TypeError, OverflowError):
        return None


def _shrink(database: sqlite3.Connection) -> None:
    """Drop the oldest tenth until what is kept is small enough."""
    while _used_bytes(database) > MAX_BYTES:
        oldest = (
            "DELETE FROM event WHERE id IN (SELECT id FROM event ORDER BY at, id"
            " LIMIT max(1, (SELECT count(*) FROM event) / 10))"
        )
        with _transaction(database):
            if not database.execute(oldest).rowcount:
                return
    if _pragma(database, "freelist_count"):
        # One step of it frees one page: all of them are asked for.
        database.executescript("PRAGMA incremental_vacuum")


def _used_bytes(database: sqlite3.Connection) -> int:
    pages = _pragma(database, "page_count") - _pragma(database, "freelist_count")
    return pages * _pragma(database, "page_size")


def _pragma(database: sqlite3.Connection, name: str) -> int:
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])


def _other_version(version: object) -> NoHistory:
    return NoHistory(
        f"the history is of version {version}, this is relkit with {SCHEMA}",
        next_step="Use the relkit that has made it, or move the file away.",
    )


def _is_locked(error: sqlite3.Error) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


@contextmanager
def _told_apart(path: Path) -> Iterator[None]:
    """Errors of SQLite and of files, as what they mean to a user."""
    try:
        yield
    except sqlite3.Error as error:
        if _is_locked(error):
            raise HistoryBusy(f"{path}: {error}") from error
        step = None
        if not isinstance(error, sqlite3.OperationalError):
            step = f"It is damaged, or no history: move {path} away, and a new one is begun."
        raise NoHistory(f"{path}: {error}", next_step=step) from error
    except OSError as error:
        raise NoHistory(f"{path}: {error.strerror or error}") from error
