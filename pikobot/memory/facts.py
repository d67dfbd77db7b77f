"""Storing what extraction has found: all of a batch in one transaction, or nothing.

    job claimed, sources loaded (`snapshots`) ─▶ network ─▶ candidates ─▶ `commit_candidates`

Between loading and committing nothing is locked, so the commit looks again: the lease is still held, and every
source of the batch is there, unexpired and unchanged. A candidate is checked once more on its own, for what a
model has said about it counts for nothing here; one that fails is rejected with a reason and the others stand.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pikobot.memory import moments
from pikobot.memory.params import is_tag
from pikobot.store import extraction_jobs, leases
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.erasures import is_erased
from pikobot.store.extraction_jobs import Outcome
from pikobot.store.facts import (
    OWNER,
    FactId,
    FactKind,
    NewFact,
    Quote,
    find_fact,
    is_forgotten,
    quote_at,
    store_fact,
)
from pikobot.store.leases import Lease
from pikobot.store.scopes import ScopeId, load_scope
from pikobot.store.sources import Source, SourceId, content_hash, load_sources

MAX_FACT_CHARS = 4_000
MAX_NAME_CHARS = 512
MAX_TAGS = 8
MAX_ENTITIES = 32


@dataclass(frozen=True)
class SourceSnapshot:
    """A source of a batch as it was when the batch was made."""

    id: SourceId
    content_hash: bytes


@dataclass(frozen=True)
class Quoted:
    """Bytes [first_byte, after_byte) of the UTF-8 text of the source with that public id."""

    source_id: str
    first_byte: int
    after_byte: int


@dataclass(frozen=True, kw_only=True)
class FactCandidate:
    """A statement that extraction proposes; ids are public, times ISO dates or date-times.

    ``same_as`` names a known fact that says just this. ``depends_on`` are the sources that give it its context.
    """

    text: str
    subject: str
    kind: FactKind
    evidence: tuple[Quoted, ...]
    attribute: str | None = None
    value: str | None = None
    depends_on: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    event_time: str | None = None
    valid_until: str | None = None
    tags: tuple[str, ...] = ()
    same_as: str | None = None


class Reason(StrEnum):
    """Why a candidate is not stored, as far as it is found out here."""

    MALFORMED = "malformed"
    MISSING_EVIDENCE = "missing_evidence"
    UNKNOWN_SOURCE = "unknown_source"
    QUOTE_NOT_FOUND = "quote_not_found"
    ASSISTANT_ONLY_EVIDENCE = "assistant_only_evidence"
    WRONG_SPEAKER = "wrong_speaker"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    BAD_DATE = "bad_date"
    FORGOTTEN = "forgotten"


class Committed(StrEnum):
    """How a commit ended; unless it is DONE nothing was changed."""

    DONE = "done"
    LEASE_LOST = "lease_lost"
    SOURCES_CHANGED = "sources_changed"


@dataclass(frozen=True)
class CommitOutcome:
    """``stored`` and ``repeated`` are facts in the order of their candidates: new statements, known ones said again."""

    result: Committed
    stored: tuple[FactId, ...] = ()
    repeated: tuple[FactId, ...] = ()
    rejections: Mapping[str, int] = field(default_factory=dict)


AlsoStore = Callable[[Connection, FactId, int], None]
"""Stores what else belongs to the fact of the candidate at that position, in the same transaction."""


def snapshots(sources: Iterable[Source]) -> list[SourceSnapshot]:
    """What `commit_candidates` compares later."""
    return [SourceSnapshot(source.id, content_hash(source.text)) for source in sources]


def commit_candidates(
    db: Database,
    lease: Lease | None,
    batch: Sequence[SourceSnapshot],
    candidates: Sequence[FactCandidate],
    *,
    rejections: Mapping[str, int] | None = None,
    outcome: Outcome | None = None,
    also_store: AlsoStore | None = None,
) -> CommitOutcome:
    """Store the candidates and end their job, as one operation on the writer thread.

    ``rejections`` are those of validation before; the ones found here are added to them. ``outcome`` defaults to
    'stored' when any fact was stored or repeated, else 'nothing'. Without a lease no job is ended.
    """
    now_ms = db.clock.now_ms()
    with db.write("store facts") as tx:
        if lease is not None and not leases.holds(tx, lease):
            return CommitOutcome(Committed.LEASE_LOST)
        sources = _unchanged(tx, batch, now_ms)
        if sources is None:
            return CommitOutcome(Committed.SOURCES_CHANGED)
        stored: list[FactId] = []
        repeated: list[FactId] = []
        refused = Counter(rejections or {})
        for position, candidate in enumerate(candidates):
            checked = _checked(tx, candidate, sources, now_ms)
            if isinstance(checked, Reason):
                refused[checked.value] += 1
                continue
            if is_forgotten(tx, checked):
                refused[Reason.FORGOTTEN.value] += 1
                continue
            kept = store_fact(tx, checked, db.clock)
            (repeated if kept.is_repeated else stored).append(kept.fact_id)
            if kept.is_new and also_store is not None:
                also_store(tx, kept.fact_id, position)
        if lease is not None:
            extraction_jobs.finish_job(
                tx,
                lease,
                outcome=outcome or ("stored" if stored or repeated else "nothing"),
                stored_facts=len(stored) + len(repeated),
                rejections=refused,
                now_ms=now_ms,
            )
    return CommitOutcome(Committed.DONE, tuple(stored), tuple(repeated), dict(refused))


def attribution_problem(subject: str, scope_is_private: bool, evidence: Iterable[Source]) -> Reason | None:
    """Why quotes of these sources can't establish a fact about that subject; None when they can.

    What the owner of a private scope is said to be, only the owner can establish. About others anybody may be
    quoted: the source says who spoke.
    """
    roles = {source.role for source in evidence}
    if subject != OWNER or ("user" in roles and scope_is_private):
        return None
    return Reason.ASSISTANT_ONLY_EVIDENCE if roles == {"assistant"} else Reason.WRONG_SPEAKER


def _unchanged(conn: Connection, batch: Sequence[SourceSnapshot], now_ms: int) -> dict[str, Source] | None:
    """The sources of the batch by public id, or None when one of them is not what it was."""
    found = load_sources(conn, [snapshot.id for snapshot in batch], now_ms=now_ms)
    for snapshot in batch:
        source = found.get(snapshot.id)
        if source is None or content_hash(source.text) != snapshot.content_hash:
            return None
        if is_erased(conn, source.public_id):
            return None
    return {source.public_id: source for source in found.values()}


def _checked(
    conn: Connection, candidate: FactCandidate, sources: Mapping[str, Source], now_ms: int
) -> NewFact | Reason:
    if not _is_well_formed(candidate):
        return Reason.MALFORMED
    if not candidate.evidence:
        return Reason.MISSING_EVIDENCE
    if any(quoted.source_id not in sources for quoted in candidate.evidence):
        return Reason.UNKNOWN_SOURCE
    if any(public_id not in sources for public_id in candidate.depends_on):
        return Reason.UNKNOWN_DEPENDENCY
    quoted_sources = [sources[quoted.source_id] for quoted in candidate.evidence]
    for quoted, source in zip(candidate.evidence, quoted_sources, strict=True):
        if not (quote_at(source.text, quoted.first_byte, quoted.after_byte) or "").strip():
            return Reason.QUOTE_NOT_FOUND
    scope_ids = {source.scope_id for source in (*quoted_sources, *_needed(candidate, sources))}
    if len(scope_ids) != 1:
        return Reason.UNKNOWN_SOURCE
    [scope_id] = scope_ids
    is_private = load_scope(conn, scope_id).kind == "private"
    problem = attribution_problem(candidate.subject, is_private, quoted_sources)
    if problem is not None:
        return problem
    try:
        event_time, valid_until = _canonical(candidate.event_time), _canonical(candidate.valid_until)
    except ValueError:
        return Reason.BAD_DATE
    return NewFact(
        scope_id=scope_id,
        text=candidate.text,
        evidence=tuple(
            Quote(sources[quoted.source_id].id, quoted.first_byte, quoted.after_byte)
            for quoted in candidate.evidence
        ),
        kind=candidate.kind,
        basis="inferred",
        subject=candidate.subject,
        attribute=candidate.attribute,
        value=candidate.value,
        context=tuple(source.id for source in _needed(candidate, sources)),
        entities=candidate.entities,
        tags=candidate.tags,
        event_time=event_time,
        valid_until=valid_until,
        same_as=_known(conn, candidate.same_as, scope_id, now_ms),
    )


def _is_well_formed(candidate: FactCandidate) -> bool:
    names = [candidate.subject, *candidate.entities]
    names += [name for name in (candidate.attribute, candidate.value) if name is not None]
    return (
        0 < len(candidate.text.strip()) <= MAX_FACT_CHARS
        and all(0 < len(name.strip()) <= MAX_NAME_CHARS for name in names)
        and len(candidate.entities) <= MAX_ENTITIES
        and len(candidate.tags) <= MAX_TAGS
        and all(map(is_tag, candidate.tags))
    )


def _needed(candidate: FactCandidate, sources: Mapping[str, Source]) -> list[Source]:
    return [sources[public_id] for public_id in candidate.depends_on]


def _canonical(text: str | None) -> str | None:
    return None if text is None else moments.canonical(text)


def _known(conn: Connection, public_id: str | None, scope_id: ScopeId, now_ms: int) -> FactId | None:
    fact = None if public_id is None else find_fact(conn, public_id, now_ms=now_ms)
    return fact.id if fact is not None and fact.scope_id == scope_id else None
