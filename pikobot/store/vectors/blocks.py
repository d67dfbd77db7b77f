"""The rows of blocks, and reading and writing their slots as arrays; `layout` describes the bytes."""

import json
from collections.abc import Collection
from typing import Any, NamedTuple, NewType

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.layout import Layout
from pikobot.store.vectors.means import MeanId
from pikobot.store.vectors.owners import OwnerKind
from pikobot.store.vectors.profiles import SetId
from pikobot.store.vectors.quantize import Quantized
from pikobot.store.vectors.records import Int64s

BlockId = NewType("BlockId", int)
Slots = npt.NDArray[np.void]

SLOT = np.dtype([("vector_id", "<i8"), ("owner_id", "<i8"), ("at_ms", "<i8")])


class Block(NamedTuple):
    id: BlockId
    kind: OwnerKind
    scope_id: ScopeId
    mean_id: MeanId | None
    capacity: int
    used: int
    live: int
    revision: int  # of the data: a random number, new with every change


def list_blocks(
    conn: Connection,
    set_id: SetId,
    *,
    kinds: Collection[OwnerKind] | None = None,
    scope_ids: Collection[int] | None = None,
    after: int = 0,
) -> list[Block]:
    """The blocks of a set in the order of their ids, those of some kinds and scopes (None: all).

    Every search asks: conditions that are not there cost nothing, and a few rows are sorted sooner here.
    """
    sql = """
        SELECT id, owner_kind, scope_id, mean_id, capacity, used, live, revision
        FROM vector_blocks WHERE set_id = :set AND id > :after
    """
    if kinds is not None:
        names = ", ".join(f"'{kind}'" for kind in OwnerKind if kind in kinds)
        sql += f" AND owner_kind IN ({names})"
    if scope_ids is not None:
        sql += " AND scope_id IN (SELECT value FROM json_each(:scopes))"
    scopes = json.dumps(list(scope_ids or ()))
    rows = conn.execute(sql, {"set": set_id, "after": after, "scopes": scopes})
    return [Block(row[0], OwnerKind(row[1]), *row[2:]) for row in sorted(rows)]


def allocate_block(
    conn: Connection,
    set_id: SetId,
    layout: Layout,
    *,
    kind: OwnerKind,
    scope_id: ScopeId,
    mean_id: MeanId | None,
) -> Block:
    """A new block, all zero. Caller holds write."""
    conn.execute(
        """
        INSERT INTO vector_blocks (set_id, owner_kind, scope_id, mean_id, capacity) VALUES (?, ?, ?, ?, ?)
        """,
        (set_id, kind, scope_id, mean_id, layout.capacity),
    )
    block_id = BlockId(conn.last_insert_rowid())
    conn.execute(
        "INSERT INTO vector_block_data (block_id, data) VALUES (?, zeroblob(?))", (block_id, layout.total)
    )
    return Block(block_id, kind, scope_id, mean_id, layout.capacity, used=0, live=0, revision=0)


def read_slots(blob: apsw.Blob, used: int) -> Slots:
    """Who is in the first slots."""
    slots = np.empty(used, SLOT)
    blob.seek(0)
    blob.read_into(buffer_of(slots))
    return slots


def buffer_of(array: npt.NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, to read into."""
    return memoryview(array.view(np.uint8).reshape(-1).data)


def numbers_of(slots: Slots) -> Int64s:
    """The same memory as int64 (n, 3)."""
    return slots.view("<i8").reshape(-1, 3)


def write_slots(blob: apsw.Blob, layout: Layout, places: Int64s, slots: Slots, quantized: Quantized) -> None:
    """Fill the slots at those places, ascending."""
    for run in np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) != 1) + 1):
        first, rows = int(places[run[0]]), slice(int(run[0]), int(run[-1]) + 1)
        _write(blob, first * SLOT.itemsize, slots[rows])
        for part, values in enumerate(quantized.bounds):
            _write(blob, layout.bounds_at + 4 * (part * layout.capacity + first), values[rows])
        _write(blob, layout.codes_at + first * layout.dimension, quantized.codes[rows])


def _write(blob: apsw.Blob, offset: int, values: npt.NDArray[np.generic]) -> None:
    blob.seek(offset)
    blob.write(np.ascontiguousarray(values).tobytes())
