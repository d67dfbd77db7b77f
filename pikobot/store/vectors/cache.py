"""Blocks kept in memory between scans: what is read once is at hand at the speed of memory.

A block is found only under the revision that the scan's own snapshot gives it, and whatever changes a block gives
it a new one (`layout.block_data`). So nothing is served that was deleted or replaced, nor what a snapshot does not
hold yet, whichever process wrote it. The memory is bounded: blocks that no scan asked for lately make room, and
a block that finds none is read each time. Truncating the WAL drops everything: then no reader of an older
snapshot is left who could bring back what was erased. Without numpy, so that forgetting does not load it.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pikobot.store.vectors.reading import BlockView

MAX_BYTES = 512 << 20  # 1.2 million vectors of 384 dimensions, 0.3 million of 1,536
IDLE_SCANS = 16

Key = tuple[str, int]  # database file and block


@dataclass(slots=True)
class _Kept:
    revision: int
    view: "BlockView"
    scan: int  # the last one that asked for it


class BlockCache:
    """Views of blocks, the ones least recently asked for first. For any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._held_bytes = 0
        self._scan = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        return self._held_bytes

    def begin_scan(self) -> None:
        with self._lock:
            self._scan += 1

    def find(self, key: Key, revision: int) -> "BlockView | None":
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.revision != revision:
                return None
            kept.scan = self._scan
            self._kept.move_to_end(key)
            return kept.view

    def make_room(self, key: Key, size: int) -> bool:
        """Drop another revision of the block, and idle blocks if need be; whether there is room for it now."""
        with self._lock:
            self._drop(key)
            while self._held_bytes + size > self._max_bytes and self._kept:
                oldest = next(iter(self._kept))
                if self._kept[oldest].scan > self._scan - IDLE_SCANS:
                    return False
                self._drop(oldest)
            return self._held_bytes + size <= self._max_bytes

    def keep(self, key: Key, revision: int, view: "BlockView") -> None:
        """Take a view in if the room that was made is still there."""
        with self._lock:
            self._drop(key)
            if self._held_bytes + view.size <= self._max_bytes:
                self._kept[key] = _Kept(revision, view, self._scan)
                self._held_bytes += view.size

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self._held_bytes = 0

    def _drop(self, key: Key) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._held_bytes -= gone.view.size


BLOCKS = BlockCache(MAX_BYTES)
"""Those of this process."""
