"""Conversations with runs, answers, media and transcripts, made with the store alone."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pikobot.store import leases, runs
from pikobot.store.attempts import NewAttempt, insert_attempt
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import Lease, State
from pikobot.store.media import insert_media
from pikobot.store.runs import RunId
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import NewSource, SourceId, insert_source, link_dependencies
from pikobot.store.threads import ensure_thread


@dataclass(frozen=True)
class Exchange:
    run: RunId
    request: SourceId
    answer: SourceId | None
    lease: Lease | None


def write(db: Database, work: Any, *args: Any, **kwargs: Any) -> Any:
    """Run ``work(tx, …)`` in a transaction of its own."""

    def operation(db: Database) -> Any:
        with db.write("test") as tx:
            return work(tx, *args, **kwargs)

    return db.perform(operation)


def read(db: Database, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
    with db.read() as conn:
        return conn.execute(sql, bindings).fetchall()


def exchange(
    db: Database,
    question: str,
    answer: str | None = None,
    *,
    thread: str = "chat",
    reads: Sequence[SourceId] = (),
    transcript: Sequence[str] = (),
    identity: bytes | None = None,
    is_leased: bool = False,
) -> Exchange:
    """A request with its run: answered, or queued, or leased with what it has read and done so far."""
    return write(db, _exchange, db, question, answer, thread, reads, transcript, identity, is_leased)  # type: ignore[no-any-return]  # what it returns


def _exchange(
    tx: Connection,
    db: Database,
    question: str,
    answer: str | None,
    thread: str,
    reads: Sequence[SourceId],
    transcript: Sequence[str],
    identity: bytes | None,
    is_leased: bool,
) -> Exchange:
    scope = ensure_scope(tx, owner_scope())
    thread_id = ensure_thread(tx, scope, thread, db.clock).id
    now = db.clock.now_ms()
    run = runs.insert_run(tx, thread_id, is_standalone=False, clock=db.clock)

    def source(role: Any, text: str) -> SourceId:
        new = NewSource(
            role=role,
            speaker="owner" if role == "user" else "pikobot",
            scope_id=scope,
            thread_id=thread_id,
            run_id=run.id,
            text=text,
            origin="said" if role == "user" else "model",
            said_at_ms=now,
            identity=identity if role == "user" else None,
        )
        return insert_source(tx, new, db.clock)

    request = source("user", question)
    if answer is None and not is_leased:
        return Exchange(run.id, request, None, None)
    lease = leases.claim(tx, "runs", run.id, token=db.clock.token("lease"), now_ms=now, lease_ms=60_000)
    assert lease is not None
    runs.cite_sources(tx, run.id, reads)
    messages = [json.dumps({"role": "tool", "content": text}) for text in transcript]
    runs.append_transcript(tx, run.id, messages)
    if answer is None:
        insert_attempt(
            tx,
            NewAttempt(run_id=run.id, workspace="main", purpose="chat", model="m", reserved_microusd=7),
            now_ms=now,
        )
        return Exchange(run.id, request, None, lease)
    answered = source("assistant", answer)
    link_dependencies(tx, answered, [request, *reads])
    leases.finish(tx, lease, State.SUCCEEDED, now_ms=now)
    return Exchange(run.id, request, answered, None)


def attach(db: Database, source_id: SourceId, data: bytes, name: str) -> None:
    write(db, insert_media, source_id, data, media_type="text/plain", name=name, clock=db.clock)


def public(db: Database, *ids: SourceId | None) -> list[str]:
    return [read(db, "SELECT public_id FROM sources WHERE id = ?", source_id)[0][0] for source_id in ids]
