"""Put vectors into a set: the row of each and its slot, in the caller's transaction.

A vector lies in a block of its own set, kind and scope. A free slot is used again before a block grows, and
blocks grow before new ones are made.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from pikobot.store.connection import Connection, MisuseError
from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.blocks import (
    SLOT,
    Block,
    Slots,
    allocate_block,
    list_blocks,
    read_slots,
    write_slots,
)
from pikobot.store.vectors.layout import Layout, block_data, capacities
from pikobot.store.vectors.means import current_mean, load_mean
from pikobot.store.vectors.owners import OwnerKind
from pikobot.store.vectors.profiles import SetId, VectorSet, load_set
from pikobot.store.vectors.quantize import checked_vector, normalized, quantize
from pikobot.store.vectors.records import Float32s, Int64s, NewVector
from pikobot.store.vectors.removal import delete_vectors

BATCH_BYTES = 4 << 20  # of float32 that are quantised at a time


def put_vector(conn: Connection, set_id: SetId, new: NewVector) -> None:
    """Store a vector, replacing the owner's former one in this set. Caller holds write. See `put_vectors`."""
    put_vectors(conn, set_id, [new])


def put_vectors(conn: Connection, set_id: SetId, new: Sequence[NewVector]) -> None:
    """Store vectors, replacing their owners' former ones in this set; of one owner the last counts.

    Caller holds write. Raises `InvalidParams`, before anything is written, when one of them has another
    dimension, is not finite or has no direction.
    """
    vector_set = load_set(conn, set_id)
    dimension = vector_set.profile.dimension
    if any(item.owner.id < 1 for item in new):
        raise MisuseError("the owner of a vector has an id below 1")
    wanted = {item.owner: (item, checked_vector(item.values, dimension)) for item in new}
    delete_vectors(conn, set_id, wanted)
    groups = defaultdict(list)
    for item, vector in wanted.values():
        groups[item.owner.kind, item.scope_id].append((item, vector))
    for (kind, scope_id), members in groups.items():
        for part in _batches(members, dimension):
            slots = np.array([(0, item.owner.id, item.at_ms) for item, _ in part], SLOT)
            _insert(conn, vector_set, kind, scope_id, slots, normalized(np.stack([v for _, v in part])))


def place_vectors(
    conn: Connection,
    vector_set: VectorSet,
    slots: Slots,
    units: Float32s,
    *,
    kind: OwnerKind,
    scope_id: ScopeId,
    after: int = 0,
) -> list[tuple[int, int]]:
    """Write stored vectors into free slots of blocks with an id above ``after``; returns (block, slot) of each.

    Caller holds write and records the places in `vectors`.
    """
    places: list[tuple[int, int]] = []
    for block, free in _free_slots(conn, vector_set, kind, scope_id, len(slots), after):
        part = slice(len(places), len(places) + len(free))
        mean = load_mean(conn, block.mean_id, vector_set.profile.dimension)
        with block_data(conn, block.id, for_writing=True) as blob:
            layout = Layout(vector_set.profile.dimension, block.capacity)
            write_slots(blob, layout, free, slots[part], quantize(units[part], mean))
        conn.execute(
            "UPDATE vector_blocks SET live = live + ?, used = max(used, ?) WHERE id = ?",
            (len(free), int(free[-1]) + 1, block.id),
        )
        places += [(block.id, int(slot)) for slot in free]
    return places


def _insert(
    conn: Connection, vector_set: VectorSet, kind: OwnerKind, scope_id: ScopeId, slots: Slots, units: Float32s
) -> None:
    row = conn.execute("SELECT coalesce(max(id), 0) FROM vectors").fetchone()
    slots["vector_id"] = np.arange(len(slots)) + (int(row[0]) if row else 0) + 1
    places = place_vectors(conn, vector_set, slots, units, kind=kind, scope_id=scope_id)
    conn.executemany(
        """
        INSERT INTO vectors (id, set_id, owner_kind, owner_id, scope_id, at_ms, block_id, slot)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?)
        """,
        [
            (vector_id, vector_set.id, kind, owner_id, scope_id, at_ms, block_id, slot)
            for (vector_id, owner_id, at_ms), (block_id, slot) in zip(slots.tolist(), places, strict=True)
        ],
    )
    conn.executemany(
        "INSERT INTO vector_values (vector_id, unit) VALUES (?, ?)",
        [
            (vector_id, unit.astype("<f4").tobytes())
            for vector_id, unit in zip(slots["vector_id"].tolist(), units, strict=True)
        ],
    )


def _free_slots(
    conn: Connection, vector_set: VectorSet, kind: OwnerKind, scope_id: ScopeId, count: int, after: int
) -> Iterator[tuple[Block, Int64s]]:
    """Yield blocks and their free slots, ascending, until there are as many as asked for."""
    blocks = list_blocks(conn, vector_set.id, kinds=[kind], scope_ids=[scope_id], after=after)
    room = sum(block.capacity for block in blocks)
    for block in blocks:
        if count and block.live < block.capacity:
            free = _free_slots_of(conn, block)[:count]
            count -= len(free)
            yield block, free
    sizes = capacities(vector_set.profile.dimension)
    while count:
        wanted = max(room, count, 1)
        capacity = next((size for size in sizes if size >= wanted), sizes[-1])
        block = allocate_block(
            conn,
            vector_set.id,
            Layout(vector_set.profile.dimension, capacity),
            kind=kind,
            scope_id=scope_id,
            mean_id=current_mean(conn, vector_set),
        )
        room += capacity
        free = np.arange(min(count, capacity))
        count -= len(free)
        yield block, free


def _free_slots_of(conn: Connection, block: Block) -> Int64s:
    unused = np.arange(block.used, block.capacity)
    if block.live == block.used:
        return unused
    with block_data(conn, block.id) as blob:
        emptied = np.flatnonzero(read_slots(blob, block.used)["vector_id"] == 0)
    return np.concatenate([emptied, unused])


def _batches(
    members: Sequence[tuple[NewVector, Float32s]], dimension: int
) -> Iterator[Sequence[tuple[NewVector, Float32s]]]:
    size = max(BATCH_BYTES // (4 * dimension), 1)
    for begin in range(0, len(members), size):
        yield members[begin : begin + size]
