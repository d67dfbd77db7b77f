"""What a scan has not yet ruled out: vectors whose best possible score still reaches the k-th best.

Each comes with an interval that certainly holds its score. The floor is the k-th highest lower end so far: a
vector whose upper end is below it is not among the k best, whatever the rest of the scan brings. Ties with
the floor are kept, so nothing is decided by the order of blocks.
"""

import numpy as np

from pikobot.store.vectors.records import Float64s, Int64s

PRUNE_AT = 1 << 16
SLOT_BITS = 24  # a place is block id << SLOT_BITS | slot


class Survivors:
    def __init__(self, k: int) -> None:
        self.floor = -np.inf
        self.k = k
        self._lower = np.zeros(0)
        self._upper: list[Float64s] = []
        self._places: list[Int64s] = []
        self._held = 0
        self._prune_at = PRUNE_AT

    def add(self, places: Int64s, lower: Float64s, upper: Float64s) -> None:
        """Take vectors in with their intervals; each vector once."""
        self._lower = k_highest(np.concatenate([self._lower, lower]), self.k)
        if len(self._lower) == self.k:
            self.floor = float(self._lower.min())
        self._upper.append(upper)
        self._places.append(places)
        self._held += len(places)
        if self._held > self._prune_at:
            places, upper = self.ranked()
            self._places, self._upper, self._held = [places], [upper], len(places)
            self._prune_at = max(PRUNE_AT, 2 * len(places))

    def add_unseen(self, places: Int64s) -> None:
        """Take vectors in of which nothing is known yet."""
        self.add(places, np.full(len(places), -np.inf), np.full(len(places), np.inf))

    def ranked(self) -> tuple[Int64s, Float64s]:
        """Places and upper ends of what survives, highest upper end first."""
        if not self._places:
            return np.zeros(0, np.int64), np.zeros(0)
        places, upper = np.concatenate(self._places), np.concatenate(self._upper)
        kept = np.flatnonzero(upper >= self.floor)
        kept = kept[np.argsort(-upper[kept], kind="stable")]
        return places[kept], upper[kept]


def k_highest(values: Float64s, k: int) -> Float64s:
    """The k highest values, in no order; all of them when there are fewer."""
    return values if len(values) <= k else np.partition(values, len(values) - k)[-k:]
