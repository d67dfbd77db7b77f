"""What happens while a run is answered, as a channel sees it. Text arrives in pieces; `RunEnded` is always last."""

from dataclasses import dataclass

from pikobot.errors import PikobotError
from pikobot.store.leases import State


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the visible answer; ``asks_to_erase``: the question at the end of one that proposes it."""

    text: str
    asks_to_erase: bool = False


@dataclass(frozen=True)
class ToolStarted:
    name: str


@dataclass(frozen=True)
class ToolFinished:
    name: str
    is_error: bool


@dataclass(frozen=True)
class Retrying:
    """The provider refused for now without charging; the same call is made again after the pause."""

    reason: str
    pause_s: float


@dataclass(frozen=True)
class Notice:
    """One sentence for the owner that is not part of the answer: degradation, truncation, a cut context."""

    text: str


@dataclass(frozen=True)
class RunEnded:
    """The outcome: the answer's text as retained (partial when the run failed midway), and the error if any.

    ``proposes_erasure``: the next message may confirm what the answer shows; ``must_be_seen``: a model has
    chosen that, or not all of it holds the words that the owner has used. ``has_erased``: it was confirmed, and there
    is no run; ``leaves_traces``: and something of it is left, which the answer names.
    """

    state: State
    text: str
    is_partial: bool = False
    error: PikobotError | None = None
    proposes_erasure: bool = False
    must_be_seen: bool = False
    has_erased: bool = False
    leaves_traces: bool = False


Event = TextDelta | ToolStarted | ToolFinished | Retrying | Notice | RunEnded
