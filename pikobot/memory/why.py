"""What the last answer of a conversation was made from, beside the conversation itself.

Read from what was recorded when the answer was committed: the facts that its run has read, and the sources that the
answer depends on. Whether the model made use of each is not known; that it had read them is.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pikobot.clock import iso_time
from pikobot.memory.lineage import FactParams, FactText, read_fact
from pikobot.memory.records import Evidence, quoting
from pikobot.store.connection import Connection
from pikobot.store.facts import cited_facts, load_facts
from pikobot.store.history import conversation_before, since_last_answer
from pikobot.store.runs import RunId, last_answer, load_run, request_source_id
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, dependencies_of, load_sources
from pikobot.store.text.literal import excerpt
from pikobot.store.threads import find_thread_by_public_id

MAX_STATEMENT_CHARS = 300


@dataclass(frozen=True)
class Explanation:
    """Of one answer, given at that time: facts that were looked up, those that were at hand without, and
    statements that were read and are not quoted by any of these facts, in the order in which they were said.
    """

    answered_at: str
    facts: tuple[FactText, ...] = ()
    at_hand: tuple[FactText, ...] = ()
    statements: tuple[Evidence, ...] = ()

    @property
    def is_conversation_alone(self) -> bool:
        return not (self.facts or self.at_hand or self.statements)


def explain_last_answer(
    conn: Connection, thread_id: str | None, *, scope_ids: Collection[ScopeId], now_ms: int
) -> Explanation | None:
    """Explain the newest answer of a thread (public id), or without one that of all the scopes; None: no answer."""
    thread = None if thread_id is None else find_thread_by_public_id(conn, thread_id)
    if thread_id is not None and thread is None:
        return None
    found = last_answer(conn, thread_id=None if thread is None else thread.id, scope_ids=scope_ids)
    answer = None if found is None else load_sources(conn, [found], now_ms=now_ms).get(found)
    if answer is None or answer.run_id is None:
        return None
    looked_up, at_hand = _facts_of(conn, RunId(answer.run_id), scope_ids, now_ms)
    explained = {source_id for fact in (*looked_up, *at_hand) for source_id in fact.source_ids}
    conversation = _conversation_of(conn, answer, RunId(answer.run_id), now_ms)
    read = load_sources(
        conn, [each for each in dependencies_of(conn, answer.id) if each not in conversation], now_ms=now_ms
    )
    statements = sorted(
        (source for source in read.values() if source.public_id not in explained),
        key=lambda source: (source.said_at_ms, source.id),
    )
    return Explanation(
        iso_time(answer.said_at_ms, answer.utc_offset_min),
        looked_up,
        at_hand,
        tuple(quoting(each, excerpt(each.text, (0, 0), MAX_STATEMENT_CHARS)) for each in statements),
    )


def _facts_of(
    conn: Connection, run_id: RunId, scope_ids: Collection[ScopeId], now_ms: int
) -> tuple[tuple[FactText, ...], tuple[FactText, ...]]:
    """Those that were looked up and those that were only at hand, each statement once."""
    cited = cited_facts(conn, run_id)
    by_identity: dict[bytes, tuple[FactText, bool]] = {}
    for fact in load_facts(conn, sorted(cited, key=lambda each: (cited[each], each)), now_ms=now_ms).values():
        if fact.identity not in by_identity and fact.scope_id in scope_ids:
            text = read_fact(conn, FactParams(id=fact.public_id), allowed_scopes=[*scope_ids], now_ms=now_ms)
            by_identity[fact.identity] = text, cited[fact.id]
    every: Sequence[tuple[FactText, bool]] = list(by_identity.values())
    return (
        tuple(text for text, is_given in every if not is_given),
        tuple(text for text, is_given in every if is_given),
    )


def _conversation_of(conn: Connection, answer: Source, run_id: RunId, now_ms: int) -> set[SourceId]:
    """What the answer depends on as its own conversation: the request, and what was said since the answer before."""
    request_id = request_source_id(conn, run_id)
    request = set() if request_id is None else {request_id}
    run = load_run(conn, run_id)
    if run.is_standalone or answer.origin == "recall":
        return request
    before = conversation_before(conn, run.thread_id, run_id, now_ms=now_ms)
    return {*since_last_answer(before), *request}
