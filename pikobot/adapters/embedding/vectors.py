"""Vectors as they came from a model, checked and made unit vectors."""

import numpy as np
import numpy.typing as npt

from pikobot.adapters.embedding.vocabulary import EmbeddingFailed, EmbeddingFailure

Float32s = npt.NDArray[np.float32]


def unit_rows(rows: "list[Float32s]", dimension: int) -> Float32s:
    """float32 (n, dimension), each row divided by its length, which is computed in float64.

    Raises EmbeddingFailed for another dimension, a number that is not finite, and a row of zeros.
    """
    for row in rows:
        if row.shape != (dimension,):
            raise EmbeddingFailed(
                f"the model makes vectors of {row.size} numbers, not {dimension}: "
                f"set embedding.dimension to {row.size}, or choose another embedding.model",
                code=EmbeddingFailure.WRONG_DIMENSION,
            )
    wide = np.array(rows, dtype=np.float64).reshape(len(rows), dimension)
    if not np.isfinite(wide).all():
        raise _unusable("a number that is not finite")
    # Divided by the largest first: squares of tiny numbers vanish and those of huge ones overflow.
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0)
    if not largest.all():
        raise _unusable("nothing but zeros")
    wide /= largest
    unit: Float32s = (wide / np.linalg.norm(wide, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _unusable(what: str) -> EmbeddingFailed:
    return EmbeddingFailed(
        f"the model made a vector with {what}; check embedding.model",
        code=EmbeddingFailure.UNUSABLE_VECTOR,
        is_about_text=True,
    )
