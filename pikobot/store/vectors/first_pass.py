"""What a scan learns from the int8 blocks: the slots that they do not rule out, with an interval for each score.

    block ─▶ coarse products, float32 ─▶ candidates: what may reach the floor ─▶ fine products, float64 ─▶ intervals

Products take nearly all of the time; candidates are few, and those of many blocks are measured together. No database
and no state: any thread may do any part.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pikobot.store.vectors.kernel import choose_kernel
from pikobot.store.vectors.quantize import QuantizedQuery
from pikobot.store.vectors.reading import BlockView
from pikobot.store.vectors.records import Bools, Float32s, Float64s, Int8s, Int64s
from pikobot.store.vectors.survivors import Intervals, Survivors, k_highest

# Covers the float32 rounding of products and bounds: a few operations on numbers that stay below five.
FILTER_MARGIN = 4e-6
# So many vectors of a block are narrowed down by their own k best before they are refined.
MANY = 64
# Where fewer slots than one in so many are eligible, their codes are put together first.
FEW = 8
# So many slots of the first block say how good the k best are at least, before any other is looked at.
SAMPLE = 2048


class Candidates(NamedTuple):
    """Slots that the coarse products did not rule out, with what is needed to say more about them."""

    vectors: Int64s  # as in `Intervals`
    codes: Int8s
    scale: Float32s
    error: Float32s
    norm: Float32s
    score: Float64s  # by coarse products
    lower: Float64s  # what it is at least


class Products(NamedTuple):
    """A block with the integer products of codes of it and the query's, in float32."""

    block: BlockView
    rows: Int64s | None  # whose they are; None: of all slots in use
    dots: Float32s
    mask: Bools | None  # which of them are eligible; None: all


class FirstPass:
    """Of a query, for any thread; of the survivors it reads the floor only."""

    def __init__(self, query: QuantizedQuery, survivors: Survivors) -> None:
        self._query = query
        self._survivors = survivors
        self._margin = FILTER_MARGIN / query.scale
        self._per_norm = np.float32(query.coarse_rest / query.scale)
        self._per_error = np.float32(1 / query.scale)

    def products(self, block: BlockView, mask: Bools | None) -> Products:
        """The part that takes the time, and leaves the interpreter to others meanwhile."""
        rows, codes = None, block.codes
        if mask is None and block.has_gaps:
            mask = block.scale > 0
        if mask is not None and np.count_nonzero(mask) * FEW < len(codes):
            rows, mask = mask.nonzero()[0], None
            codes = codes.take(rows, axis=0)
        dots = np.empty((1, len(codes)), np.float32)
        if len(codes):
            choose_kernel()(self._query.codes, codes, dots)
        return Products(block, rows, dots[0], mask)

    def candidates(self, products: Products, kind: int, offset: float) -> Candidates | None:
        """What may be among the k best; ``offset`` is the query's product with the block's mean.

        By int8 products alone, in float32 and in units of the query's scale; `FILTER_MARGIN` makes up for the
        rounding. Passes over all slots are what a block costs beside its products, so the first one allows each
        slot the reach of the block's worst.
        """
        block, all_rows, dots, mask = products
        scale = block.scale if all_rows is None else block.scale.take(all_rows)
        all_middle = np.multiply(dots, scale, out=dots)
        most = float(block.most_norm * self._per_norm + block.most_error * self._per_error)
        wanted = (self._survivors.floor - offset) / self._query.scale - self._margin
        if wanted == -np.inf:
            sample = (all_middle if mask is None else all_middle[mask])[: max(SAMPLE, self._survivors.k)]
            wanted = self._wanted_by(sample) - most
        rows: Int64s = (all_middle >= np.float32(wanted - most)).nonzero()[0]
        if mask is not None:
            rows = rows[mask[rows]]
        if not len(rows):
            return None
        middle = all_middle.take(rows)
        if all_rows is not None:
            rows = all_rows.take(rows)
        if len(rows) > MANY:
            kept = self._narrowed(block, rows, middle, wanted)
            rows, middle = rows.take(kept), middle.take(kept)
        return self._described(block, rows, middle, kind, offset)

    def _narrowed(self, block: BlockView, rows: Int64s, middle: Float32s, wanted: float) -> Int64s:
        """Which of many rows are not ruled out by their own reach and their own k best."""
        reach = self._reach(block.error.take(rows), block.norm.take(rows))
        wanted = max(wanted, self._wanted_by(middle - reach))
        kept: Int64s = (middle + reach >= np.float32(wanted)).nonzero()[0]
        return kept

    def _described(
        self, block: BlockView, rows: Int64s, middle: Float32s, kind: int, offset: float
    ) -> Candidates:
        error, norm = block.error.take(rows), block.norm.take(rows)
        score = middle.astype(np.float64)
        score *= self._query.scale
        score += offset
        lower = score - (self._reach(error, norm) * self._query.scale + FILTER_MARGIN)
        vectors = block.numbers.take(rows, axis=0)
        vectors[:, 2] = kind
        codes = block.codes.take(rows, axis=0)
        return Candidates(vectors, codes, block.scale.take(rows), error, norm, score, lower)

    def _reach(self, error: Float32s, norm: Float32s) -> Float32s:
        """How far scores may be from those by coarse products, in units of the query's scale."""
        reach: Float32s = norm * self._per_norm + error * self._per_error
        return reach

    def _wanted_by(self, lower: Float32s) -> float:
        """What the k best have at least when these have what is given; -inf of fewer than k."""
        k = self._survivors.k
        return float(k_highest(lower, k).min()) - 2 * self._margin if len(lower) >= k else -np.inf


def measured(query: QuantizedQuery, candidates: Sequence[Candidates]) -> Intervals:
    """Their intervals by coarse and fine products: little but the vectors' own errors is left then.

    With the same kernel, because a BLAS would wake its threads for it, which cost a scan more than they give.
    """
    found = Candidates(*map(np.concatenate, zip(*candidates, strict=True)))
    fine = np.empty((1, len(found.codes)), np.float32)
    choose_kernel()(query.fine_codes, found.codes, fine)
    middle = found.score + fine[0].astype(np.float64) * (found.scale * query.fine_scale)
    reach = found.error + found.norm.astype(np.float64) * query.fine_rest
    reach += FILTER_MARGIN
    return Intervals(found.vectors, middle - reach, middle + reach)


def unknown(vectors: Int64s, kind: int) -> Intervals:
    """Intervals of slots, as numbers, of which nothing is known."""
    vectors[:, 2] = kind
    infinite = np.full(len(vectors), np.inf)
    return Intervals(vectors, -infinite, infinite)
