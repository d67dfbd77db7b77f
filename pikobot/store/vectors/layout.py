"""Blocks: the int8 form of the vectors, packed for reading in one go.

The data of a block with room for `capacity` vectors of `dimension` numbers, little-endian:

    slots   capacity x (vector_id i8, owner_id i8, at_ms i8)    who is in the slot; all zero: nobody
    bounds  3 x capacity x f4                                   scale, error, norm (see quantize.py)
    codes   capacity x dimension x i1

A block belongs to one set, kind and scope. The first blocks of a scope are small, later ones hold about 4 MB: a
fraction of a millisecond to a scan, which larger ones would save little, while each costs a write more of the
chain of its pages. Emptying a slot overwrites all of its bytes with zeros.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import apsw

from pikobot.store.connection import Connection

BLOCK_BYTES = 4 << 20
SLOT_BYTES = 24
BOUNDS = 3
BOUNDS_BYTES = 4 * BOUNDS
MIN_CAPACITY = 64
GROWTH = 8


@dataclass(frozen=True)
class Layout:
    """Where the parts of a block's data are, in bytes."""

    dimension: int
    capacity: int

    @property
    def bounds_at(self) -> int:
        return self.capacity * SLOT_BYTES

    @property
    def codes_at(self) -> int:
        return self.bounds_at + self.capacity * BOUNDS_BYTES

    @property
    def total(self) -> int:
        return self.codes_at + self.capacity * self.dimension


@lru_cache
def capacities(dimension: int) -> tuple[int, ...]:
    """The sizes that blocks come in, in vectors, smallest first; multiples of `MIN_CAPACITY`."""
    full = max(BLOCK_BYTES // dimension // MIN_CAPACITY, 1) * MIN_CAPACITY
    sizes = [MIN_CAPACITY]
    while sizes[-1] * GROWTH < full:
        sizes.append(sizes[-1] * GROWTH)
    return (*sizes, full) if full > sizes[-1] else tuple(sizes)


@contextmanager
def block_data(conn: Connection, block_id: int, *, for_writing: bool = False) -> Iterator[apsw.Blob]:
    """A handle on a block's data. Hold it briefly: while it is open no checkpoint can truncate the WAL.

    Writing gives the block a new revision, by which readers know that what they kept of it is out of date.
    """
    if for_writing:
        conn.execute("UPDATE vector_blocks SET revision = random() WHERE id = ?", (block_id,))
    blob = open_block_data(conn, block_id, for_writing=for_writing)
    try:
        yield blob
    finally:
        blob.close(True)


def open_block_data(conn: Connection, block_id: int, *, for_writing: bool = False) -> apsw.Blob:
    return conn.blob_open("main", "vector_block_data", "data", block_id, for_writing)


def empty_slot(blob: apsw.Blob, layout: Layout, place: int) -> None:
    """Overwrite everything about a slot with zeros."""
    blob.seek(place * SLOT_BYTES)
    blob.write(bytes(SLOT_BYTES))
    for part in range(BOUNDS):
        blob.seek(layout.bounds_at + 4 * (part * layout.capacity + place))
        blob.write(bytes(4))
    blob.seek(layout.codes_at + place * layout.dimension)
    blob.write(bytes(layout.dimension))
