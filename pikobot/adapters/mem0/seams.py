"""How anything leaves Mem0 while it runs: as an exception that its broad ``except`` clauses do not catch.

Mem0 turns every ``Exception`` into a logged line and a success without results. What a caller's model or
embedder raises, cancellation included, and what the adapters decide, must reach the caller as it is.
"""

from contextlib import AbstractContextManager
from types import TracebackType

from pikobot.adapters.mem0.candidates import ExtractionOutcome


class Carried(BaseException):
    """Carries an exception of a caller's part through Mem0; it is this one's cause."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class Ended(BaseException):
    """The batch has its outcome, and Mem0 has nothing left to do."""

    def __init__(self, outcome: ExtractionOutcome) -> None:
        super().__init__()
        self.outcome = outcome


class carrying(AbstractContextManager[None]):  # noqa: N801 - reads as a statement, like contextlib's own
    """``with carrying():`` around every call of a caller's part inside Mem0."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise Carried(error) from error
