"""Conversation threads: what keeps the order of runs and the context of an answer.

A thread belongs to a scope. A channel finds it again by its key (the name given to ``--thread``, an imported
conversation's name, later a Telegram topic); a thread without a key is reached by its public id alone.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType

from pikobot.clock import Clock
from pikobot.store.connection import MAX_INTEGER, Connection
from pikobot.store.scopes import ScopeId

MAX_BEGINNING_CHARS = 80

ThreadId = NewType("ThreadId", int)


@dataclass(frozen=True)
class Thread:
    id: ThreadId
    public_id: str
    scope_id: ScopeId
    key: str | None


@dataclass(frozen=True)
class ThreadSummary:
    public_id: str
    key: str | None
    scope_id: ScopeId
    created_at_ms: int
    last_said_at_ms: int | None
    messages: int
    beginning: str | None  # of the first message


def create_thread(conn: Connection, scope_id: ScopeId, key: str | None, clock: Clock) -> Thread:
    """A new thread. Caller holds write."""
    public_id = clock.token("thr")
    conn.execute(
        "INSERT INTO threads (public_id, scope_id, key, created_at_ms) VALUES (?, ?, ?, ?)",
        (public_id, scope_id, key, clock.now_ms()),
    )
    return Thread(ThreadId(conn.last_insert_rowid()), public_id, scope_id, key)


def find_thread_by_key(conn: Connection, scope_id: ScopeId, key: str) -> Thread | None:
    return _one(conn, "WHERE scope_id = ? AND key = ?", (scope_id, key))


def find_thread_by_public_id(conn: Connection, public_id: str) -> Thread | None:
    return _one(conn, "WHERE public_id = ?", (public_id,))


def find_threads_by_key(conn: Connection, key: str) -> list[Thread]:
    """The threads of that key in any scope, oldest first."""
    rows = conn.execute("SELECT id, public_id, scope_id, key FROM threads WHERE key = ? ORDER BY id", (key,))
    return [Thread(ThreadId(row[0]), row[1], ScopeId(row[2]), row[3]) for row in rows]


def threads_of_scopes(conn: Connection, scope_ids: Iterable[ScopeId]) -> list[ThreadId]:
    """All threads of the scopes."""
    rows = conn.execute(
        "SELECT id FROM threads WHERE scope_id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(list(scope_ids)),),
    )
    return [ThreadId(row[0]) for row in rows]


def load_thread(conn: Connection, thread_id: ThreadId) -> Thread:
    found = _one(conn, "WHERE id = ?", (thread_id,))
    if found is None:
        raise LookupError(f"thread {thread_id}")
    return found


def ensure_thread(conn: Connection, scope_id: ScopeId, key: str, clock: Clock) -> Thread:
    """The thread of that key, made when it is new. Caller holds write."""
    return find_thread_by_key(conn, scope_id, key) or create_thread(conn, scope_id, key, clock)


def list_threads(
    conn: Connection,
    *,
    scope_id: ScopeId | None,
    before_id: ThreadId | None,
    now_ms: int,
    limit: int,
    key: str | None = None,
) -> list[tuple[ThreadId, ThreadSummary]]:
    """Newest threads first; page with the last id of the page before. ``key``: only those of that name."""
    of_scope = "" if scope_id is None else "scope_id = :scope AND"
    of_scope += "" if key is None else " key = :key AND"
    rows = conn.execute(
        f"""
        SELECT t.id, t.public_id, t.key, t.scope_id, t.created_at_ms, max(s.said_at_ms), count(s.id), (
            SELECT substr(f.text, 1, :beginning) FROM sources AS f
            WHERE f.thread_id = t.id AND (f.expires_at_ms IS NULL OR f.expires_at_ms > :now)
            ORDER BY f.said_at_ms, f.id LIMIT 1
        )
        FROM (
            SELECT id, public_id, key, scope_id, created_at_ms FROM threads
            WHERE {of_scope} id < :before
            ORDER BY id DESC LIMIT :limit
        ) AS t
        LEFT JOIN sources AS s ON s.thread_id = t.id AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now)
        GROUP BY t.id
        ORDER BY t.id DESC
        """,
        {
            "scope": scope_id,
            "before": MAX_INTEGER if before_id is None else before_id,
            "now": now_ms,
            "limit": limit,
            "key": key,
            "beginning": MAX_BEGINNING_CHARS,
        },
    )
    return [
        (ThreadId(row[0]), ThreadSummary(row[1], row[2], ScopeId(row[3]), row[4], row[5], row[6], row[7]))
        for row in rows
    ]


def _one(conn: Connection, where: str, bindings: tuple[int | str, ...]) -> Thread | None:
    row = conn.execute(f"SELECT id, public_id, scope_id, key FROM threads {where}", bindings).fetchone()
    return None if row is None else Thread(ThreadId(row[0]), row[1], ScopeId(row[2]), row[3])
