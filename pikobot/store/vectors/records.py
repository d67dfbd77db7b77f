"""What goes into the vector index and what comes out of it."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from pikobot.store.scopes import ScopeId

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class OwnerKind(StrEnum):
    SOURCE = "source"
    FACT = "fact"
    DOCUMENT = "document"
    CONVERSATION = "conversation"


@dataclass(frozen=True, order=True)
class Owner:
    """What a vector stands for: the kind and the integer id of its row."""

    kind: OwnerKind
    id: int


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
