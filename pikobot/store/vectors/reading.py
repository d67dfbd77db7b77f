"""Blocks as arrays for a scan: those in the cache, and those fetched from the database.

What is fetched goes into memory that the cache keeps, or, where it has no room, into one buffer after the other.
"""

from typing import Any, Self

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.store.connection import Connection
from pikobot.store.vectors.blocks import SLOT, Block, Slots, buffer_of, numbers_of
from pikobot.store.vectors.cache import BLOCKS, Key
from pikobot.store.vectors.layout import BOUNDS, Layout, open_block_data

UInt8s = npt.NDArray[np.uint8]


class BlockView:
    """What is in the slots in use of a block, seen in its bytes. Nobody changes them while they are seen."""

    def __init__(self, data: UInt8s, layout: Layout, used: int) -> None:
        self.size = data.nbytes
        self.slots: Slots = data[: layout.bounds_at].view(SLOT)[:used]
        self.numbers = numbers_of(self.slots)
        bounds = data[layout.bounds_at : layout.codes_at].view("<f4")
        self.bounds = bounds.reshape(BOUNDS, layout.capacity)[:, :used]
        self.scale, self.error, self.norm = self.bounds
        codes = data[layout.codes_at : layout.codes_at + used * layout.dimension]
        self.codes = codes.view(np.int8).reshape(used, layout.dimension)
        self.most_error, self.most_norm = self.error.max(), self.norm.max()
        self.has_gaps = not self.scale.all()


class BlockReader:
    """Reads the blocks of a connection's snapshot, one after the other; a view is good until the next is read.

    Leave the context soon: a handle on the database is open in it once a block was fetched, and no checkpoint can
    truncate the WAL until it is closed.
    """

    def __init__(self, conn: Connection, dimension: int) -> None:
        self._conn = conn
        self._file = conn.filename
        self._dimension = dimension
        self._buffer: UInt8s = np.empty(0, np.uint8)
        self._blob: apsw.Blob | None = None

    def __enter__(self) -> Self:
        BLOCKS.begin_scan()
        return self

    def __exit__(self, *_: object) -> None:
        if self._blob is not None:
            self._blob.close(True)

    def cached(self, block: Block) -> BlockView | None:
        return BLOCKS.find(self._key(block), block.revision)

    def slots(self, block: Block) -> Slots:
        """Who is in the slots in use, without reading the rest."""
        slots = np.empty(block.used, SLOT)
        self._fetch(block, slots)
        return slots

    def read(self, block: Block) -> BlockView:
        """Read a block that is not cached."""
        layout = Layout(self._dimension, block.capacity)
        size = layout.codes_at + block.used * self._dimension
        is_kept = BLOCKS.make_room(self._key(block), size)
        if not is_kept and len(self._buffer) < size:
            self._buffer = np.empty(layout.total, np.uint8)
        data = np.empty(size, np.uint8) if is_kept else self._buffer[:size]
        self._fetch(block, data)
        view = BlockView(data, layout, block.used)
        if is_kept:
            BLOCKS.keep(self._key(block), block.revision, view)
        return view

    def _key(self, block: Block) -> Key:
        return self._file, block.id

    def _fetch(self, block: Block, into: npt.NDArray[Any]) -> None:
        """The beginning of a block's data."""
        if self._blob is None:
            self._blob = open_block_data(self._conn, block.id)
        else:
            self._blob.reopen(block.id)
        self._blob.read_into(buffer_of(into))
