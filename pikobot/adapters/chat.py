"""What the program and a chat model say to each other: messages, tools, answers, failures.

The agent loop, extraction and summaries speak in these types; ``openai_chat`` is the one that talks to a
provider, and a test may put any other ``ChatModel`` in its place. No client code here and no heavy import.

Every failure of a call is a ``ChatCallFailed``, and its code alone decides the two things that matter:

    code                charged?  repeat?   meaning
    unreachable         no        yes       no connection was established
    rate_limited        no        yes       429; wait ``retry_after_s``
    refused_request     no        no        any other refusal of the request (4xx, redirect, bad URL)
    unauthorized        no        no        401, 403, or a key that no header can carry
    payment_required    no        no        402, or a 429 that says the quota is used up
    not_found           no        no        404: wrong base URL or model
    server_error        maybe     no        5xx, or an error reported inside the answer
    timed_out           maybe     no        longer than the allowed time without a chunk
    truncated           maybe     no        the answer broke off before its finish reason
    malformed           maybe     no        the answer is not what the protocol says
    too_large           maybe     no        the answer is larger than MAX_ANSWER_BYTES

"Maybe" means that the outcome is unknown, and an unknown outcome is never repeated by itself.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol, TypeAlias, cast

from pikobot.errors import DamagedData, ProviderError

MAX_ANSWER_BYTES = 2 * 1024 * 1024

Role = Literal["system", "user", "assistant", "tool"]
_ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class ToolCall:
    """A call that the model asks for; ``arguments`` is its raw text, unchecked: it may be no JSON at all."""

    id: str
    name: str
    arguments: str

    def to_json(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True)
class Message:
    """One message of a conversation with the model. ``cut_off`` says what ended an answer before its end."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    cut_off: "StopReason | None" = None

    def to_json(self) -> dict[str, Any]:
        """The chat completions wire form."""
        wire: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            wire["tool_calls"] = [call.to_json() for call in self.tool_calls]
        if self.tool_call_id is not None:
            wire["tool_call_id"] = self.tool_call_id
        return wire

    def to_stored(self) -> dict[str, Any]:
        """The form in which a run keeps its transcript: ``to_json``, and what cut the answer off."""
        return self.to_json() | ({} if self.cut_off is None else {"cut_off": self.cut_off.value})

    @classmethod
    def from_json(cls, wire: Mapping[str, Any]) -> "Message":
        """The inverse of ``to_stored``; ``content`` may be null. Raises DamagedData that names the key."""
        role = wire.get("role")
        if role not in _ROLES:
            raise _damaged("role")
        call_id = wire.get("tool_call_id")
        if call_id is not None and not isinstance(call_id, str):
            raise _damaged("tool_call_id")
        cut_off = wire.get("cut_off")
        if cut_off not in (None, *StopReason):
            raise _damaged("cut_off")
        calls = wire.get("tool_calls") or []
        if not isinstance(calls, list):
            raise _damaged("tool_calls")
        content = "" if wire.get("content") is None else _text_at(wire, "content")
        # The check above is one that mypy can't follow from a mapping of Any.
        return cls(
            cast(Role, role),
            content,
            tuple(_tool_call(call) for call in calls),
            call_id,
            None if cut_off is None else StopReason(cut_off),
        )


@dataclass(frozen=True)
class ToolSchema:
    """A tool on offer. ``parameters`` is a JSON schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Usage:
    """Tokens of one call; ``input_tokens`` counts the whole prompt, its cached part included."""

    input_tokens: int
    cached_input_tokens: int
    output_tokens: int


class StopReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the visible answer, never empty."""

    text: str


@dataclass(frozen=True)
class Completion:
    """The last item of a stream: the whole answer. ``usage`` is None when the provider reported none."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    stop_reason: StopReason
    usage: Usage | None

    def as_message(self) -> Message:
        """The answer as it stands in the conversation from now on."""
        is_whole = self.stop_reason in (StopReason.STOP, StopReason.TOOL_CALLS)
        return Message(
            "assistant", self.text, self.tool_calls, cut_off=None if is_whole else self.stop_reason
        )


StreamItem: TypeAlias = TextDelta | Completion


class CallFailure(StrEnum):
    """Why a call failed; the table in the module's docstring says what follows from each."""

    UNREACHABLE = "unreachable"
    RATE_LIMITED = "rate_limited"
    REFUSED_REQUEST = "refused_request"
    UNAUTHORIZED = "unauthorized"
    PAYMENT_REQUIRED = "payment_required"
    NOT_FOUND = "not_found"
    SERVER_ERROR = "server_error"
    TIMED_OUT = "timed_out"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"

    @property
    def may_have_charged(self) -> bool:
        return self in _OUTCOME_UNKNOWN

    @property
    def is_retryable(self) -> bool:
        return self in (CallFailure.UNREACHABLE, CallFailure.RATE_LIMITED)


_OUTCOME_UNKNOWN = frozenset(
    {
        CallFailure.SERVER_ERROR,
        CallFailure.TIMED_OUT,
        CallFailure.TRUNCATED,
        CallFailure.MALFORMED,
        CallFailure.TOO_LARGE,
    }
)


class ChatCallFailed(ProviderError):
    """A call that brought no complete answer. ``partial_text`` is what had been streamed until then."""

    def __init__(
        self, message: str, *, code: CallFailure, retry_after_s: float | None = None, partial_text: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.may_have_charged = code.may_have_charged
        self.is_retryable = code.is_retryable
        self.retry_after_s = retry_after_s
        self.partial_text = partial_text


class ChatModel(Protocol):
    """A model that answers one request at a time, as a stream."""

    @property
    def name(self) -> str:
        """The model's name, as the provider knows it."""
        ...

    def stream(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSchema],
        *,
        max_output_tokens: int,
        cache_key: str | None = None,
        allow_tools: bool = True,
        wants_json: bool = False,
    ) -> AsyncIterator[StreamItem]:
        """Make exactly one provider call: text deltas as they come, then one Completion, last.

        With ``allow_tools=False`` the tools are still sent, so that the prompt's prefix stays the same, but
        the model is told to call none. ``wants_json`` asks for one JSON object; some servers ignore that.
        Raises ChatCallFailed. Whoever may leave before the Completion wraps the stream in ``closing``: then the
        connection closes at once, not when it is collected.
        """
        ...


@asynccontextmanager
async def closing(stream: AsyncIterator[StreamItem]) -> AsyncIterator[AsyncIterator[StreamItem]]:
    """``async with closing(model.stream(…)) as items`` ends the call on every way out."""
    try:
        yield stream
    finally:
        aclose = getattr(stream, "aclose", None)
        if aclose is not None:
            await aclose()


def _tool_call(wire: object) -> ToolCall:
    function = wire.get("function") if isinstance(wire, Mapping) else None
    if not isinstance(wire, Mapping) or not isinstance(function, Mapping):
        raise _damaged("tool_calls")
    return ToolCall(_text_at(wire, "id"), _text_at(function, "name"), _text_at(function, "arguments"))


def _text_at(wire: Mapping[str, Any], key: str) -> str:
    value = wire.get(key)
    if not isinstance(value, str):
        raise _damaged(key)
    return value


def _damaged(key: str) -> DamagedData:
    return DamagedData(f"a stored model message has a wrong or missing {key!r}; run `pikobot verify`")
