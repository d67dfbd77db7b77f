"""Literal search of past conversation for the agent: reference material, newest first, without authority.

The identity that decides what may be read (scope, run) comes from the execution, never from arguments.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.cursors import fingerprint, position_cursor, read_position
from pikobot.memory.moments import first_ms
from pikobot.memory.records import source_time
from pikobot.store.connection import Connection
from pikobot.store.history import HistoryQuery, search_history
from pikobot.store.runs import RunId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources
from pikobot.store.text.literal import excerpt, find_folded, folded
from pikobot.store.threads import Thread, find_thread_by_public_id, load_thread
from pikobot.text import shown_name

MAX_EXCERPT_CHARS = 1_000
DEFAULT_LIMIT = 10
MAX_LIMIT = 20
MAX_QUERY_CHARS = 1_000


class HistoryParams(BaseModel):
    """Arguments of `query_chat_history`."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    query: Annotated[
        str | None,
        Field(max_length=MAX_QUERY_CHARS, description="Literal text to find; case does not matter."),
    ] = None
    thread_id: Annotated[
        str | None, Field(alias="threadId", description="Only this conversation, by its thread id.")
    ] = None
    before: Annotated[
        str | None, Field(description="Only messages said before this ISO 8601 date or date-time.")
    ] = None
    cursor: Annotated[
        str | None, Field(description="nextCursor of the page before, with the same filters.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Messages a page.")] = DEFAULT_LIMIT


@dataclass(frozen=True)
class HistoryReader:
    """Who reads: the scope of the execution, and the run whose own request is left out."""

    scope_id: ScopeId
    run_id: RunId | None
    now_ms: int


@dataclass(frozen=True)
class HistoryPage:
    sources: tuple[Source, ...]
    as_json: dict[str, Any]


def query_history(conn: Connection, params: HistoryParams, reader: HistoryReader) -> HistoryPage:
    """One page of matching messages, each with at most 1,000 characters around the match.

    Raises `InvalidParams` for a bad date or a stale cursor, `NotFound` for a thread that the scope doesn't own.
    """
    thread = _owned_thread(conn, params.thread_id, reader.scope_id)
    bound_to = fingerprint("query_chat_history", params)
    query = HistoryQuery(
        scope_id=reader.scope_id,
        thread_id=thread.id if thread else None,
        folded=folded(params.query) if params.query else None,
        before_ms=_before_ms(params.before),
        after=_position(conn, params.cursor, bound_to, reader.now_ms),
        without_run=reader.run_id,
        now_ms=reader.now_ms,
        limit=params.limit + 1,
    )
    ids = search_history(conn, query)
    loaded = load_sources(conn, ids[: params.limit], now_ms=reader.now_ms)
    sources = tuple(loaded[source_id] for source_id in ids[: params.limit] if source_id in loaded)
    cursor = None
    if len(ids) > params.limit and sources:
        cursor = position_cursor(bound_to, (sources[-1].said_at_ms, sources[-1].id))
    results = [_message(conn, source, params.query) for source in sources]
    return HistoryPage(sources, {"results": results, "nextCursor": cursor})


def _owned_thread(conn: Connection, public_id: str | None, scope_id: ScopeId) -> Thread | None:
    if public_id is None:
        return None
    thread = find_thread_by_public_id(conn, public_id)
    if thread is None or thread.scope_id != scope_id:
        raise NotFound(f"threadId: no conversation {shown_name(public_id)} here")
    return thread


def _before_ms(before: str | None) -> int | None:
    try:
        return None if before is None else first_ms(before)
    except ValueError as error:
        raise InvalidParams(f"before: {error}") from None


def _position(
    conn: Connection, cursor: str | None, bound_to: str, now_ms: int
) -> tuple[int, SourceId] | None:
    """Where the page before ended; its last message has to be still there, or the page can't be trusted."""
    if cursor is None:
        return None
    said_at_ms, source_id = read_position(cursor, bound_to, 2)
    if not load_sources(conn, [SourceId(source_id)], now_ms=now_ms):
        raise InvalidParams("cursor: the message it stands at is gone; search again without it")
    return said_at_ms, SourceId(source_id)


def _message(conn: Connection, source: Source, query: str | None) -> dict[str, Any]:
    span = find_folded(source.text, query) if query else None
    return {
        "sourceId": source.public_id,
        "threadId": load_thread(conn, source.thread_id).public_id,
        "role": source.role,
        "speaker": source.speaker,
        "date": source_time(source),
        "excerpt": excerpt(source.text, span or (0, 0), MAX_EXCERPT_CHARS),
        "messageId": source.external_id,
    }
