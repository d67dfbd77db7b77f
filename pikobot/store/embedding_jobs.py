"""What is to be embedded: found by a mark in the ids of sources and facts, worked off in leased batches.

    rows above the mark ──take──▶ batch, the mark moves ──▶ vectors, the batch is deleted
                                     └──▶ waits for another try, or has failed and shows

Ids only grow, so everything new is above the mark. A mark may be lowered at any time: what has its vector is passed
over. Not embedded at all: what is blank or has expired, and answers of recall mode, which no search returns.
A batch holds ids, no text; what is erased leaves it (`leave_batches`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NewType

from pikobot.clock import Clock
from pikobot.store.connection import Connection
from pikobot.store.fact_index import READABLE
from pikobot.store.leases import Lease
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import content_hash
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.profiles import SetId

EmbeddingJobId = NewType("EmbeddingJobId", int)

TABLE = "embedding_jobs"
# A token of any model has a byte at least, and 8,192 tokens are what hosted models take.
MAX_TEXT_BYTES = 8_000

_UNEMBEDDED = {
    OwnerKind.SOURCE: """
        SELECT o.id, c.workspace FROM sources AS o JOIN scopes AS c ON c.id = o.scope_id
        WHERE o.id > :after AND o.origin <> 'recall' AND trim(o.text, :blank) <> ''
          AND (o.expires_at_ms IS NULL OR o.expires_at_ms > :now_ms)
          AND NOT EXISTS (
              SELECT 1 FROM vectors AS v WHERE v.set_id = :set AND v.owner_kind = 'source' AND v.owner_id = o.id
          )
          AND NOT EXISTS (
              SELECT 1 FROM embedding_job_owners AS w JOIN embedding_jobs AS j ON j.id = w.job_id
              WHERE w.owner_kind = 'source' AND w.owner_id = o.id AND j.set_id = :set
          )
        ORDER BY o.id LIMIT :limit
    """,
    OwnerKind.FACT: f"""
        SELECT f.id, c.workspace FROM facts AS f JOIN scopes AS c ON c.id = f.scope_id
        WHERE f.id > :after AND {READABLE}
          AND NOT EXISTS (
              SELECT 1 FROM vectors AS v WHERE v.set_id = :set AND v.owner_kind = 'fact' AND v.owner_id = f.id
          )
          AND NOT EXISTS (
              SELECT 1 FROM embedding_job_owners AS w JOIN embedding_jobs AS j ON j.id = w.job_id
              WHERE w.owner_kind = 'fact' AND w.owner_id = f.id AND j.set_id = :set
          )
        ORDER BY f.id LIMIT :limit
    """,
}
_TABLES = {OwnerKind.SOURCE: "sources", OwnerKind.FACT: "facts"}
_BLANK = " \t\r\n\v\f\u3000"


@dataclass(frozen=True)
class EmbeddingText:
    """What is sent for an owner, and the hash by which a change of it is seen."""

    owner: Owner
    scope_id: ScopeId
    at_ms: int
    text: str
    hash: bytes


@dataclass(frozen=True)
class BatchCounts:
    """Owners in batches of a set that wait or are worked on, have failed, or may have been charged for."""

    queued: int = 0
    failed: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        return self.queued + self.failed + self.unknown


def take_batch(conn: Connection, set_id: SetId, *, limit: int, clock: Clock) -> EmbeddingJobId | None:
    """Make a queued batch of what comes next, all of one workspace, and move the mark; None when nothing is left.

    Caller holds write.
    """
    for kind in _UNEMBEDDED:
        found = _unembedded(conn, set_id, kind, now_ms=clock.now_ms(), limit=limit)
        if found:
            workspace = found[0][1]
            ids = []
            for owner_id, of_workspace in found:
                if of_workspace != workspace:
                    break
                ids.append(owner_id)
            _move_mark(conn, set_id, kind, ids[-1])
            return insert_batch(
                conn, set_id, [Owner(kind, owner_id) for owner_id in ids], workspace=workspace, clock=clock
            )
    return None


def insert_batch(
    conn: Connection, set_id: SetId, owners: Iterable[Owner], *, workspace: str, clock: Clock
) -> EmbeddingJobId:
    """Queue a batch. Caller holds write."""
    conn.execute(
        "INSERT INTO embedding_jobs (set_id, workspace, created_at_ms, state) VALUES (?, ?, ?, 'queued')",
        (set_id, workspace, clock.now_ms()),
    )
    job_id = EmbeddingJobId(conn.last_insert_rowid())
    conn.executemany(
        "INSERT INTO embedding_job_owners (job_id, owner_kind, owner_id) VALUES (?, ?, ?)",
        [(job_id, owner.kind, owner.id) for owner in owners],
    )
    return job_id


def split_batch(conn: Connection, lease: Lease, *, not_before_ms: int, error_code: str, clock: Clock) -> int:
    """Replace a batch by one for each of its owners, due later, its claims counted; returns how many.

    Caller holds write and the lease.
    """
    workspace, set_id = workspace_of(conn, lease), set_of(conn, lease)
    owners = owners_of(conn, EmbeddingJobId(lease.row_id))
    delete_batch(conn, lease)
    for owner in owners:
        job_id = insert_batch(conn, set_id, [owner], workspace=workspace, clock=clock)
        conn.execute(
            "UPDATE embedding_jobs SET claims = ?, not_before_ms = ?, error_code = ? WHERE id = ?",
            (lease.claims, not_before_ms, error_code, job_id),
        )
    return len(owners)


def next_due(conn: Connection, set_id: SetId, *, now_ms: int) -> EmbeddingJobId | None:
    """The oldest batch of the set that can be claimed."""
    row = conn.execute(
        """
        SELECT min(id) FROM embedding_jobs WHERE set_id = :set AND (
            (state = 'queued' AND not_before_ms <= :now) OR (state = 'leased' AND lease_expires_at_ms <= :now)
        )
        """,
        {"set": set_id, "now": now_ms},
    ).fetchone()
    return None if row is None or row[0] is None else EmbeddingJobId(row[0])


def leased_batches(conn: Connection) -> list[EmbeddingJobId]:
    return [
        EmbeddingJobId(row[0])
        for row in conn.execute("SELECT id FROM embedding_jobs WHERE state = 'leased' ORDER BY id")
    ]


def owners_of(conn: Connection, job_id: EmbeddingJobId) -> list[Owner]:
    rows = conn.execute(
        "SELECT owner_kind, owner_id FROM embedding_job_owners WHERE job_id = ? ORDER BY owner_kind, owner_id",
        (job_id,),
    )
    return [Owner(OwnerKind(row[0]), row[1]) for row in rows]


def load_texts(conn: Connection, job_id: EmbeddingJobId, *, now_ms: int) -> list[EmbeddingText]:
    """What the owners of a batch say now, those that are there and unexpired, sources first.

    A source is embedded with its speaker: questions name people.
    """
    rows = conn.execute(
        f"""
        SELECT 0 AS rank, o.id, o.scope_id, o.said_at_ms, o.speaker || ': ' || o.text, 'source'
        FROM embedding_job_owners AS j JOIN sources AS o ON o.id = j.owner_id
        WHERE j.job_id = :job AND j.owner_kind = 'source'
          AND (o.expires_at_ms IS NULL OR o.expires_at_ms > :now_ms)
        UNION ALL
        SELECT 1, f.id, f.scope_id, f.created_at_ms, f.text, 'fact'
        FROM embedding_job_owners AS j JOIN facts AS f ON f.id = j.owner_id
        WHERE j.job_id = :job AND j.owner_kind = 'fact' AND {READABLE}
        ORDER BY rank, 2
        """,
        {"job": job_id, "now_ms": now_ms},
    )
    return [
        EmbeddingText(
            owner=Owner(OwnerKind(kind), owner_id),
            scope_id=ScopeId(scope_id),
            at_ms=at_ms,
            text=str(text).encode()[:MAX_TEXT_BYTES].decode(errors="ignore"),
            hash=content_hash(str(text)),
        )
        for _, owner_id, scope_id, at_ms, text, kind in rows
    ]


def workspace_of(conn: Connection, lease: Lease) -> str:
    row = conn.execute("SELECT workspace FROM embedding_jobs WHERE id = ?", (lease.row_id,)).fetchone()
    return str(row[0]) if row else ""


def set_of(conn: Connection, lease: Lease) -> SetId:
    row = conn.execute("SELECT set_id FROM embedding_jobs WHERE id = ?", (lease.row_id,)).fetchone()
    return SetId(int(row[0]) if row else 0)


def note_attempt(conn: Connection, lease: Lease, attempt_id: int) -> None:
    """Remember which provider call a batch is at. Caller holds write and the lease."""
    conn.execute("UPDATE embedding_jobs SET attempt_id = ? WHERE id = ?", (attempt_id, lease.row_id))


def may_have_charged(conn: Connection, lease: Lease) -> bool:
    """Whether the newest call of a batch has not ended, or not in a way that is known, and can have cost something."""
    row = conn.execute(
        """
        SELECT a.state IN ('started', 'unknown') AND a.reserved_microusd > 0
        FROM embedding_jobs AS j JOIN attempts AS a ON a.id = j.attempt_id WHERE j.id = ?
        """,
        (lease.row_id,),
    ).fetchone()
    return row is not None and bool(row[0])


def end_attempt_unknown(conn: Connection, lease: Lease, *, now_ms: int) -> None:
    """The newest call of a batch, if it is under way, was cut off. Caller holds write."""
    conn.execute(
        """
        UPDATE attempts SET state = 'unknown', error_code = 'interrupted', finished_at_ms = :now
        WHERE state = 'started' AND id = (SELECT attempt_id FROM embedding_jobs WHERE id = :job)
        """,
        {"job": lease.row_id, "now": now_ms},
    )


def delete_batch(conn: Connection, lease: Lease) -> bool:
    """End a batch that has nothing left to do; False when the lease is lost. Caller holds write."""
    conn.execute(
        "DELETE FROM embedding_jobs WHERE id = ? AND state = 'leased' AND lease_token = ?",
        (lease.row_id, lease.token),
    )
    return conn.changes() == 1


def requeue(conn: Connection) -> int:
    """Queue all failed and unknown batches again; returns how many. Their next calls can charge. Caller holds write."""
    conn.execute(
        """
        UPDATE embedding_jobs
        SET state = 'queued', not_before_ms = 0, claims = 0, error_code = NULL, finished_at_ms = NULL, attempt_id = NULL
        WHERE state IN ('failed', 'unknown')
        """
    )
    return conn.changes()


def leave_batches(conn: Connection, owners: Iterable[Owner]) -> None:
    """Take what is being erased out of every batch; batches left empty go. Caller holds write."""
    leaving = list(owners)
    touched: set[int] = set()
    for kind in (OwnerKind.SOURCE, OwnerKind.FACT):
        ids = [owner.id for owner in leaving if owner.kind == kind]
        if not ids:
            continue
        rows = conn.execute(
            """
            DELETE FROM embedding_job_owners
            WHERE owner_kind = ? AND owner_id IN (SELECT value FROM json_each(?)) RETURNING job_id
            """,
            (kind, json.dumps(ids)),
        )
        touched |= {row[0] for row in rows}
    if not touched:
        return
    conn.execute(
        """
        DELETE FROM embedding_jobs WHERE id IN (SELECT value FROM json_each(?))
          AND NOT EXISTS (SELECT 1 FROM embedding_job_owners AS o WHERE o.job_id = embedding_jobs.id)
        """,
        (json.dumps(sorted(touched)),),
    )


def count_batches(conn: Connection, set_id: SetId) -> BatchCounts:
    """How many owners are in unfinished and failed batches of a set."""
    rows = conn.execute(
        """
        SELECT iif(j.state = 'leased', 'queued', j.state), count(*)
        FROM embedding_jobs AS j JOIN embedding_job_owners AS o ON o.job_id = j.id
        WHERE j.set_id = ? GROUP BY 1
        """,
        (set_id,),
    )
    return BatchCounts(**{state: count for state, count in rows if state in ("queued", "failed", "unknown")})


def count_above_mark(conn: Connection, set_id: SetId, *, now_ms: int, at_most: int) -> int:
    """How many owners wait to be taken into batches, counted up to a limit."""
    count = 0
    for kind in _UNEMBEDDED:
        if count < at_most:
            count += len(_unembedded(conn, set_id, kind, now_ms=now_ms, limit=at_most - count))
    return count


def lower_marks(conn: Connection, set_id: SetId) -> None:
    """Look through everything again; what has its vector is passed over. Caller holds write."""
    conn.execute("DELETE FROM embedding_marks WHERE set_id = ?", (set_id,))


def _unembedded(
    conn: Connection, set_id: SetId, kind: OwnerKind, *, now_ms: int, limit: int
) -> Sequence[tuple[int, str]]:
    """Every search by meaning asks, mostly when nothing is above the mark, which is told at a tenth of the cost."""
    row = conn.execute(
        f"""
        SELECT
            coalesce((SELECT up_to_id FROM embedding_marks WHERE set_id = ? AND owner_kind = ?), 0),
            (SELECT max(id) FROM {_TABLES[kind]})
        """,
        (set_id, kind),
    ).fetchone()
    mark, last = row or (0, 0)
    if not last or last <= mark:
        return []
    bindings: dict[str, int | str] = {"set": set_id, "after": int(mark), "now_ms": now_ms, "limit": limit}
    if kind is OwnerKind.SOURCE:
        bindings["blank"] = _BLANK
    return [(int(owner_id), str(name)) for owner_id, name in conn.execute(_UNEMBEDDED[kind], bindings)]


def _move_mark(conn: Connection, set_id: SetId, kind: OwnerKind, up_to_id: int) -> None:
    conn.execute(
        """
        INSERT INTO embedding_marks (set_id, owner_kind, up_to_id) VALUES (?, ?, ?)
        ON CONFLICT DO UPDATE SET up_to_id = excluded.up_to_id
        """,
        (set_id, kind, up_to_id),
    )


def is_unfinished(conn: Connection, set_id: SetId) -> bool:
    """Whether a batch of the set waits or is worked on."""
    row = conn.execute(
        "SELECT 1 FROM embedding_jobs WHERE set_id = ? AND state IN ('queued', 'leased') LIMIT 1", (set_id,)
    ).fetchone()
    return row is not None


def newest_problem(conn: Connection, set_id: SetId) -> str | None:
    """Why the newest batch that did not succeed is not done."""
    row = conn.execute(
        "SELECT error_code FROM embedding_jobs WHERE set_id = ? AND error_code IS NOT NULL ORDER BY id DESC LIMIT 1",
        (set_id,),
    ).fetchone()
    return None if row is None else str(row[0])
