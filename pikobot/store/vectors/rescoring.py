"""Exact scores of the survivors of a scan, and the k best of them.

Their float32 values are read by the ids in their slots, one after the other into one array: four times faster
than a join. What is found is held against the rows of `vectors` before it leaves.
"""

import json
from collections.abc import Callable
from typing import NamedTuple

import apsw
import numpy as np

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection
from pikobot.store.vectors.blocks import buffer_of
from pikobot.store.vectors.quantize import cosines
from pikobot.store.vectors.records import Float32s, Float64s, Int64s
from pikobot.store.vectors.survivors import KINDS, Survivors

# What is read between two questions whether to stop, in less than a millisecond; less when less is likely to be needed.
BATCH_BYTES = 1 << 18
FEW_ROWS = 8
DAMAGED = "the vector index does not match its vectors; run `pikobot reindex`"


class Best(NamedTuple):
    """The best vectors (n, 3) as `KINDS` describes them, with their scores."""

    vectors: Int64s
    scores: Float64s


def find_best(
    conn: Connection, query: Float32s, survivors: Survivors, should_stop: Callable[[], bool]
) -> Best | None:
    """The k best survivors by exact score, equals by kind and id of the owner; None when stopped.

    Survivors are looked at in the order of what they can score at most, until none can reach the k-th best.
    """
    vectors, upper = survivors.ranked()
    best, scores, k = vectors[:0], upper[:0], survivors.k
    # About the k-th best score: in the middle between the k-th lower and the k-th upper end.
    wanted = (survivors.floor + float(upper[k - 1])) / 2 if len(upper) > k else -np.inf
    begin, batch_rows = 0, max(BATCH_BYTES // query.nbytes, 1)
    while begin < len(vectors) and (len(best) < k or upper[begin] >= wanted):
        if should_stop():
            return None
        likely = int(np.searchsorted(-upper, -wanted, side="right"))
        end = min(max(likely, begin + FEW_ROWS), begin + batch_rows)
        batch = vectors[begin:end]
        batch = batch[batch[:, 0].argsort()]  # as they lie in the database
        best = np.concatenate([best, batch])
        scores = np.concatenate([scores, cosines(query, _units(conn, batch[:, 0], len(query)))])
        order = np.lexsort((best[:, 1], best[:, 2], -scores))[:k]
        best, scores, begin = best[order], scores[order], end
        if len(best) == k:
            wanted = float(scores[-1])
    _check(conn, best)
    return Best(best, scores)


def _units(conn: Connection, vector_ids: Int64s, dimension: int) -> Float32s:
    units = np.empty((len(vector_ids), dimension), "<f4")
    buffer = buffer_of(units)
    size = 4 * dimension
    try:
        blob = conn.blob_open("main", "vector_values", "unit", int(vector_ids[0]), False)
        try:
            for number, vector_id in enumerate(vector_ids.tolist()):
                blob.reopen(vector_id)
                if blob.length() != size:
                    raise DamagedData(DAMAGED)
                blob.read_into(buffer, number * size, size)
        finally:
            blob.close(True)
    except apsw.SQLError as error:
        raise DamagedData(DAMAGED) from error
    return units


def _check(conn: Connection, best: Int64s) -> None:
    """Every slot that is reported belongs to the vector that its row describes."""
    rows = conn.execute(
        """
        SELECT v.id, v.owner_id, v.owner_kind
        FROM json_each(?) AS found CROSS JOIN vectors AS v ON v.id = found.value
        """,
        (json.dumps(best[:, 0].tolist()),),
    )
    if set(rows) != {(vector_id, owner_id, KINDS[kind]) for vector_id, owner_id, kind in best.tolist()}:
        raise DamagedData(DAMAGED)
