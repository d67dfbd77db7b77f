"""What a scan learns from the int8 blocks: the slots that they do not rule out, with an interval for each score.

    block ─▶ coarse products, in float32 ─▶ what may reach the floor ─▶ fine products, in float64 ─▶ survivors

No database, and nothing is written but the looker's own: every thread that looks at blocks has one.
"""

from typing import NamedTuple

import numpy as np

from pikobot.store.vectors.kernel import choose_kernel
from pikobot.store.vectors.quantize import QuantizedQuery
from pikobot.store.vectors.reading import BlockView
from pikobot.store.vectors.records import Bools, Float32s, Float64s, Int8s, Int64s
from pikobot.store.vectors.survivors import SLOT_BITS, Survivors, k_highest

# Covers the float32 rounding of products and bounds: a few operations on numbers that stay below five.
FILTER_MARGIN = 4e-6
# So many vectors of a block are narrowed down by their own k best before they are refined.
MANY = 64


class _Slots(NamedTuple):
    """Slots that the coarse products did not rule out, with what is needed to say more about them."""

    places: Int64s
    codes: Int8s
    bounds: Float32s  # (n, 3)
    offset: Float64s


class Intervals(NamedTuple):
    """Vectors by their places, each with an interval that certainly holds its score."""

    places: Int64s
    lower: Float64s
    upper: Float64s


class Looker:
    """Looks at blocks of at most ``most_used`` slots for one thread; of the survivors it reads the floor only."""

    def __init__(self, query: QuantizedQuery, survivors: Survivors, most_used: int) -> None:
        self._query = query
        self._survivors = survivors
        self._dots = np.empty((1, most_used), np.float32)
        self._unmeasured: list[_Slots] = []
        self._unseen: list[Int64s] = []
        self.waiting = 0

    def look_at(self, block_id: int, block: BlockView, offset: float, mask: Bools | None) -> None:
        """Look at a block; ``offset`` is the query's product with its mean, ``mask`` says what is eligible."""
        rows = self._not_ruled_out(block, offset, mask)
        if len(rows):
            self._unmeasured.append(
                _Slots(
                    rows + (block_id << SLOT_BITS),
                    block.codes[rows],
                    block.bounds.T[rows],
                    np.full(len(rows), offset),
                )
            )
            self.waiting += len(rows)

    def pass_over(self, block_id: int, slots: Int64s) -> None:
        """Take slots of a block in of which nothing is known."""
        self._unseen.append(slots + (block_id << SLOT_BITS))
        self.waiting += len(slots)

    def measured(self) -> Intervals:
        """What was not ruled out since it was last asked, by coarse and fine products.

        Little but the vectors' own errors is left then. Done for the slots of several blocks at a time, and with
        the same kernel: a BLAS would wake its threads for it, which cost a scan more than they give.
        """
        unseen = np.concatenate(self._unseen) if self._unseen else np.zeros(0, np.int64)
        infinite = np.full(len(unseen), np.inf)
        found = Intervals(unseen, -infinite, infinite)
        if self._unmeasured:
            known = self._measure()
            found = Intervals(*(np.concatenate(both) for both in zip(known, found, strict=True)))
        self._unmeasured.clear()
        self._unseen.clear()
        self.waiting = 0
        return found

    def _measure(self) -> Intervals:
        places, codes, bounds, score = (np.concatenate(part) for part in zip(*self._unmeasured, strict=True))
        scale, error, norm = bounds.astype(np.float64).T
        products = np.empty((2, 1, len(places)), np.float32)
        choose_kernel()(self._query.codes, codes, products[0])
        choose_kernel()(self._query.fine_codes, codes, products[1])
        coarse, fine = products[:, 0].astype(np.float64)
        score += (coarse * self._query.scale + fine * self._query.fine_scale) * scale
        error += norm * self._query.fine_rest + FILTER_MARGIN
        return Intervals(places, score - error, score + error)

    def _not_ruled_out(self, block: BlockView, offset: float, mask: Bools | None) -> Int64s:
        """The slots that may be among the k best, by int8 products alone.

        In float32 and in units of the query's scale. Passes over all slots are what a block costs beside its
        products, so the first one allows each slot the reach of the block's worst. `FILTER_MARGIN` makes up
        for the rounding.
        """
        query, k = self._query, self._survivors.k
        dots = self._dots[:, : len(block.codes)]
        choose_kernel()(query.codes, block.codes, dots)
        middle = np.multiply(dots[0], block.scale, out=dots[0])
        per_norm, per_error = np.float32(query.coarse_rest / query.scale), np.float32(1 / query.scale)
        wanted = np.float32((self._survivors.floor - offset - FILTER_MARGIN) / query.scale)
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
