"""What goes into the vector index and what comes out of it."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.owners import Owner

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class NewVector:
    """A vector to store. ``values``: one number a dimension, any length but zero; it is normalised."""

    owner: Owner
    scope_id: ScopeId
    at_ms: int
    values: npt.ArrayLike


@dataclass(frozen=True)
class VectorHit:
    owner: Owner
    score: float
