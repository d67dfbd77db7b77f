"""A function that plays the model, and what is needed around it: no server, no database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from pikobot.adapters.chat import (
    CallFailure,
    ChatCallFailed,
    Completion,
    Message,
    StopReason,
    StreamItem,
    TextDelta,
    ToolCall,
    ToolSchema,
    Usage,
)

USAGE = Usage(input_tokens=100, cached_input_tokens=40, output_tokens=10)
HANG = "hang"  # a turn that never ends

Turn = Completion | ChatCallFailed | str
Play = Callable[[Sequence[Message], bool], Turn]


def says(
    text: str, *calls: ToolCall, stop: StopReason | None = None, usage: Usage | None = USAGE
) -> Completion:
    reason = stop or (StopReason.TOOL_CALLS if calls else StopReason.STOP)
    return Completion(text, calls, reason, usage)


def fails(code: CallFailure, *, after: str = "", retry_after_s: float | None = None) -> ChatCallFailed:
    return ChatCallFailed(f"it failed: {code}", code=code, retry_after_s=retry_after_s, partial_text=after)


def call(name: str, arguments: str = "{}", id: str = "call_0") -> ToolCall:  # noqa: A002
    return ToolCall(id, name, arguments)


@dataclass
class PlayedModel:
    """Plays its turns one after the other, or asks the function; every request is kept."""

    turns: list[Turn] = field(default_factory=list)
    play: Play | None = None
    name: str = "played"
    requests: list[tuple[Message, ...]] = field(default_factory=list)
    tools_allowed: list[bool] = field(default_factory=list)
    cache_keys: list[str | None] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        max_output_tokens: int,
        cache_key: str | None = None,
        allow_tools: bool = True,
        wants_json: bool = False,
    ) -> AsyncIterator[StreamItem]:
        self.requests.append(tuple(messages))
        self.tools_allowed.append(allow_tools)
        self.cache_keys.append(cache_key)
        turn = self.play(messages, allow_tools) if self.play is not None else self.turns.pop(0)
        text = turn.text if isinstance(turn, Completion) else getattr(turn, "partial_text", "half")
        for piece in _halves(text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        self.started.set()
        if isinstance(turn, ChatCallFailed):
            raise turn
        while isinstance(turn, str):
            await asyncio.Event().wait()
        yield turn

    async def aclose(self) -> None:
        pass


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [piece for piece in (text[:middle], text[middle:]) if piece]
