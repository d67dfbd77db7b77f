"""The rows in which FTS5 keeps a text index, and what an erasure has to clear there itself.

FTS5 keeps terms in the leaves of segments, rows of ``…_data``, and beside them separators, rows of ``…_idx``: for each
leaf but the first of a segment the shortest beginning of its first term that no term before it has, or all of it.
Which leaves are in use stands in the structure record. ``secure-delete`` erases a term from the leaves in use, and a
separator only if no term is left on its leaf. What it leaves (fts5_index.c of SQLite 3.54, functions in brackets):

- A merge that is not finished marks a segment that it has read to its end as empty and keeps its rows until the end;
  of other segments it removes the leaves that it has read, not their separators (``fts5TrimSegments``).
- The separator of a leaf whose first term was erased stays while other terms are on the leaf (``fts5DoSecureDelete``).
- With ``secure-delete`` off an erased row is a mark at each of its terms, which goes only in a merge into the last
  level (``bOldest`` in ``fts5IndexMergeLevel``); ``optimize`` merges all into one segment, yet not always there.

So FTS5 merges nothing here by itself but whole levels (``automerge`` 0, ``crisismerge``), and whoever merges a part or
erases calls `settle` or `erase_traces`. Then a row of ``…_data`` is a leaf in use, and a separator begins the first
term of its leaf; `count_traces` tells what does not. Rows of empty segments FTS5 would remove itself, and a separator
may be any term that is greater than all before its leaf and not greater than those on it (``fts5WriteBtreeTerm``,
``fts5IndexIntegrityCheckSegment``). Doclist indexes, which hold numbers of rows alone, are left to FTS5.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import apsw

from pikobot.store.connection import Connection

INDEXES = ("sources_text", "facts_text")
TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])
"""That of all indexes; see the migrations that make them."""

STRUCTURE_ID = 10
SEGMENT_SHIFT = 37  # of a row of …_data: segment, doclist index or not, 5 bits of its height, 31 of the page
LEAF_BITS = 31
NEWER_STRUCTURE = b"\xff\x00\x00\x01"
MAIN_PREFIX = b"0"  # before each term; other bytes stand for indexes of prefixes, of which there are none
MAX_TOKEN_BYTES = 32_768
TOKENS_AT_ONCE = 500


class Segment(NamedTuple):
    """A segment and its leaves in use, from ``first`` to ``last``; of an empty one both are 0."""

    id: int
    first: int
    last: int


@dataclass(frozen=True)
class Structure:
    """The segments by level, those of the newest first."""

    levels: tuple[tuple[Segment, ...], ...]

    @property
    def segments(self) -> dict[int, Segment]:
        return {segment.id: segment for level in self.levels for segment in level}

    @property
    def is_one(self) -> bool:
        """Whether all is merged into one segment of the last level, or there is none: then no mark is left."""
        count = len(self.segments)
        return not count or (count == 1 and bool(self.levels[-1]))


class _Separator(NamedTuple):
    segment: int
    term: bytes
    page: int  # twice the leaf, and one bit

    @property
    def leaf(self) -> int:
        return self.page >> 1


def read_structure(conn: Connection, index: str) -> Structure:
    """What the index consists of as it was written; see `flush`."""
    row = conn.execute(f"SELECT block FROM {index}_data WHERE id = ?", (STRUCTURE_ID,)).fetchone()
    block = bytes(row[0]) if row is not None and isinstance(row[0], bytes) else b""
    numbers = _numbers(block, 8 if block[4:8] == NEWER_STRUCTURE else 4)
    is_newer = block[4:8] == NEWER_STRUCTURE
    try:
        count, _, _ = (next(numbers) for _ in range(3))
        levels = []
        for _ in range(count):
            next(numbers)
            levels.append(tuple(_segment(numbers, is_newer) for _ in range(next(numbers))))
    except (StopIteration, RuntimeError, ValueError) as error:
        raise apsw.CorruptError(f"the structure of {index}") from error
    return Structure(tuple(levels))


def flush(conn: Connection, index: str) -> None:
    """Have FTS5 write what it holds back until the commit. Caller holds write."""
    conn.execute(f"INSERT INTO {index} ({index}) VALUES ('flush')")


def tokens_of(conn: Connection, segmented: str) -> set[bytes]:
    """The tokens under which FTS5 keeps a text that was handed to it."""
    tokenize = conn.fts5_tokenizer(*TOKENIZER)
    tokens = tokenize(
        segmented.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False
    )
    return {str(token).encode()[:MAX_TOKEN_BYTES] for token in tokens}


def erase_traces(conn: Connection, index: str, tokens: Iterable[bytes]) -> None:
    """Leave nothing of rows that were deleted with these tokens and ``secure-delete``. Caller holds write.

    Takes some microseconds for each token and segment.
    """
    flush(conn, index)
    settle(conn, index)
    _mend(conn, index, _separators_of(conn, index, read_structure(conn, index), tokens))


def settle(conn: Connection, index: str) -> None:
    """Remove what a merge that is not finished has left of what it has read. Caller holds write."""
    structure = read_structure(conn, index)
    _drop_rows_out_of_use(conn, index, structure)
    for segment in structure.segments.values():
        if segment.first > 1:
            sql = f"SELECT segid, term, pgno FROM {index}_idx WHERE segid = ? ORDER BY term LIMIT 1"
            _mend(conn, index, [_Separator(*row) for row in conn.execute(sql, (segment.id,))])


def count_traces(conn: Connection, index: str, tokens: Iterable[bytes] | None = None) -> int:
    """How many rows of the index may hold something erased: out of use, or separators that begin nothing.

    Without tokens all separators are looked at, which reads the whole index.
    """
    structure = read_structure(conn, index)
    if tokens is None:
        rows = conn.execute(f"SELECT segid, term, pgno FROM {index}_idx")
        separators: Iterable[_Separator] = (_Separator(*row) for row in rows)
    else:
        separators = _separators_of(conn, index, structure, tokens)
    out_of_use = _rows_out_of_use(conn, index, structure)
    left = sum(
        _count(conn, f"SELECT count(*) FROM {table} WHERE {where}", bound)
        for table, where, bound in out_of_use
    )
    stale = (
        each for each in separators if _is_in_use(structure, each) and _mended(conn, index, each) != each.term
    )
    return left + sum(1 for _ in stale)


def _drop_rows_out_of_use(conn: Connection, index: str, structure: Structure) -> None:
    for table, where, bound in _rows_out_of_use(conn, index, structure):
        with _writable(conn):
            conn.execute(f"DELETE FROM {table} WHERE {where}", bound)


def _rows_out_of_use(
    conn: Connection, index: str, structure: Structure
) -> list[tuple[str, str, tuple[int, ...]]]:
    """Ranges of rows out of use that there are: a table, a condition and what is bound in it."""
    found: list[tuple[str, str, tuple[int, ...]]] = []
    segments = structure.segments
    data, separators = f"{index}_data", f"{index}_idx"
    for segment in _each(
        conn, f"SELECT min(id) >> {SEGMENT_SHIFT} FROM {data} WHERE id >= ? << {SEGMENT_SHIFT}"
    ):
        known = segments.get(segment)
        begin = segment << SEGMENT_SHIFT
        if known is None or not known.first:
            found.append((data, "id BETWEEN ? AND ?", (begin, begin + (1 << SEGMENT_SHIFT) - 1)))
            continue
        found.append((data, "id BETWEEN ? AND ?", (begin, begin + known.first - 1)))
        found.append((data, "id BETWEEN ? AND ?", (begin + known.last + 1, begin + (1 << LEAF_BITS) - 1)))
    for segment in _each(conn, f"SELECT min(segid) FROM {separators} WHERE segid >= ?"):
        known = segments.get(segment)
        if known is None or not known.first:
            found.append((separators, "segid = ?", (segment,)))
        elif known.first > 1:
            found.append((separators, "segid = ? AND pgno < ?", (segment, known.first << 1)))
    return [
        (table, where, bound)
        for table, where, bound in found
        if _count(conn, f"SELECT EXISTS (SELECT 1 FROM {table} WHERE {where})", bound)
    ]


def _each(conn: Connection, least_from: str) -> Iterator[int]:
    """The distinct segments, by a query for the least one from a number on."""
    after = 1
    while (row := conn.execute(least_from, (after,)).fetchone()) is not None and row[0] is not None:
        yield int(row[0])
        after = int(row[0]) + 1


def _separators_of(
    conn: Connection, index: str, structure: Structure, tokens: Iterable[bytes]
) -> Iterator[_Separator]:
    """The separators in use that begin one of the tokens: each segment has one at most for a token."""
    segments = json.dumps([segment.id for segment in structure.segments.values() if segment.last > 1])
    asked = [(MAIN_PREFIX + token).hex() for token in sorted(tokens)]
    for begin in range(0, len(asked), TOKENS_AT_ONCE):
        terms = json.dumps(asked[begin : begin + TOKENS_AT_ONCE])
        yield from [
            _Separator(*row)
            for row in conn.execute(
                f"""
                WITH terms (term) AS MATERIALIZED (SELECT unhex(value) FROM json_each(:terms))
                SELECT DISTINCT i.segid, i.term, i.pgno
                FROM json_each(:segments) AS s CROSS JOIN terms AS t CROSS JOIN {index}_idx AS i
                WHERE i.segid = s.value AND i.term = (
                    SELECT term FROM {index}_idx WHERE segid = s.value AND term <= t.term ORDER BY term DESC LIMIT 1
                ) AND substr(t.term, 1, length(i.term)) = i.term
                """,
                {"terms": terms, "segments": segments},
            )
        ]


def _mend(conn: Connection, index: str, separators: Iterable[_Separator]) -> None:
    for each in separators:
        term = _mended(conn, index, each)
        if term == each.term:
            continue
        key = (each.segment, each.term)
        with _writable(conn):
            if term is None:
                conn.execute(f"DELETE FROM {index}_idx WHERE segid = ? AND term = ?", key)
            else:
                conn.execute(f"UPDATE {index}_idx SET term = ? WHERE segid = ? AND term = ?", (term, *key))


def _mended(conn: Connection, index: str, separator: _Separator) -> bytes | None:
    """The separator as it should be: the same, or another that is not less; None where no term is on the leaf."""
    if not separator.term:
        return separator.term
    first = _first_term(conn, index, (separator.segment << SEGMENT_SHIFT) + separator.leaf)
    if first is None or first.startswith(separator.term):
        return None if first is None else separator.term
    if first < separator.term:
        raise apsw.CorruptError(f"a separator of {index}")
    common = next(at for at, byte in enumerate(separator.term) if byte != first[at])
    return first[: common + 1]


def _is_in_use(structure: Structure, separator: _Separator) -> bool:
    segment = structure.segments.get(separator.segment)
    return segment is not None and 0 < segment.first <= separator.leaf


def _first_term(conn: Connection, index: str, leaf_id: int) -> bytes | None:
    """The first term of a leaf, None when it has none; it is the one that is not compressed."""
    row = conn.execute(f"SELECT block FROM {index}_data WHERE id = ?", (leaf_id,)).fetchone()
    block = bytes(row[0]) if row is not None and isinstance(row[0], bytes) else b""
    footer = int.from_bytes(block[2:4], "big")
    if footer >= len(block):
        return None
    at, _ = _varint(block, footer)
    length, begin = _varint(block, at)
    return block[begin : begin + length]


@contextmanager
def _writable(conn: Connection) -> Iterator[None]:
    """Tables that belong to FTS5 can be written to."""
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        yield
    finally:
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


def _segment(numbers: Iterator[int], is_newer: bool) -> Segment:
    segment = Segment(next(numbers), next(numbers), next(numbers))
    for _ in range(5 if is_newer else 0):  # of tables that delete without contents
        next(numbers)
    return segment


def _numbers(block: bytes, at: int) -> Iterator[int]:
    while at < len(block):
        number, at = _varint(block, at)
        yield number


def _varint(block: bytes, at: int) -> tuple[int, int]:
    """A number as SQLite writes it (sqlite.org/fileformat2.html, 1.6), and where the next one begins."""
    number = 0
    for byte in block[at : at + 8]:
        at += 1
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at
    if at >= len(block):
        raise ValueError("a number that is cut")
    return number << 8 | block[at], at + 1


def _count(conn: Connection, sql: str, bound: Sequence[int]) -> int:
    row = conn.execute(sql, bound).fetchone()
    return int(row[0]) if row else 0
