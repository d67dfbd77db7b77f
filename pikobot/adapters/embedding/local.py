"""An embedder whose model runs in a child process that may die.

    text ─▶ the child ─▶ vector
              └─ it died ─▶ every text that was in it, alone, in a child of its own ─▶ vector, or failed: it is the text

So a text that kills the model is found within one call and blames itself only. The next text starts the child
again: at once the first time, then after growing pauses, during which callers are told so instead of waiting. An
answer resets the pauses.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pikobot.adapters.embedding.process import ModelProcess, ProcessDied, WorkerCommand
from pikobot.adapters.embedding.vocabulary import (
    Embedded,
    EmbeddingFailed,
    EmbeddingFailure,
    EmbeddingProfile,
)
from pikobot.clock import Clock

PARALLEL = 2  # passages in the child at a time: as many as it has threads for them
BATCH = 32
FIRST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 60_000


@dataclass(frozen=True)
class LocalTimeouts:
    """Seconds. A child that is silent for longer is ended, whatever else it is doing."""

    start_s: float = 120.0
    passage_s: float = 120.0
    query_s: float = 10.0


class LocalEmbedder:
    """For one event loop. Close it with ``aclose``; it is of no use afterwards."""

    batch = BATCH

    def __init__(
        self,
        profile: EmbeddingProfile,
        command: WorkerCommand,
        *,
        clock: Clock,
        timeouts: LocalTimeouts | None = None,
    ) -> None:
        self.profile = profile
        self._command = command
        self._clock = clock
        self._timeouts = timeouts or LocalTimeouts()
        self._process: ModelProcess | None = None
        self._starting: asyncio.Task[ModelProcess] | None = None
        self._deaths = 0  # without an answer between them
        self._not_before_ms = 0
        self._slots = asyncio.Semaphore(PARALLEL)
        self._alone = asyncio.Lock()
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The child, while there is one."""
        return self._process.pid if self._process is not None and self._process.is_alive else None

    async def embed_passages(self, texts: Sequence[str]) -> Embedded:
        """As ``Embedder.embed_passages``."""
        return await self._embedded(texts, is_query=False)

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """As ``Embedder.embed_queries``; passages that are under way don't hold it up."""
        return await self._embedded(texts, is_query=True)

    async def aclose(self) -> None:
        """End the child. Harmless a second time."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        process, self._process = self._process, None
        if process is not None:
            await process.aclose()

    async def _embedded(self, texts: Sequence[str], *, is_query: bool) -> Embedded:
        import numpy as np  # lazily: most commands embed nothing

        from pikobot.adapters.embedding.vectors import unit_rows

        one = self._query if is_query else self._passage
        outcomes = await asyncio.gather(*(one(text) for text in texts), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        for failure in sorted(failures, key=_blames_text):  # the model's own failure first: it concerns all
            raise failure
        rows = [
            np.frombuffer(outcome, "<f4").astype(np.float32)
            for outcome in outcomes
            if isinstance(outcome, bytes)
        ]
        return Embedded(list(unit_rows(rows, self.profile.dimension)))

    async def _passage(self, text: str) -> bytes:
        async with self._slots:
            return await self._vector(text, is_query=False)

    async def _query(self, text: str) -> bytes:
        return await self._vector(text, is_query=True)

    async def _vector(self, text: str, *, is_query: bool) -> bytes:
        process = await self._running()
        try:
            vector = await process.ask(text, is_query=is_query, timeout_s=self._timeout_s(is_query))
        except ProcessDied:
            return await self._vector_alone(text, is_query=is_query)
        self._deaths = 0
        return vector

    async def _vector_alone(self, text: str, *, is_query: bool) -> bytes:
        """In a child that has nothing else to do: if it dies too, it is the text."""
        async with self._alone:
            process = await self._started()
            try:
                return await process.ask(text, is_query=is_query, timeout_s=self._timeout_s(is_query))
            except ProcessDied as error:
                raise EmbeddingFailed(
                    "the process of the local embedding model ended twice at the same text; that text gets no vector",
                    code=EmbeddingFailure.CRASHED,
                    is_about_text=True,
                ) from error
            finally:
                await process.aclose()

    def _timeout_s(self, is_query: bool) -> float:
        return self._timeouts.query_s if is_query else self._timeouts.passage_s

    async def _running(self) -> ModelProcess:
        """The child, started if need be. It is started once, whoever waits and whoever leaves."""
        if self._process is not None:
            if self._process.is_alive:
                return self._process
            dead, self._process = self._process, None
            self._note_death()
            await dead.aclose()
        if self._starting is None:
            self._check_pause()
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._end_start)
        return await asyncio.shield(self._starting)

    async def _start(self) -> ModelProcess:
        try:
            self._process = await self._started()
        except EmbeddingFailed:
            self._note_death()
            raise
        return self._process

    def _end_start(self, start: asyncio.Task[ModelProcess]) -> None:
        self._starting = None
        if not start.cancelled():
            start.exception()  # looked at, even when everybody who waited has left

    async def _started(self) -> ModelProcess:
        if self._is_closed:
            raise EmbeddingFailed("the local embedding model is closed", code=EmbeddingFailure.NOT_STARTED)
        try:
            return await ModelProcess.start(self._command, timeout_s=self._timeouts.start_s)
        except (ProcessDied, OSError) as error:
            raise EmbeddingFailed(
                "the process of the local embedding model ended while it was loading; "
                "this machine may be too old for it, or short of memory",
                code=EmbeddingFailure.NOT_STARTED,
            ) from error

    def _note_death(self) -> None:
        self._deaths += 1
        if self._deaths > 1:
            pause_ms = min(FIRST_PAUSE_MS * 2 ** (self._deaths - 2), LONGEST_PAUSE_MS)
            self._not_before_ms = self._clock.now_ms() + pause_ms

    def _check_pause(self) -> None:
        left_ms = self._not_before_ms - self._clock.now_ms()
        if 0 < left_ms <= LONGEST_PAUSE_MS:  # more: the clock was set back
            raise EmbeddingFailed(
                f"the process of the local embedding model ended {self._deaths} times in a row; "
                f"it is started again in {left_ms / 1000:.0f} s",
                code=EmbeddingFailure.CRASHED,
                retry_after_s=left_ms / 1000,
            )


def _blames_text(failure: BaseException) -> bool:
    return isinstance(failure, EmbeddingFailed) and failure.is_about_text
