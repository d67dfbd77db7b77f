"""Calls of the real client to the scripted provider, from tests that are not asynchronous."""

import asyncio
from collections.abc import Sequence
from typing import Any

from pikobot.adapters.chat import ChatCallFailed, Completion, Message, TextDelta, ToolSchema
from pikobot.adapters.openai_chat import ChatEndpoint, OpenAIChatModel

API_KEY = "sk-test-0123456789abcdef"
NOW_MS = 1_785_500_000_000
HELLO = (Message("user", "Hello"),)


class StoppedClock:
    def now_ms(self) -> int:
        return NOW_MS

    def token(self, prefix: str) -> str:
        return f"{prefix}_1"


def model_at(base_url: str, *, silence_timeout_s: float = 30, **endpoint: Any) -> OpenAIChatModel:
    settings = {"base_url": base_url, "model": "scripted", "api_key": API_KEY, **endpoint}
    return OpenAIChatModel(
        ChatEndpoint(**settings), silence_timeout_s=silence_timeout_s, clock=StoppedClock()
    )


def answer(
    model: OpenAIChatModel,
    messages: Sequence[Message] = HELLO,
    tools: Sequence[ToolSchema] = (),
    **options: Any,
) -> Completion:
    """The completion of one call, checked against its deltas; the model is closed."""
    return asyncio.run(_answer(model, messages, tools, options))


async def _answer(
    model: OpenAIChatModel, messages: Sequence[Message], tools: Sequence[ToolSchema], options: dict[str, Any]
) -> Completion:
    try:
        items = [
            item async for item in model.stream(messages, tools, **{"max_output_tokens": 100, **options})
        ]
    finally:
        await model.aclose()
    *deltas, completion = items
    assert isinstance(completion, Completion)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == completion.text
    return completion


def failure(model: OpenAIChatModel, messages: Sequence[Message] = HELLO) -> ChatCallFailed:
    """The failure that one call must end with."""
    try:
        completion = answer(model, messages)
    except ChatCallFailed as failed:
        return failed
    raise AssertionError(f"the call succeeded: {completion}")
