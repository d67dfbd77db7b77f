"""Follows one run from the question to its outcome: events into a view, Ctrl-C into a stop.

The first Ctrl-C stops the answer and waits for its outcome; a second one leaves at once, and the run ends by
itself or is finished after the next start.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from pikobot.agent.events import Event, Notice, Retrying, RunEnded, TextDelta, ToolFinished, ToolStarted
from pikobot.channels.terminal.failures import spoken_failure
from pikobot.channels.terminal.interrupts import Interrupts
from pikobot.channels.terminal.services import Answering
from pikobot.channels.terminal.views import AnswerView, Notices
from pikobot.channels.terminal.wording import Wording, tool_activity
from pikobot.errors import ExitCode, PikobotError
from pikobot.store.leases import State
from pikobot.streams import OutputFailed

TICK_S = 0.1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it


@dataclass(frozen=True)
class Outcome:
    """How it went. ``ended`` is None when a second Ctrl-C left before the run's end was known.

    ``thread_id`` is empty for an ephemeral run.
    """

    thread_id: str
    ended: RunEnded | None
    was_interrupted: bool
    has_text: bool


class _Presses:
    """Counts Ctrl-C."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def press(self) -> bool:
        (self.second if self.first.is_set() else self.first).set()
        return True


class Unasked:
    """A run whose question whether to erase is not shown: it has been answered before."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.run_id = answering.run_id
        self.thread_id = answering.thread_id

    async def events(self) -> AsyncIterator[Event]:
        question = ""
        async for event in self._answering.events():
            if isinstance(event, TextDelta) and event.asks_to_erase:
                question += event.text
            elif isinstance(event, RunEnded):
                yield replace(event, text=event.text.removesuffix(question))
            else:
                yield event

    async def stop(self) -> None:
        await self._answering.stop()


async def follow(
    start: Callable[[], Awaitable[Answering]], view: AnswerView, words: Wording, interrupts: Interrupts
) -> Outcome:
    """Start a run and show it until it has ended or the owner has left. The view is closed in every case.

    Raises what ``start`` raises, and BrokenPipeError or OutputFailed, after stopping the run, when nobody can read it.
    """
    presses = _Presses()
    with contextlib.ExitStack() as stack:
        stack.enter_context(interrupts.to(presses.press))
        stack.callback(view.close)
        view.wait(words.waiting)
        answering = await start()
        shown: list[str] = []
        ended = await _until_ended_or_left(answering, presses, view, words, shown)
    return Outcome(answering.thread_id, ended, presses.first.is_set(), any(shown))


async def _until_ended_or_left(
    answering: Answering, presses: _Presses, view: AnswerView, words: Wording, shown: list[str]
) -> RunEnded | None:
    showing = asyncio.create_task(_show(answering, view, words, shown))
    leaving = asyncio.create_task(presses.second.wait())
    others = [
        asyncio.create_task(_stop_when_pressed(answering, presses, view, words)),
        asyncio.create_task(_tick(view)),
    ]
    try:
        await asyncio.wait({showing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return showing.result() if showing.done() else None
    except (BrokenPipeError, OutputFailed):
        await answering.stop()
        raise
    finally:
        for task in (showing, leaving, *others):
            task.cancel()
        await asyncio.gather(showing, leaving, *others, return_exceptions=True)


async def _show(answering: Answering, view: AnswerView, words: Wording, shown: list[str]) -> RunEnded:
    tools_running: list[str] = []
    async for event in answering.events():
        match event:
            case TextDelta(text):
                shown.append(text)
                view.activity(None)
                view.text(text)
            case ToolStarted(name):
                tools_running.append(name)
                view.activity(tool_activity(words, name))
            case ToolFinished(name):
                if name in tools_running:
                    tools_running.remove(name)
                if not tools_running:
                    view.wait(words.waiting)
            case Retrying(reason, pause_s):
                spoken = spoken_failure(reason, words.language)
                view.notice(words.retrying.format(reason=spoken, pause=f"{pause_s:g}"))
            case Notice(text):
                view.notice(spoken_failure(text, words.language))
            case RunEnded():
                view.activity(None)
                shown.append(_show_rest(event, "".join(shown), view))
                return event
    raise PikobotError(
        f"run {answering.run_id} ended without an outcome: ask again; `pikobot doctor` may know more"
    )


def _show_rest(ended: RunEnded, shown: str, view: AnswerView) -> str:
    """The retained text may come whole instead of in pieces, or end with what was not streamed."""
    if ended.state is State.CANCELLED or not ended.text.startswith(shown):
        return ""
    rest = ended.text[len(shown) :]
    view.text(rest)
    return rest


async def _stop_when_pressed(
    answering: Answering, presses: _Presses, view: AnswerView, words: Wording
) -> None:
    await presses.first.wait()
    view.wait(words.stopping)
    await answering.stop()


async def _tick(view: AnswerView) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        view.refresh()


def report(outcome: Outcome, notices: Notices, words: Wording) -> int:
    """Say on stderr how a run went, when it did not simply succeed; the exit code that goes with it."""
    ended = outcome.ended
    if ended is None or ended.state is State.CANCELLED:
        notices.say(words.stopped)
        return EXIT_INTERRUPTED if outcome.was_interrupted else ExitCode.FAILED
    if ended.is_partial or (outcome.has_text and ended.state is not State.SUCCEEDED):
        notices.fail(words.incomplete)
    if ended.state is State.SUCCEEDED:
        return ExitCode.FAILED if ended.leaves_traces else ExitCode.DONE
    reason = spoken_failure(str(ended.error), words.language) if ended.error else words.failed_without_reason
    notices.fail(words.error.format(reason=reason))
    return ended.error.exit_code if ended.error else ExitCode.FAILED
