"""Finding facts: by their words, by time, by tag; eligibility is decided in SQL before anything is ranked.

The index is contentless and deletes securely like that over sources, with the same segmentation and the same
terms of a question. A row is indexed with its text and its names (subject, entities, attribute, value), all of
which stay as they are while the fact exists; `unindex_facts` therefore has to come before they are removed.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import apsw

from pikobot.store.connection import MAX_INTEGER, Connection
from pikobot.store.entities import entities_of, meant_by
from pikobot.store.text.index_pages import erase_traces, tokens_of
from pikobot.store.text.query_terms import question_terms, widened
from pikobot.store.text.segmentation import quoted, segment
from pikobot.text import Count

MAX_TERMS = 64
# As for sources: the best matches are taken first and looked at then; some may not be eligible.
SPARE_MATCHES = 200

READABLE = """
    NOT EXISTS (
        SELECT 1 FROM fact_evidence AS e JOIN sources AS s ON s.id = e.source_id
        WHERE e.fact_id = f.id AND (s.content_hash <> e.content_hash OR s.expires_at_ms <= :now_ms)
    )
    AND NOT EXISTS (
        SELECT 1 FROM fact_context AS c JOIN sources AS s ON s.id = c.source_id
        WHERE c.fact_id = f.id AND s.expires_at_ms <= :now_ms
    )
"""
"""Whether a fact ``f`` may be read: all that it rests on is unexpired and says what was quoted."""

_SAID_AT = """
    (SELECT max(s.said_at_ms) FROM fact_evidence AS e JOIN sources AS s ON s.id = e.source_id WHERE e.fact_id = f.id)
"""
_AT = f"coalesce(CAST(unixepoch(f.event_time) AS INTEGER) * 1000, {_SAID_AT})"
# A date-time with an offset is a moment; without one, and for a date, the day counts as it is written.
_IN_RANGE = f"""
    CASE
        WHEN f.event_time IS NULL THEN
            (:from_ms IS NULL OR {_SAID_AT} >= :from_ms) AND (:to_ms IS NULL OR {_SAID_AT} < :to_ms)
        WHEN length(f.event_time) > 19 THEN
            (:from_ms IS NULL OR unixepoch(f.event_time) * 1000 >= :from_ms)
            AND (:to_ms IS NULL OR unixepoch(f.event_time) * 1000 < :to_ms)
        ELSE
            (:from_day IS NULL OR substr(f.event_time, 1, 10) >= :from_day)
            AND (:to_day IS NULL OR substr(f.event_time, 1, 10) <= :to_day)
    END
"""
_ELIGIBLE = f"""
    (:scopes IS NULL OR f.scope_id IN (SELECT value FROM json_each(:scopes)))
    AND (:history OR f.superseded_by_id IS NULL)
    AND (:kind IS NULL OR f.kind = :kind)
    AND (:basis IS NULL OR f.basis = :basis)
    AND NOT EXISTS (
        SELECT 1 FROM json_each(:tags) AS t
        WHERE NOT EXISTS (SELECT 1 FROM fact_tags AS ft WHERE ft.fact_id = f.id AND ft.tag = t.value)
    )
    AND (
        :entities IS NULL
        OR f.id IN (SELECT fact_id FROM fact_entities WHERE entity_id IN (SELECT value FROM json_each(:entities)))
    )
    AND ((:from_ms IS NULL AND :to_ms IS NULL) OR {_IN_RANGE})
    AND {READABLE}
"""
# The columns of a `_Match` but its score.
_RANKING_COLUMNS = "f.id, f.scope_id, f.subject, f.attribute, f.basis = 'explicit'"
# Of the facts that say the same, the explicit one speaks for all, else the oldest.
_IS_FIRST = f"""
    NOT EXISTS (
        SELECT 1 FROM facts AS f
        WHERE f.scope_id = x.scope_id AND f.identity = x.identity
          AND (f.superseded_by_id IS NULL) = (x.superseded_by_id IS NULL)
          AND (f.basis <> 'explicit', f.id) < (x.basis <> 'explicit', x.id)
          AND {_ELIGIBLE}
    )
"""


@dataclass(frozen=True, kw_only=True)
class FactFilters:
    """Which facts may come. ``entity`` is folded; a range is given both as moments and as the days written."""

    scope_ids: Collection[int] | None
    now_ms: int
    tags: tuple[str, ...] = ()
    kind: str | None = None
    basis: str | None = None
    entity: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    from_day: str | None = None
    to_day: str | None = None
    history: bool = False

    @property
    def is_selective(self) -> bool:
        """Whether more is asked than that a fact may be read."""
        return any(
            (
                self.tags,
                self.kind,
                self.basis,
                self.entity,
                self.from_ms,
                self.to_ms,
                self.from_day,
                self.to_day,
            )
        )

    def bindings(self, conn: Connection) -> dict[str, int | str | None]:
        return {
            "scopes": None if self.scope_ids is None else json.dumps(list(self.scope_ids)),
            "now_ms": self.now_ms,
            "tags": json.dumps(self.tags),
            "kind": self.kind,
            "basis": self.basis,
            "entities": None if self.entity is None else json.dumps(meant_by(conn, self.entity)),
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "from_day": self.from_day,
            "to_day": self.to_day,
            "history": self.history,
        }


class FactHit(NamedTuple):
    """A fact found by its words; a higher score is better."""

    fact_id: int
    score: float


class Sameness(NamedTuple):
    """Facts that are equal in this say the same, and are shown once."""

    scope_id: int
    identity: bytes
    is_superseded: bool


class _Match(NamedTuple):
    fact_id: int
    score: float
    about: tuple[int, str, str] | None  # scope, subject, attribute
    is_explicit: bool


def index_fact(conn: Connection, fact_id: int) -> None:
    """Add a fact that is stored with its entities and not in the index. Caller holds write."""
    text, names = _indexed(conn, fact_id)
    conn.execute("INSERT INTO facts_text (rowid, text, names) VALUES (?, ?, ?)", (fact_id, text, names))


def unindex_facts(conn: Connection, fact_ids: Sequence[int]) -> None:
    """Remove facts while they and their entities are still as they were indexed. Caller holds write."""
    tokens: set[bytes] = set()
    for fact_id in fact_ids:
        text, names = _indexed(conn, fact_id)
        conn.execute(
            "INSERT INTO facts_text (facts_text, rowid, text, names) VALUES ('delete', ?, ?, ?)",
            (fact_id, text, names),
        )
        tokens |= tokens_of(conn, text) | tokens_of(conn, names)
    erase_traces(conn, "facts_text", tokens)


def rebuild_fact_index(conn: Connection) -> int:
    """Make the index again from all facts; returns how many. Caller holds write."""
    conn.execute("INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
    ids = [row[0] for row in conn.execute("SELECT id FROM facts ORDER BY id")]
    for fact_id in ids:
        index_fact(conn, fact_id)
    return len(ids)


def check_fact_index(conn: Connection) -> list[str]:
    """Every finding about the index and about facts without evidence, none when all is sound. Caller holds write."""
    findings = []
    try:
        conn.execute("INSERT INTO facts_text (facts_text) VALUES ('integrity-check')")
    except apsw.CorruptError:
        findings.append("the text index of facts is damaged; run `pikobot reindex`")
    for sql, finding in (
        (
            "SELECT count(*) FROM facts WHERE id NOT IN (SELECT id FROM facts_text_docsize)",
            "{:fact is|facts are} missing in the text index; run `pikobot reindex`",
        ),
        (
            "SELECT count(*) FROM facts_text_docsize WHERE id NOT IN (SELECT id FROM facts)",
            "{:row} of the text index without a fact; run `pikobot reindex`",
        ),
        (
            "SELECT count(*) FROM facts WHERE id NOT IN (SELECT fact_id FROM fact_evidence)",
            "{:fact has|facts have} no evidence; restore a backup (RECOVERY.md)",
        ),
    ):
        row = conn.execute(sql).fetchone()
        if row is not None and row[0]:
            findings.append(finding.format(Count(row[0])))
    return findings


def has_facts(conn: Connection) -> bool:
    return conn.execute("SELECT 1 FROM facts LIMIT 1").fetchone() is not None


def search_facts(conn: Connection, *, query: str, filters: FactFilters, limit: int) -> list[FactHit]:
    """Return the eligible facts that answer the query best, best first, equals newest first.

    Where explicit and inferred facts about one attribute of a subject are found, the explicit ones come first.
    """
    terms = widened(question_terms(query))[:MAX_TERMS]
    if not terms:
        return []
    bindings = {
        **filters.bindings(conn),
        "expression": " OR ".join(map(quoted, terms)),
        "first": limit + SPARE_MATCHES,
        "limit": limit,
    }
    matches = _matches(conn, bindings)
    return [FactHit(match.fact_id, match.score) for match in _explicit_first(matches)]


def rank_similar_facts(
    conn: Connection, similar: Sequence[tuple[int, float]], *, filters: FactFilters, limit: int
) -> list[FactHit]:
    """Rank facts found by meaning, (id, similarity) best first, as `search_facts` ranks those found by words.

    Eligibility is that of `search_facts`, checked here whatever was checked before.
    """
    readable = _about(
        conn,
        f"""
        SELECT {_RANKING_COLUMNS}, 0.0 FROM json_each(:ids) AS j CROSS JOIN facts AS f ON f.id = j.value
        WHERE {_ELIGIBLE}
        """,
        {**filters.bindings(conn), "ids": json.dumps([fact_id for fact_id, _ in similar])},
    )
    known = {match.fact_id: match for match in readable}
    matches = [known[fact_id]._replace(score=score) for fact_id, score in similar if fact_id in known]
    return [FactHit(match.fact_id, match.score) for match in _explicit_first(matches[:limit])]


def eligible_facts_sql() -> str:
    """A SELECT of the ids of eligible facts, to be bound with `FactFilters.bindings`."""
    return f"SELECT f.id FROM facts AS f WHERE {_ELIGIBLE}"


def list_facts(
    conn: Connection, *, filters: FactFilters, before: tuple[int, int] | None, limit: int
) -> list[tuple[int, int]]:
    """Time and id of eligible facts before a position, newest first, one for each statement.

    The time is that of the event, else that of the newest quote.
    """
    before_ms, before_id = before or (MAX_INTEGER, MAX_INTEGER)
    rows = conn.execute(
        f"""
        SELECT x.at, x.id FROM (
            SELECT f.id, f.scope_id, f.identity, f.basis, f.superseded_by_id, {_AT} AS at
            FROM facts AS f WHERE {_ELIGIBLE}
        ) AS x
        WHERE (x.at, x.id) < (:before_ms, :before_id) AND {_IS_FIRST}
        ORDER BY x.at DESC, x.id DESC LIMIT :limit
        """,
        {**filters.bindings(conn), "before_ms": before_ms, "before_id": before_id, "limit": limit},
    )
    return [(row[0], row[1]) for row in rows]


def sameness_of(conn: Connection, fact_ids: Sequence[int]) -> dict[int, Sameness]:
    """What each fact states, for showing equal ones once."""
    rows = conn.execute(
        """
        SELECT f.id, f.scope_id, f.identity, f.superseded_by_id IS NOT NULL
        FROM json_each(?) AS j CROSS JOIN facts AS f ON f.id = j.value
        """,
        (json.dumps(list(fact_ids)),),
    )
    return {row[0]: Sameness(row[1], row[2], bool(row[3])) for row in rows}


def evidence_of(conn: Connection, fact_ids: Sequence[int]) -> dict[int, frozenset[int]]:
    """Which sources each fact quotes."""
    quoted: dict[int, set[int]] = {fact_id: set() for fact_id in fact_ids}
    for fact_id, source_id in conn.execute(
        """
        SELECT e.fact_id, e.source_id FROM json_each(?) AS j CROSS JOIN fact_evidence AS e ON e.fact_id = j.value
        """,
        (json.dumps(list(fact_ids)),),
    ):
        quoted[fact_id].add(source_id)
    return {fact_id: frozenset(source_ids) for fact_id, source_ids in quoted.items()}


def count_tags(conn: Connection, *, filters: FactFilters, limit: int) -> list[tuple[str, int]]:
    """Tags and how many different statements have them, the most frequent first."""
    rows = conn.execute(
        f"""
        SELECT ft.tag, count(DISTINCT f.identity) AS facts
        FROM fact_tags AS ft CROSS JOIN facts AS f ON f.id = ft.fact_id
        WHERE {_ELIGIBLE} GROUP BY ft.tag ORDER BY facts DESC, ft.tag LIMIT :limit
        """,
        {**filters.bindings(conn), "limit": limit},
    )
    return [(row[0], row[1]) for row in rows]


def count_facts(conn: Connection, *, now_ms: int) -> int:
    """How many different statements stand and may be read."""
    row = conn.execute(
        f"SELECT count(DISTINCT f.identity) FROM facts AS f WHERE {_ELIGIBLE}",
        FactFilters(scope_ids=None, now_ms=now_ms).bindings(conn),
    ).fetchone()
    return int(row[0]) if row else 0


def _indexed(conn: Connection, fact_id: int) -> tuple[str, str]:
    row = conn.execute(
        "SELECT text, subject, attribute, value FROM facts WHERE id = ?", (fact_id,)
    ).fetchone()
    if row is None:
        raise LookupError(f"fact {fact_id}")
    words = " ".join(part for part in (row[1], row[2], row[3]) if part is not None)
    names = "\n".join((words.replace("_", " "), *entities_of(conn, fact_id)))
    return segment(row[0]), segment(names)


def _matches(conn: Connection, bindings: dict[str, int | str | None]) -> list[_Match]:
    found = _about(
        conn,
        f"""
        SELECT {_RANKING_COLUMNS}, m.cost FROM (
            SELECT rowid AS id, bm25(facts_text) AS cost FROM facts_text
            WHERE facts_text MATCH :expression ORDER BY cost, rowid DESC LIMIT :first
        ) AS m CROSS JOIN facts AS f ON f.id = m.id
        WHERE {_ELIGIBLE} ORDER BY m.cost, f.id DESC LIMIT :limit
        """,
        bindings,
    )
    if len(found) == int(bindings["limit"] or 0) or not _has_more(conn, bindings):
        return found
    return _about(
        conn,
        f"""
        SELECT {_RANKING_COLUMNS}, bm25(facts_text) AS cost
        FROM facts_text CROSS JOIN facts AS f ON f.id = facts_text.rowid
        WHERE facts_text MATCH :expression AND {_ELIGIBLE} ORDER BY cost, f.id DESC LIMIT :limit
        """,
        bindings,
    )


def _about(conn: Connection, sql: str, bindings: dict[str, int | str | None]) -> list[_Match]:
    return [
        _Match(
            fact_id, -cost, None if attribute is None else (scope_id, subject, attribute), bool(is_explicit)
        )
        for fact_id, scope_id, subject, attribute, is_explicit, cost in conn.execute(sql, bindings)
    ]


def _has_more(conn: Connection, bindings: dict[str, int | str | None]) -> bool:
    """Whether more rows match than were looked at."""
    row = conn.execute(
        "SELECT count(*) FROM (SELECT 1 FROM facts_text WHERE facts_text MATCH ? LIMIT ?)",
        (bindings["expression"], int(bindings["first"] or 0) + 1),
    ).fetchone()
    return row is not None and int(row[0]) > int(bindings["first"] or 0)


def _explicit_first(matches: Sequence[_Match]) -> list[_Match]:
    """The same places and scores, those of one attribute given to the explicit facts first."""
    ordered = list(matches)
    places: dict[tuple[int, str, str], list[int]] = {}
    for place, match in enumerate(matches):
        if match.about is not None:
            places.setdefault(match.about, []).append(place)
    for taken in places.values():
        group = sorted((matches[place] for place in taken), key=lambda match: not match.is_explicit)
        for place, match in zip(taken, group, strict=True):
            ordered[place] = match._replace(score=matches[place].score)
    return ordered
