"""Rows for the store's tests, each made in a transaction of its own."""

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from pikobot.store.connection import Connection, Database
from pikobot.store.runs import Run, RunId, insert_run
from pikobot.store.scopes import Scope, ScopeId, ensure_scope, owner_scope
from pikobot.store.sources import NewSource, Source, SourceId, insert_source, load_sources
from pikobot.store.threads import Thread, ThreadId, ensure_thread
from tests.clock import NOW_MS

P = ParamSpec("P")
T = TypeVar("T")

GROUP = Scope("shared", "main", "bot", "-100", "7")


def write(
    db: Database, change: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run ``change(tx, …)`` in one transaction on the writer thread."""

    def operation(db: Database) -> T:
        with db.write("a test's change") as tx:
            return change(tx, *args, **kwargs)

    return db.perform(operation)


def read(
    db: Database, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    with db.read() as conn:
        return query(conn, *args, **kwargs)


def rows(db: Database, sql: str, *bindings: int | str | bytes | None) -> list[tuple[Any, ...]]:
    with db.read() as conn:
        return conn.execute(sql, bindings).fetchall()


def execute(db: Database, sql: str, *bindings: int | str | bytes | None) -> int:
    """Run one statement in a transaction; returns how many rows it changed."""

    def change(tx: Connection) -> int:
        tx.execute(sql, bindings)
        return tx.changes()

    return write(db, change)


def scope(db: Database, of: Scope | None = None) -> ScopeId:
    return write(db, ensure_scope, of or owner_scope())


def thread(db: Database, key: str = "t1", of: Scope | None = None) -> Thread:
    return write(db, ensure_thread, scope(db, of), key, db.clock)


def run(db: Database, thread_id: ThreadId) -> Run:
    return write(db, insert_run, thread_id, is_standalone=False, clock=db.clock)


def new_source(in_thread: Thread, text: str, **changes: Any) -> NewSource:
    """A message of the owner at the clock's first moment, unless changed."""
    fields: dict[str, Any] = {
        "role": "user",
        "speaker": "owner",
        "scope_id": in_thread.scope_id,
        "thread_id": in_thread.id,
        "text": text,
        "origin": "said",
        "said_at_ms": NOW_MS,
    }
    return NewSource(**(fields | changes))


def source(db: Database, in_thread: Thread, text: str, **changes: Any) -> SourceId:
    return write(db, insert_source, new_source(in_thread, text, **changes), db.clock)


def message(db: Database, in_thread: Thread, run_id: RunId, text: str, role: str = "user") -> SourceId:
    origin = "said" if role == "user" else "model"
    return source(db, in_thread, text, role=role, run_id=run_id, origin=origin)


def loaded(db: Database, source_id: SourceId, *, now_ms: int = NOW_MS) -> Source | None:
    return read(db, load_sources, [source_id], now_ms=now_ms).get(source_id)


def plan(
    db: Database, query: Callable[Concatenate[Connection, P], object], /, *args: P.args, **kwargs: P.kwargs
) -> list[str]:
    """How SQLite runs the statements of a query or a change, one line a step (``EXPLAIN QUERY PLAN``)."""
    statements: list[tuple[str, Any]] = []

    def remember(_cursor: object, sql: str, bindings: Any) -> bool:
        statements.append((sql, bindings))
        return True

    def steps(tx: Connection) -> list[str]:
        tx.exec_trace = remember
        try:
            query(tx, *args, **kwargs)
        finally:
            tx.exec_trace = None
        return [
            str(step[3])
            for sql, given in statements
            for step in tx.execute(f"EXPLAIN QUERY PLAN {sql}", given)
        ]

    return write(db, steps)
