"""The pages of a database file as they are on disk: what is left in them outside of rows, and how to overwrite it.

    page of the freelist                  all of it but its list of other free pages
    page of a b-tree                      the gap between its pointers and its cells, and its freed cells
    page of a long value but the last     nothing: it is full of a living row
    last page of a long value             what is behind the value: its length is asked of SQLite (dbstat)

Cells of rows are left out, for they are survivors by definition, but those of FTS5, which `index_pages` answers for;
SQLite has no page that is neither free nor in use (`PRAGMA integrity_check` would tell). Up to three bytes that are
lost between two cells are not looked at, and up to three bytes among zeros are passed over: most are numbers of freed
cells that have become a part of others. Layout: sqlite.org/fileformat2.html, 1.5 to 1.7. Of a page that holds rows
only its beginning is read.

SQLite overwrites what is deleted (secure_delete), but when it moves rows between pages a copy can stay in a gap, out
of reach of the deletion. `overwrite` writes zeros over it in the file itself. That is safe while nobody can write
to the file: with the write lock taken no transaction begins, and with an empty WAL there is nothing to be copied
into the file. What is overwritten belongs to no row, so a crash in the middle harms nothing, and readers see nothing.

SQLite's files are read and written through SQLite's own file layer: closing a descriptor opened beside it would
drop the locks of this process (sqlite.org/howtocorrupt.html, 2.2).
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct, unpack_from

import apsw

from pikobot.store.connection import Connection, Database, translated_errors

WAL_SUFFIX = "-wal"
HEAD_BYTES = 2048
PAGES_AT_ONCE = 500  # a millisecond
MAX_PAGE_BYTES = 65_536
MAX_KEPT_BYTES = 64 << 20
FILE_HEADER_BYTES = 100
MAX_LOST_BYTES = 3
MAGIC = b"SQLite format 3\0"
# Where the pointers to the cells begin in a page of each kind: interior and leaf, of indexes and of tables.
POINTERS_AT = {2: 12, 5: 12, 10: 8, 13: 8}
# Below this many pages the first byte of a page of a long value, of the number of the next one, is none of these kinds.
MAX_PAGES = 1 << 25
# Tables with long values that are quick to walk through come first.
_TABLES_OF_LONG_VALUES = ("vector_block_data", "media")

_ZEROS = bytes(MAX_PAGE_BYTES)
_HEADER = Struct(">BHHH").unpack_from  # kind, first freed cell, cells, where their content begins
_FREED = Struct(">HH").unpack_from  # next freed cell, bytes of this one
_NUMBER = Struct(">I").unpack_from

Ranges = list[tuple[int, int]]


@dataclass
class Looked:
    """What pages hold outside of rows where that is not zeros, by number; ``unknown``: SQLite has to be asked.

    Beyond a limit, which only a file that others have written to comes near, nothing is kept but the numbers.
    """

    left: dict[int, bytes] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)
    kept_bytes: int = 0

    @property
    def is_cut(self) -> bool:
        return self.kept_bytes >= MAX_KEPT_BYTES

    def keep(self, page: bytes, number: int, ranges: Ranges) -> None:
        pieces = [page[begin:end] for begin, end in ranges]
        left = [piece.strip(b"\0") for piece in pieces if not _ZEROS.startswith(piece)]
        left = [piece for piece in left if len(piece) > MAX_LOST_BYTES]
        if left:
            self.left[number] = b"" if self.is_cut else b"\0".join(left)
            self.kept_bytes += len(self.left[number])

    def replace(self, numbers: Iterable[int], newer: "Looked") -> None:
        """Take what was seen of these pages later instead."""
        for number in numbers:
            self.left.pop(number, None)
            self.unknown.discard(number)
        self.left |= newer.left
        self.kept_bytes += newer.kept_bytes
        self.unknown |= newer.unknown


@dataclass(frozen=True)
class RawFile:
    """An open database file, or its WAL. ``exactly(length, offset)`` must not go beyond its end."""

    size: int
    exactly: Callable[[int, int], bytes]

    def __call__(self, offset: int, length: int) -> bytes:
        """The bytes there, fewer at the end of the file."""
        return self.exactly(min(length, max(self.size - offset, 0)), offset)


@dataclass(frozen=True)
class Pages:
    """How a database file is divided. Pages are numbered from 1; ``free`` ones with the bytes of their list."""

    size: int
    count: int
    free: Mapping[int, int]


@contextmanager
def open_raw(path: Path) -> Iterator[RawFile]:
    """The bytes of a database file or of its WAL as they are on disk."""
    with _opened(path, apsw.SQLITE_OPEN_READONLY) as file:
        yield RawFile(file.xFileSize(), file.xRead)


def read_pages(raw: RawFile) -> Pages | None:
    """How the file is divided; None when it is no database such as `connection` makes."""
    header = raw(0, FILE_HEADER_BYTES)
    if len(header) < FILE_HEADER_BYTES or not header.startswith(MAGIC):
        return None
    size = int.from_bytes(header[16:18], "big")
    size = MAX_PAGE_BYTES if size == 1 else size
    has_plain_pages = header[20] == 0 and _NUMBER(header, 52)[0] == 0  # nothing reserved, no auto-vacuum
    if size < 512 or size & (size - 1) or not has_plain_pages or raw.size >= size * MAX_PAGES:
        return None
    count, in_use = raw.size // size, _NUMBER(header, 28)[0]
    behind = range(in_use + 1, count + 1) if in_use and header[24:28] == header[92:96] else ()
    return Pages(size, count, {**_freelist(raw, header, size), **dict.fromkeys(behind, 0)})


def look(
    raw: RawFile, pages: Pages, numbers: Iterable[int] | None = None, *, head_bytes: int = HEAD_BYTES
) -> Looked:
    """Look at the pages of those numbers, else at all, without asking SQLite anything. Other threads get turns.

    So many bytes are read at first, which is enough for a page that is full of rows.
    """
    read, size, free = raw.exactly, pages.size, pages.free
    head_bytes = min(head_bytes, size)
    looked = Looked()
    for number in range(1, pages.count + 1) if numbers is None else numbers:
        head = read(head_bytes, (number - 1) * size)
        if not number % PAGES_AT_ONCE:
            time.sleep(0.000_001)
        if number in free or not _is_full(head, pages):
            page = head if head_bytes == size else read(size, (number - 1) * size)
            ranges = outside_of_rows(page, number, pages)
            if ranges is None:
                looked.unknown.add(number)
            else:
                looked.keep(page, number, ranges)
    return looked


def look_behind_values(conn: Connection, raw: RawFile, pages: Pages, looked: Looked) -> None:
    """Ask SQLite where long values end, and look behind them. What it does not know at all is kept whole.

    ``conn`` is in a transaction that reads what is in the file, as after a truncation of the WAL.
    """
    tails = _tails(conn, looked.unknown)
    for number in sorted(looked.unknown):
        page = raw.exactly(pages.size, (number - 1) * pages.size)
        looked.keep(page, number, [(pages.size - tails.get(number, pages.size), pages.size)])
    looked.unknown.clear()


def outside_of_rows(page: bytes, number: int, pages: Pages) -> Ranges | None:
    """The ranges of a page that no row and no structure of it needs; None when SQLite has to be asked for them."""
    if number in pages.free:
        return [(pages.free[number], len(page))]
    if page[0] in POINTERS_AT or number == 1:
        return _outside_of_cells(page, FILE_HEADER_BYTES if number == 1 else 0)
    return [] if _goes_on(page, pages) else None


def pages_in_wal(path: Path) -> frozenset[int]:
    """The numbers of all pages that the WAL of this database holds, copied into the database already or not."""
    wal = Path(f"{path}{WAL_SUFFIX}")
    if not wal.exists():
        return frozenset()
    with open_raw(wal) as raw:
        size = int.from_bytes(raw(8, 4), "big")
        read, frames = raw.exactly, range(32, raw.size - 24, 24 + size) if size else ()
        return frozenset(_NUMBER(read(4, at))[0] for at in frames)


def overwrite(db: Database, numbers: Iterable[int]) -> frozenset[int]:
    """Write zeros over what these pages hold outside of rows, and those that the WAL held; returns their numbers.

    On the writer thread, outside transactions. Empty when a reader or another process keeps the WAL. What can't be
    overwritten stays: read those pages again.
    """
    wanted = {*numbers, *pages_in_wal(db.path)}
    if not db.truncate_wal():
        return frozenset()
    with db.write("overwrite what is left outside of rows") as tx:
        if pages_in_wal(db.path):
            return frozenset()
        with _opened(db.path, apsw.SQLITE_OPEN_READWRITE) as file:
            _overwrite(tx, file, wanted)
    # The connection must not write the pages as it knows them; others read them anew after the next commit.
    db.maintenance_connection().release_memory()
    return frozenset(wanted)


def _overwrite(conn: Connection, file: apsw.VFSFile, numbers: Iterable[int]) -> None:
    raw = RawFile(file.xFileSize(), file.xRead)
    pages = read_pages(raw)
    if pages is None:
        return
    unknown = []
    for number in sorted(number for number in numbers if number <= pages.count):
        page = raw((number - 1) * pages.size, pages.size)
        ranges = outside_of_rows(page, number, pages)
        if ranges is None:
            unknown.append(number)
        elif number in pages.free or _has_its_cells_outside(page, number, ranges):
            _write_zeros(file, page, (number - 1) * pages.size, ranges)
    for number, tail in _tails(conn, unknown).items():
        page = raw((number - 1) * pages.size, pages.size)
        _write_zeros(file, page, (number - 1) * pages.size, [(pages.size - tail, pages.size)])
    file.xSync(apsw.SQLITE_SYNC_NORMAL)


def _write_zeros(file: apsw.VFSFile, page: bytes, offset: int, ranges: Ranges) -> None:
    for begin, end in ranges:
        if not _ZEROS.startswith(page[begin:end]):
            file.xWrite(_ZEROS[: end - begin], offset + begin)


@contextmanager
def _opened(path: Path, how: int) -> Iterator[apsw.VFSFile]:
    kind = apsw.SQLITE_OPEN_WAL if path.name.endswith(WAL_SUFFIX) else apsw.SQLITE_OPEN_MAIN_DB
    with translated_errors("look through the database"):
        file = apsw.VFSFile("unix", str(path), [kind | how, 0])
        try:
            yield file
        finally:
            file.xClose()


def _is_full(head: bytes, pages: Pages) -> bool:
    """Whether the beginning of a page in use shows already that there are only zeros in it beside rows; for speed."""
    kind, freed, cells, top = _HEADER(head)
    begin = POINTERS_AT.get(kind)
    if begin is None:
        return _goes_on(head, pages)
    begin += 2 * cells
    return not freed and begin <= top <= len(head) and _ZEROS.startswith(head[begin:top])


def _goes_on(page: bytes, pages: Pages) -> bool:
    """Whether a page of a long value is not the last of it."""
    (following,) = _NUMBER(page)
    return 1 < following <= pages.count and following not in pages.free


def _outside_of_cells(page: bytes, header_at: int) -> Ranges | None:
    kind, freed, cells, top = _HEADER(page, header_at)
    begin = header_at + POINTERS_AT.get(kind, MAX_PAGE_BYTES) + 2 * cells
    top = top or MAX_PAGE_BYTES
    if not begin <= top <= len(page):
        return None
    ranges = [(begin, top)]
    last = top
    while freed:
        if not last <= freed <= len(page) - 4 or _FREED(page, freed)[1] < 4:
            return None
        following, length = _FREED(page, freed)
        ranges.append((freed + 4, freed + length))
        last, freed = freed + length, following
    return ranges if last <= len(page) else None


def _has_its_cells_outside(page: bytes, number: int, ranges: Ranges) -> bool:
    """Whether no pointer of a b-tree page leads into the ranges: the last check before they are overwritten."""
    header_at = FILE_HEADER_BYTES if number == 1 else 0
    kind, _, cells, _ = _HEADER(page, header_at)
    if kind not in POINTERS_AT:
        return not ranges
    pointers = sorted(unpack_from(f">{cells}H", page, header_at + POINTERS_AT[kind]))
    return all(bisect_left(pointers, begin) == bisect_left(pointers, end) for begin, end in ranges)


def _tails(conn: Connection, numbers: Iterable[int]) -> dict[int, int]:
    """How many bytes are behind the value in these last pages of long values; pages that are none are left out."""
    missing, tails = set(numbers), dict[int, int]()
    for condition in (*(f"name = '{table}' AND" for table in _TABLES_OF_LONG_VALUES), ""):
        if not missing:
            break
        sql = f"SELECT pageno, unused FROM dbstat WHERE {condition} pagetype = 'overflow'"
        tails |= {number: unused for number, unused in conn.execute(sql) if number in missing}
        missing -= tails.keys()
    return tails


def _freelist(raw: RawFile, header: bytes, size: int) -> dict[int, int]:
    """Free pages: they may look like b-tree pages if somebody freed them without overwriting."""
    free: dict[int, int] = {}
    (trunk,) = _NUMBER(header, 32)
    while trunk and trunk not in free:
        page = raw((trunk - 1) * size, size)
        if len(page) < size:
            break
        count = min(_NUMBER(page, 4)[0], size // 4 - 2)
        free.update((_NUMBER(page, at)[0], 0) for at in range(8, 8 + 4 * count, 4))
        free[trunk] = 8 + 4 * count
        (trunk,) = _NUMBER(page)
    return free
