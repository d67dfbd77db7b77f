"""Means: what is subtracted from the vectors before they are quantised.

Embeddings of one model share a large common part; without it the int8 error is smaller and far fewer vectors
have to be compared exactly. Scores never depend on it. A mean is never changed: a new one is made and blocks
move over to it. A mean is made of many vectors or not at all, because one of few would give them away.
"""

from collections.abc import Iterator
from typing import NewType

import numpy as np
import numpy.typing as npt

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection
from pikobot.store.vectors.profiles import SetId, VectorSet, count_vectors
from pikobot.store.vectors.quantize import checked_vector, lengths, normalized
from pikobot.store.vectors.records import Float32s, Float64s

MeanId = NewType("MeanId", int)

MIN_VECTORS = 256
GROWTH = 4
SAMPLE = 4096
READ_BYTES = 1 << 20


def current_mean(conn: Connection, vector_set: VectorSet) -> MeanId | None:
    """The mean for a new block: the newest, or one made now if the set has outgrown it. Caller holds write."""
    row = conn.execute(
        "SELECT id, vectors FROM vector_means WHERE set_id = ? ORDER BY id DESC LIMIT 1", (vector_set.id,)
    ).fetchone()
    held = count_vectors(conn, vector_set.id)
    if row is None and held < MIN_VECTORS:
        return None
    if row is not None and held < GROWTH * int(row[1]):
        return MeanId(int(row[0]))
    return make_mean(conn, vector_set, at_most=SAMPLE)


def newest_mean(conn: Connection, set_id: SetId) -> MeanId | None:
    row = conn.execute("SELECT max(id) FROM vector_means WHERE set_id = ?", (set_id,)).fetchone()
    return None if row is None or row[0] is None else MeanId(int(row[0]))


def make_mean(conn: Connection, vector_set: VectorSet, *, at_most: int | None = None) -> MeanId | None:
    """A new mean of all vectors, or of an even sample; None when there are too few. Caller holds write."""
    held = count_vectors(conn, vector_set.id)
    if held < MIN_VECTORS:
        return None
    step = 1 if at_most is None else -(-held // at_most)
    total = np.zeros(vector_set.profile.dimension)
    counted = 0
    for units in _units(conn, vector_set, step):
        total += (units / lengths(units)[:, None]).sum(axis=0)
        counted += len(units)
    mean = (total / max(counted, 1)).astype("<f4")
    conn.execute(
        "INSERT INTO vector_means (set_id, vectors, mean) VALUES (?, ?, ?)",
        (vector_set.id, held, mean.tobytes()),
    )
    return MeanId(conn.last_insert_rowid())


def load_mean(conn: Connection, mean_id: MeanId | None, dimension: int) -> Float64s | None:
    """The mean as float64 (dimension,); None means zero."""
    if mean_id is None:
        return None
    row = conn.execute("SELECT mean FROM vector_means WHERE id = ?", (mean_id,)).fetchone()
    if row is None or len(row[0]) != 4 * dimension:
        raise DamagedData(f"mean {mean_id} of the vectors is damaged; run `pikobot reindex`")
    return np.frombuffer(row[0], "<f4").astype(np.float64)


def mean_nearness(conn: Connection, vector_set: VectorSet, query: npt.ArrayLike) -> float | None:
    """The mean cosine of a query and the vectors of a set, as its newest mean has it; None without a mean."""
    mean = load_mean(conn, newest_mean(conn, vector_set.id), vector_set.profile.dimension)
    unit = normalized(checked_vector(query, vector_set.profile.dimension)[None])[0]
    return None if mean is None else float(mean @ unit)


def delete_unused_means(conn: Connection, set_id: SetId) -> None:
    """Delete every mean but the newest that no block was made with. Caller holds write."""
    conn.execute(
        """
        DELETE FROM vector_means
        WHERE set_id = :set AND id NOT IN (SELECT mean_id FROM vector_blocks WHERE mean_id IS NOT NULL)
          AND id < (SELECT max(id) FROM vector_means WHERE set_id = :set)
        """,
        {"set": set_id},
    )


def _units(conn: Connection, vector_set: VectorSet, step: int) -> Iterator[Float32s]:
    dimension = vector_set.profile.dimension
    rows = conn.execute(
        """
        SELECT d.unit FROM vectors AS v CROSS JOIN vector_values AS d ON d.vector_id = v.id
        WHERE v.set_id = ? AND v.id % ? = 0
        """,
        (vector_set.id, step),
    )
    batch: list[bytes] = []
    for (unit,) in rows:
        batch.append(unit)
        if len(batch) * dimension * 4 >= READ_BYTES:
            yield np.frombuffer(b"".join(batch), "<f4").reshape(-1, dimension)
            batch.clear()
    if batch:
        yield np.frombuffer(b"".join(batch), "<f4").reshape(-1, dimension)
