"""Sources: every retained message, document revision or attachment, with its text index kept beside it.

Inserting and deleting a source always maintains the text index in the same transaction, so nothing else
writes to `sources`. A source is eligible when its scope may be read and it has not expired, pruned or not.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NewType

from pikobot.clock import Clock
from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.text.index import IS_DATED, index_source
from pikobot.store.text.unindexing import unindexing
from pikobot.store.threads import ThreadId

SourceId = NewType("SourceId", int)
Kind = Literal["message", "document", "attachment"]
Role = Literal["user", "assistant", "participant"]
Origin = Literal["said", "model", "recall", "imported"]
"""How a source came: said by a person, answered by a model, quoted in recall mode, or imported."""


@dataclass(frozen=True, kw_only=True)
class NewSource:
    """``said_at_ms`` None: nobody knows when; it is listed as if said when it is stored. Only for imports."""

    role: Role
    speaker: str
    scope_id: ScopeId
    thread_id: ThreadId
    text: str
    origin: Origin
    said_at_ms: int | None
    utc_offset_min: int = 0
    kind: Kind = "message"
    run_id: int | None = None
    external_id: str | None = None
    identity: bytes | None = None
    is_partial: bool = False
    expires_at_ms: int | None = None


@dataclass(frozen=True)
class Source:
    id: SourceId
    public_id: str
    kind: Kind
    role: Role
    speaker: str
    scope_id: ScopeId
    thread_id: ThreadId
    run_id: int | None
    external_id: str | None
    text: str
    origin: Origin
    is_partial: bool
    said_at_ms: int
    utc_offset_min: int
    expires_at_ms: int | None
    is_dated: bool


_COLUMNS = f"""s.id, s.public_id, s.kind, s.role, s.speaker, s.scope_id, s.thread_id, s.run_id, s.external_id, s.text,
    s.origin, s.is_partial, s.said_at_ms, s.utc_offset_min, s.expires_at_ms, {IS_DATED}"""


def content_hash(text: str) -> bytes:
    """SHA-256 of the text's UTF-8 bytes: what a revision of a source is recognised by."""
    return hashlib.sha256(text.encode()).digest()


def record_identity(key: bytes, *parts: str) -> bytes:
    """Keyed hash that recognises the same outside record again without keeping anything of it.

    The parts are length-prefixed, so that no two different lists of parts collide.
    """
    mac = hmac.new(key, digestmod=hashlib.sha256)
    for part in parts:
        encoded = part.encode()
        mac.update(len(encoded).to_bytes(8, "big") + encoded)
    return mac.digest()


def revision_identity(key: bytes, identity: bytes, text: str) -> bytes:
    """Recognises an outside record while it has that text: what remains of it when it has been edited."""
    return record_identity(key, "revision", identity.hex(), text)


def insert_source(conn: Connection, new: NewSource, clock: Clock) -> SourceId:
    """Store a source and index it. Caller holds write and has checked the tombstones of its identity."""
    now_ms = clock.now_ms()
    conn.execute(
        """
        INSERT INTO sources (
            public_id, kind, role, speaker, scope_id, thread_id, run_id, external_id, identity, text, content_hash,
            origin, is_partial, said_at_ms, utc_offset_min, created_at_ms, expires_at_ms
        ) VALUES (
            :public_id, :kind, :role, :speaker, :scope_id, :thread_id, :run_id, :external_id, :identity, :text,
            :content_hash, :origin, :is_partial, :said_at_ms, :utc_offset_min, :created_at_ms, :expires_at_ms
        )
        """,
        {
            "public_id": clock.token("src"),
            "kind": new.kind,
            "role": new.role,
            "speaker": new.speaker,
            "scope_id": new.scope_id,
            "thread_id": new.thread_id,
            "run_id": new.run_id,
            "external_id": new.external_id,
            "identity": new.identity,
            "text": new.text,
            "content_hash": content_hash(new.text),
            "origin": new.origin,
            "is_partial": int(new.is_partial),
            "said_at_ms": now_ms if new.said_at_ms is None else new.said_at_ms,
            "utc_offset_min": new.utc_offset_min,
            "created_at_ms": now_ms,
            "expires_at_ms": new.expires_at_ms,
        },
    )
    source_id = SourceId(conn.last_insert_rowid())
    index_source(conn, source_id, new.text, new.speaker)
    return source_id


def revise_source(conn: Connection, source_id: SourceId, text: str, clock: Clock) -> str:
    """Give a source another text, and a public id of its own for it; returns that.

    Caller holds write, has removed what was made from the old text, and buries the old id.
    """
    before = conn.execute("SELECT text, speaker FROM sources WHERE id = ?", (source_id,)).fetchone()
    if before is None:
        raise LookupError(f"source {source_id}")
    old_text, speaker = before
    public_id = clock.token("src")
    with unindexing(conn, 1) as unindex:
        unindex(source_id, old_text, speaker)
        conn.execute(
            "UPDATE sources SET public_id = ?, text = ?, content_hash = ? WHERE id = ?",
            (public_id, text, content_hash(text), source_id),
        )
    index_source(conn, source_id, text, speaker)
    return public_id


def delete_source(conn: Connection, source_id: SourceId) -> None:
    """Remove a source, its index rows and its media. Caller holds write and has removed its dependants."""
    delete_sources(conn, [source_id])


def delete_sources(conn: Connection, source_ids: Iterable[SourceId]) -> None:
    """`delete_source` of many: the index is written once, before the first row goes."""
    gone = list(source_ids)
    ids = json.dumps(gone)
    with unindexing(conn, len(gone)) as unindex:
        for source_id, text, speaker in conn.execute(
            "SELECT id, text, speaker FROM sources WHERE id IN (SELECT value FROM json_each(?))", (ids,)
        ):
            unindex(source_id, text, speaker)
        conn.execute("DELETE FROM sources WHERE id IN (SELECT value FROM json_each(?))", (ids,))


def find_source(conn: Connection, public_id: str, *, now_ms: int) -> Source | None:
    """The source of that public id unless it has expired."""
    found = _select(conn, "sources AS s WHERE s.public_id = :id", {"id": public_id, "now": now_ms})
    return next(found, None)


def load_sources(conn: Connection, ids: Iterable[SourceId], *, now_ms: int) -> dict[SourceId, Source]:
    """The unexpired sources of those ids, in their order; missing ones are left out."""
    chosen = "json_each(:ids) AS j CROSS JOIN sources AS s ON s.id = j.value WHERE true"
    found = _select(conn, chosen, {"ids": json.dumps(list(ids)), "now": now_ms})
    return {source.id: source for source in found}


def identity_exists(conn: Connection, identity: bytes) -> bool:
    return bool(conn.execute("SELECT 1 FROM sources WHERE identity = ?", (identity,)).fetchone())


def link_dependencies(conn: Connection, source_id: SourceId, depends_on: Iterable[SourceId]) -> None:
    """Record what an answer was made from. Caller holds write; repeating a link is harmless."""
    conn.executemany(
        "INSERT OR IGNORE INTO source_dependencies (source_id, depends_on_id) VALUES (?, ?)",
        [(source_id, other) for other in sorted(set(depends_on)) if other != source_id],
    )


def dependencies_of(conn: Connection, source_id: SourceId) -> list[SourceId]:
    """What an answer was made from."""
    rows = conn.execute(
        "SELECT depends_on_id FROM source_dependencies WHERE source_id = ? ORDER BY depends_on_id",
        (source_id,),
    )
    return [SourceId(row[0]) for row in rows]


def earliest_expiry(conn: Connection, ids: Iterable[SourceId]) -> int | None:
    """The first moment at which one of the sources expires: a derived answer may not outlive it."""
    moments = []
    for source_id in ids:
        row = conn.execute("SELECT expires_at_ms FROM sources WHERE id = ?", (source_id,)).fetchone()
        if row is not None and row[0] is not None:
            moments.append(int(row[0]))
    return min(moments, default=None)


def count_sources(conn: Connection, *, now_ms: int) -> int:
    """How many sources have not expired."""
    row = conn.execute(
        "SELECT (SELECT count(*) FROM sources) - (SELECT count(*) FROM sources WHERE expires_at_ms <= ?)",
        (now_ms,),
    ).fetchone()
    return int(row[0]) if row else 0


def _select(conn: Connection, chosen: str, bindings: dict[str, int | str]) -> Iterator[Source]:
    """Those of the rows of ``s`` that have not expired."""
    sql = f"SELECT {_COLUMNS} FROM {chosen} AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now)"
    for row in conn.execute(sql, bindings):
        yield Source(
            id=SourceId(row[0]),
            public_id=row[1],
            kind=row[2],
            role=row[3],
            speaker=row[4],
            scope_id=ScopeId(row[5]),
            thread_id=ThreadId(row[6]),
            run_id=row[7],
            external_id=row[8],
            text=row[9],
            origin=row[10],
            is_partial=bool(row[11]),
            said_at_ms=row[12],
            utc_offset_min=row[13],
            expires_at_ms=row[14],
            is_dated=bool(row[15]),
        )
