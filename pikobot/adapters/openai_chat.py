"""A chat model behind any OpenAI-compatible endpoint: one streamed request, told in the words of ``chat``.

Flow of a call: request → bytes → events (``sse``) → chunks (``chat_chunks``) → deltas and one Completion.
The provider's client and its failures live in ``openai_client``, imported with the first call because that
takes a second: importing this module costs nothing. Nothing is retried, nothing is logged, and the
environment's OPENAI_* variables decide nothing.
"""

import asyncio
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pikobot.adapters.chat import CallFailure, ChatCallFailed, Message, StreamItem, TextDelta, ToolSchema
from pikobot.adapters.chat_chunks import AnswerBuilder, well_formed
from pikobot.adapters.sse import EventDecoder
from pikobot.clock import Clock

if TYPE_CHECKING:
    from pikobot.adapters.openai_client import ProviderClient

USAGE_GRACE_S = 5.0  # after the finish reason: how long a usage report is waited for
END_GRACE_S = (
    0.1  # after [DONE]: how long the end of the body is waited for, so that the connection can be reused
)
_DONE = b"[DONE]"
_CACHE_KEY_HOST = "api.openai.com"


@dataclass(frozen=True, kw_only=True)
class ChatEndpoint:
    """Where a model is, and what the settings that say so are called, so that a failure can name them."""

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)  # None: a local endpoint that needs none
    key_variable: str = "PIKOBOT_CHAT_API_KEY"
    section: str = "chat"  # of config.toml: chat.base_url, chat.model
    can_charge: bool = True

    @property
    def host(self) -> str:
        """Host and port alone: the URL may carry a password."""
        try:
            return urlsplit(self.base_url).netloc.rpartition("@")[2]
        except ValueError:
            return ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may show."""
        return (self.api_key,) if self.api_key else ()

    @property
    def unknown_outcome(self) -> str:
        """What to add to the failure of a call that may have been worked on."""
        return "; it may have charged, so the request is not repeated" if self.can_charge else ""


class OpenAIChatModel:
    """One model at one endpoint, for one event loop. Close it with ``aclose``."""

    def __init__(self, endpoint: ChatEndpoint, *, silence_timeout_s: float, clock: Clock) -> None:
        """``silence_timeout_s`` is the longest time without a chunk, the wait for the first one included."""
        self._endpoint = endpoint
        self._silence_timeout_s = silence_timeout_s
        self._clock = clock
        self._client: ProviderClient | None = None
        self._opening = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._endpoint.model

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        max_output_tokens: int,
        cache_key: str | None = None,
        allow_tools: bool = True,
        wants_json: bool = False,
    ) -> AsyncGenerator[StreamItem, None]:
        """As ``ChatModel.stream``."""
        request = self._request(
            messages, tools, max_output_tokens, cache_key=cache_key, allow_tools=allow_tools
        )
        if wants_json:
            request["response_format"] = {"type": "json_object"}
        answer = AnswerBuilder(secrets=self._endpoint.secrets)
        try:
            client = await self._open()
            async with aclosing(self._deltas(client, request, answer)) as texts:
                async for text in texts:
                    yield TextDelta(text)
            yield answer.completion()
        except ChatCallFailed as failure:
            failure.partial_text = answer.text
            raise

    async def _open(self) -> "ProviderClient":
        async with self._opening:
            if self._client is None:
                module = await asyncio.to_thread(importlib.import_module, "pikobot.adapters.openai_client")
                self._client = module.ProviderClient(
                    self._endpoint, silence_timeout_s=self._silence_timeout_s, clock=self._clock
                )
            return self._client

    def _request(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        max_output_tokens: int,
        *,
        cache_key: str | None,
        allow_tools: bool,
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": [_sendable(message).to_json() for message in messages],
            "max_tokens": max_output_tokens,
            "stream_options": {"include_usage": True},
        }
        if tools:
            request["tools"] = [tool.to_json() for tool in tools]
            if not allow_tools:
                request["tool_choice"] = "none"
        if cache_key is not None and self._endpoint.host == _CACHE_KEY_HOST:
            request["prompt_cache_key"] = cache_key
        return request

    async def _deltas(
        self, client: "ProviderClient", request: dict[str, Any], answer: AnswerBuilder
    ) -> AsyncGenerator[str, None]:
        """Visible text as it comes; returns when the answer is complete or the stream has ended."""
        decoder = EventDecoder()
        async with AsyncExitStack() as connection:
            try:
                async with asyncio.timeout(self._silence_timeout_s):
                    body = await connection.enter_async_context(client.open(request))
            except TimeoutError as error:
                raise self._silent() from error
            while (events := await self._next_events(body, decoder, answer)) is not None:
                for data in events:
                    if data.strip() == _DONE:
                        await _drain(body)
                        return
                    if text := answer.add(data):
                        yield text
        if not decoder.has_seen_event and decoder.has_foreign_line:
            raise self._no_event_stream()

    async def _next_events(
        self, body: AsyncIterator[bytes], decoder: EventDecoder, answer: AnswerBuilder
    ) -> list[bytes] | None:
        """The next events, at least one; None at the end. Keep-alive comments do not make the wait longer.

        Once the answer has its finish reason, silence or a lost connection is an end like any other.
        """
        try:
            async with asyncio.timeout(USAGE_GRACE_S if answer.is_finished else self._silence_timeout_s):
                async for chunk in body:
                    if events := decoder.feed(chunk):
                        return events
        except TimeoutError as error:
            if not answer.is_finished:
                raise self._silent() from error
        except ChatCallFailed as failure:
            if not answer.is_finished or failure.code is not CallFailure.TRUNCATED:
                raise
        return None

    def _silent(self) -> ChatCallFailed:
        return ChatCallFailed(
            f"{self._endpoint.host} sent nothing for {self._silence_timeout_s:g} s"
            f"{self._endpoint.unknown_outcome}; a slow model needs a higher {self._endpoint.section}.timeout_s",
            code=CallFailure.TIMED_OUT,
        )

    def _no_event_stream(self) -> ChatCallFailed:
        return ChatCallFailed(
            f"{self._endpoint.host} answered with something that is not a chat completion stream; check that "
            f"{self._endpoint.section}.base_url is the address of an OpenAI-compatible endpoint",
            code=CallFailure.MALFORMED,
        )


def _sendable(message: Message) -> Message:
    """The message without lone surrogates, which no request can carry."""
    calls = tuple(replace(call, arguments=well_formed(call.arguments)) for call in message.tool_calls)
    return replace(message, content=well_formed(message.content), tool_calls=calls)


async def _drain(body: AsyncIterator[bytes]) -> None:
    with suppress(TimeoutError, ChatCallFailed):
        async with asyncio.timeout(END_GRACE_S):
            async for _ in body:
                pass
