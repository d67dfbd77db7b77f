"""The exact scan: int8 blocks first, float32 rows of what they cannot rule out, float64 scores.

    eligible blocks ─▶ slot filter ─▶ int8 products ─▶ intervals ─▶ survivors ─▶ exact scores ─▶ the k best

The result is the k best of a full comparison in float64 (`quantize.cosines`), ties by kind and id of the
owner: an interval is dropped only when it proves that the vector is not among them. Memory is bounded by what
`cache` keeps of blocks, one more block and the survivors; between blocks the caller may stop the scan.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection
from pikobot.store.vectors.blocks import Block, list_blocks
from pikobot.store.vectors.eligibility import EVERYTHING, Eligibility, SlotFilter
from pikobot.store.vectors.kernel import choose_kernel
from pikobot.store.vectors.means import load_mean
from pikobot.store.vectors.profiles import SetId, load_set
from pikobot.store.vectors.quantize import QuantizedQuery, checked_vector
from pikobot.store.vectors.reading import BlockReader, BlockView
from pikobot.store.vectors.records import Bools, Float32s, Float64s, Int8s, Int64s, VectorHit
from pikobot.store.vectors.rescoring import best_hits
from pikobot.store.vectors.survivors import SLOT_BITS, Survivors, k_highest

MAX_K = 10_000
# Covers the float32 rounding of products and bounds: a few operations on numbers that stay below five.
FILTER_MARGIN = 4e-6
# A block with fewer eligible slots than one in so many is not read: the rows themselves are cheaper.
SPARSE = 128
# So many vectors of a block are narrowed down by their own k best before they are refined.
MANY = 64
# Slots that wait to be measured together: fewer calls, and a floor that is not much out of date.
MEASURED_AT = 64
# Steps of SQLite's virtual machine between two questions whether to stop: about a millisecond.
STATEMENT_STEPS = 20_000


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

    For a thread with its own read connection. ``should_stop`` is asked before every block and every batch of
    rows, at least each 2 ms on ordinary machines, and must not block. Raises `InvalidParams` for a query of
    another dimension or without a direction, and for a k outside 1 … 10,000.
    """
    if not 1 <= k <= MAX_K:
        raise InvalidParams(f"k must be from 1 to {MAX_K}, not {k}")
    dimension = load_set(conn, set_id).profile.dimension
    vector = checked_vector(query, dimension)
    blocks = [
        block
        for block in list_blocks(conn, set_id, kinds=eligibility.kinds, scope_ids=eligibility.scope_ids)
        if block.live
    ]
    try:
        with _interruptible(conn, should_stop):
            first = _FirstPass(conn, blocks, vector, eligibility, k)
            return (
                best_hits(conn, vector, first.survivors, blocks, should_stop)
                if first.run(should_stop)
                else None
            )
    except apsw.InterruptError:
        return None


@contextmanager
def _interruptible(conn: Connection, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Ask during long statements too: a list of a million owners takes its time."""
    conn.set_progress_handler(should_stop, STATEMENT_STEPS, id=_interruptible)
    try:
        yield
    finally:
        conn.set_progress_handler(None, id=_interruptible)


class _Slots(NamedTuple):
    """Slots that the int8 products did not rule out, with what is needed to say more about them."""

    places: Int64s
    codes: Int8s
    bounds: Float32s  # (n, 3)
    offset: Float64s


class _FirstPass:
    """Goes through the blocks and collects what they cannot rule out."""

    def __init__(
        self, conn: Connection, blocks: list[Block], vector: Float32s, eligibility: Eligibility, k: int
    ) -> None:
        dimension = len(vector)
        self.survivors = Survivors(k)
        self._unmeasured: list[_Slots] = []
        self._waiting = 0
        self._blocks = blocks
        self._filter = SlotFilter(conn, eligibility)
        self._query = QuantizedQuery(vector)
        self._reader = BlockReader(conn, dimension)
        self._dots = np.empty((1, max((block.used for block in blocks), default=0)), np.float32)
        self._offsets = {
            mean_id: self._query.dot(load_mean(conn, mean_id, dimension))
            for mean_id in {block.mean_id for block in blocks}
        }

    def run(self, should_stop: Callable[[], bool]) -> bool:
        """Look at every block; False when stopped."""
        with self._reader:
            for block in self._blocks:
                if should_stop():
                    return False
                self._look_at(block)
        self._measure()
        return True

    def _look_at(self, block: Block) -> None:
        view = self._reader.cached(block)
        mask: Bools | None = None
        if self._filter.restricts(block.kind):
            mask = self._filter.eligible(
                block.kind, self._reader.slots(block) if view is None else view.slots
            )
            eligible = np.flatnonzero(mask)
            if len(eligible) * SPARSE < block.used:
                self.survivors.add_unseen(eligible + (block.id << SLOT_BITS))
                return
        if view is None:
            view = self._reader.read(block)
        offset = self._offsets[block.mean_id]
        rows = self._not_ruled_out(view, offset, mask)
        if len(rows):
            self._unmeasured.append(
                _Slots(
                    rows + (block.id << SLOT_BITS),
                    view.codes[rows],
                    view.bounds.T[rows],
                    np.full(len(rows), offset),
                )
            )
            self._waiting += len(rows)
            if self._waiting >= MEASURED_AT:
                self._measure()

    def _not_ruled_out(self, block: BlockView, offset: float, mask: Bools | None) -> Int64s:
        """The slots in the block that may be among the k best, by int8 products alone.

        In float32 and in units of the query's scale. Passes over all slots are what a block costs beside its
        products, so the first one allows each slot the reach of the block's worst. `FILTER_MARGIN` makes up
        for the rounding.
        """
        query, k = self._query, self.survivors.k
        dots = self._dots[:, : len(block.codes)]
        choose_kernel()(query.codes, block.codes, dots)
        middle = np.multiply(dots[0], block.scale, out=dots[0])
        per_norm, per_error = np.float32(query.coarse_rest / query.scale), np.float32(1 / query.scale)
        wanted = np.float32((self.survivors.floor - offset - FILTER_MARGIN) / query.scale)
        most = block.most_norm * per_norm + block.most_error * per_error
        rows: Int64s = (middle >= wanted - most).nonzero()[0]
        if mask is not None:
            rows = rows[mask[rows]]
        reach = block.norm[rows] * per_norm + block.error[rows] * per_error
        kept = (middle[rows] + reach >= wanted) & (block.scale[rows] > 0)
        rows, reach = rows[kept], reach[kept]
        if len(rows) > max(MANY, k):
            best = float(k_highest(middle[rows] - reach, k).min()) - 2 * FILTER_MARGIN / query.scale
            rows = rows[middle[rows] + reach >= best]
        return rows

    def _measure(self) -> None:
        """Give the survivors what was not ruled out, with scores by coarse and fine products.

        Little but the vectors' own errors is left then. Done for the slots of several blocks at a time, and with
        the same kernel: a BLAS would wake its threads for it, which cost a scan more than they give.
        """
        if not self._unmeasured:
            return
        places, codes, bounds, score = (np.concatenate(part) for part in zip(*self._unmeasured, strict=True))
        scale, error, norm = bounds.astype(np.float64).T
        products = np.empty((2, 1, len(places)), np.float32)
        choose_kernel()(self._query.codes, codes, products[0])
        choose_kernel()(self._query.fine_codes, codes, products[1])
        coarse, fine = products[:, 0].astype(np.float64)
        score += (coarse * self._query.scale + fine * self._query.fine_scale) * scale
        error += norm * self._query.fine_rest + FILTER_MARGIN
        self.survivors.add(places, score - error, score + error)
        self._unmeasured.clear()
        self._waiting = 0
