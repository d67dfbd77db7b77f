"""What a scan has not yet ruled out: vectors whose best possible score still reaches the k-th best.

Each comes with an interval that certainly holds its score. The floor is the k-th highest lower end so far: a
vector whose upper end is below it is not among the k best, whatever the rest of the scan brings. Ties with
the floor are kept, so nothing is decided by the order of blocks.
"""

from typing import NamedTuple, TypeVar

import numpy as np

from pikobot.store.vectors.owners import OwnerKind
from pikobot.store.vectors.records import Float32s, Float64s, Int64s

Values = TypeVar("Values", Float32s, Float64s)

PRUNE_AT = 1 << 16
KINDS = tuple(sorted(OwnerKind))
"""A vector that was found is a row of three numbers: its id, its owner's id, and the place of the kind in here."""


class Intervals(NamedTuple):
    """Vectors (n, 3) as `KINDS` describes them, each with an interval that certainly holds its score."""

    vectors: Int64s
    lower: Float64s
    upper: Float64s


class Survivors:
    def __init__(self, k: int) -> None:
        self.floor = -np.inf
        self.k = k
        self._lower = np.zeros(0)
        self._expected = np.zeros(0)
        self._upper: list[Float64s] = []
        self._vectors: list[Int64s] = []
        self._held = 0
        self._prune_at = PRUNE_AT

    def expect(self, lower: Float64s) -> None:
        """Raise the floor by lower ends of vectors that are added later; each vector once."""
        self._expected = self._raise(self._expected, lower)

    def add(self, found: Intervals) -> None:
        """Take vectors in with their intervals; each vector once."""
        self._lower = self._raise(self._lower, found.lower)
        self._upper.append(found.upper)
        self._vectors.append(found.vectors)
        self._held += len(found.upper)
        if self._held > self._prune_at:
            vectors, upper = self.ranked()
            self._vectors, self._upper, self._held = [vectors], [upper], len(upper)
            self._prune_at = max(PRUNE_AT, 2 * len(upper))

    def _raise(self, highest: Float64s, lower: Float64s) -> Float64s:
        lower = lower[lower > self.floor]
        if not len(lower):
            return highest
        highest = k_highest(np.concatenate([highest, lower]), self.k)
        if len(highest) == self.k:
            self.floor = max(self.floor, float(highest.min()))
        return highest

    def ranked(self) -> tuple[Int64s, Float64s]:
        """Vectors and upper ends of what survives, highest upper end first."""
        if not self._vectors:
            return np.zeros((0, 3), np.int64), np.zeros(0)
        vectors, upper = np.concatenate(self._vectors), np.concatenate(self._upper)
        kept = (upper >= self.floor).nonzero()[0]
        kept = kept[(-upper[kept]).argsort(kind="stable")]
        return vectors[kept], upper[kept]


def k_highest(values: Values, k: int) -> Values:
    """The k highest values, in no order; all of them when there are fewer."""
    return values if len(values) <= k else np.partition(values, len(values) - k)[-k:]
