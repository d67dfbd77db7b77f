"""Tombstones: the append-only, hash-chained list of what was erased, ids only.

Row n is bound to every row before it: hash(n) = SHA-256(hash(n - 1) || canonical JSON of row n), and hash(0)
is made from the instance's id, so that a row can't be changed, left out or moved to another instance
unnoticed. Positions are 1, 2, 3 … without gaps. An id is erased once; a second tombstone for it is not written.

The same rows stand in erasures.jsonl (`memory.forgetting.ledger`), where an old copy of the database can't undo them.
`unfinished` remembers, in the transaction that erases, that the traces in the file have yet to be removed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection
from pikobot.store.settings import INSTANCE_ID, read_setting, write_setting

Entity = Literal["source", "thread", "fact"]

UNFINISHED = "unfinished_erasure"


@dataclass(frozen=True)
class Tombstone:
    """What is erased, before it has its place in the chain."""

    entity: Entity
    public_id: str
    identity: bytes | None = None


@dataclass(frozen=True)
class Erasure:
    """A row of the chain."""

    position: int
    entity: Entity
    public_id: str
    identity: bytes | None
    erased_at_ms: int
    hash: bytes


@dataclass(frozen=True)
class Tip:
    """The end of a chain: everything up to this position is bound by this hash."""

    position: int
    hash: bytes


def genesis(instance_id: str) -> Tip:
    """The beginning of an instance's chain."""
    return Tip(0, hashlib.sha256(b"pikobot erasures 1\0" + instance_id.encode()).digest())


def chained(tip: Tip, tombstone: Tombstone, *, at_ms: int) -> Erasure:
    """The row that follows ``tip``."""
    position = tip.position + 1
    canonical = json.dumps(
        {
            "at": at_ms,
            "entity": tombstone.entity,
            "id": tombstone.public_id,
            "identity": None if tombstone.identity is None else tombstone.identity.hex(),
            "position": position,
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    digest = hashlib.sha256(tip.hash + canonical.encode()).digest()
    return Erasure(position, tombstone.entity, tombstone.public_id, tombstone.identity, at_ms, digest)


def follows(tip: Tip, erasure: Erasure) -> bool:
    """Whether a row continues the chain from ``tip``."""
    tombstone = Tombstone(erasure.entity, erasure.public_id, erasure.identity)
    return chained(tip, tombstone, at_ms=erasure.erased_at_ms) == erasure


def append(conn: Connection, tombstones: Iterable[Tombstone], *, at_ms: int) -> list[Erasure]:
    """Add tombstones in order; ids that are erased already are left out. Caller holds write."""
    tip, added = read_tip(conn), []
    for tombstone in tombstones:
        if not is_erased(conn, tombstone.public_id):
            erasure = chained(tip, tombstone, at_ms=at_ms)
            _insert(conn, erasure)
            added.append(erasure)
            tip = Tip(erasure.position, erasure.hash)
    return added


def insert_copies(conn: Connection, erasures: Iterable[Erasure]) -> int:
    """Add rows of another copy of this chain as they are. Caller holds write.

    Raises `DamagedData` when they don't continue it.
    """
    tip, count = read_tip(conn), 0
    for erasure in erasures:
        if not follows(tip, erasure):
            raise DamagedData(f"erasure {erasure.position} does not continue the chain of the database")
        _insert(conn, erasure)
        tip, count = Tip(erasure.position, erasure.hash), count + 1
    return count


def read_tip(conn: Connection) -> Tip:
    """The end of the database's chain."""
    row = conn.execute("SELECT position, hash FROM erasures ORDER BY position DESC LIMIT 1").fetchone()
    return Tip(row[0], row[1]) if row is not None else genesis(instance_id(conn))


def read_after(conn: Connection, position: int) -> Iterator[Erasure]:
    """Rows after a position, in order."""
    for row in conn.execute(
        """
        SELECT position, entity, public_id, identity, erased_at_ms, hash FROM erasures
        WHERE position > ? ORDER BY position
        """,
        (position,),
    ):
        yield Erasure(*row)


def is_erased(conn: Connection, public_id: str) -> bool:
    """Whether a tombstone names that public id."""
    return bool(conn.execute("SELECT 1 FROM erasures WHERE public_id = ?", (public_id,)).fetchone())


def identity_is_erased(conn: Connection, identity: bytes) -> bool:
    """Whether a record of that identity was erased; checked in the transaction that would store it again."""
    return bool(conn.execute("SELECT 1 FROM erasures WHERE identity = ? LIMIT 1", (identity,)).fetchone())


def fact_erased_at(conn: Connection, identity: bytes) -> int | None:
    """When a fact that states just this was last erased by its id: what was said before can't teach it again."""
    row = conn.execute(
        "SELECT max(erased_at_ms) FROM erasures WHERE identity = ? AND entity = 'fact'", (identity,)
    ).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def verify_chain(conn: Connection) -> int:
    """Check every row against the one before; returns how many there are. Raises `DamagedData`."""
    tip = genesis(instance_id(conn))
    for erasure in read_after(conn, 0):
        if not follows(tip, erasure):
            raise DamagedData(
                f"the erasure ledger in the database is broken at position {erasure.position}: "
                "restore a backup together with the newest erasures.jsonl (RECOVERY.md)"
            )
        tip = Tip(erasure.position, erasure.hash)
    return tip.position


def instance_id(conn: Connection) -> str:
    """The instance's id. Raises `LookupError` for a database that was not prepared."""
    found = read_setting(conn, INSTANCE_ID)
    if found is None:
        raise LookupError("the database was not prepared")
    return found


def mark_unfinished(conn: Connection) -> None:
    """Note in the erasing transaction that traces have to be removed after it. Caller holds write."""
    write_setting(conn, UNFINISHED, "1")


def is_unfinished(conn: Connection) -> bool:
    return read_setting(conn, UNFINISHED) is not None


def clear_unfinished(conn: Connection) -> None:
    """No trace is left. Caller holds write and no erasure has been committed since it looked."""
    conn.execute("DELETE FROM settings WHERE key = ?", (UNFINISHED,))


def _insert(conn: Connection, erasure: Erasure) -> None:
    conn.execute(
        """
        INSERT INTO erasures (position, entity, public_id, identity, erased_at_ms, hash) VALUES (?, ?, ?, ?, ?, ?)
        """,
        (
            erasure.position,
            erasure.entity,
            erasure.public_id,
            erasure.identity,
            erasure.erased_at_ms,
            erasure.hash,
        ),
    )
