import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pikobot.adapters.chat import (
    CallFailure,
    ChatCallFailed,
    Completion,
    Message,
    StopReason,
    ToolCall,
    ToolSchema,
)
from pikobot.agent import events
from pikobot.agent.loop import MAX_CALLS_PER_ROUND, MAX_TOOL_ROUNDS, MAX_TRIES, REPEATED, Answer, Loop
from pikobot.errors import BudgetExceeded, ProviderError
from tests.agent.playing import PlayedModel, Turn, call, fails, says

CONTEXT = (Message("system", "be brief"), Message("user", "Where did I move?"))


@dataclass
class Journal:
    """Keeps what it is told, in order; refuses a call when told to."""

    entries: list[tuple[str, Any]] = field(default_factory=list)
    budget: int = 100

    async def begin_call(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> int:
        if not self.budget:
            raise BudgetExceeded("raise budget.run_usd")
        self.budget -= 1
        self.entries.append(("begin", len(messages)))
        return self.budget

    async def end_call(self, ticket: int, completion: Completion) -> None:
        self.entries.append(("end", completion.text))

    async def fail_call(self, ticket: int, failure: ChatCallFailed) -> None:
        self.entries.append(("fail", failure.code))

    async def keep_results(self, results: Sequence[Message]) -> None:
        self.entries.append(("results", [result.tool_call_id for result in results]))


async def echo(tool_call: ToolCall) -> tuple[Message, bool]:
    return Message("tool", f"{tool_call.name}({tool_call.arguments})", tool_call_id=tool_call.id), False


@dataclass
class Played:
    """A loop that was run, with everything that came of it."""

    model: PlayedModel
    journal: Journal = field(default_factory=Journal)
    transcript: list[Message] = field(default_factory=list)
    call_tool: Callable[[ToolCall], Awaitable[tuple[Message, bool]]] = echo
    happened: list[events.Event] = field(default_factory=list)
    visible: str = ""

    def run(self) -> Answer:
        async def run() -> Answer:
            loop = Loop(
                model=self.model,
                tools=[ToolSchema("search", "", {})],
                call_tool=self.call_tool,
                journal=self.journal,
                emit=self.happened.append,
                max_output_tokens=100,
                transcript=self.transcript,
            )
            try:
                return await loop.run(CONTEXT)
            finally:
                self.visible = loop.visible

        return asyncio.run(run())

    @property
    def text_shown(self) -> str:
        return "".join(event.text for event in self.happened if isinstance(event, events.TextDelta))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which nobody waits for."""
    waited: list[float] = []
    really_sleep = asyncio.sleep

    async def note(delay: float) -> None:
        if delay:
            waited.append(delay)
        await really_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    return waited


def test_an_answer_without_tools_takes_one_call() -> None:
    played = Played(PlayedModel([says("To Porto.")]))
    assert played.run() == Answer("To Porto.", StopReason.STOP)
    assert played.journal.entries == [("begin", 2), ("end", "To Porto.")]
    assert played.model.requests == [CONTEXT]
    assert played.text_shown == "To Porto."


def test_a_tool_is_called_and_its_result_goes_back_to_the_model() -> None:
    asked = call("search", '{"query":"Porto"}')
    played = Played(PlayedModel([says("Let me look.", asked), says("波尔图。")]))
    assert played.run() == Answer("Let me look.\n\n波尔图。", StopReason.STOP)
    assert played.text_shown == "Let me look.\n\n波尔图。"
    assert played.model.requests[1] == (
        *CONTEXT,
        Message("assistant", "Let me look.", (asked,)),
        Message("tool", 'search({"query":"Porto"})', tool_call_id="call_0"),
    )
    assert played.journal.entries == [
        ("begin", 2),
        ("end", "Let me look."),
        ("results", ["call_0"]),
        ("begin", 4),
        ("end", "波尔图。"),
    ]
    assert [event for event in played.happened if not isinstance(event, events.TextDelta)] == [
        events.ToolStarted("search"),
        events.ToolFinished("search", False),
    ]


def test_parallel_tools_answer_in_the_order_of_their_calls_whichever_ends_first() -> None:
    order: list[str] = []
    has_second = asyncio.Event()

    async def slow_first(tool_call: ToolCall) -> tuple[Message, bool]:
        await has_second.wait() if tool_call.id == "a" else has_second.set()
        order.append(tool_call.id)
        return await echo(tool_call)

    calls = (call("search", id="a"), call("search", id="b"))
    played = Played(PlayedModel([says("", *calls), says("done")]), call_tool=slow_first)
    played.run()
    assert order == ["b", "a"]
    assert [message.tool_call_id for message in played.model.requests[1][-2:]] == ["a", "b"]


def test_a_bad_call_is_answered_with_its_error_and_mended() -> None:
    async def strict(tool_call: ToolCall) -> tuple[Message, bool]:
        try:
            json.loads(tool_call.arguments)
        except ValueError:
            return Message("tool", '{"error": "not JSON"}', tool_call_id=tool_call.id), True
        return await echo(tool_call)

    def play(messages: Sequence[Message], allow_tools: bool) -> Completion:
        last = messages[-1]
        if last.role != "tool":
            return says("", call("search", "{query"))
        return says("", call("search", "{}")) if "error" in last.content else says("found")

    played = Played(PlayedModel(play=play), call_tool=strict)
    assert played.run() == Answer("found", StopReason.STOP)
    assert [event.is_error for event in played.happened if isinstance(event, events.ToolFinished)] == [
        True,
        False,
    ]


def test_only_so_many_calls_of_one_round_are_carried_out() -> None:
    calls = [
        call("search", f'{{"limit":{number}}}', id=f"c{number}") for number in range(MAX_CALLS_PER_ROUND + 2)
    ]
    played = Played(PlayedModel([says("", *calls), says("done")]))
    played.run()
    results = played.model.requests[1][-len(calls) :]
    assert [result.tool_call_id for result in results] == [one.id for one in calls]
    assert [result.content.startswith('{"error"') for result in results] == [False] * MAX_CALLS_PER_ROUND + [
        True
    ] * 2


def test_after_the_last_round_tools_are_switched_off_and_the_model_may_answer() -> None:
    def play(messages: Sequence[Message], allow_tools: bool) -> Completion:
        return says("", call("search", f'{{"limit":{len(messages)}}}')) if allow_tools else says("enough")

    played = Played(PlayedModel(play=play))
    assert played.run() == Answer("enough", StopReason.STOP)
    assert played.model.tools_allowed == [True] * MAX_TOOL_ROUNDS + [False]


def test_a_model_that_never_stops_calling_tools_is_stopped() -> None:
    calls = (call("search", f'{{"limit":{number}}}') for number in range(MAX_TOOL_ROUNDS + 1))
    played = Played(PlayedModel([says(".", each) for each in calls]))
    with pytest.raises(ProviderError, match=f"after {MAX_TOOL_ROUNDS} rounds"):
        played.run()
    assert len(played.model.requests) == MAX_TOOL_ROUNDS + 1
    assert played.visible == played.text_shown == "\n\n".join("." * (MAX_TOOL_ROUNDS + 1))


REPEATED_RESULT = Message("tool", REPEATED, tool_call_id="call_0")


def test_a_model_that_goes_round_is_told_so_and_has_to_answer() -> None:
    def play(messages: Sequence[Message], allow_tools: bool) -> Completion:
        spaces = " " * len(messages)  # the same arguments, written otherwise
        return says("", call("search", f'{{"a":1,{spaces}"b":2}}')) if allow_tools else says("enough")

    played = Played(PlayedModel(play=play), call_tool=always("nothing"))
    assert played.run() == Answer("enough", StopReason.STOP)
    assert played.model.tools_allowed == [True, True, False]
    assert played.model.requests[2][-1] == REPEATED_RESULT


def test_a_round_of_two_calls_that_take_turns_is_seen_as_well() -> None:
    def play(messages: Sequence[Message], allow_tools: bool) -> Completion:
        one = call(("search", "read")[len(messages) // 2 % 2])
        return says("", one) if allow_tools else says("enough")

    played = Played(PlayedModel(play=play), call_tool=always("nothing"))
    assert played.run() == Answer("enough", StopReason.STOP)
    assert played.model.tools_allowed == [True, True, True, False]


def test_the_same_call_with_another_result_and_another_call_with_the_same_one_are_no_repetition() -> None:
    results = iter(("1", "2", "2"))

    async def changing(tool_call: ToolCall) -> tuple[Message, bool]:
        return Message("tool", next(results), tool_call_id=tool_call.id), False

    turns: list[Turn] = [
        says("", call("search")),
        says("", call("search")),
        says("", call("read")),
        says("done"),
    ]
    played = Played(PlayedModel(turns), call_tool=changing)
    assert played.run() == Answer("done", StopReason.STOP)
    assert played.model.tools_allowed == [True] * 4
    assert [message.content for message in played.transcript if message.role == "tool"] == ["1", "2", "2"]


def test_a_round_with_anything_new_leaves_the_model_its_tools() -> None:
    turns: list[Turn] = [
        says("", call("search")),
        says("", call("search", id="a"), call("read", id="b")),
        says("done"),
    ]
    played = Played(PlayedModel(turns))
    played.run()
    assert played.model.tools_allowed == [True] * 3
    assert [message.content for message in played.transcript[-3:-1]] == [REPEATED, "read({})"]


def test_a_repetition_before_a_crash_counts() -> None:
    asked = Message("assistant", "", (call("search"),))
    transcript = [asked, Message("tool", "1", tool_call_id="call_0"), asked]
    played = Played(PlayedModel([says("done")]), transcript=transcript, call_tool=always("1"))
    played.run()
    assert played.model.tools_allowed == [False]


def always(content: str) -> Callable[[ToolCall], Awaitable[tuple[Message, bool]]]:
    async def answer(tool_call: ToolCall) -> tuple[Message, bool]:
        return Message("tool", content, tool_call_id=tool_call.id), False

    return answer


def test_tool_markup_in_an_answer_is_neither_shown_nor_kept() -> None:
    leaked = '<tool_call>\n{"name": "search"}\n</tool_call>\nTo Porto.'
    played = Played(PlayedModel([says(leaked)]))
    assert played.run() == Answer("To Porto.", StopReason.STOP)
    assert (played.text_shown, played.transcript) == ("To Porto.", [Message("assistant", "To Porto.")])
    assert played.journal.entries[-1] == ("end", "To Porto.")


@pytest.mark.parametrize("code", [CallFailure.RATE_LIMITED, CallFailure.UNREACHABLE])
def test_what_was_certainly_not_charged_is_tried_again_after_growing_pauses(
    code: CallFailure, pauses: list[float]
) -> None:
    played = Played(PlayedModel([fails(code), fails(code), fails(code), says("at last")]))
    assert played.run() == Answer("at last", StopReason.STOP)
    assert pauses == [1.0, 2.0, 4.0]
    assert [event.pause_s for event in played.happened if isinstance(event, events.Retrying)] == pauses
    assert [kind for kind, _ in played.journal.entries] == ["begin", "fail"] * 3 + ["begin", "end"]


def test_the_last_try_ends_with_its_failure(pauses: list[float]) -> None:
    played = Played(PlayedModel([fails(CallFailure.RATE_LIMITED) for _ in range(MAX_TRIES)]))
    with pytest.raises(ChatCallFailed, match="rate_limited"):
        played.run()
    assert (len(played.model.requests), len(pauses)) == (MAX_TRIES, MAX_TRIES - 1)


def test_the_provider_decides_the_pause_unless_it_is_longer_than_anyone_waits(pauses: list[float]) -> None:
    patient = Played(PlayedModel([fails(CallFailure.RATE_LIMITED, retry_after_s=7.5), says("ok")]))
    assert patient.run() == Answer("ok", StopReason.STOP)
    assert pauses == [7.5]
    hopeless = Played(PlayedModel([fails(CallFailure.RATE_LIMITED, retry_after_s=601), says("never")]))
    with pytest.raises(ChatCallFailed):
        hopeless.run()
    assert pauses == [7.5]


@pytest.mark.parametrize(
    "code", sorted(set(CallFailure) - {CallFailure.RATE_LIMITED, CallFailure.UNREACHABLE})
)
def test_nothing_else_is_tried_again_and_the_text_shown_is_kept(
    code: CallFailure, pauses: list[float]
) -> None:
    played = Played(PlayedModel([fails(code, after="half an ans"), says("never")]))
    with pytest.raises(ChatCallFailed):
        played.run()
    assert (len(played.model.requests), pauses) == (1, [])
    assert played.visible == played.text_shown == "half an ans"
    assert played.journal.entries == [("begin", 2), ("fail", code)]


def test_a_refused_budget_stops_before_the_call() -> None:
    played = Played(PlayedModel([says("x", call("search")), says("never")]), Journal(budget=1))
    with pytest.raises(BudgetExceeded):
        played.run()
    assert len(played.model.requests) == 1
    assert played.visible == "x"


ROUND = Message("assistant", "Looking.", (call("search", id="a"), call("search", '{"b":1}', id="b")))
RESULT_A = Message("tool", "search({})", tool_call_id="a")
RESULT_B = Message("tool", 'search({"b":1})', tool_call_id="b")
FINAL = Message("assistant", "To Porto.")


@pytest.mark.parametrize(
    ("transcript", "calls_made", "tools_run"),
    [
        ([ROUND], 1, ["a", "b"]),
        ([ROUND, RESULT_A], 1, ["b"]),
        ([ROUND, RESULT_A, RESULT_B], 1, []),
        ([ROUND, RESULT_A, RESULT_B, FINAL], 0, []),
    ],
)
def test_a_crashed_run_goes_on_where_it_was_without_repeating_a_finished_call(
    transcript: list[Message], calls_made: int, tools_run: list[str]
) -> None:
    ran: list[str] = []

    async def note(tool_call: ToolCall) -> tuple[Message, bool]:
        ran.append(tool_call.id)
        return await echo(tool_call)

    played = Played(PlayedModel([says("To Porto.")]), transcript=list(transcript), call_tool=note)
    assert played.run() == Answer("Looking.\n\nTo Porto.", StopReason.STOP)
    assert played.text_shown == "Looking.\n\nTo Porto."
    assert (len(played.model.requests), ran) == (calls_made, tools_run)
    assert played.transcript == [ROUND, RESULT_A, RESULT_B, FINAL]


@pytest.mark.parametrize("reason", [StopReason.LENGTH, StopReason.CONTENT_FILTER])
def test_a_crashed_run_still_knows_that_its_answer_was_cut_off(reason: StopReason) -> None:
    first = Played(PlayedModel([says("To Por", stop=reason)]))
    first.run()
    stored = [Message.from_json(json.loads(json.dumps(each.to_stored()))) for each in first.transcript]
    assert stored == [Message("assistant", "To Por", cut_off=reason)]
    assert "cut_off" not in stored[0].to_json()
    assert Played(PlayedModel([]), transcript=stored).run() == Answer("To Por", reason)


def test_the_rounds_before_a_crash_count() -> None:
    rounds = [Message("assistant", "", (call("search"),)), Message("tool", "", tool_call_id="call_0")]
    played = Played(PlayedModel([says("done")]), transcript=rounds * MAX_TOOL_ROUNDS)
    played.run()
    assert played.model.tools_allowed == [False]


def test_a_failing_tool_ends_the_run_with_its_own_failure() -> None:
    class Fenced(Exception):
        pass

    async def lost(tool_call: ToolCall) -> tuple[Message, bool]:
        raise Fenced

    played = Played(PlayedModel([says("", call("search"), call("search", id="b"))]), call_tool=lost)
    with pytest.raises(Fenced):
        played.run()
    assert played.journal.entries == [("begin", 2), ("end", "")]
