"""Reading memory: search by relevance, list by time, read one source in full.

Each function is one read of the caller's snapshot. Eligibility (scope, time, expiry) is decided in SQL before
ranking, and nothing is returned that the same snapshot doesn't hold. Every type of memory contributes one
ranking of `Candidate`s, and `fusion` makes one list of them.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from pydantic import AfterValidator, Field, model_validator

from pikobot.clock import iso_time
from pikobot.errors import InvalidParams, NotFound
from pikobot.memory import cursors, moments
from pikobot.memory.embedding.contract import QueryVector
from pikobot.memory.embedding.embed import usable_set
from pikobot.memory.fusion import Candidate, first_row_at, folded, fused, keys_of
from pikobot.memory.language.questions import is_only_question
from pikobot.memory.params import DEFAULT_LIMIT, Cursor, Limit, MomentText, Name, Params, Tag, storable
from pikobot.memory.records import (
    Page,
    Record,
    RecordType,
    SourceText,
    best_part,
    fact_record,
    source_record,
    source_time,
)
from pikobot.store.connection import Connection
from pikobot.store.entities import fold_name
from pikobot.store.erasing.erasures import is_erased
from pikobot.store.fact_index import FactFilters, FactHit, has_facts, list_facts, search_facts
from pikobot.store.facts import FactId, load_facts
from pikobot.store.listing import (
    SourcePosition,
    find_by_external_id,
    list_sources,
    requests_among,
)
from pikobot.store.runs import RunId, load_run
from pikobot.store.scopes import Scope, ScopeId, find_scope, load_scope
from pikobot.store.sources import SourceId, find_source, load_sources
from pikobot.store.text.index import TextHit, search_text
from pikobot.store.text.literal import excerpt
from pikobot.store.text.query_terms import question_terms, widened
from pikobot.store.threads import load_thread

if TYPE_CHECKING:
    from pikobot.store.similarity import Question

MAX_QUERY_CHARS = 4_096
MAX_RANKED = cursors.MAX_PACKED_IDS
MAX_TEXT_CHARS = 2_000
MAX_READ_CHARS = 20_000
MAX_TAGS = 8
MAX_TERMS_LOCATED = 64
# So much of every ranking is looked at, that the first page and the next ones are parts of one list.
RANKED_POOL = 100

# A question that was put to pikobot holds the words of the next one and tells nothing.
QUESTION_SHARE = 0.5
MAX_QUESTION_BYTES = 1_000

MAX_SCAN_NOTE = "maxScan is ignored: every search covers the whole archive"


class Filters(Params):
    """What memory may come back. ``from`` and ``to`` include the moment, or the day, that they name."""

    types: list[RecordType] | None = Field(default=None, min_length=1)
    tags: list[Tag] | None = Field(default=None, max_length=MAX_TAGS)
    kind: Literal["fact", "preference", "event", "plan", "decision", "relationship"] | None = None
    basis: Literal["inferred", "explicit"] | None = None
    entity: Name | None = None
    scope: Name | None = None
    from_: MomentText | None = Field(default=None, alias="from")
    to: MomentText | None = None
    history: bool = False
    limit: Limit = DEFAULT_LIMIT
    cursor: Cursor | None = None

    @property
    def admit_sources(self) -> bool:
        """Whether a source can match: tags, kind, basis and entity are properties of facts."""
        only_facts = self.tags or self.kind or self.basis or self.entity
        return not only_facts and (self.types is None or "source" in self.types)

    @property
    def admit_facts(self) -> bool:
        return self.types is None or "fact" in self.types


class ListParams(Filters):
    """Parameters of ``memory.list``."""


class SearchParams(Filters):
    """Parameters of ``memory.search``."""

    query: Annotated[str, Field(max_length=MAX_QUERY_CHARS), AfterValidator(storable)]
    max_scan: Annotated[int, Field(ge=1)] | None = Field(default=None, alias="maxScan")

    @model_validator(mode="after")
    def _asks_something(self) -> "SearchParams":
        if not self.query.strip():
            raise ValueError("query: is empty; say what to look for, or use memory.list")
        return self


class ReadParams(Params):
    """Parameters of ``source.read``: an id, or an outside id and its thread (key or id)."""

    id: Name | None = None
    external_id: Name | None = Field(default=None, alias="externalId")
    thread: Name | None = None
    scope: Name | None = None
    from_: Annotated[int, Field(ge=0)] = Field(default=0, alias="from")
    to: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _names_one_source(self) -> "ReadParams":
        by_external_id = self.external_id is not None and self.thread is not None
        any_external = not (self.external_id is None and self.thread is None and self.scope is None)
        if (self.id is None) != by_external_id or (self.id is not None and any_external):
            raise ValueError("id: give either id, or externalId with thread (and scope)")
        if self.to is not None and self.to < self.from_:
            raise ValueError("to: is before from")
        return self


@dataclass(frozen=True)
class _Eligible:
    """Filters, resolved against the database."""

    scope_ids: Collection[ScopeId] | None
    from_ms: int | None
    to_ms: int | None
    now_ms: int


class _SourceFilters(TypedDict):
    scope_ids: Collection[ScopeId] | None
    from_ms: int | None
    to_ms: int | None
    now_ms: int
    exclude_ids: Collection[SourceId]
    limit: int


def search(
    conn: Connection,
    params: SearchParams,
    *,
    allowed_scopes: Sequence[ScopeId] | None,
    now_ms: int,
    degraded: str | None = None,
    exclude: Collection[SourceId] = (),
    query_vector: QueryVector | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Page:
    """What matches the query, best first. Allowed scopes None means all: the operator.

    Paging gives at most 1,000 results. What is stored or erased meanwhile neither repeats nor hides a result.
    ``exclude`` leaves out sources that the caller has already, such as the request itself.
    With a ``query_vector`` of the set that serves, meaning ranks beside the words; ``degraded`` is handed through,
    or says why the vector was of no use. ``should_stop`` is asked while vectors are scanned: what comes then is
    a search by words, for nobody to read.
    """
    bound_to = cursors.fingerprint("memory.search", params)
    seen = cursors.read_seen(params.cursor, bound_to) if params.cursor is not None else []
    limit = min(params.limit, MAX_RANKED - len(seen))
    eligible = _eligible(conn, params, allowed_scopes, now_ms)
    pool = max(RANKED_POOL, 2 * (len(seen) + limit + 1))
    question, unusable = _question(conn, params.query, query_vector, now_ms, should_stop)
    by_words, by_meaning = [], []
    if params.admit_facts and has_facts(conn):
        filters = _fact_filters(params, eligible)
        near_facts = None if question is None else question.facts(conn, filters=filters, limit=pool)
        by_words.append(_facts(search_facts(conn, query=params.query, filters=filters, limit=pool)))
        if near_facts is not None:
            by_meaning.append(_facts(near_facts()))
    if params.admit_sources:
        admitted = _SourceFilters(
            scope_ids=eligible.scope_ids,
            from_ms=eligible.from_ms,
            to_ms=eligible.to_ms,
            now_ms=now_ms,
            exclude_ids=exclude,
            limit=pool,
        )
        near_sources = None if question is None else question.sources(conn, **admitted)
        by_words.append(_sources(search_text(conn, query=params.query, **admitted)))
        if near_sources is not None:
            by_meaning.append(_sources(near_sources()))
    ranked = folded(conn, fused(by_words, by_meaning))
    if seen:
        known = frozenset(seen)
        ranked = [each for each in ranked if each.key not in known]
    ranked = _behind_what_tells(conn, ranked, max(limit, 1))
    given = [*seen, *(candidate.key for candidate in ranked[:limit])]
    has_more = len(ranked) > limit and len(given) < MAX_RANKED
    return Page(
        records=_records(conn, ranked[:limit], now_ms, query=params.query),
        cursor=cursors.seen_cursor(bound_to, given) if has_more else None,
        degraded=degraded or unusable,
        note=None if params.max_scan is None else MAX_SCAN_NOTE,
    )


def list_memory(
    conn: Connection, params: ListParams, *, allowed_scopes: Sequence[ScopeId] | None, now_ms: int
) -> Page:
    """What is stored, newest first, without end: page with the cursor. Facts have the time of what they tell."""
    bound_to = cursors.fingerprint("memory.list", params)
    before = None
    if params.cursor is not None:
        at_ms, key = cursors.read_position(params.cursor, bound_to, 2)
        before = (at_ms, key)
    eligible = _eligible(conn, params, allowed_scopes, now_ms)
    found: list[tuple[int, Candidate]] = []
    if params.admit_facts:
        after = None if before is None else (before[0], first_row_at("fact", before[1]))
        filters = _fact_filters(params, eligible)
        facts = list_facts(conn, filters=filters, before=after, limit=params.limit + 1)
        found += [(at_ms, Candidate("fact", fact_id, 0.0)) for at_ms, fact_id in facts]
    if params.admit_sources:
        found += _listed_sources(conn, eligible, before, params.limit + 1)
    found.sort(key=lambda each: (each[0], each[1].key), reverse=True)
    shown = found[: params.limit]
    has_more = len(found) > params.limit
    last = (shown[-1][0], shown[-1][1].key) if shown else ()
    return Page(
        _records(conn, [candidate for _, candidate in shown], now_ms),
        cursors.position_cursor(bound_to, last) if has_more else None,
    )


def read_source(
    conn: Connection, params: ReadParams, *, allowed_scopes: Sequence[ScopeId] | None, now_ms: int
) -> SourceText:
    """One source with everything known about it and at most 20,000 of its characters.

    Raises `NotFound` when there is none that may be read, and says so when it was erased; `InvalidParams`
    when an outside id names sources of several scopes.
    """
    public_id = params.id if params.id is not None else _public_id_of(conn, params)
    source = find_source(conn, public_id, now_ms=now_ms)
    if source is None and is_erased(conn, public_id):
        raise NotFound(f"source {public_id} was erased; its text is gone for good")
    if source is None or (allowed_scopes is not None and source.scope_id not in allowed_scopes):
        raise NotFound(f"there is no source {public_id}; look for it with memory.search or memory.list")
    if params.from_ > len(source.text):
        raise InvalidParams(f"from: the source has {len(source.text)} characters")
    last = min(len(source.text) if params.to is None else params.to, params.from_ + MAX_READ_CHARS)
    thread = load_thread(conn, source.thread_id)
    return SourceText(
        id=source.public_id,
        external_id=source.external_id,
        kind=source.kind,
        role=source.role,
        speaker=source.speaker,
        thread_id=thread.public_id,
        thread_key=thread.key,
        run_id=None if source.run_id is None else load_run(conn, RunId(source.run_id)).public_id,
        scope=str(load_scope(conn, source.scope_id)),
        time=source_time(source),
        origin=source.origin,
        is_partial=source.is_partial,
        expires_at=None
        if source.expires_at_ms is None
        else iso_time(source.expires_at_ms, source.utc_offset_min),
        text=source.text[params.from_ : last],
        first_char=params.from_,
        total_chars=len(source.text),
    )


def scope_named(conn: Connection, text: str) -> ScopeId | None:
    """The scope that a parameter names; None when nothing was ever stored in it."""
    return find_scope(conn, Scope.parse(text))


def _public_id_of(conn: Connection, params: ReadParams) -> str:
    scope_id = None if params.scope is None else scope_named(conn, params.scope)
    found: list[str] = []
    if params.scope is None or scope_id is not None:
        found = find_by_external_id(
            conn, params.external_id or "", thread=params.thread or "", scope_id=scope_id
        )
    if not found:
        raise NotFound(
            "no source has that externalId in that thread; look for it with memory.search or memory.list"
        )
    if len(found) > 1:
        raise InvalidParams("externalId: several scopes have it in that thread; add scope")
    return found[0]


def _eligible(conn: Connection, params: Filters, allowed: Sequence[ScopeId] | None, now_ms: int) -> _Eligible:
    scope_ids: Collection[ScopeId] | None = allowed
    if params.scope is not None:
        named = scope_named(conn, params.scope)
        may_read = named is not None and (allowed is None or named in allowed)
        scope_ids = [named] if named is not None and may_read else []
    return _Eligible(
        scope_ids=scope_ids,
        from_ms=None if params.from_ is None else moments.first_ms(params.from_),
        to_ms=None if params.to is None else moments.after_ms(params.to),
        now_ms=now_ms,
    )


def _fact_filters(params: Filters, eligible: _Eligible) -> FactFilters:
    return FactFilters(
        scope_ids=eligible.scope_ids,
        now_ms=eligible.now_ms,
        tags=tuple(params.tags or ()),
        kind=params.kind,
        basis=params.basis,
        entity=None if params.entity is None else fold_name(params.entity),
        from_ms=eligible.from_ms,
        to_ms=eligible.to_ms,
        from_day=None if params.from_ is None else moments.day_of(params.from_),
        to_day=None if params.to is None else moments.day_of(params.to),
        history=params.history,
    )


def _question(
    conn: Connection,
    text: str,
    query_vector: QueryVector | None,
    now_ms: int,
    should_stop: Callable[[], bool],
) -> "tuple[Question | None, str | None]":
    """The question for the set that serves, or why there is none."""
    if query_vector is None:
        return None, None
    vector_set, reason = usable_set(conn, query_vector.profile, now_ms=now_ms)
    if vector_set is None:
        return None, reason
    from pikobot.store.similarity import Question  # loads numpy, which a search by words does without

    return Question(text, query_vector.values, vector_set.id, should_stop), None


def _behind_what_tells(conn: Connection, candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The list with earlier questions to pikobot further down, in order as far as ``limit``."""
    looked_at = 0
    weighed: list[Candidate] = []
    # What follows can't come before the place asked for once that has a score as high.
    while looked_at < len(candidates) and (
        looked_at < limit or weighed[limit - 1].score < candidates[looked_at].score
    ):
        following = candidates[looked_at : looked_at + 2 * limit]
        ids = [SourceId(each.row_id) for each in following if each.type == "source"]
        asked = requests_among(conn, ids, max_bytes=MAX_QUESTION_BYTES)
        questions = {source_id for source_id, text in asked.items() if is_only_question(text)}
        weighed += [
            each._replace(score=each.score * QUESTION_SHARE)
            if each.row_id in questions and each.type == "source"
            else each
            for each in following
        ]
        weighed.sort(key=attrgetter("score"), reverse=True)
        looked_at += len(following)
    return [*weighed, *candidates[looked_at:]]


def _facts(hits: Sequence[FactHit]) -> list[int]:
    return keys_of("fact", (hit.fact_id for hit in hits))


def _sources(hits: Sequence[TextHit]) -> list[int]:
    return keys_of("source", (hit.source_id for hit in hits))


def _listed_sources(
    conn: Connection, eligible: _Eligible, before: tuple[int, int] | None, limit: int
) -> list[tuple[int, Candidate]]:
    found = list_sources(
        conn,
        scope_ids=eligible.scope_ids,
        from_ms=eligible.from_ms,
        to_ms=eligible.to_ms,
        before=None if before is None else SourcePosition(before[0], first_row_at("source", before[1])),
        now_ms=eligible.now_ms,
        limit=limit,
    )
    return [(source.said_at_ms, Candidate("source", source.id, 0.0)) for source in found]


def _records(
    conn: Connection, candidates: Sequence[Candidate], now_ms: int, *, query: str | None = None
) -> tuple[Record, ...]:
    """The records of candidates, those that are still there; with their scores when they answer a query."""
    sources = load_sources(
        conn, [SourceId(each.row_id) for each in candidates if each.type == "source"], now_ms=now_ms
    )
    facts = load_facts(
        conn, [FactId(each.row_id) for each in candidates if each.type == "fact"], now_ms=now_ms
    )
    scope_ids = [source.scope_id for source in sources.values()] + [fact.scope_id for fact in facts.values()]
    names = _scope_names(conn, scope_ids)
    records = []
    for each in candidates:
        score = None if query is None else each.score
        source, fact = sources.get(SourceId(each.row_id)), facts.get(FactId(each.row_id))
        if each.type == "source" and source is not None:
            text = _shown_text(source.text, query)
            records.append(source_record(source, names[source.scope_id], text=text, score=score))
        elif each.type == "fact" and fact is not None:
            records.append(fact_record(fact, names[fact.scope_id], quoted_id=each.quoted_id, score=score))
    return tuple(records)


def _shown_text(text: str, query: str | None) -> str:
    """The whole text when it is short, else its beginning, or the unchanged part that answers a query best."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    terms = [] if query is None else widened(question_terms(query))
    if not terms:
        return excerpt(text, (0, 0), MAX_TEXT_CHARS)
    # The longest first: a regular expression takes the first alternative that fits.
    known = sorted(dict.fromkeys(terms[:MAX_TERMS_LOCATED]), key=len, reverse=True)
    found = re.finditer("|".join(map(re.escape, known)), text, re.IGNORECASE)
    start = best_part(
        text, [(match.start(), match.group().casefold()) for match in found], max_chars=MAX_TEXT_CHARS
    )
    return excerpt(text, (start, start + MAX_TEXT_CHARS), MAX_TEXT_CHARS)


def _scope_names(conn: Connection, scope_ids: Collection[ScopeId]) -> dict[ScopeId, str]:
    return {scope_id: str(load_scope(conn, scope_id)) for scope_id in set(scope_ids)}
