"""The agent loop: messages in, events out. It knows no storage and no provider.

    ask the model ──▶ tool calls? ──yes──▶ run them side by side ──▶ ask again
                          └──no──▶ the answer

A call that is answered as it was before in the run is told so, and after a round of nothing else the model has no
tools left but has to answer: asked again it would go round for ever.

A `Journal` is told before each provider call, and may refuse it, and after it; what it is told to keep lets a later
process go on from there without repeating a finished call. A call is repeated only when it certainly was not
charged (see `adapters.chat`); everything else ends the run with the failure and the text shown so far.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from pikobot.adapters.chat import (
    ChatCallFailed,
    ChatModel,
    Completion,
    Message,
    StopReason,
    TextDelta,
    ToolCall,
    ToolSchema,
    closing,
)
from pikobot.agent import events
from pikobot.agent.markup import MarkupFilter
from pikobot.errors import ProviderError

MAX_TOOL_ROUNDS = 12
MAX_CALLS_PER_ROUND = 16
MAX_TRIES = 4
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
PARAGRAPH = "\n\n"
REPEATED = '{"repeated": "the same call has been answered the same before: use that and answer now"}'

Ticket = TypeVar("Ticket")
Emit = Callable[[events.Event], None]
CallTool = Callable[[ToolCall], Awaitable[tuple[Message, bool]]]


class Journal(Protocol[Ticket]):
    """Keeps the account of a run; every method is durable when it returns and may raise to end the run."""

    async def begin_call(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> Ticket: ...

    async def end_call(self, ticket: Ticket, completion: Completion) -> None: ...

    async def fail_call(self, ticket: Ticket, failure: ChatCallFailed) -> None: ...

    async def keep_results(self, results: Sequence[Message]) -> None: ...


@dataclass(frozen=True)
class Answer:
    """The whole visible text, and why the model stopped."""

    text: str
    stop_reason: StopReason


@dataclass
class Loop(Generic[Ticket]):
    """One run's conversation with a model.

    ``transcript`` holds the finished rounds of the run: given when a crashed run goes on, extended while it runs.
    ``visible`` is the text that the owner has seen, also after a failure.
    """

    model: ChatModel
    tools: Sequence[ToolSchema]
    call_tool: CallTool
    journal: Journal[Ticket]
    emit: Emit
    max_output_tokens: int
    cache_key: str | None = None
    transcript: list[Message] = field(default_factory=list)
    visible: str = ""

    async def run(self, context: Sequence[Message]) -> Answer:
        """Ask until the model answers without a tool call.

        Raises `ChatCallFailed` when a call failed for good, and whatever the journal raises.
        """
        for message in self.transcript:
            if message.role == "assistant":
                self._show(message.content)
        if self.transcript and self.transcript[-1].role == "assistant" and not self.transcript[-1].tool_calls:
            return Answer(self.visible, self.transcript[-1].cut_off or StopReason.STOP)
        await self._resume_tools()
        while True:
            may_call_tools = self._rounds() < MAX_TOOL_ROUNDS and not self._has_only_repeated()
            completion = await self._ask([*context, *self.transcript], allow_tools=may_call_tools)
            self.transcript.append(completion.as_message())
            if not completion.tool_calls:
                return Answer(self.visible, completion.stop_reason)
            if not may_call_tools:
                rounds = self._rounds() - 1
                raise ProviderError(f"the model kept calling tools after {rounds} rounds; ask again")
            await self._run_tools(completion.tool_calls)

    def _rounds(self) -> int:
        return sum(1 for message in self.transcript if message.tool_calls)

    async def _resume_tools(self) -> None:
        """Run the calls of the last round that a crash left unanswered."""
        for index in range(len(self.transcript) - 1, -1, -1):
            message = self.transcript[index]
            if message.role == "assistant":
                answered = {result.tool_call_id for result in self.transcript[index + 1 :]}
                await self._run_tools([call for call in message.tool_calls if call.id not in answered])
                return

    async def _run_tools(self, calls: Sequence[ToolCall]) -> None:
        if not calls:
            return
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._run_tool(call, position)) for position, call in enumerate(calls)
                ]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        results = self._without_repeated(calls, [task.result() for task in tasks])
        self.transcript.extend(results)
        await self.journal.keep_results(results)

    def _without_repeated(self, calls: Sequence[ToolCall], results: Sequence[Message]) -> list[Message]:
        """The results, and a note in place of each that the same call has had before in this run."""
        known = set(_answered(self.transcript))
        kept = []
        for call, result in zip(calls, results, strict=True):
            answered = (call.name, _canonical(call.arguments), result.content)
            kept.append(replace(result, content=REPEATED) if answered in known else result)
            known.add(answered)
        return kept

    def _has_only_repeated(self) -> bool:
        """Whether the newest round has brought nothing new."""
        results = []
        for message in reversed(self.transcript):
            if message.role != "tool":
                break
            results.append(message.content)
        return bool(results) and set(results) == {REPEATED}

    async def _run_tool(self, call: ToolCall, position: int) -> Message:
        if position >= MAX_CALLS_PER_ROUND:
            too_many = f'{{"error": "only {MAX_CALLS_PER_ROUND} calls are answered at a time"}}'
            return Message("tool", too_many, tool_call_id=call.id)
        self.emit(events.ToolStarted(call.name))
        result, is_error = await self.call_tool(call)
        self.emit(events.ToolFinished(call.name, is_error))
        return result

    async def _ask(self, messages: Sequence[Message], *, allow_tools: bool) -> Completion:
        for tries in range(1, MAX_TRIES + 1):
            ticket = await self.journal.begin_call(messages, self.tools)
            try:
                completion = await self._stream(messages, allow_tools=allow_tools)
            except ChatCallFailed as failure:
                await self.journal.fail_call(ticket, failure)
                pause_s = _pause(failure, tries)
                if pause_s is None:
                    raise
                self.emit(events.Retrying(str(failure), pause_s))
                await asyncio.sleep(pause_s)
            else:
                await self.journal.end_call(ticket, completion)
                return completion
        raise AssertionError("the last try returns or raises")

    async def _stream(self, messages: Sequence[Message], *, allow_tools: bool) -> Completion:
        markup, shown = MarkupFilter(), ""
        stream = self.model.stream(
            messages,
            self.tools,
            max_output_tokens=self.max_output_tokens,
            cache_key=self.cache_key,
            allow_tools=allow_tools,
        )
        async with closing(stream) as items:
            async for item in items:
                text = markup.feed(item.text) if isinstance(item, TextDelta) else markup.finish()
                self._show(text, starts_paragraph=not shown)
                shown += text
                if not isinstance(item, TextDelta):
                    return replace(item, text=shown)
        raise ProviderError("the model adapter ended its stream without a completion")

    def _show(self, text: str, *, starts_paragraph: bool = True) -> None:
        if not text:
            return
        if starts_paragraph and self.visible:
            text = PARAGRAPH + text
        self.visible += text
        self.emit(events.TextDelta(text))


def _answered(transcript: Sequence[Message]) -> Iterator[tuple[str, str, str]]:
    """The name, the arguments and the result of each call that was answered."""
    asked: dict[str | None, ToolCall] = {}
    for message in transcript:
        asked |= {call.id: call for call in message.tool_calls}
        if message.role == "tool" and (call := asked.get(message.tool_call_id)) is not None:
            yield call.name, _canonical(call.arguments), message.content


def _canonical(arguments: str) -> str:
    """The same text for the same arguments, in whatever order and spacing."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments


def _pause(failure: ChatCallFailed, tries: int) -> float | None:
    """Seconds before the call may be made again; None when it may not, or not within reason."""
    if not failure.is_retryable or tries == MAX_TRIES:
        return None
    pause_s = FIRST_PAUSE_S * 2.0 ** (tries - 1) if failure.retry_after_s is None else failure.retry_after_s
    return pause_s if pause_s <= MAX_PAUSE_S else None
