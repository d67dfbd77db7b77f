"""Which sources hold words that somebody names, by the text index: all of the words in any form, or most of them.

A word holds in all its forms. A run of CJK characters, which nothing splits into words, holds where two thirds of its
pairs do. The share of the words that a source holds weighs a word by how few sources hold it, and a run by its
characters: 牙医 is found in 陈医生看牙 too, though only in part.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from math import log

from pikobot.store.connection import Connection
from pikobot.store.erasing.targets import IN_BOUNDS, Bounds
from pikobot.store.sources import SourceId
from pikobot.store.text.irregular_words import other_forms
from pikobot.store.text.query_terms import LONE_FUNCTION_CHARACTERS
from pikobot.store.text.segmentation import is_cjk, match_expression, pairs, quoted

LEAST_SHARE_OF_PAIRS = 2 / 3
# Of a character that stands apart from its neighbours in the run, and only where few sources hold one of the run.
SHARE_OF_SCATTERED = 0.6
FEW_SOURCES = 5
FEW_OF_ALL = 0.01


def find_matching(conn: Connection, words: Sequence[str], bounds: Bounds) -> list[SourceId]:
    """Sources in the bounds in which each of the folded words occurs in some form, in the order of their ids."""
    found: set[int] | None = None
    for word in words:
        parts = [quoted(pair) for pair in pairs(word)] if is_cjk(word) else [_any_form(word)]
        hits: Counter[int] = Counter()
        for expression in filter(None, parts):
            hits.update(_holding(conn, expression, bounds))
        least = len(parts) * LEAST_SHARE_OF_PAIRS
        matched = {source_id for source_id, count in hits.items() if count >= least}
        found = matched if found is None else found & matched
    return [SourceId(source_id) for source_id in sorted(found or ())]


def shares_of(
    conn: Connection, words: Sequence[str], bounds: Bounds, *, without: Collection[SourceId]
) -> dict[SourceId, float]:
    """Of each source in the bounds that holds any of the folded words, the share in (0, 1] that it holds.

    Sources ``without`` don't count; a word that no other one holds weighs nothing.
    """
    total = _count_in(conn, bounds)
    left_out = frozenset(map(int, without))
    whole = 0.0
    held: dict[int, float] = {}
    for word in words:
        credited = _run_credits(conn, word, bounds, total) if is_cjk(word) else [_credits(conn, word, bounds)]
        for holding in credited:
            counting = {
                source_id: credit for source_id, credit in holding.items() if source_id not in left_out
            }
            weight = log(1 + total / len(counting)) if counting else 0.0
            whole += weight
            for source_id, credit in counting.items():
                held[source_id] = held.get(source_id, 0.0) + weight * credit
    return {SourceId(source_id): share / whole for source_id, share in held.items() if share}


def _credits(conn: Connection, word: str, bounds: Bounds) -> dict[int, float]:
    expression = _any_form(word)
    return {} if expression is None else dict.fromkeys(_holding(conn, expression, bounds), 1.0)


def _run_credits(conn: Connection, run: str, bounds: Bounds, total: int) -> list[dict[int, float]]:
    """For each telling character of a CJK run the sources that hold it: wholly in one of its pairs, or scattered."""
    in_pairs = [frozenset(_holding(conn, quoted(pair), bounds)) for pair in pairs(run)]
    telling = [at for at, char in enumerate(run) if char not in LONE_FUNCTION_CHARACTERS] or range(len(run))
    holding = {at: _holding(conn, quoted(run[at]), bounds) for at in telling}
    is_rare = min(map(len, holding.values())) <= max(FEW_SOURCES, total * FEW_OF_ALL)
    every = []
    for at, source_ids in holding.items():
        whole = (
            frozenset(source_ids) if len(run) == 1 else frozenset().union(*in_pairs[max(at - 1, 0) : at + 1])
        )
        scattered = SHARE_OF_SCATTERED if is_rare else 0.0
        every.append({source_id: 1.0 if source_id in whole else scattered for source_id in source_ids})
    return every


def _any_form(word: str) -> str | None:
    """The expression of a word with its irregular forms: who names what was lent may say to lend."""
    forms = [match_expression(form) for form in (word, *other_forms(word))]
    return " OR ".join(f"({form})" for form in forms if form is not None) or None


def _holding(conn: Connection, expression: str, bounds: Bounds) -> list[int]:
    rows = conn.execute(
        f"""
        SELECT s.id FROM sources_text CROSS JOIN sources AS s ON s.id = sources_text.rowid
        WHERE sources_text MATCH :expression AND {IN_BOUNDS}
        """,
        {**bounds.bindings, "expression": expression},
    )
    return [int(row[0]) for row in rows]


def _count_in(conn: Connection, bounds: Bounds) -> int:
    row = conn.execute(f"SELECT count(*) FROM sources AS s WHERE {IN_BOUNDS}", bounds.bindings).fetchone()
    return int(row[0]) if row else 0
