"""Facts: statements that rest on quotes of sources, one row each time a statement was made.

The quotes of a row belong together: it is stored with all that it has (evidence, context, tags, entities, index
row) in one transaction, and goes with any of its sources, so nothing of an erased source stays behind in a fact
that others support as well. Rows of one `identity` say the same; they are one fact with the evidence of all
(`same_statement`). Nothing is copied from a source: a quote is a range of bytes, read when it is shown.

A fact may be read while every source that it rests on is unexpired and has the text that was quoted
(`READABLE`). A superseded fact stays as history; when its successor goes, the successor's successor takes its
place, and without one the fact stands again.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NewType

from pikobot.clock import Clock
from pikobot.store.connection import Connection
from pikobot.store.entities import (
    ALIAS_ATTRIBUTES,
    drop_unused,
    entities_of,
    fold_name,
    link_entities,
    spelled,
    teach_alias,
)
from pikobot.store.erasing.erasures import fact_erased_at
from pikobot.store.fact_index import READABLE, index_fact, unindex_facts
from pikobot.store.prepare import identity_key
from pikobot.store.runs import RunId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources, record_identity

FactId = NewType("FactId", int)
FactKind = Literal["fact", "preference", "event", "plan", "decision", "relationship"]
Basis = Literal["inferred", "explicit"]
Status = Literal["stored", "current", "superseded"]

OWNER = "owner"
ASSISTANT = "assistant"
# What happens at a time is another statement when it happens again.
TIMED_KINDS = frozenset({"event", "plan"})

_TABLES_OF_A_FACT = (
    "run_facts",
    "fact_tags",
    "entity_aliases",
    "fact_entities",
    "fact_context",
    "fact_evidence",
)


@dataclass(frozen=True)
class Quote:
    """Bytes [first_byte, after_byte) of a source's UTF-8 text."""

    source_id: SourceId
    first_byte: int
    after_byte: int


@dataclass(frozen=True)
class Evidence:
    """A quote together with the source that it was read from."""

    source: Source
    first_byte: int
    after_byte: int

    @property
    def quote(self) -> str:
        return self.source.text.encode()[self.first_byte : self.after_byte].decode()


@dataclass(frozen=True, kw_only=True)
class NewFact:
    """``same_as`` is a fact that says just this in other words; times are canonical (`moments.canonical`)."""

    scope_id: ScopeId
    text: str
    evidence: tuple[Quote, ...]
    kind: FactKind
    basis: Basis
    subject: str = OWNER
    attribute: str | None = None
    value: str | None = None
    context: tuple[SourceId, ...] = ()
    entities: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    event_time: str | None = None
    valid_until: str | None = None
    same_as: FactId | None = None


@dataclass(frozen=True)
class Stored:
    """``is_new``: a row was added; ``is_repeated``: the statement was known before."""

    fact_id: FactId
    is_new: bool
    is_repeated: bool


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A row with all it rests on; evidence of the owner first, then newest first."""

    id: FactId
    public_id: str
    scope_id: ScopeId
    text: str
    subject: str
    attribute: str | None
    value: str | None
    kind: FactKind
    basis: Basis
    identity: bytes
    event_time: str | None
    valid_until: str | None
    superseded_by_id: FactId | None
    created_at_ms: int
    tags: tuple[str, ...]
    entities: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    context: tuple[Source, ...]

    @property
    def status(self) -> Status:
        if self.superseded_by_id is not None:
            return "superseded"
        return "current" if self.basis == "explicit" else "stored"

    @property
    def said_at_ms(self) -> int:
        return max(evidence.source.said_at_ms for evidence in self.evidence)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Every source that it rests on, each once."""
        every = [*(evidence.source for evidence in self.evidence), *self.context]
        return tuple({source.id: source for source in every}.values())


_COLUMNS = """f.id, f.public_id, f.scope_id, f.text, f.subject, f.attribute, f.value, f.kind, f.basis, f.identity,
    f.event_time, f.valid_until, f.superseded_by_id, f.created_at_ms"""


def quote_at(text: str, first_byte: int, after_byte: int) -> str | None:
    """The quote at a range of the text's bytes; None where that is no range of whole characters."""
    encoded = text.encode()
    if not 0 <= first_byte < after_byte <= len(encoded):
        return None
    try:
        return encoded[first_byte:after_byte].decode()
    except UnicodeDecodeError:
        return None


def store_fact(conn: Connection, new: NewFact, clock: Clock) -> Stored:
    """Store a fact with everything that belongs to it. Caller holds write and has checked quotes and sources.

    The same statement from the same sources is stored once. An inferred fact that only repeats what was corrected
    later than it was said is history at once.
    """
    subject = _subject(conn, new)
    identity = _identity(conn, new, subject)
    before = _same_before(conn, new, identity)
    for fact_id, is_alike in before:
        if is_alike and _quoted(conn, fact_id) == {quote.source_id for quote in new.evidence}:
            return Stored(fact_id, is_new=False, is_repeated=True)
    fact_id = _insert_row(conn, new, subject, identity, clock)
    _insert_support(conn, fact_id, new)
    _link_names(conn, fact_id, new, subject)
    set_tags(conn, [fact_id], new.tags)
    index_fact(conn, fact_id)
    return Stored(fact_id, is_new=True, is_repeated=bool(before))


def is_forgotten(conn: Connection, new: NewFact) -> bool:
    """Whether just this was forgotten as a fact after all that is quoted for it now was said."""
    subject = _subject(conn, new)
    identities = (_identity(conn, new, subject), text_identity(conn, new.scope_id, subject, new.text))
    known = [at_ms for each in identities if (at_ms := fact_erased_at(conn, each)) is not None]
    if not known:
        return False
    quoted = _json(quote.source_id for quote in new.evidence)
    row = conn.execute(
        "SELECT max(said_at_ms) FROM sources WHERE id IN (SELECT value FROM json_each(?))", (quoted,)
    ).fetchone()
    return row is None or row[0] is None or int(row[0]) <= max(known)


def text_identity(conn: Connection, scope_id: ScopeId, subject: str, text: str) -> bytes:
    """What facts of one wording have in common, whatever attribute, value and time a model finds in it."""
    return record_identity(
        identity_key(conn), "fact text", str(scope_id), fold_name(subject), fold_name(text)
    )


def find_fact(conn: Connection, public_id: str, *, now_ms: int) -> Fact | None:
    """The fact of that public id if it may be read."""
    row = conn.execute("SELECT id FROM facts WHERE public_id = ?", (public_id,)).fetchone()
    return None if row is None else load_facts(conn, [FactId(row[0])], now_ms=now_ms).get(FactId(row[0]))


def load_facts(conn: Connection, ids: Iterable[FactId], *, now_ms: int) -> dict[FactId, Fact]:
    """Those of the facts that may be read, in the order given."""
    found = {}
    for fact_id in ids:
        row = conn.execute(
            f"SELECT {_COLUMNS} FROM facts AS f WHERE f.id = :id AND {READABLE}",
            {"id": fact_id, "now_ms": now_ms},
        ).fetchone()
        if row is not None:
            found[fact_id] = _fact(conn, row, now_ms)
    return found


def same_statement(conn: Connection, fact: Fact) -> list[FactId]:
    """Every fact that says the same and stands, or not, like this one; oldest first, itself among them."""
    rows = conn.execute(
        """
        SELECT id FROM facts
        WHERE scope_id = :scope AND identity = :identity AND (superseded_by_id IS NULL) = :stands ORDER BY id
        """,
        {"scope": fact.scope_id, "identity": fact.identity, "stands": fact.superseded_by_id is None},
    )
    return [FactId(row[0]) for row in rows]


def facts_of_attribute(
    conn: Connection, scope_id: ScopeId, subject: str, attribute: str, *, now_ms: int
) -> list[Fact]:
    """Standing facts about one attribute of a subject, oldest first."""
    rows = conn.execute(
        """
        SELECT id FROM facts
        WHERE scope_id = ? AND subject = ? AND attribute = ? AND superseded_by_id IS NULL ORDER BY id
        """,
        (scope_id, subject, attribute),
    )
    return list(load_facts(conn, [FactId(row[0]) for row in rows], now_ms=now_ms).values())


def explicit_preferences(conn: Connection, scope_id: ScopeId, *, now_ms: int) -> list[Fact]:
    """Standing preferences that the owner has stated explicitly about themselves, oldest first."""
    rows = conn.execute(
        """
        SELECT id FROM facts
        WHERE scope_id = ? AND kind = 'preference' AND basis = 'explicit' AND subject = 'owner'
          AND superseded_by_id IS NULL
        ORDER BY id
        """,
        (scope_id,),
    )
    return list(load_facts(conn, [FactId(row[0]) for row in rows], now_ms=now_ms).values())


def supersede_facts(conn: Connection, fact_ids: Iterable[FactId], successor: FactId) -> int:
    """Make facts history of their successor. Caller holds write; what is history already stays as it is."""
    conn.execute(
        """
        UPDATE facts SET superseded_by_id = :successor
        WHERE id IN (SELECT value FROM json_each(:ids)) AND superseded_by_id IS NULL AND id <> :successor
        """,
        {"successor": successor, "ids": _json(fact_ids)},
    )
    return conn.changes()


def predecessors_of(conn: Connection, fact_id: FactId) -> list[FactId]:
    """What a fact has replaced, oldest first."""
    rows = conn.execute("SELECT id FROM facts WHERE superseded_by_id = ? ORDER BY id", (fact_id,))
    return [FactId(row[0]) for row in rows]


def set_tags(conn: Connection, fact_ids: Iterable[FactId], tags: Collection[str]) -> None:
    """Replace the tags of facts, and nothing else of them. Caller holds write."""
    for fact_id in fact_ids:
        conn.execute("DELETE FROM fact_tags WHERE fact_id = ?", (fact_id,))
        conn.executemany(
            "INSERT INTO fact_tags (fact_id, tag) VALUES (?, ?)",
            [(fact_id, tag) for tag in sorted(set(tags))],
        )


def cite_facts(conn: Connection, run_id: RunId, public_ids: Iterable[str], *, is_given: bool = False) -> None:
    """Record that a run has read facts, those that still exist. Caller holds write and cites their sources too.

    ``is_given``: they were shown with the request; what a tool reads later as well counts as read.
    """
    conn.executemany(
        """
        INSERT INTO run_facts (run_id, fact_id, is_given) SELECT :run, id, :given FROM facts WHERE public_id = :fact
        ON CONFLICT DO UPDATE SET is_given = min(is_given, excluded.is_given)
        """,
        [{"run": run_id, "fact": public_id, "given": int(is_given)} for public_id in public_ids],
    )


def cited_facts(conn: Connection, run_id: RunId) -> dict[FactId, bool]:
    """The facts that a run has read, each with whether it was only shown with the request."""
    rows = conn.execute(
        "SELECT fact_id, is_given FROM run_facts WHERE run_id = ? ORDER BY fact_id", (run_id,)
    )
    return {FactId(row[0]): bool(row[1]) for row in rows}


def facts_resting_on(conn: Connection, source_ids: Iterable[SourceId]) -> list[FactId]:
    """Facts that quote one of the sources or need it as context: those that go with it."""
    rows = conn.execute(
        """
        SELECT e.fact_id FROM fact_evidence AS e WHERE e.source_id IN (SELECT value FROM json_each(:ids))
        UNION
        SELECT c.fact_id FROM fact_context AS c WHERE c.source_id IN (SELECT value FROM json_each(:ids))
        ORDER BY 1
        """,
        {"ids": _json(source_ids)},
    )
    return [FactId(row[0]) for row in rows]


def delete_facts(conn: Connection, fact_ids: Sequence[FactId]) -> dict[str, int]:
    """Remove facts with all that belongs to them; returns rows by table. Caller holds write."""
    if not fact_ids:
        return dict.fromkeys((*_TABLES_OF_A_FACT, "facts", "entities"), 0)
    ids = _json(fact_ids)
    entity_ids = [
        row[0]
        for row in conn.execute(
            "SELECT DISTINCT entity_id FROM fact_entities WHERE fact_id IN (SELECT value FROM json_each(?))",
            (ids,),
        )
    ]
    unindex_facts(conn, fact_ids)  # all before the first change of a row, which has the index written
    for fact_id in fact_ids:
        # One after the other, so that a predecessor ends at the first successor that stays.
        conn.execute(
            """
            UPDATE facts SET superseded_by_id = (SELECT n.superseded_by_id FROM facts AS n WHERE n.id = :id)
            WHERE superseded_by_id = :id
            """,
            {"id": fact_id},
        )
    rows = {}
    for table in _TABLES_OF_A_FACT:
        conn.execute(f"DELETE FROM {table} WHERE fact_id IN (SELECT value FROM json_each(?))", (ids,))
        rows[table] = conn.changes()
    conn.execute("DELETE FROM facts WHERE id IN (SELECT value FROM json_each(?))", (ids,))
    rows["facts"] = conn.changes()
    rows["entities"] = drop_unused(conn, entity_ids)
    return rows


def _same_before(conn: Connection, new: NewFact, identity: bytes) -> list[tuple[FactId, bool]]:
    """Facts that say the same, each with whether it may be this one: an explicit one may only while it stands."""
    rows = conn.execute(
        """
        SELECT id, basis = :basis AND (basis = 'inferred' OR superseded_by_id IS NULL) FROM facts
        WHERE scope_id = :scope AND identity = :identity ORDER BY id
        """,
        {"scope": new.scope_id, "identity": identity, "basis": new.basis},
    )
    return [(FactId(row[0]), bool(row[1])) for row in rows]


def _quoted(conn: Connection, fact_id: FactId) -> set[SourceId]:
    rows = conn.execute("SELECT source_id FROM fact_evidence WHERE fact_id = ?", (fact_id,))
    return {SourceId(row[0]) for row in rows}


def _insert_row(conn: Connection, new: NewFact, subject: str, identity: bytes, clock: Clock) -> FactId:
    conn.execute(
        """
        INSERT INTO facts (
            public_id, scope_id, text, subject, attribute, value, kind, basis, identity, event_time, valid_until,
            superseded_by_id, created_at_ms
        ) VALUES (
            :public_id, :scope, :text, :subject, :attribute, :value, :kind, :basis, :identity, :event_time,
            :valid_until, :successor, :now
        )
        """,
        {
            "public_id": clock.token("fact"),
            "scope": new.scope_id,
            "text": new.text,
            "subject": subject,
            "attribute": new.attribute,
            "value": new.value,
            "kind": new.kind,
            "basis": new.basis,
            "identity": identity,
            "event_time": new.event_time,
            "valid_until": new.valid_until,
            "successor": _later_correction(conn, new, identity),
            "now": clock.now_ms(),
        },
    )
    return FactId(conn.last_insert_rowid())


def _subject(conn: Connection, new: NewFact) -> str:
    return new.subject if new.subject in (OWNER, ASSISTANT) else spelled(conn, new.scope_id, new.subject)


def _identity(conn: Connection, new: NewFact, subject: str) -> bytes:
    if new.same_as is not None:
        row = conn.execute(
            "SELECT identity FROM facts WHERE id = ? AND scope_id = ? AND subject = ?",
            (new.same_as, new.scope_id, subject),
        ).fetchone()
        if row is not None:
            return bytes(row[0])
    happened = new.event_time or "" if new.kind in TIMED_KINDS else ""
    if new.attribute is not None and new.value is not None:
        said = ("attribute", new.attribute, fold_name(new.value))
    else:
        said = ("text", fold_name(new.text), "")
    return record_identity(identity_key(conn), "fact", str(new.scope_id), fold_name(subject), *said, happened)


def _later_correction(conn: Connection, new: NewFact, identity: bytes) -> int | None:
    """The correction of this statement that was made after all that is quoted for it now."""
    if new.basis == "explicit":
        return None
    row = conn.execute(
        """
        SELECT n.id FROM facts AS f
        JOIN facts AS n ON n.id = f.superseded_by_id
        JOIN fact_evidence AS e ON e.fact_id = n.id JOIN sources AS s ON s.id = e.source_id
        WHERE f.scope_id = :scope AND f.identity = :identity AND s.said_at_ms >= (
            SELECT max(q.said_at_ms) FROM sources AS q WHERE q.id IN (SELECT value FROM json_each(:quoted))
        )
        ORDER BY s.said_at_ms DESC, n.id DESC LIMIT 1
        """,
        {
            "scope": new.scope_id,
            "identity": identity,
            "quoted": _json(quote.source_id for quote in new.evidence),
        },
    ).fetchone()
    return None if row is None else int(row[0])


def _insert_support(conn: Connection, fact_id: FactId, new: NewFact) -> None:
    conn.executemany(
        """
        INSERT OR IGNORE INTO fact_evidence (fact_id, source_id, first_byte, after_byte, content_hash)
        SELECT ?, id, ?, ?, content_hash FROM sources WHERE id = ?
        """,
        [(fact_id, quote.first_byte, quote.after_byte, quote.source_id) for quote in new.evidence],
    )
    quoted = {quote.source_id for quote in new.evidence}
    conn.executemany(
        "INSERT INTO fact_context (fact_id, source_id) VALUES (?, ?)",
        [(fact_id, source_id) for source_id in sorted(set(new.context) - quoted)],
    )


def _link_names(conn: Connection, fact_id: FactId, new: NewFact, subject: str) -> None:
    is_named = subject not in (OWNER, ASSISTANT)
    link_entities(conn, new.scope_id, fact_id, [subject, *new.entities] if is_named else new.entities)
    if is_named and new.value is not None and new.attribute in ALIAS_ATTRIBUTES:
        teach_alias(conn, new.scope_id, fact_id, subject, new.value)


def _fact(conn: Connection, row: tuple[object, ...], now_ms: int) -> Fact:
    fact_id = FactId(int(str(row[0])))
    quoted = conn.execute(
        "SELECT source_id, first_byte, after_byte FROM fact_evidence WHERE fact_id = ? ORDER BY 1, 2, 3",
        (fact_id,),
    )
    quotes = [(SourceId(row[0]), int(row[1]), int(row[2])) for row in quoted]
    context = conn.execute("SELECT source_id FROM fact_context WHERE fact_id = ? ORDER BY 1", (fact_id,))
    needed = [SourceId(other[0]) for other in context]
    sources = load_sources(conn, {*(quote[0] for quote in quotes), *needed}, now_ms=now_ms)
    evidence = [Evidence(sources[quote[0]], quote[1], quote[2]) for quote in quotes]
    evidence.sort(key=lambda each: (each.source.role != "user", -each.source.said_at_ms, each.first_byte))
    tags = conn.execute("SELECT tag FROM fact_tags WHERE fact_id = ? ORDER BY tag", (fact_id,))
    names = ("public_id", "scope_id", "text", "subject", "attribute", "value", "kind", "basis", "identity")
    rest = ("event_time", "valid_until", "superseded_by_id", "created_at_ms")
    columns: dict[str, object] = dict(zip((*names, *rest), row[1:], strict=True))
    return Fact(
        id=fact_id,
        tags=tuple(tag[0] for tag in tags),
        entities=entities_of(conn, fact_id),
        evidence=tuple(evidence),
        context=tuple(sources[source_id] for source_id in needed),
        **columns,  # type: ignore[arg-type]  # the columns of a STRICT table
    )


def _json(ids: Iterable[int]) -> str:
    return json.dumps(list(ids))
