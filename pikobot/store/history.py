"""Literal search in a scope's retained messages, newest first, and the order of a thread's conversation."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pikobot.store.connection import MAX_INTEGER, Connection
from pikobot.store.runs import RunId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId
from pikobot.store.threads import ThreadId


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """What to look for.

    ``folded`` is a literal in the form that is compared; ``after`` is the last (time, id) already seen.
    """

    scope_id: ScopeId
    thread_id: ThreadId | None
    folded: str | None
    before_ms: int | None
    after: tuple[int, SourceId] | None
    without_run: RunId | None
    now_ms: int
    limit: int


@dataclass(frozen=True)
class ContextEntry:
    """A message of a thread as the context planner sees it, before its text is loaded."""

    source_id: SourceId
    size: int  # UTF-8 bytes
    is_answer: bool  # by the model in this thread: it depends on the conversation before it
    run_id: RunId | None


_FILTERS = """
      AND s.kind = 'message'
      AND (s.said_at_ms, s.id) < (:end_ms, :end_id)
      AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now)
      AND (:without_run IS NULL OR s.run_id IS NOT :without_run)
      AND (:folded IS NULL OR contains_folded(s.text, :folded))
    ORDER BY s.said_at_ms DESC, s.id DESC
    LIMIT :limit
"""
_IN_SCOPE = (
    f"SELECT s.id FROM sources AS s INDEXED BY sources_by_scope_time WHERE s.scope_id = :scope {_FILTERS}"
)
_IN_THREAD = f"""
    SELECT s.id FROM sources AS s INDEXED BY sources_by_thread
    WHERE s.thread_id = :thread AND s.scope_id = :scope {_FILTERS}
"""


def search_history(conn: Connection, query: HistoryQuery) -> list[SourceId]:
    """Ids of the matching messages, newest first; reads no further than the limit needs."""
    # Everything said before a moment lies before (moment, 0), as ids begin at 1: one bound serves both limits.
    before = (MAX_INTEGER if query.before_ms is None else query.before_ms, 0)
    end_ms, end_id = before if query.after is None else min(before, query.after)
    bindings: dict[str, int | str | None] = {
        "scope": query.scope_id,
        "end_ms": end_ms,
        "end_id": end_id,
        "now": query.now_ms,
        "without_run": query.without_run,
        "folded": query.folded,
        "limit": query.limit,
    }
    if query.thread_id is None:
        return [SourceId(row[0]) for row in conn.execute(_IN_SCOPE, bindings)]
    return [SourceId(row[0]) for row in conn.execute(_IN_THREAD, bindings | {"thread": query.thread_id})]


def conversation_before(
    conn: Connection, thread_id: ThreadId, run_id: RunId, *, now_ms: int
) -> list[ContextEntry]:
    """A thread's retained messages before a run: what was imported by time, then runs in insertion order.

    The request of a run stands before its answer.
    """
    rows = conn.execute(
        """
        SELECT s.id, octet_length(s.text), s.role = 'assistant' AND s.origin = 'model', s.run_id
        FROM sources AS s
        WHERE s.thread_id = :thread AND s.kind = 'message'
          AND (s.run_id IS NULL OR s.run_id < :run)
          AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now)
        ORDER BY s.run_id IS NOT NULL, s.run_id, iif(s.run_id IS NULL, s.said_at_ms, s.role = 'assistant'), s.id
        """,
        {"thread": thread_id, "run": run_id, "now": now_ms},
    )
    return [
        ContextEntry(SourceId(row[0]), row[1], bool(row[2]), None if row[3] is None else RunId(row[3]))
        for row in rows
    ]


def since_last_answer(entries: Sequence[ContextEntry]) -> list[SourceId]:
    """The end of a conversation from the model's last answer on, that one included; all of it without one."""
    chain: list[SourceId] = []
    for entry in reversed(entries):
        chain.append(entry.source_id)
        if entry.is_answer:
            break
    return chain[::-1]


def recent_requests(
    conn: Connection, scope_ids: Collection[ScopeId], *, now_ms: int, limit: int, max_chars: int
) -> list[str]:
    """The beginnings of what was put to pikobot last in the scopes, newest first."""
    rows = conn.execute(
        """
        SELECT substr(text, 1, :max_chars) FROM sources INDEXED BY sources_of_run
        WHERE run_id IS NOT NULL AND role = 'user' AND kind = 'message'
          AND scope_id IN (SELECT value FROM json_each(:scopes))
          AND (expires_at_ms IS NULL OR expires_at_ms > :now)
        ORDER BY run_id DESC LIMIT :limit
        """,
        {"max_chars": max_chars, "scopes": json.dumps(list(scope_ids)), "now": now_ms, "limit": limit},
    )
    return [row[0] for row in rows]


def recent_requests_in(
    conn: Connection, thread_id: ThreadId, *, now_ms: int, limit: int, max_chars: int
) -> list[str]:
    """The same of one thread."""
    rows = conn.execute(
        """
        SELECT substr(text, 1, :max_chars) FROM sources INDEXED BY sources_by_thread
        WHERE thread_id = :thread AND run_id IS NOT NULL AND role = 'user' AND kind = 'message'
          AND (expires_at_ms IS NULL OR expires_at_ms > :now)
        ORDER BY said_at_ms DESC, id DESC LIMIT :limit
        """,
        {"max_chars": max_chars, "thread": thread_id, "now": now_ms, "limit": limit},
    )
    return [row[0] for row in rows]


def messages_before(conn: Connection, source: Source, *, now_ms: int, limit: int) -> list[SourceId]:
    """The messages said last before a source in its thread, in the order in which they were said."""
    rows = conn.execute(
        """
        SELECT id FROM sources
        WHERE thread_id = :thread AND kind = 'message' AND (said_at_ms, id) < (:said_at, :id)
          AND (expires_at_ms IS NULL OR expires_at_ms > :now)
        ORDER BY said_at_ms DESC, id DESC LIMIT :limit
        """,
        {
            "thread": source.thread_id,
            "said_at": source.said_at_ms,
            "id": source.id,
            "now": now_ms,
            "limit": limit,
        },
    )
    return [SourceId(row[0]) for row in rows][::-1]
