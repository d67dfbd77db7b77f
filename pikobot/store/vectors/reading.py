"""Read blocks for a scan, one after the other, into one buffer."""

import apsw
import numpy as np

from pikobot.store.vectors.blocks import Block, buffer_of
from pikobot.store.vectors.layout import Layout


class BlockReader:
    """One buffer that the blocks of a scan are read into, one after the other."""

    def __init__(self, dimension: int, max_capacity: int) -> None:
        self._dimension = dimension
        layout = Layout(dimension, max_capacity)
        self._buffer = np.empty(layout.total - layout.bounds_at, np.uint8)
        self._dots = np.empty((1, max_capacity), np.float32)
        self._shape = (0, 0)

    def read(self, blob: apsw.Blob, block: Block) -> None:
        """Read bounds and codes of the slots in use, which the other attributes then show."""
        if self._shape != (block.capacity, block.used):
            self._show(block)
        blob.seek(self._layout.bounds_at)
        blob.read_into(self._part)

    def _show(self, block: Block) -> None:
        self._shape = (block.capacity, block.used)
        self._layout = Layout(self._dimension, block.capacity)
        codes_at = self._layout.codes_at - self._layout.bounds_at
        end = codes_at + block.used * self._dimension
        self._part = buffer_of(self._buffer[:end])
        self.bounds = self._buffer[:codes_at].view("<f4").reshape(3, block.capacity)[:, : block.used]
        self.scale, self.error, self.norm = self.bounds
        self.codes = self._buffer[codes_at:end].view(np.int8).reshape(block.used, self._dimension)
        self.dots = self._dots[:, : block.used]
