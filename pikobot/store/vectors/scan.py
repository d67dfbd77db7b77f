"""The exact scan: int8 blocks first, float32 rows of what they cannot rule out, float64 scores.

    eligible blocks ─▶ slot filter ─▶ int8 products ─▶ intervals ─▶ survivors ─▶ exact scores ─▶ the k best

The result is the k best of a full comparison in float64 (`quantize.cosines`), ties by kind and id of the
owner: an interval is dropped only when it proves that the vector is not among them. Memory is bounded by what
`cache` keeps of blocks, one more block and the survivors; between blocks the caller may stop the scan.

A block that is kept in memory needs no connection. A second thread looks at such blocks from the beginning, while
the caller does something else with the connection or looks at the others; whoever is free takes the next one. The
caller never waits for it: where the cores are busy, a block that it has not finished is looked at again.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection
from pikobot.store.vectors.blocks import Block, list_blocks
from pikobot.store.vectors.eligibility import EVERYTHING, Eligibility, SlotFilter
from pikobot.store.vectors.first_pass import Looker
from pikobot.store.vectors.means import load_mean
from pikobot.store.vectors.profiles import SetId, load_set
from pikobot.store.vectors.quantize import QuantizedQuery, checked_vector
from pikobot.store.vectors.reading import BlockReader, BlockView
from pikobot.store.vectors.records import VectorHit
from pikobot.store.vectors.rescoring import best_hits
from pikobot.store.vectors.survivors import Survivors

MAX_K = 10_000
# A block with fewer eligible slots than one in so many is not read: the rows themselves are cheaper.
SPARSE = 128
# Slots that wait to be measured together: fewer calls, and a floor that is not much out of date.
MEASURED_AT = 64
# With fewer blocks in memory a second thread costs more than it gives: it has to be woken, and reads the same memory.
WORTH_HELP = 16
WORTH_HELP_MEANWHILE = 4  # where the caller does something else before it finishes
# Steps of SQLite's virtual machine between two questions whether to stop: about a millisecond.
STATEMENT_STEPS = 20_000

# One for all scans: a second core is all that there may be. A scan that finds it busy does without.
_HELPER = ThreadPoolExecutor(1, thread_name_prefix="pikobot-scan")


def never_stop() -> bool:
    return False


def scan(
    conn: Connection,
    set_id: SetId,
    query: npt.ArrayLike,
    *,
    k: int,
    eligibility: Eligibility = EVERYTHING,
    should_stop: Callable[[], bool] = never_stop,
) -> list[VectorHit] | None:
    """Return the k eligible vectors of the set most similar to the query, best first; None when stopped.

    For a thread with its own read connection. See `Scan`.
    """
    begun = Scan(
        conn,
        set_id,
        query,
        k=k,
        eligibility=eligibility,
        should_stop=should_stop,
        worth_help=WORTH_HELP,
    )
    return begun.finish()


class Scan:
    """A scan that has begun; `finish` it in the same snapshot, on the same thread.

    ``should_stop`` is asked before every block and every batch of rows, at least each 2 ms on ordinary machines, by
    two threads; it must not block. Raises `InvalidParams` for a query of another dimension or without a direction,
    and for a k outside 1 … 10,000.
    """

    def __init__(
        self,
        conn: Connection,
        set_id: SetId,
        query: npt.ArrayLike,
        *,
        k: int,
        eligibility: Eligibility = EVERYTHING,
        should_stop: Callable[[], bool] = never_stop,
        worth_help: int = WORTH_HELP_MEANWHILE,
    ) -> None:
        if not 1 <= k <= MAX_K:
            raise InvalidParams(f"k must be from 1 to {MAX_K}, not {k}")
        dimension = load_set(conn, set_id).profile.dimension
        self._conn = conn
        self._vector = checked_vector(query, dimension)
        self._query = QuantizedQuery(self._vector)
        self._survivors = Survivors(k)
        self._should_stop = should_stop
        self._is_stopped = False
        self._reader = BlockReader(conn, dimension)
        self._blocks: list[Block] = []
        self._others: list[Block] = []
        self._kept: deque[tuple[Block, BlockView]] = deque()
        self._lock = threading.Lock()  # of the following, of what is kept, and of the survivors
        self._in_hand: tuple[Block, BlockView] | None = None
        self._is_closed = False
        try:
            with _interruptible(conn, should_stop):
                self._begin(set_id, eligibility)
            if len(self._kept) >= worth_help:
                _HELPER.submit(self._help)
        except apsw.InterruptError:
            self._is_stopped = True

    def finish(self) -> list[VectorHit] | None:
        """The k best, best first; None when stopped."""
        try:
            with _interruptible(self._conn, self._should_stop):
                self._look_at_all()
                if self._is_stopped:
                    return None
                return best_hits(self._conn, self._vector, self._survivors, self._blocks, self._should_stop)
        except apsw.InterruptError:
            self._is_stopped = True
            return None

    def _begin(self, set_id: SetId, eligibility: Eligibility) -> None:
        found = list_blocks(self._conn, set_id, kinds=eligibility.kinds, scope_ids=eligibility.scope_ids)
        self._blocks = [block for block in found if block.live]
        self._filter = SlotFilter(self._conn, eligibility)
        self._offsets = {
            mean_id: self._query.dot(load_mean(self._conn, mean_id, len(self._vector)))
            for mean_id in {block.mean_id for block in self._blocks}
        }
        for block in self._blocks:
            view = self._reader.cached(block)
            if view is None:
                self._others.append(block)
            else:
                self._kept.append((block, view))

    def _look_at_all(self) -> None:
        """Look at what has to be read, then at what the second thread has not taken, at last at what it has in hand."""
        looker = self._looker()
        with self._reader:
            for block in self._others:
                if self._stops():
                    return
                self._look_at(looker, block, None)
                self._settle(looker, MEASURED_AT)
        while (kept := self._take()) is not None and not self._stops():
            self._look_at(looker, *kept)
            self._settle(looker, MEASURED_AT)
        self._settle(looker)

    def _help(self) -> None:
        """The second thread's part. It may be put to sleep at any time, so nobody waits for it."""
        looker = self._looker()
        while not self._stops():
            with self._lock:
                if self._is_closed or not self._kept:
                    return
                self._in_hand = in_hand = self._kept.popleft()
            self._look_at(looker, *in_hand)
            found = looker.measured()
            with self._lock:
                if self._is_closed:
                    return
                self._survivors.add(*found)
                self._in_hand = None

    def _take(self) -> tuple[Block, BlockView] | None:
        """The next block for the first thread; at the end the one that the second thread is not done with."""
        with self._lock:
            if self._kept:
                return self._kept.popleft()
            self._is_closed = True
            in_hand, self._in_hand = self._in_hand, None
            return in_hand

    def _settle(self, looker: Looker, at_least: int = 1) -> None:
        if looker.waiting >= at_least:
            found = looker.measured()
            with self._lock:
                self._survivors.add(*found)

    def _stops(self) -> bool:
        self._is_stopped = self._is_stopped or self._should_stop()
        return self._is_stopped

    def _looker(self) -> Looker:
        return Looker(self._query, self._survivors, max((block.used for block in self._blocks), default=0))

    def _look_at(self, looker: Looker, block: Block, view: BlockView | None) -> None:
        mask = None
        if self._filter.restricts(block.kind):
            slots = self._reader.slots(block) if view is None else view.slots
            mask = self._filter.eligible(block.kind, slots)
            eligible = np.flatnonzero(mask)
            if len(eligible) * SPARSE < block.used:
                looker.pass_over(block.id, eligible)
                return
        if view is None:
            view = self._reader.read(block)
        looker.look_at(block.id, view, self._offsets[block.mean_id], mask)


@contextmanager
def _interruptible(conn: Connection, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Ask during long statements too: a list of a million owners takes its time."""
    conn.set_progress_handler(should_stop, STATEMENT_STEPS, id=_interruptible)
    try:
        yield
    finally:
        conn.set_progress_handler(None, id=_interruptible)
