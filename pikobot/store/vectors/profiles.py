"""Vector sets: one for each embedding profile, never mixed.

    building ──▶ serving ──▶ retired ──▶ (dropped, block by block)

A change of profile builds a new set while the old one serves; `serve_set` switches, `drop_set` overwrites what
the old one held. At most one set builds and one serves. The first set of a database serves from the beginning:
a part of the vectors is better than none.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection, MisuseError

SetId = NewType("SetId", int)

MAX_DIMENSION = 16_384


class SetState(StrEnum):
    BUILDING = "building"
    SERVING = "serving"
    RETIRED = "retired"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What makes vectors comparable: who made them, how long they are, and what was put before the text.

    ``prefix_rule`` names the rule and its version; a model that is centred by its embedder says so there.
    """

    provider: str
    model: str
    dimension: int
    prefix_rule: str


@dataclass(frozen=True)
class VectorSet:
    id: SetId
    state: SetState
    profile: Profile


def create_set(conn: Connection, profile: Profile, *, now_ms: int) -> VectorSet:
    """The set of that profile: the one that serves or builds already, else a new one. Caller holds write.

    A set that was being built for another profile is retired.
    """
    if not 1 <= profile.dimension <= MAX_DIMENSION:
        raise InvalidParams(f"embedding.dimension must be from 1 to {MAX_DIMENSION}, not {profile.dimension}")
    serving, building = active_set(conn), building_set(conn)
    for existing in (serving, building):
        if existing is not None and existing.profile == profile:
            return existing
    if building is not None:
        _set_state(conn, building.id, SetState.RETIRED)
    state = SetState.SERVING if serving is None else SetState.BUILDING
    conn.execute(
        """
        INSERT INTO vector_sets (state, provider, model, dimension, prefix_rule, created_at_ms)
        VALUES (?, ?, ?, ?, ?, ?)
        """,
        (state, profile.provider, profile.model, profile.dimension, profile.prefix_rule, now_ms),
    )
    return VectorSet(SetId(conn.last_insert_rowid()), state, profile)


def active_set(conn: Connection) -> VectorSet | None:
    """The set that answers questions."""
    return _first(conn, SetState.SERVING)


def building_set(conn: Connection) -> VectorSet | None:
    """The set that will serve when every owner has its vector in it."""
    return _first(conn, SetState.BUILDING)


def retired_sets(conn: Connection) -> list[VectorSet]:
    """The sets that wait for `drop_set`, oldest first."""
    return _sets(conn, SetState.RETIRED)


def load_set(conn: Connection, set_id: SetId) -> VectorSet:
    row = conn.execute(
        "SELECT id, state, provider, model, dimension, prefix_rule FROM vector_sets WHERE id = ?", (set_id,)
    ).fetchone()
    if row is None:
        raise LookupError(f"vector set {set_id}")
    return _set(row)


def count_vectors(conn: Connection, set_id: SetId) -> int:
    row = conn.execute(
        "SELECT coalesce(sum(live), 0) FROM vector_blocks WHERE set_id = ?", (set_id,)
    ).fetchone()
    return int(row[0]) if row else 0


def has_stale_block(conn: Connection, set_id: SetId) -> bool:
    """Whether `rebuild.refresh_block` has something to do."""
    row = conn.execute(
        """
        SELECT 1 FROM vector_blocks
        WHERE set_id = :set AND mean_id IS NOT (SELECT max(id) FROM vector_means WHERE set_id = :set) LIMIT 1
        """,
        {"set": set_id},
    ).fetchone()
    return row is not None


def serve_set(conn: Connection, set_id: SetId) -> None:
    """Let the built set answer from now on; the one that served is retired. Idempotent. Caller holds write."""
    wanted = load_set(conn, set_id)
    if wanted.state == SetState.RETIRED:
        raise MisuseError(f"vector set {set_id} is retired")
    serving = active_set(conn)
    if serving is not None and serving.id != set_id:
        _set_state(conn, serving.id, SetState.RETIRED)
    _set_state(conn, set_id, SetState.SERVING)


def retire_set(conn: Connection, set_id: SetId) -> None:
    """Give a set up that was being built. Caller holds write."""
    if load_set(conn, set_id).state == SetState.SERVING:
        raise MisuseError(f"vector set {set_id} is serving")
    _set_state(conn, set_id, SetState.RETIRED)


def drop_set(conn: Connection, set_id: SetId, *, max_blocks: int = 8) -> bool:
    """Delete some blocks of a set with their vectors, at last the set; True when it is gone. Caller holds write.

    Bounded, so that each call can be a short transaction of its own. The bytes are overwritten: the connection
    has secure_delete on. The set that serves can't be dropped.
    """
    if load_set(conn, set_id).state == SetState.SERVING:
        raise MisuseError(f"vector set {set_id} is serving")
    rows = conn.execute(
        "SELECT id FROM vector_blocks WHERE set_id = ? ORDER BY id LIMIT ?", (set_id, max_blocks + 1)
    ).fetchall()
    for (block_id,) in rows[:max_blocks]:
        conn.execute("DELETE FROM vectors WHERE block_id = ?", (block_id,))
        conn.execute("DELETE FROM vector_blocks WHERE id = ?", (block_id,))
    if len(rows) > max_blocks:
        return False
    conn.execute("DELETE FROM vector_means WHERE set_id = ?", (set_id,))
    conn.execute("DELETE FROM vector_sets WHERE id = ?", (set_id,))
    return True


def _set_state(conn: Connection, set_id: SetId, state: SetState) -> None:
    conn.execute("UPDATE vector_sets SET state = ? WHERE id = ?", (state, set_id))


def list_sets(conn: Connection) -> list[VectorSet]:
    """All sets, oldest first."""
    return _sets(conn, None)


def _first(conn: Connection, state: SetState) -> VectorSet | None:
    return next(iter(_sets(conn, state)), None)


def _sets(conn: Connection, state: SetState | None) -> list[VectorSet]:
    rows = conn.execute(
        """
        SELECT id, state, provider, model, dimension, prefix_rule FROM vector_sets
        WHERE :state IS NULL OR state = :state ORDER BY id
        """,
        {"state": state},
    )
    return [_set(row) for row in rows]


def _set(row: tuple[int | float | str | bytes | None, ...]) -> VectorSet:
    set_id, state, provider, model, dimension, prefix_rule = row
    profile = Profile(
        provider=str(provider), model=str(model), dimension=int(dimension or 0), prefix_rule=str(prefix_rule)
    )
    return VectorSet(SetId(int(set_id or 0)), SetState(str(state)), profile)
