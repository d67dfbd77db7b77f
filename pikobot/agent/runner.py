"""Runs under way: takes requests in, claims what is due, lets channels follow and stop it.

Runs of one thread are executed one after the other, those of different threads side by side. A request is durable
before `ask` returns. When the program stops, a run whose provider call is under way ends as 'unknown', every other
one is queued again for the next start.
"""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pikobot.agent import events, runs
from pikobot.agent.executor import Brain, Executor
from pikobot.agent.loop import Emit
from pikobot.agent.runs import Claimed, Request, Unanswerable
from pikobot.agent.tool import RunFenced
from pikobot.errors import PikobotError
from pikobot.memory.embedding.query_vectors import QueryEmbedder
from pikobot.memory.forgetting import proposals
from pikobot.memory.forgetting.requests import means_to_forget
from pikobot.memory.forgetting.wording import kept_text, nothing_waits_text, says_no, says_yes, unheeded_text
from pikobot.memory.language.questions import language_of
from pikobot.store.attempts import mark_started_unknown
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import State
from pikobot.store.proposals import Proposal
from pikobot.store.runs import RunId, answer_of, find_run, next_claimable, unfinished_runs
from pikobot.store.scopes import Scope
from pikobot.store.threads import ThreadId, find_thread_by_public_id
from pikobot.text import clean_text

MAX_CONCURRENT_RUNS = 8
MAX_REQUEST_CHARS = 4_000_000
MAX_KEY_CHARS = 1_000
LEASE_MARGIN_S = 120
DEFAULT_RUN_TIMEOUT_S = 600.0
IDLE_CHECK_S = 60.0


class Answering:
    """One request under way, as its channel follows it."""

    def __init__(self, run_id: str, thread_id: str, stop: Callable[[], Awaitable[None]]) -> None:
        self.run_id = run_id
        self.thread_id = thread_id
        self._stop = stop
        self._queue: asyncio.Queue[events.Event] = asyncio.Queue()

    def emit(self, event: events.Event) -> None:
        self._queue.put_nowait(event)

    async def events(self) -> AsyncIterator[events.Event]:
        """What happens, in order, up to and including `RunEnded`."""
        while True:
            event = await self._queue.get()
            yield event
            if isinstance(event, events.RunEnded):
                return

    async def stop(self) -> None:
        """Cancel the request; `RunEnded` follows. Harmless when it has ended."""
        await self._stop()


@dataclass
class _Execution:
    task: asyncio.Task[None]
    is_stopped_by_owner: bool = False

    def stop(self) -> None:
        """Once: a second cancellation would cut off the recording of the first."""
        if not self.is_stopped_by_owner:
            self.is_stopped_by_owner = True
            self.task.cancel()


class Runner:
    """Executes the runs of an instance while `serve` runs."""

    def __init__(
        self,
        db: Database,
        brain: Brain | None,
        owner: Scope,
        *,
        message_days: int,
        serves_all: bool,
        learns: bool = False,
        on_run_ended: Callable[[], None] | None = None,
        queries: QueryEmbedder | None = None,
        ledger_path: Path | None = None,
    ) -> None:
        """``serves_all`` False: only threads that were asked in are worked on (a single question).

        Without the path of the erasure ledger nothing that was proposed to be forgotten can be confirmed.
        """
        self._db = db
        self._brain = brain
        self._owner = owner
        self._message_days = message_days
        self._serves_all = serves_all
        self._executor = Executor(db, brain, learns=learns, queries=queries)
        self._on_run_ended = on_run_ended
        self._asked_threads: dict[ThreadId, None] = {}
        self._answerings: dict[RunId, Answering] = {}
        self._executions: dict[RunId, _Execution] = {}
        self._unheeded: set[RunId] = set()  # requests that came instead of a yes or no
        self._ephemeral: set[asyncio.Task[None]] = set()
        self._ledger_path = ledger_path
        self._erasures: set[asyncio.Task[None]] = set()
        self._claiming = asyncio.Lock()
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_RUNS)

    @property
    def mode(self) -> Literal["model", "recall"]:
        return "recall" if self._brain is None else "model"

    @property
    def model(self) -> str | None:
        return None if self._brain is None else self._brain.model.name

    async def ask(
        self,
        text: str,
        *,
        thread_key: str | None = None,
        thread_id: str | None = None,
        is_standalone: bool = False,
    ) -> Answering:
        """Retain a message and queue its run; durable when this returns.

        A bare yes or no to what the answer before has proposed to forget is carried out instead, and not retained;
        the answer to any other message after it begins with a sentence that all of that is kept. Where nothing waits
        for a yes or no and nobody has asked anything else, the answer says so, and nothing is retained.
        Raises `NotFound` for a thread of another scope, `InvalidParams` for text that can't be stored.
        """
        text = clean_text("the message", text, max_chars=MAX_REQUEST_CHARS)
        thread_key = _clean_key(thread_key)
        waiting, before = await self._find_waiting(thread_key, thread_id, is_standalone)
        if (says_yes(text) or says_no(text)) and self._ledger_path is not None:
            if isinstance(waiting, Proposal):
                return self._decide(waiting, text, self._ledger_path)
            if waiting and not means_to_forget(text):
                return _told(nothing_waits_text(language_of(f"{text} {before or ''}")))
        request = Request(
            text=text,
            scope=self._owner,
            thread_key=thread_key,
            thread_id=thread_id,
            is_standalone=is_standalone,
            message_days=self._message_days,
        )
        async with self._claiming:
            accepted = await self._db.perform_async(runs.accept, request)
            run_id = accepted.run.id
            answering = Answering(
                accepted.run.public_id, accepted.thread.public_id, lambda: self._stop(run_id)
            )
            self._answerings[run_id] = answering
            if isinstance(waiting, Proposal):
                self._unheeded.add(run_id)
            self._asked_threads[accepted.thread.id] = None
        self._wake.set()
        return answering

    async def _find_waiting(
        self, thread_key: str | None, thread_id: str | None, is_standalone: bool
    ) -> tuple[Proposal | bool, str | None]:
        """What a bare yes or no decides on; without that, whether it can only have been meant for such a thing.

        And what was said before it there, for the language of the answer.
        """
        owner, now_ms = self._owner, self._db.clock.now_ms()

        def find(conn: Connection) -> tuple[Proposal | bool, str | None]:
            place = proposals.place_of(
                conn, owner, thread_key=thread_key, thread_id=thread_id, is_standalone=is_standalone
            )
            waiting = (
                proposals.waiting(conn, place, now_ms=now_ms)
                or self._brain is None
                or proposals.was_about_forgetting(conn, place, is_standalone=is_standalone, now_ms=now_ms)
            )
            return waiting, proposals.last_said(conn, place, now_ms=now_ms)

        return await self._db.read_async(find)

    def _decide(self, proposal: Proposal, text: str, ledger_path: Path) -> Answering:
        """Carry out the owner's word about what was shown. It can't be stopped: an erasure ends as a whole."""
        answering = Answering("", "", _stop_nothing)
        task = asyncio.create_task(self._carry_out(proposal, text, ledger_path, answering.emit))
        self._erasures.add(task)
        task.add_done_callback(self._erasures.discard)
        return answering

    async def _carry_out(self, proposal: Proposal, text: str, ledger_path: Path, emit: Emit) -> None:
        said = text if language_of(text) == "zh" else proposal.request_text  # a "y" is of every language
        language = language_of(said)
        try:
            if says_yes(text):
                carried = await asyncio.to_thread(
                    proposals.carry_out, self._db, ledger_path, proposal, language
                )
            else:
                await self._db.perform_async(proposals.withdraw, proposal)
                carried = proposals.Carried(kept_text(language), has_erased=False)
        except Exception as error:  # noqa: BLE001 — the edge of a request, as in `_answer`
            emit(events.RunEnded(State.FAILED, "", error=_reported(error)))
            return
        emit(events.TextDelta(carried.text))
        emit(
            events.RunEnded(
                State.SUCCEEDED,
                carried.text,
                proposes_erasure=carried.is_shown_again,
                has_erased=carried.has_erased,
                leaves_traces=not carried.is_clean,
            )
        )

    async def ask_ephemeral(self, text: str) -> Answering:
        """Answer without retaining the request or the answer. Raises `InvalidParams`."""
        text = clean_text("the message", text, max_chars=MAX_REQUEST_CHARS)
        answering = Answering("", "", self._stop_ephemeral)
        task = asyncio.create_task(self._execute_ephemeral(text, answering.emit))
        self._ephemeral.add(task)
        task.add_done_callback(self._ephemeral.discard)
        await asyncio.sleep(0)  # started, so that a cancellation reaches its handlers
        return answering

    async def stop_thread(self, thread_id: str) -> int:
        """Cancel what waits and what runs in a thread; returns how many."""
        found = await self._db.read_async(_unfinished, thread_id)
        for run_id in reversed(found):  # the newest first, so that none becomes due meanwhile
            await self._stop(run_id)
        return len(found)

    async def is_idle(self) -> bool:
        """Whether nothing is under way and nothing is due."""
        return not self._executions and await self._db.read_async(_next_due, self._db.clock.now_ms()) is None

    async def serve(self, *, until_idle: bool = False) -> None:
        """Work until cancelled, or until nothing is due when ``until_idle``."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                await self._slots.acquire()
                claimed = await self._start_next(group)
                if isinstance(claimed, Claimed):
                    continue
                self._slots.release()
                if isinstance(claimed, Unanswerable):
                    self._end(claimed.run.id, events.RunEnded(claimed.run.state, "", error=claimed.error))
                elif until_idle and await self.is_idle():
                    return
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(IDLE_CHECK_S):  # wait_for may swallow a cancellation
                            await self._wake.wait()

    async def _start_next(self, group: asyncio.TaskGroup) -> Claimed | Unanswerable | None:
        """Claim and start in one go: whoever has the lock never sees a claimed run that is not executing."""
        async with self._claiming:
            claimed = await self._claim()
            if isinstance(claimed, Claimed):
                task = group.create_task(self._execute(claimed))
                self._executions[claimed.run.id] = _Execution(task)
                await asyncio.sleep(0)  # started, so that a cancellation reaches its handlers
        return claimed

    async def _claim(self) -> Claimed | Unanswerable | None:
        candidates: list[ThreadId | None] = [None] if self._serves_all else [*self._asked_threads]
        for thread_id in candidates:
            claiming = asyncio.create_task(self._claim_in(thread_id))
            try:
                claimed = await asyncio.shield(claiming)
            except asyncio.CancelledError:
                lost = await claiming
                if isinstance(lost, Claimed):
                    await self._db.perform_async(runs.interrupt, lost)
                raise
            if claimed is not None:
                return claimed
        return None

    async def _claim_in(self, thread_id: ThreadId | None) -> Claimed | Unanswerable | None:
        return await self._db.perform_async(
            runs.claim_next,
            thread_id=thread_id,
            model=self.model,
            room=None if self._brain is None else self._brain.room,
            lease_ms=int((self._run_timeout_s + LEASE_MARGIN_S) * 1000),
            with_basics=self._brain is not None and self._brain.shows_basics,
        )

    @property
    def _run_timeout_s(self) -> float:
        return DEFAULT_RUN_TIMEOUT_S if self._brain is None else self._brain.run_timeout_s

    async def _execute(self, claimed: Claimed) -> None:
        run_id = claimed.run.id

        def emit(event: events.Event) -> None:
            if isinstance(event, events.RunEnded):
                self._end(run_id, event)
            elif run_id in self._answerings:
                self._answerings[run_id].emit(event)

        try:
            await self._answer(claimed, emit)
        except asyncio.CancelledError:
            if not await self._record_cancellation(claimed):
                raise
        finally:
            if (
                self._executions[run_id].task is asyncio.current_task()
            ):  # else its lease ran out, see `claim_next`
                del self._executions[run_id]
            self._slots.release()
            self._wake.set()

    async def _answer(self, claimed: Claimed, emit: Emit) -> None:
        try:
            is_unheeded = claimed.run.id in self._unheeded
            preface = unheeded_text(language_of(claimed.request.text)) if is_unheeded else ""
            await self._executor.execute(claimed, emit, preface=preface)
        except RunFenced:
            await self._follow_fenced(claimed.run.id, emit)
        except Exception as error:  # noqa: BLE001 — the edge of a run: whatever broke, the run ends and is shown
            await self._end_broken(claimed, _reported(error), emit)

    async def _record_cancellation(self, claimed: Claimed) -> bool:
        """True when the owner stopped the run, False when the program is leaving."""
        run_id = claimed.run.id
        if self._executions[run_id].is_stopped_by_owner:
            await self._db.perform_async(runs.finish, claimed, State.CANCELLED, None, error_code="stopped")
            await self._db.perform_async(runs.cancel_queued, [run_id])  # when it was fenced and is due again
            self._end(run_id, await self._db.read_async(_recorded_end, run_id))
            return True
        await self._db.perform_async(runs.interrupt, claimed)
        return False

    async def _follow_fenced(self, run_id: RunId, emit: Emit) -> None:
        """A lost run has ended elsewhere, or waits to be answered again from what is left."""
        ended = await self._db.read_async(_recorded_end, run_id)
        if ended.state in (State.QUEUED, State.LEASED):
            emit(events.Notice("something this answer was made from has been forgotten; it is made again"))
        else:
            emit(ended)

    async def _end_broken(self, claimed: Claimed, error: PikobotError, emit: Emit) -> None:
        """Record a failure that nobody foresaw."""
        state: State | None = None
        with contextlib.suppress(PikobotError):
            state = await self._db.perform_async(
                runs.finish, claimed, State.FAILED, None, error_code="internal"
            )
        emit(events.RunEnded(state or State.FAILED, "", error=error))

    async def _stop(self, run_id: RunId) -> None:
        async with self._claiming:
            execution = self._executions.get(run_id)
            if execution is not None:
                execution.stop()
            elif await self._db.perform_async(runs.cancel_queued, [run_id]):
                self._end(run_id, events.RunEnded(State.CANCELLED, ""))

    async def _stop_ephemeral(self) -> None:
        for task in self._ephemeral:
            task.cancel()

    async def aclose(self) -> None:
        """Stop the ephemeral requests under way, let erasures end; the retained requests end with `serve`."""
        await self._stop_ephemeral()
        await asyncio.gather(*self._ephemeral, *self._erasures, return_exceptions=True)

    async def _execute_ephemeral(self, text: str, emit: Emit) -> None:
        ended = events.RunEnded(State.CANCELLED, "")
        try:
            ended = await self._executor.execute_ephemeral(text, self._owner, emit)
        except asyncio.CancelledError:
            pass  # nobody but the owner, or the end of the program, cancels it: `ended` says so
        except Exception as error:  # noqa: BLE001 — the edge of a run, as in `_answer`
            ended = events.RunEnded(State.FAILED, "", error=_reported(error))
        with contextlib.suppress(PikobotError):
            await self._db.perform_async(_close_ephemeral_attempts)
        emit(ended)

    def _end(self, run_id: RunId, ended: events.RunEnded) -> None:
        if self._on_run_ended is not None:
            self._on_run_ended()
        self._unheeded.discard(run_id)
        answering = self._answerings.pop(run_id, None)
        if answering is not None:
            answering.emit(ended)


async def _stop_nothing() -> None:
    pass


def _told(text: str) -> Answering:
    """An answer that no run has made and nothing keeps."""
    answering = Answering("", "", _stop_nothing)
    answering.emit(events.TextDelta(text))
    answering.emit(events.RunEnded(State.SUCCEEDED, text))
    return answering


def _clean_key(key: str | None) -> str | None:
    return None if key is None else clean_text("the thread's name", key, max_chars=MAX_KEY_CHARS)


def _reported(error: Exception) -> PikobotError:
    """The failure for the owner: of an unforeseen one the place, never the message, which may hold memory."""
    if isinstance(error, PikobotError):
        return error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{type(error).__name__} at {frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return PikobotError(f"the answer failed inside pikobot ({place}); please report this place")


def _unfinished(conn: Connection, thread_public_id: str) -> list[RunId]:
    thread = find_thread_by_public_id(conn, thread_public_id)
    return [] if thread is None else unfinished_runs(conn, thread.id)


def _next_due(conn: Connection, now_ms: int) -> RunId | None:
    return next_claimable(conn, now_ms=now_ms, thread_id=None)


def _recorded_end(conn: Connection, run_id: RunId) -> events.RunEnded:
    """How a run ended according to the database; cancelled when it went with its forgotten thread."""
    run = find_run(conn, run_id)
    if run is None:
        return events.RunEnded(State.CANCELLED, "")
    text, is_partial = answer_of(conn, run_id) or ("", False)
    return events.RunEnded(run.state, text, is_partial)


def _close_ephemeral_attempts(db: Database) -> None:
    with db.write("end an ephemeral request") as tx:
        mark_started_unknown(tx, purpose="ephemeral", now_ms=db.clock.now_ms())
