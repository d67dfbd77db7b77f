"""Runs: one request and its answer each, executed in insertion order within a thread.

A run is a leased row (see `leases`). Its request is the source with its run id and role 'user', its answer the
one with role 'assistant'; a unique index allows one of each. While it runs, its transcript holds the messages of
finished tool rounds, so that a crash repeats no finished provider call; the transcript goes when the run ends.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NewType

from pikobot.clock import Clock
from pikobot.store.connection import Connection
from pikobot.store.leases import State
from pikobot.store.sources import SourceId
from pikobot.store.threads import ThreadId

RunId = NewType("RunId", int)


@dataclass(frozen=True)
class Run:
    id: RunId
    public_id: str
    thread_id: ThreadId
    is_standalone: bool
    model: str | None
    created_at_ms: int
    state: State
    claims: int
    error_code: str | None
    finished_at_ms: int | None


_COLUMNS = (
    "id, public_id, thread_id, is_standalone, model, created_at_ms, state, claims, error_code, finished_at_ms"
)


def insert_run(conn: Connection, thread_id: ThreadId, *, is_standalone: bool, clock: Clock) -> Run:
    """A queued run at the end of its thread. Caller holds write."""
    row = conn.execute(
        f"""
        INSERT INTO runs (public_id, thread_id, is_standalone, created_at_ms, state)
        VALUES (?, ?, ?, ?, 'queued') RETURNING {_COLUMNS}
        """,
        (clock.token("run"), thread_id, int(is_standalone), clock.now_ms()),
    ).fetchone()
    if row is None:
        raise LookupError("INSERT … RETURNING gave no row")
    return _run(row)


def next_claimable(conn: Connection, *, now_ms: int, thread_id: ThreadId | None) -> RunId | None:
    """The oldest run that is due and heads its thread: no unfinished run of the thread is older.

    A leased run whose lease has expired is due again; one that waits for its time keeps its thread's order.
    """
    row = conn.execute(
        """
        SELECT r.id FROM runs AS r INDEXED BY runs_unfinished
        WHERE r.state IN ('queued', 'leased')
          AND (:thread IS NULL OR r.thread_id = :thread)
          AND ((r.state = 'queued' AND r.not_before_ms <= :now)
               OR (r.state = 'leased' AND r.lease_expires_at_ms <= :now))
          AND NOT EXISTS (
              SELECT 1 FROM runs AS earlier
              WHERE earlier.thread_id = r.thread_id AND earlier.id < r.id AND earlier.state IN ('queued', 'leased')
          )
        ORDER BY r.id LIMIT 1
        """,
        {"now": now_ms, "thread": thread_id},
    ).fetchone()
    return None if row is None else RunId(row[0])


def find_run(conn: Connection, run_id: RunId) -> Run | None:
    row = conn.execute(f"SELECT {_COLUMNS} FROM runs WHERE id = ?", (run_id,)).fetchone()
    return None if row is None else _run(row)


def load_run(conn: Connection, run_id: RunId) -> Run:
    run = find_run(conn, run_id)
    if run is None:
        raise LookupError(f"run {run_id}")
    return run


def last_run(conn: Connection, thread_id: ThreadId) -> Run | None:
    row = conn.execute(
        f"SELECT {_COLUMNS} FROM runs WHERE thread_id = ? ORDER BY id DESC LIMIT 1", (thread_id,)
    ).fetchone()
    return None if row is None else _run(row)


def answer_of(conn: Connection, run_id: RunId) -> tuple[str, bool] | None:
    """The answer's text and whether it is partial; None while there is none."""
    row = conn.execute(
        "SELECT text, is_partial FROM sources WHERE run_id = ? AND role = 'assistant' AND kind = 'message'",
        (run_id,),
    ).fetchone()
    return None if row is None else (row[0], bool(row[1]))


def last_answer(conn: Connection, *, thread_id: ThreadId | None, scope_ids: Iterable[int]) -> SourceId | None:
    """The answer of the newest run that has one, in a thread or else in all of those scopes."""
    row = conn.execute(
        """
        SELECT id FROM sources INDEXED BY sources_of_run
        WHERE run_id IS NOT NULL AND role = 'assistant' AND kind = 'message'
          AND (:thread IS NULL OR thread_id = :thread) AND scope_id IN (SELECT value FROM json_each(:scopes))
        ORDER BY run_id DESC LIMIT 1
        """,
        {"thread": thread_id, "scopes": json.dumps(list(scope_ids))},
    ).fetchone()
    return None if row is None else SourceId(row[0])


def request_source_id(conn: Connection, run_id: RunId) -> SourceId | None:
    """The run's request; None when it has been forgotten meanwhile."""
    row = conn.execute(
        "SELECT id FROM sources WHERE run_id = ? AND role = 'user' AND kind = 'message'", (run_id,)
    ).fetchone()
    return None if row is None else SourceId(row[0])


def set_model(conn: Connection, run_id: RunId, model: str | None) -> None:
    conn.execute("UPDATE runs SET model = ? WHERE id = ?", (model, run_id))


def unfinished_runs(conn: Connection, thread_id: ThreadId) -> list[RunId]:
    return [
        RunId(row[0])
        for row in conn.execute(
            """
            SELECT id FROM runs INDEXED BY runs_unfinished
            WHERE thread_id = ? AND state IN ('queued', 'leased') ORDER BY id
            """,
            (thread_id,),
        )
    ]


def leased_runs(conn: Connection) -> list[RunId]:
    return [RunId(row[0]) for row in conn.execute("SELECT id FROM runs WHERE state = 'leased' ORDER BY id")]


def cancel_queued(conn: Connection, run_ids: Iterable[RunId], *, now_ms: int) -> int:
    """Cancel runs that nobody has claimed yet; returns how many. Caller holds write."""
    cancelled = 0
    for run_id in run_ids:
        conn.execute(
            """
            UPDATE runs SET state = 'cancelled', error_code = 'cancelled', finished_at_ms = ?
            WHERE id = ? AND state = 'queued'
            """,
            (now_ms, run_id),
        )
        cancelled += conn.changes()
    return cancelled


def count_by_state(conn: Connection) -> dict[str, int]:
    return {
        row[0]: row[1]
        for row in conn.execute("SELECT state, count(*) FROM runs GROUP BY state ORDER BY state")
    }


def append_transcript(conn: Connection, run_id: RunId, messages: Sequence[str]) -> None:
    """Add messages (JSON texts) to the end of a run's transcript. Caller holds write and the run's lease."""
    row = conn.execute(
        "SELECT coalesce(max(position), 0) FROM run_transcript WHERE run_id = ?", (run_id,)
    ).fetchone()
    start = int(row[0]) if row else 0
    conn.executemany(
        "INSERT INTO run_transcript (run_id, position, message) VALUES (?, ?, ?)",
        [(run_id, start + offset, message) for offset, message in enumerate(messages, 1)],
    )


def load_transcript(conn: Connection, run_id: RunId) -> list[str]:
    return [
        row[0]
        for row in conn.execute(
            "SELECT message FROM run_transcript WHERE run_id = ? ORDER BY position", (run_id,)
        )
    ]


def clear_execution(conn: Connection, run_id: RunId) -> None:
    """Remove what a run keeps only while it runs: its transcript, its citation set. Caller holds write.

    The facts that it has read stay while there is an answer that they explain.
    """
    conn.execute("DELETE FROM run_transcript WHERE run_id = ?", (run_id,))
    conn.execute("DELETE FROM run_sources WHERE run_id = ?", (run_id,))
    if answer_of(conn, run_id) is None:
        conn.execute("DELETE FROM run_facts WHERE run_id = ?", (run_id,))


def cite_sources(conn: Connection, run_id: RunId, source_ids: Iterable[SourceId]) -> None:
    """Add what a tool has read to the run's citation set. Caller holds write."""
    conn.executemany(
        "INSERT OR IGNORE INTO run_sources (run_id, source_id) VALUES (?, ?)",
        [(run_id, source_id) for source_id in sorted(set(source_ids))],
    )


def cited_sources(conn: Connection, run_id: RunId) -> list[SourceId]:
    return [
        SourceId(row[0])
        for row in conn.execute(
            "SELECT source_id FROM run_sources WHERE run_id = ? ORDER BY source_id", (run_id,)
        )
    ]


def _run(row: tuple[object, ...]) -> Run:
    run_id, public_id, thread_id, is_standalone, model, created, state, claims, error, finished = row
    return Run(
        id=RunId(_int(run_id)),
        public_id=str(public_id),
        thread_id=ThreadId(_int(thread_id)),
        is_standalone=bool(is_standalone),
        model=None if model is None else str(model),
        created_at_ms=_int(created),
        state=State(str(state)),
        claims=_int(claims),
        error_code=None if error is None else str(error),
        finished_at_ms=None if finished is None else _int(finished),
    )


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"expected an integer, found {type(value).__name__}")
    return value
