"""The shapes in which memory is handed out: one record for every type, so that results can stand in one list.

`as_json` gives the contract of the operator RPC: camelCase keys, times in ISO 8601 with the source's own
offset, public ids only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pikobot.clock import iso_time
from pikobot.store import facts
from pikobot.store.facts import Fact
from pikobot.store.sources import Kind, Origin, Role, Source
from pikobot.store.text.literal import excerpt

RecordType = Literal["fact", "source", "document", "conversation"]
Json = dict[str, object]

SCORE_DIGITS = 6
MAX_QUOTE_CHARS = 2_000


@dataclass(frozen=True)
class Evidence:
    """The source that a record rests on, quoted byte for byte."""

    id: str
    external_id: str | None
    role: Role
    speaker: str
    time: str | None  # None: without a date
    quote: str

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "externalId": self.external_id,
            "role": self.role,
            "speaker": self.speaker,
            "time": self.time,
            "quote": self.quote,
        }


@dataclass(frozen=True, kw_only=True)
class Record:
    """One thing remembered. A source is its own evidence, has no basis, kind, tags or entities.

    ``source_ids`` are all that it rests on, by public id: who reads the record has read those.
    """

    id: str
    type: RecordType
    text: str
    is_truncated: bool
    status: str
    scope: str
    time: str | None
    source: Evidence
    source_ids: tuple[str, ...]
    score: float | None = None
    basis: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """The score only where there is one, ``truncated`` only when the text is a part."""
        record: Json = {
            "id": self.id,
            "type": self.type,
            "text": self.text,
            "score": None if self.score is None else round(self.score, SCORE_DIGITS),
            "basis": self.basis,
            "status": self.status,
            "kind": self.kind,
            "tags": list(self.tags),
            "entities": list(self.entities),
            "scope": self.scope,
            "time": self.time,
            "source": self.source.as_json(),
        }
        if self.score is None:
            del record["score"]
        if self.is_truncated:
            record["truncated"] = True
        return record


@dataclass(frozen=True)
class Page:
    """A page of records. A degraded search says in one line what it did without."""

    records: tuple[Record, ...]
    cursor: str | None
    degraded: str | None = None
    note: str | None = None

    def as_json(self) -> Json:
        page: Json = {
            "results": [record.as_json() for record in self.records],
            "degraded": self.degraded,
            "cursor": self.cursor,
        }
        return page if self.note is None else page | {"note": self.note}


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """A source with all its metadata and a range of its characters (code points, end exclusive)."""

    id: str
    external_id: str | None
    kind: Kind
    role: Role
    speaker: str
    thread_id: str
    thread_key: str | None
    run_id: str | None
    scope: str
    time: str | None
    origin: Origin
    is_partial: bool
    expires_at: str | None
    text: str
    first_char: int
    total_chars: int

    def as_json(self) -> Json:
        return {
            "id": self.id,
            "externalId": self.external_id,
            "type": "source",
            "kind": self.kind,
            "role": self.role,
            "speaker": self.speaker,
            "thread": {"id": self.thread_id, "key": self.thread_key},
            "runId": self.run_id,
            "scope": self.scope,
            "time": self.time,
            "origin": self.origin,
            "isPartial": self.is_partial,
            "expiresAt": self.expires_at,
            "text": self.text,
            "from": self.first_char,
            "to": self.first_char + len(self.text),
            "totalChars": self.total_chars,
        }


def source_record(source: Source, scope: str, *, text: str, score: float | None = None) -> Record:
    """The record of a source, showing the given part of its text."""
    evidence = quoting(source, text)
    return Record(
        id=source.public_id,
        type="source",
        text=text,
        is_truncated=len(text) < len(source.text),
        score=score,
        status="stored",
        scope=scope,
        time=evidence.time,
        source=evidence,
        source_ids=(source.public_id,),
    )


def fact_record(
    fact: Fact, scope: str, *, quoted_id: int | None = None, score: float | None = None
) -> Record:
    """The record of a fact, with the quote from the given source, else with its first evidence."""
    of_source = [each for each in fact.evidence if each.source.id == quoted_id]
    shown = (of_source or fact.evidence)[0]
    return Record(
        id=fact.public_id,
        type="fact",
        text=fact.text,
        is_truncated=False,
        score=score,
        basis=fact.basis,
        status=fact.status,
        kind=fact.kind,
        tags=fact.tags,
        entities=fact.entities,
        scope=scope,
        time=fact_time(fact),
        source=evidence_quote(shown),
        source_ids=tuple(source.public_id for source in fact.sources),
    )


def evidence_quote(evidence: facts.Evidence) -> Evidence:
    return quoting(evidence.source, excerpt(evidence.quote, (0, 0), MAX_QUOTE_CHARS))


def quoting(source: Source, quote: str) -> Evidence:
    return Evidence(
        source.public_id, source.external_id, source.role, source.speaker, source_time(source), quote
    )


def fact_time(fact: Fact) -> str | None:
    """When it happened, else when it was said last, as far as that is known."""
    dated = [each.source for each in fact.evidence if each.source.is_dated]
    newest = max(dated, key=lambda source: source.said_at_ms, default=None)
    return fact.event_time or (None if newest is None else source_time(newest))


def fact_day(fact: Fact) -> str:
    """The day of `fact_time`, for a model to read."""
    time = fact_time(fact)
    return "an unknown day" if time is None else time[:10]


def source_time(source: Source) -> str | None:
    """When it was said; None for what was imported without a date."""
    return iso_time(source.said_at_ms, source.utc_offset_min) if source.is_dated else None


def best_part(text: str, match_starts: Sequence[tuple[int, str]], *, max_chars: int) -> int:
    """Where the stretch of ``max_chars`` characters begins that holds most different terms, the first such.

    Matches are (position, term) in ascending order.
    """
    best_start = best_terms = oldest = 0
    inside: dict[str, int] = {}
    for position, term in match_starts:
        inside[term] = inside.get(term, 0) + 1
        while position - match_starts[oldest][0] > max_chars * 3 // 4:
            leaving = match_starts[oldest][1]
            inside[leaving] -= 1
            if not inside[leaving]:
                del inside[leaving]
            oldest += 1
        if len(inside) > best_terms:
            best_start, best_terms = match_starts[oldest][0], len(inside)
    return max(min(best_start - max_chars // 8, len(text) - max_chars), 0)
