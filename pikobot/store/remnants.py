"""What a byte scan needs of SQLite: the raw bytes of its files, and whether surviving rows hold a text.

A text is a remnant when it stands outside of rows; in a row it survives, or the closure has missed it. Rows are
asked through SQLite and the text index, everything else is read from the file: `read_unallocated`.

SQLite's files are read through SQLite's own file layer: closing a descriptor opened beside it would drop the
locks of this process (sqlite.org/howtocorrupt.html, 2.2). The -shm file holds frame numbers only and is left
alone. `rewrite` is the last resort: SQLite overwrites what is deleted, but when it moves rows between pages a
copy can stay in the unused middle of a page, beyond the reach of a later deletion.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from pikobot.store.connection import Connection, Database, translated_errors
from pikobot.store.segmentation import match_expression

T = TypeVar("T")

WAL_SUFFIX = "-wal"
UNREAD_SUFFIX = "-shm"
READ_BYTES = 4 << 20
INTERIOR_PAGES = (2, 5)
LEAF_PAGES = (10, 13)


Read = Callable[[int, int], bytes]
"""(offset, length) ─▶ the bytes there, fewer at the end of the file."""


@contextmanager
def open_raw(path: Path) -> Iterator[Read]:
    """The bytes of a database file or of its WAL as they are on disk."""
    kind = apsw.SQLITE_OPEN_WAL if path.name.endswith(WAL_SUFFIX) else apsw.SQLITE_OPEN_MAIN_DB
    with translated_errors("scan the database"):
        file = apsw.VFSFile("unix", str(path), [kind | apsw.SQLITE_OPEN_READONLY, 0])
        size = file.xFileSize()
        try:
            yield lambda offset, length: file.xRead(min(length, max(size - offset, 0)), offset)
        finally:
            file.xClose()


def read_unallocated(read: Read) -> Iterator[tuple[bytes, int]]:
    """What a database file holds outside of rows, page by page, each with the bytes read for it.

    That is: the unused middle and the freed cells of b-tree pages, and everything of other pages (free ones, and
    the overflow of long values, which can't be told from them cheaply). Cells of rows are left out, for they are
    survivors by definition. Zeros at both ends are left out; empty for a page without anything. Layout:
    sqlite.org/fileformat2.html, 1.5 and 1.6.
    """
    header = read(0, 100)
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65_536 if page_size == 1 else page_size
    if len(header) < 100:
        yield header, len(header)
        return
    free = _free_pages(read, header, page_size)
    number, pages_at_once = 1, max(READ_BYTES // page_size, 1)
    while chunk := read((number - 1) * page_size, page_size * pages_at_once):
        for at in range(0, len(chunk), page_size):
            page = chunk[at : at + page_size]
            rest = page if number in free else _unallocated_in(page, 100 if number == 1 else 0)
            yield rest.strip(b"\0"), len(page)
            number += 1


def _unallocated_in(page: bytes, header_at: int) -> bytes:
    kind = page[header_at]
    if kind not in INTERIOR_PAGES + LEAF_PAGES:
        return page
    cells = _number(page, header_at + 3)
    begin = header_at + (12 if kind in INTERIOR_PAGES else 8) + 2 * cells
    pieces = [page[begin : _number(page, header_at + 5) or 65_536]]
    block = _number(page, header_at + 1)
    while begin <= block <= len(page) - 4:
        pieces.append(page[block + 4 : block + _number(page, block + 2)])
        following = _number(page, block)
        block = following if following > block else 0
    return b"\0".join(piece for piece in pieces if piece.strip(b"\0"))


def _free_pages(read: Read, header: bytes, page_size: int) -> frozenset[int]:
    """Pages of the freelist: they may look like b-tree pages if somebody freed them without overwriting."""
    free: set[int] = set()
    trunk = int.from_bytes(header[32:36], "big")
    while trunk and trunk not in free:
        free.add(trunk)
        page = read((trunk - 1) * page_size, page_size)
        count = min(int.from_bytes(page[4:8], "big"), page_size // 4 - 2)
        free.update(int.from_bytes(page[at : at + 4], "big") for at in range(8, 8 + 4 * count, 4))
        trunk = int.from_bytes(page[:4], "big")
    return frozenset(free)


def _number(page: bytes, at: int) -> int:
    return page[at] << 8 | page[at + 1]


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
