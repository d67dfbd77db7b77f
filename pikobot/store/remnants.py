"""What a byte scan needs of SQLite: what its file holds outside of rows, and whether surviving rows hold a text.

A text is a remnant when it stands outside of rows; in a row it survives, or the closure has missed it. Rows are
asked through SQLite and the text index, everything else is read from the file (`pages`). The -shm file holds frame
numbers only and is left alone. `rewrite` is the last resort, for what `pages.overwrite` could not reach.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from pikobot.store.connection import Connection, Database, translated_errors
from pikobot.store.pages import (
    Looked,
    Pages,
    look,
    look_behind_values,
    open_raw,
    pages_in_wal,
    read_pages,
)
from pikobot.store.segmentation import match_expression

T = TypeVar("T")

UNREAD_SUFFIX = "-shm"
POLL_S = 0.02


@dataclass(frozen=True)
class Remains:
    """What the database file holds outside of rows, by page.

    ``is_complete``: all of that is here; else the whole file has to be looked through. ``is_settled``: the WAL was
    empty, and nothing was written to the file while it was looked at.
    """

    left: dict[int, bytes]
    is_complete: bool
    is_settled: bool


@dataclass(frozen=True)
class _Settled:
    is_truncated: bool
    written: frozenset[int] | None  # None: another process has written, nobody knows what


def find_remains(db: Database) -> Remains:
    """Look through the database file as it is."""
    with db.read() as conn, open_raw(db.path) as raw:
        pages = read_pages(raw)
        if pages is None:
            return Remains({}, is_complete=False, is_settled=False)
        looked = look(raw, pages)
        look_behind_values(conn, raw, pages, looked)
        return Remains(looked.left, not looked.is_cut, is_settled=False)


def settle_and_find_remains(db: Database) -> Remains:
    """Empty the WAL and look through the database file. Not on the writer thread, not from the event loop.

    Both at a time, for emptying is waiting for the disk: the pages that were in the WAL are looked at again
    afterwards. From then on a read transaction that reads the file alone holds back every checkpoint, so that the
    file stays as it is until the look is over, while others read and write.
    """
    with db.read() as conn, ThreadPoolExecutor(1) as waiting:
        begun = threading.Event()
        settling = waiting.submit(db.perform, _settle, conn, begun)
        while not begun.wait(POLL_S) and not settling.done():
            pass
        with open_raw(db.path) as raw:
            early = read_pages(raw)
            looked = Looked() if early is None else look(raw, early)
        settled = settling.result()
        with open_raw(db.path) as raw:
            pages = read_pages(raw)
            if pages is None:
                return Remains({}, is_complete=False, is_settled=settled.is_truncated)
            if early is None or early.size != pages.size or settled.written is None:
                looked = look(raw, pages)
            else:
                again = _changed(early, pages) | {page for page in settled.written if page <= pages.count}
                looked.replace(again, look(raw, pages, sorted(again)))
            look_behind_values(conn, raw, pages, looked)
        return Remains(looked.left, not looked.is_cut, settled.is_truncated)


def _settle(db: Database, reader: Connection, begun: threading.Event) -> _Settled:
    """Empty the WAL and let the reader begin with the file alone; tells which pages that has written."""
    version = _data_version(db)
    written = pages_in_wal(db.path)
    begun.set()
    is_truncated = db.truncate_wal()
    reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    return _Settled(is_truncated, written if _data_version(db) == version else None)


def _changed(before: Pages, after: Pages) -> set[int]:
    """Pages that were added, or are free and were not, or the other way round."""
    freed = {number for number, _ in before.free.items() ^ after.free.items()}
    return {number for number in freed if number <= after.count} | set(
        range(before.count + 1, after.count + 1)
    )


def _data_version(db: Database) -> object:
    """Changes when another process commits."""
    return db.maintenance_connection().execute("PRAGMA data_version").fetchall()


def index_holds(conn: Connection, words: str) -> bool:
    """Whether a surviving source has these words in this order, by the text index; False without any word."""
    phrase = match_expression("-".join(words.split()))  # one part: the words must follow each other
    return phrase is not None and bool(
        conn.execute("SELECT 1 FROM sources_text WHERE sources_text MATCH ? LIMIT 1", (phrase,)).fetchone()
    )


def held_by_rows(
    conn: Connection,
    wanted: frozenset[T],
    found_in: Callable[[bytes, frozenset[T]], frozenset[T]],
) -> frozenset[T]:
    """Which of the wanted parts stand in some surviving value or in the schema; reads rows until all do.

    ``found_in`` tells which of the given ones a value contains.
    """
    missing = wanted
    if missing:
        for value in _every_value(conn):
            missing -= found_in(value, missing)
            if not missing:
                break
    return wanted - missing


def rewrite(db: Database) -> None:
    """Write the database anew without unused space. On the writer thread, outside transactions.

    Takes the time and, for a while, the disk space of a copy.
    """
    conn = db.maintenance_connection()
    with translated_errors("rewrite the database"):
        conn.execute("PRAGMA temp_store = FILE").fetchall()
        try:
            conn.execute("VACUUM")
        finally:
            conn.execute("PRAGMA temp_store = MEMORY").fetchall()


def _every_value(conn: Connection) -> Iterator[bytes]:
    """Texts and blobs of all tables but the text index, whose own remains are what is looked for."""
    for (sql,) in conn.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL"):
        yield sql.encode()
    for table, columns in _columns(conn):
        names = ", ".join(f'CAST("{column}" AS BLOB)' for column in columns)
        for row in conn.execute(f'SELECT {names} FROM "{table}"'):
            yield b"\0".join(value for value in row if isinstance(value, bytes))


def _columns(conn: Connection) -> list[tuple[str, list[str]]]:
    tables: dict[str, list[str]] = {}
    for table, column in conn.execute(
        """
        SELECT t.name, c.name FROM pragma_table_list AS t JOIN pragma_table_xinfo(t.name) AS c
        WHERE t.schema = 'main' AND t.type = 'table' AND t.name <> 'sqlite_schema' AND c.type IN ('TEXT', 'BLOB')
        ORDER BY t.name, c.cid
        """
    ):
        tables.setdefault(table, []).append(column)
    return list(tables.items())
