"""The exact scan: int8 blocks first, float32 rows of what they cannot rule out, float64 scores.

    eligible blocks ─▶ slot filter ─▶ int8 products ─▶ candidates ─▶ survivors ─▶ exact scores ─▶ the k best

The result is the k best of a full comparison in float64 (`quantize.cosines`), ties by kind and id of the
owner: an interval is dropped only when it proves that the vector is not among them. Memory is bounded by what
`cache` keeps of blocks, one more block and the survivors; between blocks the caller may stop the scan.

A block that is kept in memory needs no connection. A second thread looks at such blocks from the beginning, while
the caller does something else with the connection or looks at the others; whoever is free takes the next one. While
both are there the second one makes products only, which need no interpreter. The caller never waits for it: where
the cores are busy, a block that it has not finished is looked at again.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection
from pikobot.store.vectors.blocks import Block, list_blocks, numbers_of
from pikobot.store.vectors.eligibility import EVERYTHING, Eligibility, SlotFilter
from pikobot.store.vectors.first_pass import Candidates, FirstPass, Products, measured, unknown
from pikobot.store.vectors.means import load_mean
from pikobot.store.vectors.owners import Owner
from pikobot.store.vectors.profiles import SetId, load_set
from pikobot.store.vectors.quantize import QuantizedQuery, checked_vector
from pikobot.store.vectors.reading import BlockReader, BlockView
from pikobot.store.vectors.records import VectorHit
from pikobot.store.vectors.rescoring import Best, find_best
from pikobot.store.vectors.survivors import KINDS, Intervals, Survivors

MAX_K = 10_000
# A block out of memory is not read for fewer eligible slots than one in so many: the rows themselves are cheaper.
SPARSE = 128
# Bytes of candidates' codes that wait to be measured together; what they have at least counts at once.
MEASURED_AT = 1 << 20
# With fewer blocks in memory a second thread costs more than it gives: it has to be woken, and reads the same memory.
WORTH_HELP = 8
WORTH_HELP_MEANWHILE = 4  # where the caller does something else before it finishes
# Steps of SQLite's virtual machine between two questions whether to stop: about a millisecond.
STATEMENT_STEPS = 20_000


def _stand_back() -> None:
    """Help with cores that nobody uses: where there is none, waking up must not push the first thread aside."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


# One for all scans: a second core is all that there may be. A scan that finds it busy does without.
_HELPER = ThreadPoolExecutor(1, thread_name_prefix="pikobot-scan", initializer=_stand_back)


_Task = tuple[Block, BlockView, Products | None]
_Found = Products | Candidates | Intervals | None


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
        self._first_pass = FirstPass(self._query, self._survivors)
        self._should_stop = should_stop
        self._is_stopped = False
        self._reader = BlockReader(conn, dimension)
        self._blocks: list[Block] = []
        self._others: list[Block] = []
        self._kept: deque[tuple[Block, BlockView]] = deque()
        self._ready: deque[_Task] = deque()
        self._lock = threading.Lock()  # of what is kept and ready, of the survivors, and of the following
        self._in_hand: tuple[Block, BlockView] | None = None
        self._waiting: list[Candidates] = []
        self._waiting_bytes = 0
        self._is_finishing = False
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
        best = self._finish()
        if best is None:
            return None
        found = zip(best.vectors.tolist(), best.scores.tolist(), strict=True)
        return [VectorHit(Owner(KINDS[kind], owner_id), score) for (_, owner_id, kind), score in found]

    def finish_ids(self) -> list[tuple[int, float]] | None:
        """The same as ids of owners with their scores, for a scan of one kind."""
        best = self._finish()
        if best is None:
            return None
        return list(zip(best.vectors[:, 1].tolist(), best.scores.tolist(), strict=True))

    def _finish(self) -> Best | None:
        try:
            with _interruptible(self._conn, self._should_stop):
                self._look_at_all()
                if self._is_stopped:
                    return None
                return find_best(self._conn, self._vector, self._survivors, self._should_stop)
        except apsw.InterruptError:
            self._is_stopped = True
            return None

    def _begin(self, set_id: SetId, eligibility: Eligibility) -> None:
        found = list_blocks(self._conn, set_id, kinds=eligibility.kinds, scope_ids=eligibility.scope_ids)
        # The largest first: they say most about how good the k best are, and the last ones are soon done.
        self._blocks = sorted((block for block in found if block.live), key=lambda block: -block.used)
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
        """Look at what has to be read, then at the rest, at last at what the second thread has not finished."""
        self._is_finishing = True
        with self._reader:
            for block in self._others:
                if self._stops():
                    return
                self._look_at(block, None)
        while (task := self._next()) is not None:
            if self._stops():
                return
            self._look_at(*task)
        self._measure()  # meanwhile the second thread may be done
        for task in self._close():
            if self._stops():
                return
            self._look_at(*task)
        self._measure()

    def _close(self) -> list[_Task]:
        """What is left to do; nothing is taken from the second thread from here on."""
        with self._lock:
            self._is_closed = True
            in_hand: list[_Task] = [] if self._in_hand is None else [(*self._in_hand, None)]
            return [*self._ready, *in_hand]

    def _next(self) -> _Task | None:
        with self._lock:
            if self._ready:
                return self._ready.popleft()
            return (*self._kept.popleft(), None) if self._kept else None

    def _look_at(self, block: Block, view: BlockView | None, products: Products | None = None) -> None:
        found: _Found = products or self._products(block, view)
        if isinstance(found, Products):
            found = self._candidates(block, found)
        with self._lock:
            self._take_in(found)
        if self._waiting_bytes > MEASURED_AT:
            self._measure()

    def _help(self) -> None:
        """The second thread's part. It may be put to sleep at any time, so nobody waits for it.

        All products come first, and the first thread does the rest as soon as it is there: two threads that need
        the interpreter for much of their time are slower than one.
        """
        while not self._stops() and (task := self._next_to_help()) is not None:
            block, view, products = task
            found: _Found = (
                self._products(block, view) if products is None else self._candidates(block, products)
            )
            with self._lock:
                if self._is_closed:
                    return
                self._in_hand = None
                if isinstance(found, Products):
                    self._ready.append((block, view, found))
                else:
                    self._take_in(found)

    def _next_to_help(self) -> _Task | None:
        with self._lock:
            task: _Task | None = None
            if self._kept and not self._is_closed:
                task = (*self._kept.popleft(), None)
            elif self._ready and not self._is_finishing and self._waiting_bytes <= MEASURED_AT:
                task = self._ready.popleft()
            self._in_hand = None if task is None else task[:2]
            return task

    def _take_in(self, found: _Found) -> None:
        """Caller holds the lock."""
        if isinstance(found, Candidates):
            self._survivors.expect(found.lower)
            self._waiting.append(found)
            self._waiting_bytes += found.codes.nbytes
        elif isinstance(found, Intervals):
            self._survivors.add(found)

    def _measure(self) -> None:
        with self._lock:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            found = measured(self._query, waiting)
            with self._lock:
                self._survivors.add(found)

    def _stops(self) -> bool:
        self._is_stopped = self._is_stopped or self._should_stop()
        return self._is_stopped

    def _products(self, block: Block, view: BlockView | None) -> Products | Intervals:
        mask = None
        if self._filter.restricts(block.kind):
            slots = self._reader.slots(block) if view is None else view.slots
            has_gaps = view is None or view.has_gaps
            mask = self._filter.eligible(block.kind, slots, has_gaps=has_gaps)
            if view is None and np.count_nonzero(mask) * SPARSE < block.used:
                return unknown(numbers_of(slots)[mask], KINDS.index(block.kind))
        return self._first_pass.products(self._reader.read(block) if view is None else view, mask)

    def _candidates(self, block: Block, products: Products) -> Candidates | None:
        return self._first_pass.candidates(products, KINDS.index(block.kind), self._offsets[block.mean_id])


@contextmanager
def _interruptible(conn: Connection, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Ask during long statements too: a list of a million owners takes its time."""
    conn.set_progress_handler(should_stop, STATEMENT_STEPS, id=_interruptible)
    try:
        yield
    finally:
        conn.set_progress_handler(None, id=_interruptible)
