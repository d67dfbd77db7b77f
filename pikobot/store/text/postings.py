"""BM25 of every source that holds a term of a question, worked out only as far as the best ones are concerned.

    terms ─▶ postings of the text index ─▶ a bound for each source ─▶ lengths of what may be among the best ─▶ scores

The scores are those of FTS5's own ``bm25()`` over the same terms, but for the rounding of a compiler. That function
reads the length of every row that matches, at 0.4 µs a row in all; but few rows can be among the best, however short
they were. Here a posting costs 0.1 µs, and a length is read for one row in six. What is read beside the postings
belongs to the file format of FTS5: the record of totals and the lengths of rows. Loads numpy.
"""

import json
import math
from collections.abc import Sequence
from functools import lru_cache

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection
from pikobot.store.text.segmentation import is_prefix

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

# Of FTS5's bm25().
K1 = 1.2
B = 0.75
LEAST_IDF = 1e-6

# That of the index; see the migration that makes it.
TOKENIZER = ("porter", ["unicode61", "remove_diacritics", "2"])
LAST_CHARACTER = "\U0010ffff"
# A statement for each term: a term out of JSON would be taken out of it again for every row.
_HOLDING = "SELECT group_concat(doc, ' ') FROM (SELECT doc FROM sources_words WHERE {} LIMIT :most)"
_HOLDING_TOKEN = _HOLDING.format("term = :token")
_HOLDING_PREFIX = _HOLDING.format("term BETWEEN :token AND :last")

# So many more than are asked for are measured at once, for a floor under the rest.
MEASURED_FIRST = 250


def score(conn: Connection, terms: Sequence[str], *, most: int) -> "Scores | None":
    """The scores of the sources that hold one of the terms, without the terms that occur more than ``most`` times.

    None when only FTS5 can tell: there are rare marks at which its tokenizer parts a word.
    """
    tokens = _tokens(conn, terms)
    if tokens is None:
        return None
    known = [postings for postings in _postings(conn, terms, tokens, most) if len(postings) <= most]
    return Scores(conn, known, is_complete=len(known) == len(terms))


class Scores:
    """The sources that hold a term, with their scores as they are asked for.

    ``known`` are the rows that hold each term, as often as they do. For one snapshot. Raises `DamagedData` when the
    index lacks the length of a row.
    """

    def __init__(self, conn: Connection, known: Sequence[Int64s], *, is_complete: bool) -> None:
        self._conn = conn
        self.is_complete = is_complete
        rows, self._average_length = _totals(conn)
        # One number for source and term: sorted, equal ones stand together, and those of one source do.
        width = max(len(known), 1)
        places = [postings * width + number for number, postings in enumerate(known)]
        keys = np.sort(np.concatenate([*places, np.zeros(0, np.int64)]))
        first = _firsts(keys)
        self._frequencies = np.diff(first, append=len(keys)).astype(np.float64)
        owners, numbers = np.divmod(keys[first], width)
        rows_of = np.bincount(numbers, minlength=width)
        self._idf = np.array([_idf(rows, count) for count in rows_of.tolist()])[numbers]
        first = _firsts(owners)
        self._ids: Int64s = owners[first]
        self._place = np.repeat(np.arange(len(first)), np.diff(first, append=len(owners)))
        self._bounds = self._scored(np.arange(len(owners)), 0.0)
        self._measured = np.full(len(self._ids), np.nan)
        self._count = len(self._ids)

    def __len__(self) -> int:
        return self._count

    def keep(self, ids: Int64s) -> None:
        """Leave out all other sources."""
        is_left_out = np.isin(self._ids, ids, invert=True)
        self._bounds[is_left_out] = self._measured[is_left_out] = -np.inf
        self._count = int(np.count_nonzero(self._bounds > 0))

    def best(self, count: int) -> list[tuple[int, float]]:
        """Id and score of the best ``count`` and of all that equal the last of them, best first, then highest id."""
        count = min(count, len(self))
        if not count:
            return []
        likely = min(count + MEASURED_FIRST, len(self))
        self._measure(np.argpartition(self._bounds, -likely)[-likely:])
        known = self._measured[~np.isnan(self._measured)]
        self._measure((self._bounds >= np.partition(known, -count)[-count]).nonzero()[0])
        known = self._measured[~np.isnan(self._measured)]
        floor = np.partition(known, -count)[-count]
        chosen = (self._measured >= floor).nonzero()[0]
        order = chosen[np.lexsort((-self._ids[chosen], -self._measured[chosen]))]
        return list(zip(self._ids[order].tolist(), self._measured[order].tolist(), strict=True))

    def _measure(self, places: Int64s) -> None:
        """Score the sources at the places that are not scored yet, by their lengths."""
        is_wanted = np.zeros(len(self._ids), np.bool_)
        is_wanted[places] = True
        is_wanted &= np.isnan(self._measured)
        wanted = is_wanted.nonzero()[0]
        if not len(wanted):
            return
        lengths = np.zeros(len(self._ids))
        lengths[wanted] = _lengths(self._conn, self._ids[wanted])
        postings = is_wanted[self._place].nonzero()[0]
        self._measured[wanted] = self._scored(postings, lengths[self._place[postings]])[wanted]

    def _scored(self, postings: Int64s, lengths: Float64s | float) -> Float64s:
        """The sum of what each posting adds to its source. A length of 0 gives a bound, for rounding is monotone."""
        frequency = self._frequencies[postings]
        saturation = K1 * (1 - B + B * lengths / self._average_length)
        parts = self._idf[postings] * (frequency * (K1 + 1) / (frequency + saturation))
        # Adds one after the other in the order of the terms, as FTS5 does.
        return np.bincount(self._place[postings], parts, minlength=len(self._ids)).astype(
            np.float64, copy=False
        )


def ids_in(listed: str | None) -> Int64s:
    """Of a string of ids with blanks between them, which is several times faster to fetch than a row for each."""
    return np.fromstring(listed, np.int64, sep=" ") if listed else np.zeros(0, np.int64)


def _firsts(ascending: Int64s) -> Int64s:
    """Where each run of equal numbers begins."""
    is_first = np.ones(len(ascending), np.bool_)
    np.not_equal(ascending[1:], ascending[:-1], out=is_first[1:])
    return is_first.nonzero()[0]


def _idf(rows: int, holding: int) -> float:
    idf = math.log((rows - holding + 0.5) / (holding + 0.5))
    return idf if idf > 0 else LEAST_IDF


def _postings(conn: Connection, terms: Sequence[str], tokens: Sequence[str], most: int) -> list[Int64s]:
    """For each term the rows that hold it, as often as they do; of one that occurs more than ``most`` times the first
    ones, and one too many."""
    found = []
    for term, token in zip(terms, tokens, strict=True):
        row = conn.execute(
            _HOLDING_PREFIX if is_prefix(term) else _HOLDING_TOKEN,
            {"token": token, "last": token + LAST_CHARACTER, "most": most + 1},
        ).fetchone()
        found.append(ids_in(None if row is None else row[0]))
    return found


def _tokens(conn: Connection, terms: Sequence[str]) -> list[str] | None:
    """What the index holds in the place of each term, nothing if it is no word to it; None if one is several words."""
    tokenize = conn.fts5_tokenizer(*TOKENIZER)
    found = []
    for term in terms:
        tokens = tokenize(
            term.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False
        )
        words = [str(token) for token in tokens]
        if len(words) > 1:
            return None
        found.append("".join(words))
    return found


def _totals(conn: Connection) -> tuple[int, float]:
    """How many rows the index has, and how many tokens a row has on average."""
    row = conn.execute("SELECT block FROM sources_text_data WHERE id = 1").fetchone()
    rows, *tokens = _varints(row[0]) if row is not None and row[0] else [0]
    return rows, sum(tokens) / rows if any(tokens) else 1.0


def _lengths(conn: Connection, ids: Int64s) -> list[int]:
    """How many tokens each row has."""
    row = conn.execute(
        """
        SELECT group_concat(hex(d.sz), ' ')
        FROM json_each(?) AS j CROSS JOIN sources_text_docsize AS d ON d.id = j.value
        """,
        (json.dumps(ids.tolist()),),
    ).fetchone()
    sizes = "" if row is None or row[0] is None else str(row[0])
    lengths = [_length(size) for size in sizes.split()]
    if len(lengths) != len(ids):
        raise DamagedData("the text index is damaged; run `pikobot reindex`")
    return lengths


@lru_cache(4_096)
def _length(size: str) -> int:
    return sum(_varints(bytes.fromhex(size)))


def _varints(block: bytes) -> list[int]:
    """Numbers of 7 bits a byte, the highest first; the last byte of each has no mark."""
    numbers, number = [], 0
    for byte in block:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return numbers
