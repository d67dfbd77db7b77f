"""What the whole database file holds outside of rows, found while the WAL is emptied, and quickly the next time.

    writer thread:  is the file as it was last seen? ─▶ which pages are in the WAL? ─▶ WAL emptied, a reader begins
    caller:         meanwhile all pages are looked at, unless it is ─▶ those of the WAL again ─▶ the reader ends

The reader reads the file alone, so it holds back every checkpoint: from the moment on at which the WAL was empty the
file stays as it is until the look is over, while others read and write.

What stands outside of rows follows from the bytes of a page and from nothing else, so a page that nobody has written
to since it was looked at needs no second look: what it held then is kept, and searched again. A file is as it was
when its time of change still is the one that was put on it at the end of the look; whoever writes to it, SQLite or
not, changes that. All that has come since stands in the WAL then, for a WAL is begun anew only after its pages
were copied into the file. This process notes which pages it has copied, and puts a time of change on the file again.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.pages import (
    Looked,
    Pages,
    look,
    look_behind_values,
    open_raw,
    overwrite,
    pages_in_wal,
    read_pages,
)

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
class _Stamp:
    """What a file changes when it is written to."""

    inode: int
    size: int
    changed_at_ns: int


@dataclass
class _Seen:
    """A file as it was looked at, and the pages that were written to it since."""

    pages: Pages
    looked: Looked
    stamp: _Stamp | None = None
    written: set[int] = field(default_factory=set)


@dataclass
class _Settling:
    """How far emptying the WAL has come. ``written``: the pages in it; None: another process has written others."""

    expected: _Stamp | None
    begun: threading.Event = field(default_factory=threading.Event)
    is_as_expected: bool = False
    is_truncated: bool = False
    written: frozenset[int] | None = None


_LAST_SEEN: WeakKeyDictionary[Database, _Seen] = WeakKeyDictionary()


def find_remains(db: Database) -> Remains:
    """Look at the database file as it is."""
    with db.read() as conn:
        return remains_in(conn, db.path)


def remains_in(conn: Connection, path: Path, *, without: frozenset[int] = frozenset()) -> Remains:
    """Look at the database file as it is, at all pages but some."""
    with open_raw(path) as raw:
        pages = read_pages(raw)
        if pages is None:
            return Remains({}, is_complete=False, is_settled=False)
        looked = look(raw, pages, (page for page in range(1, pages.count + 1) if page not in without))
        look_behind_values(conn, raw, pages, looked)
        return Remains(looked.left, not looked.is_cut, is_settled=False)


def pages_of(conn: Connection, table: str) -> frozenset[int]:
    """The pages of a table and of its indexes."""
    rows = conn.execute(
        "SELECT pageno FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name = ?)",
        (table,),
    )
    return frozenset(int(str(row[0])) for row in rows)


def settle_and_find_remains(
    db: Database,
    *,
    before: Callable[[Database], object] = lambda _: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Remains:
    """Empty the WAL and look at the database file. Not on the writer thread, not from the event loop.

    ``before`` is done on the writer thread first, ``meanwhile`` here while the writer thread waits for the disk.
    Takes 0.1 ms for each megabyte the first time.
    """
    last = _LAST_SEEN.pop(db, None)
    settling = _Settling(None if last is None else last.stamp)
    with db.read() as conn:
        settled = db.start(_settle, conn, settling, before)
        while not settling.begun.wait(POLL_S):
            if settled.done():
                settled.result()
        try:
            meanwhile()
            seen = last if settling.is_as_expected else _look_at_all(db)
        finally:
            wait([settled])
        settled.result()
        seen = _look_again(db, conn, seen, settling.written)
        if seen is None:
            return Remains({}, is_complete=False, is_settled=settling.is_truncated)
        if settling.is_truncated and not seen.looked.is_cut:
            _put_stamp(db, seen)
            _LAST_SEEN[db] = seen
            db.around_checkpoint = _noting_what_is_written
        return Remains(dict(seen.looked.left), not seen.looked.is_cut, settling.is_truncated)


def overwrite_remains(db: Database, numbers: Iterable[int]) -> None:
    """`pages.overwrite`, and the next look is at what it has written only. On the writer thread."""
    with _noting_what_is_written(db) as seen:
        written = overwrite(db, numbers)
        if seen is not None:
            seen.written |= written


def _settle(
    db: Database, reader: Connection, settling: _Settling, before: Callable[[Database], object]
) -> None:
    """Empty the WAL and let the reader begin with the file alone. On the writer thread."""
    before(db)
    version = _data_version(db)
    settling.is_as_expected = settling.expected == _stamp_of(db)
    written = pages_in_wal(db.path)
    settling.begun.set()
    settling.is_truncated = db.truncate_wal()
    reader.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
    settling.written = written if _data_version(db) == version else None


def _look_at_all(db: Database) -> _Seen | None:
    with open_raw(db.path) as raw:
        pages = read_pages(raw)
        return None if pages is None else _Seen(pages, look(raw, pages))


def _look_again(
    db: Database, conn: Connection, seen: _Seen | None, written: frozenset[int] | None
) -> _Seen | None:
    """What there is now, after these pages were written; None for a file that can't be divided."""
    with open_raw(db.path) as raw:
        pages = read_pages(raw)
        if pages is None:
            return None
        if seen is None or seen.pages.size != pages.size or written is None:
            looked = look(raw, pages)
        else:
            looked = seen.looked
            again = _changed(seen.pages, pages)
            again |= {page for page in written | seen.written if page <= pages.count}
            cut_off = {page for page in looked.left if page > pages.count}
            looked.replace(again | cut_off, look(raw, pages, sorted(again), head_bytes=pages.size))
        look_behind_values(conn, raw, pages, looked)
        return _Seen(pages, looked)


@contextmanager
def _noting_what_is_written(db: Database) -> Iterator[_Seen | None]:
    """Around a checkpoint of this process: what was seen before goes on to hold for all other pages."""
    seen = _LAST_SEEN.get(db)
    if seen is None or seen.stamp != _stamp_of(db):
        yield None
        return
    version = _data_version(db)
    seen.written |= pages_in_wal(db.path)
    yield seen
    if _data_version(db) == version:
        _put_stamp(db, seen)


def _changed(before: Pages, after: Pages) -> set[int]:
    """Pages that were added, or are free and were not, or the other way round."""
    freed = {number for number, _ in before.free.items() ^ after.free.items()}
    added = range(before.count + 1, after.count + 1)
    return {number for number in freed if number <= after.count}.union(added)


def _put_stamp(db: Database, seen: _Seen) -> None:
    """Put a time of change on the file that no write can give it; where that fails it is another one than expected."""
    found = os.stat(db.path)
    changed_at_ns = found.st_mtime_ns - 1
    with suppress(PermissionError):  # a file of another owner
        os.utime(db.path, ns=(found.st_atime_ns, changed_at_ns))
    seen.stamp = _Stamp(found.st_ino, found.st_size, changed_at_ns)


def _stamp_of(db: Database) -> _Stamp:
    found = os.stat(db.path)
    return _Stamp(found.st_ino, found.st_size, found.st_mtime_ns)


def _data_version(db: Database) -> object:
    """Changes when another process commits."""
    return db.maintenance_connection().execute("PRAGMA data_version").fetchall()
