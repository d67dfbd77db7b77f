"""What the terminal needs from the rest of the instance; the composition root fills it in."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pikobot.agent.events import Event
from pikobot.memory.forgetting.preview import ForgetPreview
from pikobot.memory.forgetting.receipts import Changed, Language
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.why import Explanation


class Answering(Protocol):
    """One run under way."""

    @property
    def run_id(self) -> str: ...

    @property
    def thread_id(self) -> str: ...

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, `RunEnded` last; read once."""
        ...

    async def stop(self) -> None:
        """Cancel the run; `RunEnded` with state cancelled follows. Repeating it changes nothing."""
        ...


class Runner(Protocol):
    """Where questions go: the agent's runner, or a script in tests. Each method raises PikobotError."""

    @property
    def mode(self) -> Literal["model", "recall"]: ...

    @property
    def model(self) -> str | None: ...

    async def ask(
        self,
        text: str,
        *,
        thread_key: str | None = None,
        thread_id: str | None = None,
        is_standalone: bool = False,
    ) -> Answering: ...

    async def ask_ephemeral(self, text: str) -> Answering: ...

    async def stop_thread(self, thread_id: str) -> int: ...


class Receipt(Protocol):
    @property
    def is_clean(self) -> bool: ...

    def render_lines(self, language: Language) -> list[str]: ...


class ForgetService(Protocol):
    async def preview(self, target: ForgetTarget, *, shows_all: bool) -> ForgetPreview: ...

    async def forget(self, preview: ForgetPreview) -> Receipt | Changed: ...


@dataclass(frozen=True)
class TerminalServices:
    """``status`` and ``threads`` give what the RPC methods ``status`` and ``threads.list`` give, newest first.

    ``named`` gives the thread of that name. ``is_new_mode`` says whether the owner has not been told yet in which
    mode, with a model or recall, it answers now, and takes it as told. ``recently_said`` gives the beginnings of the
    owner's last messages, newest first, in the thread of a name or, with None, anywhere. ``is_cut_off`` tells whether
    a crash cut off the last answer of a thread. ``why`` explains the last answer of a thread, or without one the
    owner's newest; None when there is none. Without ``forget`` nothing can be erased from here.
    """

    runner: Runner
    status: Callable[[], Awaitable[dict[str, object]]]
    threads: Callable[[], Awaitable[list[dict[str, object]]]]
    named: Callable[[str], Awaitable[dict[str, object] | None]]
    is_new_mode: Callable[[], Awaitable[bool]]
    recently_said: Callable[[str | None], Awaitable[list[str]]]
    is_cut_off: Callable[[str], Awaitable[bool]]
    why: Callable[[str | None], Awaitable[Explanation | None]]
    forget: ForgetService | None
    completed: Callable[[str], str] = str  # a message whose commands name the instance


@dataclass(frozen=True)
class ChatOptions:
    """``thread`` is the name of a thread to resume or start; ``environ`` says what the terminal can do."""

    thread: str | None = None
    is_ephemeral: bool = False
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
