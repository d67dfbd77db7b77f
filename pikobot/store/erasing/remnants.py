"""Whether surviving rows hold a text, and the last resort for what stands outside of them.

A text is a remnant when it stands outside of rows; in a row it survives, or the closure has missed it. Rows are
asked through SQLite and the text index, everything else is read from the file (`outside`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pikobot.store.connection import Connection, Database, translated_errors
from pikobot.store.text.segmentation import match_expression

T = TypeVar("T")

SEARCHED_BYTES = 1 << 20


def index_holds(conn: Connection, words: str) -> bool:
    """Whether a surviving source has these words in this order, by the text index; False without any word."""
    phrase = match_expression("-".join(words.split()))  # one part: the words must follow each other
    return phrase is not None and bool(
        conn.execute("SELECT 1 FROM sources_text WHERE sources_text MATCH ? LIMIT 1", (phrase,)).fetchone()
    )


def held_by_rows(
    conn: Connection, wanted: frozenset[T], found_in: Callable[[bytes], frozenset[T]]
) -> frozenset[T]:
    """Which of the wanted parts stand in some surviving value or in the schema; reads rows until all do.

    ``found_in`` tells which of them some values contain, between which NULs stand.
    """
    held: frozenset[T] = frozenset()
    if wanted:
        for values in _together(_every_value(conn)):
            held |= found_in(values) & wanted
            if held == wanted:
                break
    return held


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


def _together(values: Iterable[bytes]) -> Iterator[bytes]:
    """Small values joined, for a search of each would take longer than of all."""
    waiting: list[bytes] = []
    size = 0
    for value in values:
        waiting.append(value)
        size += len(value)
        if size >= SEARCHED_BYTES:
            yield b"\0".join(waiting)
            waiting, size = [], 0
    yield b"\0".join(waiting)


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
