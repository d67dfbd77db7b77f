"""Blocks: the int8 form of the vectors, packed for reading in one go.

The data of a block with room for `capacity` vectors of `dimension` numbers, little-endian:

    slots   capacity x (vector_id i8, owner_id i8, at_ms i8)    who is in the slot; all zero: nobody
    bounds  3 x capacity x f4                                   scale, error, norm (see quantize.py)
    codes   capacity x dimension x i1

A block belongs to one set, kind and scope. The first block of a scope is small, later ones hold about 1.5 MB:
what fits a processor's cache, and takes a fraction of a millisecond. Emptying a slot overwrites all of its
bytes with zeros.
"""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NewType

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.means import MeanId
from pikobot.store.vectors.profiles import SetId
from pikobot.store.vectors.quantize import Quantized
from pikobot.store.vectors.records import Int64s, OwnerKind

BlockId = NewType("BlockId", int)
Slots = npt.NDArray[np.void]

BLOCK_BYTES = 3 << 19
SLOT = np.dtype([("vector_id", "<i8"), ("owner_id", "<i8"), ("at_ms", "<i8")])
BOUNDS_BYTES = 12
MIN_CAPACITY = 64
GROWTH = 8


@dataclass(frozen=True)
class Layout:
    """Where the parts of a block's data are, in bytes."""

    dimension: int
    capacity: int

    @property
    def bounds_at(self) -> int:
        return self.capacity * SLOT.itemsize

    @property
    def codes_at(self) -> int:
        return self.bounds_at + self.capacity * BOUNDS_BYTES

    @property
    def total(self) -> int:
        return self.codes_at + self.capacity * self.dimension


@dataclass(frozen=True)
class Block:
    id: BlockId
    kind: OwnerKind
    scope_id: ScopeId
    mean_id: MeanId | None
    capacity: int
    used: int
    live: int


@lru_cache
def capacities(dimension: int) -> tuple[int, ...]:
    """The sizes that blocks come in, in vectors, smallest first; multiples of `MIN_CAPACITY`."""
    full = max(BLOCK_BYTES // dimension // MIN_CAPACITY, 1) * MIN_CAPACITY
    sizes = [MIN_CAPACITY]
    while sizes[-1] * GROWTH < full:
        sizes.append(sizes[-1] * GROWTH)
    return (*sizes, full) if full > sizes[-1] else tuple(sizes)


def list_blocks(
    conn: Connection,
    set_id: SetId,
    *,
    kinds: Collection[OwnerKind] | None = None,
    scope_ids: Collection[int] | None = None,
    after: int = 0,
) -> list[Block]:
    """The blocks of a set in the order of their ids, those of some kinds and scopes (None: all)."""
    rows = conn.execute(
        """
        SELECT id, owner_kind, scope_id, mean_id, capacity, used, live
        FROM vector_blocks
        WHERE set_id = :set AND id > :after
          AND (:kinds IS NULL OR owner_kind IN (SELECT value FROM json_each(:kinds)))
          AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
        ORDER BY id
        """,
        {"set": set_id, "after": after, "kinds": _json(kinds), "scopes": _json(scope_ids)},
    )
    return [Block(row[0], OwnerKind(row[1]), *row[2:]) for row in rows]


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
    return Block(block_id, kind, scope_id, mean_id, layout.capacity, 0, 0)


@contextmanager
def block_data(conn: Connection, block_id: int, *, for_writing: bool = False) -> Iterator[apsw.Blob]:
    """A handle on a block's data. Hold it briefly: while it is open no checkpoint can truncate the WAL."""
    blob = conn.blob_open("main", "vector_block_data", "data", block_id, for_writing)
    try:
        yield blob
    finally:
        blob.close(True)


def read_slots(blob: apsw.Blob, used: int) -> Slots:
    """Who is in the first slots."""
    slots = np.empty(used, SLOT)
    blob.seek(0)
    blob.read_into(buffer_of(slots))
    return slots


def buffer_of(array: npt.NDArray[Any]) -> memoryview:
    """The bytes of a contiguous array, to read into."""
    return memoryview(array.view(np.uint8).reshape(-1).data)


def write_slots(blob: apsw.Blob, layout: Layout, places: Int64s, slots: Slots, quantized: Quantized) -> None:
    """Fill the slots at those places, ascending."""
    for run in np.split(np.arange(len(places)), np.flatnonzero(np.diff(places) != 1) + 1):
        first, rows = int(places[run[0]]), slice(int(run[0]), int(run[-1]) + 1)
        _write(blob, first * SLOT.itemsize, slots[rows])
        for part, values in enumerate(quantized.bounds):
            _write(blob, layout.bounds_at + 4 * (part * layout.capacity + first), values[rows])
        _write(blob, layout.codes_at + first * layout.dimension, quantized.codes[rows])


def empty_slot(blob: apsw.Blob, layout: Layout, place: int) -> None:
    """Overwrite everything about a slot with zeros."""
    blob.seek(place * SLOT.itemsize)
    blob.write(bytes(SLOT.itemsize))
    for part in range(3):
        blob.seek(layout.bounds_at + 4 * (part * layout.capacity + place))
        blob.write(bytes(4))
    blob.seek(layout.codes_at + place * layout.dimension)
    blob.write(bytes(layout.dimension))


def _write(blob: apsw.Blob, offset: int, values: npt.NDArray[np.generic]) -> None:
    blob.seek(offset)
    blob.write(np.ascontiguousarray(values).tobytes())


def _json(values: Collection[str] | Collection[int] | None) -> str | None:
    return None if values is None else json.dumps(list(values))
