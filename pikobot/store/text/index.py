"""The text index over sources: kept beside `sources` in the same transaction, searched with eligibility
first.

The index is contentless and deletes securely, so after a commit and a truncated WAL no term of a deleted
source is left in the file. That holds only while a row is deleted with exactly the text it was added with:
`sources` hands both functions the stored text and speaker, and a segmenter other than the recorded one means
that `rebuild_text_index` has to run first (`is_index_current`).

Ranking is BM25 over the terms of the question (`query_terms`), then what the conversation around the best
matches says about them (`ranking`). In a large index `postings` scores, to the same end. BM25 weighs the
speaker like the text: a name in a third of all messages counts for nothing by itself, and weights from 0
to 2 gave the same figures. A higher score is better; scores of different queries don't compare.
"""

import json
from collections.abc import Callable, Collection, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, NamedTuple

import apsw

from pikobot.store.connection import MAX_INTEGER, Connection
from pikobot.store.settings import SEGMENTER, read_setting, write_setting
from pikobot.store.text.query_terms import NamedSpeakers, question_terms, widened
from pikobot.store.text.ranking import POOL, Match, replies, rerank
from pikobot.store.text.segmentation import SEGMENTER_ID, quoted, segment
from pikobot.text import Count

if TYPE_CHECKING:
    from pikobot.store.text.postings import Scores

# In a larger index what FTS5 scores itself is kept to so many rows by leaving out the most common terms (0.7 µs a row),
# and otherwise a term that occurs more often is left out (0.1 µs each time); both only while the others find enough.
MAX_POSTINGS = 50_000
SMALL_INDEX_ROWS = 20_000
MAX_TERMS = 64
MAX_TERMS_COUNTED = 256
# The best matches are taken first and their eligibility is looked at then, for a join costs 2 µs a row. So
# many more than wanted are taken, because some may not be eligible.
SPARE_MATCHES = 100
SPARE_SHARE = 1.2
# In an index of more rows so many ids, evenly spread, tell which share of all sources is eligible.
UNSAMPLED_ROWS = 2_000
SAMPLED_IDS = 64
# Below that share the index is read between the first and the last id of what is eligible, and not elsewhere.
RARE = 1 / 32
# Below that one the ids of what is eligible are listed, up to so many for each match: it costs a fifth as much.
FEW = 1 / 4
LISTED_FOR_EACH = 5

IS_DATED = "(s.origin <> 'imported' OR s.said_at_ms <> s.created_at_ms)"
"""Whether it is known when a source ``s`` was said: an import without a time has the moment of its storing."""

_ELIGIBLE = f"""
    (:scopes IS NULL OR s.scope_id IN (SELECT value FROM json_each(:scopes)))
    AND (:roles IS NULL OR s.role IN (SELECT value FROM json_each(:roles)))
    AND (:from_ms IS NULL OR s.said_at_ms >= :from_ms)
    AND (:to_ms IS NULL OR s.said_at_ms < :to_ms)
    AND ((:from_ms IS NULL AND :to_ms IS NULL) OR {IS_DATED})
    AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now_ms)
    AND s.origin <> 'recall'
    AND s.id NOT IN (SELECT value FROM json_each(:excluded))
"""
# The last ones of a `Match`. A question ends with its mark, of either width.
_RANKING_COLUMNS = """
    s.said_at_ms, s.speaker, substr(rtrim(substr(s.text, -8), char(9, 10, 13, 32)), -1) IN ('?', '？')
"""

# At most so many, from an index alone.
_IN_SCOPES_AND_TIME = """
    SELECT id FROM sources
    WHERE scope_id IN (
        SELECT id FROM scopes WHERE :scopes IS NULL OR id IN (SELECT value FROM json_each(:scopes))
    )
    AND said_at_ms >= coalesce(:from_ms, -:largest) AND said_at_ms < coalesce(:to_ms, :largest)
    LIMIT :most
"""

_Bindings = dict[str, int | str | None]
_Unscored = tuple[int, int, str, bool]  # what a `Match` tells but for the score


class TextHit(NamedTuple):
    """A source found by its words, or the reply to one that is; a higher score is better."""

    source_id: int
    score: float


def index_source(conn: Connection, source_id: int, text: str, speaker: str) -> None:
    """Add a source that is not in the index. Caller holds write."""
    conn.execute(
        "INSERT INTO sources_text (rowid, text, speaker) VALUES (?, ?, ?)",
        (source_id, segment(text), segment(speaker)),
    )


def unindex_source(conn: Connection, source_id: int, text: str, speaker: str) -> None:
    """Remove a source, given the text and speaker it was indexed with. Caller holds write."""
    conn.execute(
        "INSERT INTO sources_text (sources_text, rowid, text, speaker) VALUES ('delete', ?, ?, ?)",
        (source_id, segment(text), segment(speaker)),
    )


def rebuild_text_index(conn: Connection) -> int:
    """Make the index again from all sources, row by row, and record the segmenter; returns how many rows.

    Caller holds write.
    """
    conn.execute("INSERT INTO sources_text (sources_text) VALUES ('delete-all')")
    count = 0
    for source_id, text, speaker in conn.execute("SELECT id, text, speaker FROM sources ORDER BY id"):
        index_source(conn, source_id, text, speaker)
        count += 1
    write_setting(conn, SEGMENTER, SEGMENTER_ID)
    return count


def is_index_current(conn: Connection) -> bool:
    """Whether the index was made by the segmenter of this program."""
    return read_setting(conn, SEGMENTER) == SEGMENTER_ID


def check_text_index(conn: Connection) -> list[str]:
    """Return every finding about the index, none when it is sound: structure, segmenter, a row for each
    source.

    FTS5 checks its structure as a special INSERT that changes nothing. Caller holds write.
    """
    findings = []
    try:
        conn.execute("INSERT INTO sources_text (sources_text) VALUES ('integrity-check')")
    except apsw.CorruptError:
        findings.append("the text index is damaged; run `pikobot reindex`")
    if not is_index_current(conn):
        findings.append("the text index was made by another segmenter; run `pikobot reindex`")
    missing = _count(
        conn, "SELECT count(*) FROM sources WHERE id NOT IN (SELECT id FROM sources_text_docsize)"
    )
    if missing:
        findings.append(
            f"{Count(missing):source is|sources are} missing in the text index; run `pikobot reindex`"
        )
    orphans = _count(
        conn, "SELECT count(*) FROM sources_text_docsize WHERE id NOT IN (SELECT id FROM sources)"
    )
    if orphans:
        findings.append(f"{Count(orphans):row} of the text index without a source; run `pikobot reindex`")
    return findings


def search_text(
    conn: Connection,
    *,
    query: str,
    scope_ids: Collection[int] | None,
    now_ms: int,
    limit: int,
    from_ms: int | None = None,
    to_ms: int | None = None,
    roles: Collection[str] | None = None,
    exclude_ids: Collection[int] = (),
    seen_ids: Collection[int] = (),
) -> list[TextHit]:
    """Return the eligible sources that answer the query best, best first, equals newest first.

    Eligible: in one of the scopes (None: all), said in [from_ms, to_ms), of one of the roles, not expired at
    now_ms, not excluded, and no answer of recall mode, which only quotes what is found itself. Seen sources take
    part in the ranking and are left out of the result: pages of one ranking are read that way. A query of one
    term returns only what contains it, in any form; an empty list when the query holds nothing searchable.
    """
    eligible: _Bindings = {
        "scopes": _other_than_all(conn, scope_ids),
        "roles": _json(roles),
        "from_ms": from_ms,
        "to_ms": to_ms,
        "now_ms": now_ms,
        "excluded": _json(exclude_ids),
        "first_id": 0,
        "last_id": MAX_INTEGER,
    }
    terms = question_terms(query)
    wanted = len(seen_ids) + limit
    matches = _matches(conn, widened(terms), eligible, max(wanted, POOL)) if terms else []
    hits = _in_conversation(conn, matches[:POOL], query, eligible, may_join=len(terms) > 1)
    hits += _after(hits, matches[POOL:])
    skipped = frozenset(seen_ids)
    return [hit for hit in hits if hit.source_id not in skipped][:limit]


def rank_similar(
    conn: Connection,
    similar: Sequence[tuple[int, float]],
    *,
    query: str,
    scope_ids: Collection[int] | None,
    now_ms: int,
    limit: int,
    from_ms: int | None = None,
    to_ms: int | None = None,
    exclude_ids: Collection[int] = (),
) -> list[TextHit]:
    """Rank sources found by meaning, (id, similarity) best first, as `search_text` ranks those found by words.

    Eligibility is that of `search_text`, checked here whatever was checked before. What the conversation around a
    hit says about it counts alike; a similarity counts by how far it is above that of the first hit behind the pool,
    because similarities of unrelated texts differ from model to model and are far from zero.
    """
    eligible: _Bindings = {
        "scopes": _other_than_all(conn, scope_ids),
        "roles": None,
        "from_ms": from_ms,
        "to_ms": to_ms,
        "now_ms": now_ms,
        "excluded": _json(exclude_ids),
    }
    scores = dict(similar)
    kept = _readable(conn, scores, eligible)
    floor = scores[kept[min(POOL, len(kept) - 1)][0]] if kept else 0.0
    matches = _scored(kept, lambda source_id: scores[source_id] - floor)
    hits = _in_conversation(conn, matches[:POOL], query, eligible, may_join=True)
    return [*hits, *_after(hits, matches[POOL:])][:limit]


def _matches(conn: Connection, terms: Sequence[str], eligible: _Bindings, wanted: int) -> list[Match]:
    """Common terms are left out only while the others find enough: what is eligible is found by any term."""
    rows = _count(conn, "SELECT coalesce(max(id), 0) FROM sources")
    share = 1.0 if rows <= UNSAMPLED_ROWS else _eligible_share(conn, eligible, rows)
    if rows <= SMALL_INDEX_ROWS and len(terms) <= MAX_TERMS:
        return _best_matches(conn, terms, eligible, wanted, share)
    scored = None
    if share < RARE:
        eligible = {**eligible, **_eligible_range(conn, eligible, rows)}
    elif rows > SMALL_INDEX_ROWS and (len(terms) > 1 or share < FEW):
        scored = _best_scored(conn, terms, eligible, wanted, share)
    if scored is None:
        telling, are_all = _affordable(conn, terms, eligible)
        found = _best_matches(conn, telling, eligible, wanted, share) if telling else []
    else:
        found, are_all = scored
    if len(found) < wanted and not are_all:
        found = _best_matches(conn, terms[:MAX_TERMS_COUNTED], eligible, wanted, share)
    return found


def _best_scored(
    conn: Connection, terms: Sequence[str], eligible: _Bindings, wanted: int, share: float
) -> tuple[list[Match], bool] | None:
    """What `_best_matches` finds, faster where few matches can be among the best, so not for one term; and whether no
    term was left out. None when only FTS5 knows the terms."""
    from pikobot.store.text.postings import score  # loads numpy, which a small instance does without

    telling, are_all = (terms, True) if len(terms) <= MAX_TERMS else _affordable(conn, terms, eligible)
    scores = score(conn, telling, most=MAX_POSTINGS)
    if scores is None:
        return None
    are_kept = share < FEW and _keep_eligible(conn, scores, eligible)
    found = _best_readable(conn, scores, eligible, wanted, 1.0 if are_kept else share)
    return found, are_all and scores.is_complete


def _best_readable(
    conn: Connection, scores: "Scores", eligible: _Bindings, wanted: int, share: float
) -> list[Match]:
    """The best that are eligible; so many are looked at first that they should be enough."""
    found: list[Match] = []
    looked_at, count = 0, int(wanted / share * SPARE_SHARE)
    while len(found) < wanted and looked_at < len(scores):
        ranked = scores.best(count)
        score_of = dict(ranked[looked_at:])
        found += _scored(_readable(conn, score_of, eligible), score_of.__getitem__)
        looked_at, count = len(ranked), count * 2
    found.sort(key=lambda match: (-match.score, -match.said_at_ms, -match.source_id))
    return found[:wanted]


def _other_than_all(conn: Connection, scope_ids: Collection[int] | None) -> str | None:
    """The scopes, None when there are no others: then nobody asks each source for its scope."""
    listed = _json(scope_ids)
    is_part = (
        listed is not None
        and conn.execute(
            "SELECT 1 FROM scopes WHERE id NOT IN (SELECT value FROM json_each(?)) LIMIT 1", (listed,)
        ).fetchone()
    )
    return listed if is_part else None


def _eligible_share(conn: Connection, eligible: _Bindings, rows: int) -> float:
    """Roughly which share of all sources is eligible."""
    if all(eligible[name] is None for name in ("scopes", "roles", "from_ms", "to_ms")):
        return 1.0
    sample = range(1, rows + 1, -(-rows // SAMPLED_IDS))
    row = conn.execute(
        f"""
        SELECT count(*) FROM json_each(:ids) AS j CROSS JOIN sources AS s ON s.id = j.value WHERE {_ELIGIBLE}
        """,
        {**eligible, "ids": _json(sample)},
    ).fetchone()
    return int(row[0]) / len(sample) if row else 1.0


def _eligible_range(conn: Connection, eligible: _Bindings, rows: int) -> _Bindings:
    """Between which ids everything lies that is eligible by scope and time; everywhere if that is too much to tell."""
    most = int(rows * 2 * RARE)
    row = conn.execute(
        f"SELECT count(*), min(id), max(id) FROM ({_IN_SCOPES_AND_TIME})",
        {**eligible, "largest": MAX_INTEGER, "most": most},
    ).fetchone()
    if row is None or int(row[0]) == most:
        return {}
    return {"first_id": row[1] or 0, "last_id": row[2] or 0}


def _keep_eligible(conn: Connection, scores: "Scores", eligible: _Bindings) -> bool:
    """Leave out what is not eligible by scope and time; False if that is too much to tell."""
    from pikobot.store.text.postings import ids_in

    most = len(scores) * LISTED_FOR_EACH
    row = conn.execute(
        f"SELECT count(*), group_concat(id, ' ') FROM ({_IN_SCOPES_AND_TIME})",
        {**eligible, "largest": MAX_INTEGER, "most": most},
    ).fetchone()
    if row is None or int(row[0]) == most:
        return False
    scores.keep(ids_in(row[1]))
    return True


def _affordable(conn: Connection, terms: Sequence[str], eligible: _Bindings) -> tuple[list[str], bool]:
    """The rarest terms that together touch at most `MAX_POSTINGS` rows, at least one if any is found; and whether
    these are all that are found. Not counted when they can't touch more."""
    width = int(eligible["last_id"] or 0) - int(eligible["first_id"] or 0) + 1
    if len(terms) <= MAX_TERMS and width * len(terms) <= MAX_POSTINGS:
        return list(terms), True
    counted = _count_each(conn, terms[:MAX_TERMS_COUNTED], eligible, MAX_POSTINGS)
    found = sorted((count, number) for number, count in counted.items() if count)
    budget = MAX_POSTINGS
    kept: list[str] = []
    for count, number in found:
        budget -= count
        if kept and (budget < 0 or len(kept) == MAX_TERMS):
            break
        kept.append(terms[number])
    return kept, len(kept) == len(found)


def _best_matches(
    conn: Connection, terms: Sequence[str], eligible: _Bindings, wanted: int, share: float
) -> list[Match]:
    expression = " OR ".join(map(quoted, terms))
    first = wanted + SPARE_MATCHES
    bindings: _Bindings = {**eligible, "expression": expression, "first": first, "wanted": wanted}
    if share * first >= wanted:
        found = _matches_of(
            conn,
            f"""
            SELECT s.id, -f.cost, {_RANKING_COLUMNS}
            FROM (
                SELECT rowid AS id, bm25(sources_text) AS cost FROM sources_text
                WHERE sources_text MATCH :expression AND rowid BETWEEN :first_id AND :last_id
                ORDER BY cost, rowid DESC LIMIT :first
            ) AS f CROSS JOIN sources AS s ON s.id = f.id
            WHERE {_ELIGIBLE}
            ORDER BY f.cost, s.said_at_ms DESC, s.id DESC LIMIT :wanted
            """,
            bindings,
        )
        if len(found) == wanted or _count_matches(conn, expression, eligible, first) < first:
            return found
    return _matches_of(
        conn,
        f"""
        SELECT s.id, -bm25(sources_text) AS score, {_RANKING_COLUMNS}
        FROM sources_text CROSS JOIN sources AS s ON s.id = sources_text.rowid
        WHERE sources_text MATCH :expression AND sources_text.rowid BETWEEN :first_id AND :last_id AND {_ELIGIBLE}
        ORDER BY score DESC, s.said_at_ms DESC, s.id DESC LIMIT :wanted
        """,
        bindings,
    )


def _matches_of(conn: Connection, sql: str, bindings: _Bindings) -> list[Match]:
    return list(starmap(Match, conn.execute(sql, bindings)))


def _readable(conn: Connection, source_ids: Collection[int], eligible: _Bindings) -> list[_Unscored]:
    """Those of the sources that are eligible, in the order given."""
    rows = conn.execute(
        f"""
        SELECT s.id, {_RANKING_COLUMNS} FROM json_each(:ids) AS j CROSS JOIN sources AS s ON s.id = j.value
        WHERE {_ELIGIBLE}
        """,
        {**eligible, "ids": _json(source_ids)},
    )
    return [(source_id, said_at_ms, speaker, asks) for source_id, said_at_ms, speaker, asks in rows]


def _scored(found: Sequence[_Unscored], score_of: Callable[[int], float]) -> list[Match]:
    return [
        Match(source_id, score_of(source_id), said_at_ms, speaker, is_question)
        for source_id, said_at_ms, speaker, is_question in found
    ]


def _in_conversation(
    conn: Connection, pool: Sequence[Match], query: str, eligible: _Bindings, *, may_join: bool
) -> list[TextHit]:
    following = _following(conn, [match.source_id for match in pool])
    outside = replies(pool, following) - following.keys() if may_join else set()
    joined = _scored(_readable(conn, sorted(outside), eligible), lambda _: 0.0) if outside else []
    if joined:
        following |= _following(conn, [match.source_id for match in joined])
    return list(starmap(TextHit, rerank(pool, joined, following, NamedSpeakers(query).include)))


def _following(conn: Connection, source_ids: Sequence[int]) -> dict[int, int | None]:
    """What was said next in the thread of each source."""
    rows = conn.execute(
        """
        SELECT
            s.id,
            (SELECT n.id FROM sources AS n
             WHERE n.thread_id = s.thread_id AND (n.said_at_ms, n.id) > (s.said_at_ms, s.id)
             ORDER BY n.said_at_ms, n.id LIMIT 1)
        FROM json_each(?) AS pool CROSS JOIN sources AS s ON s.id = pool.value
        """,
        (_json(source_ids),),
    )
    return {int(source_id): next_id for source_id, next_id in rows}


def _after(ranked: Sequence[TextHit], rest: Sequence[Match]) -> list[TextHit]:
    """Hits behind the pool in their own order, never scored above it."""
    known = {hit.source_id for hit in ranked}
    lowest = ranked[-1].score if ranked else 0.0
    return [
        TextHit(match.source_id, min(match.score, lowest)) for match in rest if match.source_id not in known
    ]


def _count_matches(conn: Connection, expression: str, eligible: _Bindings, most: int) -> int:
    """How many rows match between the ids where something is eligible, counted up to a limit."""
    row = conn.execute(
        """
        SELECT count(*) FROM (
            SELECT 1 FROM sources_text
            WHERE sources_text MATCH :expression AND rowid BETWEEN :first_id AND :last_id LIMIT :most
        )
        """,
        {**eligible, "expression": expression, "most": most},
    ).fetchone()
    return int(row[0]) if row else 0


def _count_each(conn: Connection, terms: Sequence[str], eligible: _Bindings, most: int) -> dict[int, int]:
    """The same for each term alone, by its number."""
    rows = conn.execute(
        """
        SELECT j.key, (
            SELECT count(*) FROM (
                SELECT 1 FROM sources_text
                WHERE sources_text MATCH j.value AND rowid BETWEEN :first_id AND :last_id LIMIT :most
            )
        )
        FROM json_each(:expressions) AS j
        """,
        {**eligible, "expressions": _json([quoted(term) for term in terms]), "most": most},
    )
    return {int(row[0]): int(row[1]) for row in rows}


def _count(conn: Connection, sql: str) -> int:
    row = conn.execute(sql).fetchone()
    return int(row[0]) if row else 0


def _json(values: Collection[int] | Collection[str] | None) -> str | None:
    return None if values is None else json.dumps(list(values))
