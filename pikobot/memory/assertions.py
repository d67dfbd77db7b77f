"""Explicit assertions: what the owner asks to remember, and corrections of what is remembered.

An assertion is the owner's own words: a part of the message that is being answered (`CurrentMessage`, from the
execution, never from a model's arguments), or a text of its own, kept as a source (`Statement`). It outranks what
was inferred, so a model may choose which words are kept, never how they are put. An assertion stands beside what
it contradicts; only a correction makes another fact history.
"""

import re
from dataclasses import dataclass, replace

from pikobot.clock import Clock, local_utc_offset_min
from pikobot.errors import InvalidParams, NotFound
from pikobot.memory import moments
from pikobot.memory.facts import MAX_ENTITIES, MAX_FACT_CHARS, MAX_NAME_CHARS, MAX_TAGS, attribution_problem
from pikobot.memory.params import Name, Params, Tag, is_tag
from pikobot.store import leases
from pikobot.store.connection import Connection, Database
from pikobot.store.entities import fold_name
from pikobot.store.facts import (
    ASSISTANT,
    OWNER,
    Fact,
    FactId,
    FactKind,
    NewFact,
    Quote,
    find_fact,
    load_facts,
    same_statement,
    store_fact,
    supersede_facts,
)
from pikobot.store.leases import Lease
from pikobot.store.scopes import Scope, ScopeId, ensure_scope, load_scope
from pikobot.store.sources import NewSource, SourceId, insert_source, load_sources
from pikobot.store.threads import ensure_thread
from pikobot.text import clean_text

OPERATOR_THREAD = "operator"
ATTRIBUTE = re.compile("[a-z][a-z0-9_]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Assertion:
    """What is stated, in the owner's words.

    A correction takes what is None here from the fact that it corrects, but for value and names.
    """

    text: str
    subject: str | None = None
    attribute: str | None = None
    value: str | None = None
    kind: FactKind | None = None
    tags: tuple[str, ...] | None = None
    entities: tuple[str, ...] | None = None
    event_time: str | None = None
    valid_until: str | None = None


class RememberParams(Params):
    """Parameters of ``memory.remember``."""

    text: str
    subject: str | None = None
    attribute: str | None = None
    value: str | None = None
    kind: FactKind | None = None
    tags: list[Tag] | None = None
    scope: Name | None = None

    def assertion(self) -> Assertion:
        return Assertion(
            text=self.text,
            subject=self.subject,
            attribute=self.attribute,
            value=self.value,
            kind=self.kind,
            tags=None if self.tags is None else tuple(self.tags),
        )


@dataclass(frozen=True)
class CurrentMessage:
    """The message that a run answers; the assertion quotes it. Without a lease nothing guards the run."""

    lease: Lease | None
    source_id: SourceId


@dataclass(frozen=True)
class Statement:
    """The assertion itself, said to the operator in a scope; kept without expiry, as was asked for."""

    scope: Scope


@dataclass(frozen=True)
class Asserted:
    """The explicit fact, the public ids of what it has replaced, and whether it was known before."""

    fact: Fact
    replaced: tuple[str, ...]
    is_repeated: bool


def remember(db: Database, assertion: Assertion, said: CurrentMessage | Statement) -> Asserted | None:
    """Store an explicit fact; as an operation on the writer thread. None when the run's lease is lost.

    Raises `InvalidParams` for what can't be stored, for a text that is not in the message byte for byte, and for
    names and a value that are not in that text; `NotFound` when the message is gone.
    """
    _check(assertion, "quote" if isinstance(said, CurrentMessage) else "text")
    with db.write("remember") as tx:
        if isinstance(said, CurrentMessage):
            if said.lease is not None and not leases.holds(tx, said.lease):
                return None
            scope_id, quote = _quoted(tx, said, assertion, db.clock.now_ms())
        else:
            scope_id = ensure_scope(tx, said.scope)
            quote = _kept_statement(tx, assertion.text, scope_id, db.clock)
        return _store(tx, _new_fact(assertion, scope_id, quote), None, db.clock)


def correct(
    db: Database, public_id: str, assertion: Assertion, said: CurrentMessage | None = None
) -> Asserted | None:
    """Store an explicit fact that replaces another one, and every other that says the same as that.

    Like `remember`; without a message the text is said to the operator in the scope of the fact. Raises
    `NotFound` when there is no such fact in the scope, `InvalidParams` when it is history.
    """
    _check(assertion, "text" if said is None else "quote")
    with db.write("correct a fact") as tx:
        if said is not None and said.lease is not None and not leases.holds(tx, said.lease):
            return None
        old = find_fact(tx, public_id, now_ms=db.clock.now_ms())
        if said is not None:
            scope_id, quote = _quoted(tx, said, assertion, db.clock.now_ms())
            old = old if old is not None and old.scope_id == scope_id else None
        if old is None:
            raise NotFound(f"there is no fact {public_id:.80}; look for it with memory.search")
        if old.superseded_by_id is not None:
            raise InvalidParams(f"id: {old.public_id} is history already; correct the fact that replaced it")
        if said is None:
            quote = _kept_statement(tx, assertion.text, old.scope_id, db.clock)
        return _store(tx, _new_fact(_inherited(assertion, old), old.scope_id, quote), old, db.clock)


def _store(tx: Connection, new: NewFact, old: Fact | None, clock: Clock) -> Asserted:
    now_ms = clock.now_ms()
    sources = load_sources(tx, [quote.source_id for quote in new.evidence], now_ms=now_ms).values()
    is_private = load_scope(tx, new.scope_id).kind == "private"
    if attribution_problem(new.subject, is_private, sources) is not None:
        raise InvalidParams("subject: what is said in a group is not about its owner; name who it is about")
    kept = store_fact(tx, new, clock)
    replaced: list[FactId] = []
    if old is not None:
        replaced = [fact_id for fact_id in same_statement(tx, old) if fact_id != kept.fact_id]
        supersede_facts(tx, replaced, kept.fact_id)
    loaded = load_facts(tx, [kept.fact_id, *replaced], now_ms=now_ms)
    public_ids = tuple(loaded[fact_id].public_id for fact_id in replaced if fact_id in loaded)
    return Asserted(loaded[kept.fact_id], public_ids, kept.is_repeated)


def _quoted(tx: Connection, said: CurrentMessage, assertion: Assertion, now_ms: int) -> tuple[ScopeId, Quote]:
    source = load_sources(tx, [said.source_id], now_ms=now_ms).get(said.source_id)
    if source is None or source.role != "user" or source.kind != "message":
        raise NotFound("the message that asked for it is gone")
    at = source.text.find(assertion.text)
    if at < 0:
        raise InvalidParams("quote: it is not in the owner's current message; copy it from there exactly")
    _check_names(assertion)
    first_byte = len(source.text[:at].encode())
    return source.scope_id, Quote(source.id, first_byte, first_byte + len(assertion.text.encode()))


def _check_names(assertion: Assertion) -> None:
    """Raises `InvalidParams` for a name or a value that the owner has not said in these words."""
    subject = None if assertion.subject in (OWNER, ASSISTANT) else assertion.subject
    said = fold_name(assertion.text)
    for key, name in (
        ("subject", subject),
        ("value", assertion.value),
        *(("entities", entity) for entity in assertion.entities or ()),
    ):
        if name is not None and fold_name(name) not in said:
            raise InvalidParams(f"{key}: it is not in the quote; copy it from there, or leave it out")


def _kept_statement(tx: Connection, text: str, scope_id: ScopeId, clock: Clock) -> Quote:
    now_ms = clock.now_ms()
    source_id = insert_source(
        tx,
        NewSource(
            role="user",
            speaker=OWNER,
            scope_id=scope_id,
            thread_id=ensure_thread(tx, scope_id, OPERATOR_THREAD, clock).id,
            text=text,
            origin="said",
            said_at_ms=now_ms,
            utc_offset_min=local_utc_offset_min(now_ms),
        ),
        clock,
    )
    return Quote(source_id, 0, len(text.encode()))


def _new_fact(assertion: Assertion, scope_id: ScopeId, quote: Quote) -> NewFact:
    return NewFact(
        scope_id=scope_id,
        text=assertion.text,
        evidence=(quote,),
        kind=assertion.kind or "fact",
        basis="explicit",
        subject=assertion.subject or OWNER,
        attribute=assertion.attribute,
        value=assertion.value,
        entities=assertion.entities or (),
        tags=assertion.tags or (),
        event_time=_canonical("eventTime", assertion.event_time),
        valid_until=_canonical("validUntil", assertion.valid_until),
    )


def _inherited(assertion: Assertion, old: Fact) -> Assertion:
    return replace(
        assertion,
        subject=old.subject if assertion.subject is None else assertion.subject,
        attribute=old.attribute if assertion.attribute is None else assertion.attribute,
        kind=old.kind if assertion.kind is None else assertion.kind,
        tags=old.tags if assertion.tags is None else assertion.tags,
    )


def _check(assertion: Assertion, text_name: str) -> None:
    """Raises `InvalidParams` that names the first thing that can't be stored; the text goes by the given name."""
    if not clean_text(text_name, assertion.text, max_chars=MAX_FACT_CHARS).strip():
        raise InvalidParams(f"{text_name}: is empty; say what to remember")
    for name, value in (
        ("subject", assertion.subject),
        ("value", assertion.value),
        *(("entities", entity) for entity in assertion.entities or ()),
    ):
        if value is not None and not clean_text(name, value, max_chars=MAX_NAME_CHARS).strip():
            raise InvalidParams(f"{name}: is empty; leave it out")
    if assertion.attribute is not None and not ATTRIBUTE.fullmatch(assertion.attribute):
        raise InvalidParams("attribute: expected a snake_case key such as home_city")
    tags, entities = assertion.tags or (), assertion.entities or ()
    if len(tags) > MAX_TAGS or not all(map(is_tag, tags)):
        raise InvalidParams(f"tags: at most {MAX_TAGS} lowercase ASCII words with dashes between them")
    if len(entities) > MAX_ENTITIES:
        raise InvalidParams(f"entities: at most {MAX_ENTITIES}")
    _canonical("eventTime", assertion.event_time)
    _canonical("validUntil", assertion.valid_until)


def _canonical(name: str, text: str | None) -> str | None:
    try:
        return None if text is None else moments.canonical(text)
    except ValueError as error:
        raise InvalidParams(f"{name}: {error}") from None
