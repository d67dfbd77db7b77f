"""Ctrl-C: one handler for as long as the terminal is used, and whoever works at the moment gets the press.

The line editor reads Ctrl-C as a key; between two prompts, and while an answer is shown, it is a signal. A press
that nobody could take is counted, so that two quick ones leave the chat as two slow ones do.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator


class Interrupts:
    """Passes presses to the innermost taker, which says whether it took one."""

    def __init__(self) -> None:
        self._takers: list[Callable[[], bool]] = []
        self._missed = 0

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Own SIGINT inside; afterwards, whoever had it before. Main thread, running loop."""
        loop = asyncio.get_running_loop()
        before = signal.getsignal(signal.SIGINT)
        loop.add_signal_handler(signal.SIGINT, self._press)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def to(self, taker: Callable[[], bool]) -> Iterator[None]:
        self._takers.append(taker)
        try:
            yield
        finally:
            self._takers.remove(taker)

    def take_missed(self) -> int:
        """How many presses found no taker since the last call."""
        missed, self._missed = self._missed, 0
        return missed

    def _press(self) -> None:
        if not (self._takers and self._takers[-1]()):
            self._missed += 1
