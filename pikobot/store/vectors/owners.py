"""What vectors stand for. Without numpy, so that forgetting does not load it."""

from dataclasses import dataclass
from enum import StrEnum


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
