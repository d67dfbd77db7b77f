"""Make the derived blocks again from the stored vectors, with a mean that holds nothing forgotten.

`rebuild_blocks` does it all in the caller's one transaction (reindex); `refresh_block` moves one block to the
newest mean, for background work in short transactions. Memory is bounded by one batch of vectors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.blocks import SLOT, Slots, list_blocks, write_slots
from pikobot.store.vectors.layout import Layout, block_data
from pikobot.store.vectors.means import delete_unused_means, load_mean, make_mean, newest_mean
from pikobot.store.vectors.owners import OwnerKind
from pikobot.store.vectors.placing import BATCH_BYTES, place_vectors
from pikobot.store.vectors.profiles import SetId, load_set
from pikobot.store.vectors.quantize import quantize
from pikobot.store.vectors.records import Float32s, Int64s

OWNER_TABLES = {OwnerKind.SOURCE: "sources", OwnerKind.FACT: "facts"}
"""Where owners are rows with a scope."""


@dataclass(frozen=True, eq=False)
class Stored:
    """Adjacent vectors of one block, kind and scope, in the order of their slots."""

    kind: OwnerKind
    scope_id: ScopeId
    places: Int64s
    slots: Slots
    units: Float32s


def rebuild_blocks(conn: Connection, set_id: SetId) -> int:
    """Make the mean and all blocks of the set anew, packed; returns how many vectors there are.

    The old blocks and means are deleted and their bytes overwritten. Caller holds write. Also repairs blocks
    that `verify_vectors` found damaged. Raises `DamagedData` when a stored vector itself is.
    """
    vector_set = load_set(conn, set_id)
    old = list_blocks(conn, set_id)
    last_old = old[-1].id if old else 0
    conn.execute("UPDATE vector_blocks SET mean_id = NULL WHERE set_id = ?", (set_id,))
    conn.execute("DELETE FROM vector_means WHERE set_id = ?", (set_id,))
    make_mean(conn, vector_set)
    conn.execute("UPDATE vector_blocks SET live = 0 WHERE set_id = ?", (set_id,))
    placed = 0
    for block in old:
        for stored in stored_vectors(conn, block.id, vector_set.profile.dimension):
            places = place_vectors(
                conn,
                vector_set,
                stored.slots,
                stored.units,
                kind=stored.kind,
                scope_id=stored.scope_id,
                after=last_old,
            )
            ids = stored.slots["vector_id"].tolist()
            conn.executemany(
                "UPDATE vectors SET block_id = ?, slot = ? WHERE id = ?",
                [(*place, vector_id) for place, vector_id in zip(places, ids, strict=True)],
            )
            placed += len(places)
        conn.execute("DELETE FROM vector_blocks WHERE id = ?", (block.id,))
    return placed


def drop_strays(conn: Connection, set_id: SetId) -> int:
    """Delete the vectors of sources and facts that do not exist, or are in another scope; returns how many.

    Caller holds write, and makes the blocks again in the same transaction: their slots are left as they are.
    """
    dropped = 0
    for kind, table in OWNER_TABLES.items():
        conn.execute(
            f"""
            DELETE FROM vectors WHERE set_id = :set AND owner_kind = '{kind}' AND NOT EXISTS (
                SELECT 1 FROM {table} AS o WHERE o.id = vectors.owner_id AND o.scope_id = vectors.scope_id
            )
            """,
            {"set": set_id},
        )
        dropped += conn.changes()
    return dropped


def refresh_block(conn: Connection, set_id: SetId) -> bool:
    """Quantise one block again with the newest mean; False when all of them have it. Caller holds write."""
    mean_id = newest_mean(conn, set_id)
    block = next((block for block in list_blocks(conn, set_id) if block.mean_id != mean_id), None)
    if block is None:
        delete_unused_means(conn, set_id)
        return False
    dimension = load_set(conn, set_id).profile.dimension
    mean = load_mean(conn, mean_id, dimension)
    conn.execute("UPDATE vector_blocks SET mean_id = ? WHERE id = ?", (mean_id, block.id))
    for stored in stored_vectors(conn, block.id, dimension):
        with block_data(conn, block.id, for_writing=True) as blob:
            layout = Layout(dimension, block.capacity)
            write_slots(blob, layout, stored.places, stored.slots, quantize(stored.units, mean))
    return True


def stored_vectors(conn: Connection, block_id: int, dimension: int) -> Iterator[Stored]:
    """Yield what the rows say about a block's vectors, in the order of their slots, in bounded batches."""
    rows = conn.execute(
        """
        SELECT v.owner_kind, v.scope_id, v.slot, v.id, v.owner_id, v.at_ms, d.unit
        FROM vectors AS v LEFT JOIN vector_values AS d ON d.vector_id = v.id
        WHERE v.block_id = ? ORDER BY v.slot
        """,
        (block_id,),
    )
    size = max(BATCH_BYTES // (4 * dimension), 1)
    for (kind, scope_id), group in groupby(rows, key=lambda row: (row[0], row[1])):
        while batch := list(islice(group, size)):
            if any(row[6] is None or len(row[6]) != 4 * dimension for row in batch):
                raise DamagedData(f"a vector in block {block_id} is damaged; remove its set and embed again")
            yield Stored(
                OwnerKind(kind),
                scope_id,
                np.array([row[2] for row in batch], np.int64),
                np.array([row[3:6] for row in batch], SLOT),
                np.frombuffer(b"".join(row[6] for row in batch), "<f4").reshape(-1, dimension),
            )
