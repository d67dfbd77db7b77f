"""The chunks of a streamed chat completion, put together into one answer.

Chunks are checked here and nowhere else. Providers differ in small things, and what can be understood is
accepted: tool calls without index or id, arguments as an object, a refusal instead of content, usage in two
dialects, finish reasons of several servers. ``reasoning_content`` is never part of anything. What cannot be
understood fails the call as malformed; messages name the place, never the content.
"""

import hashlib
import json
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from pikobot.adapters.chat import (
    MAX_ANSWER_BYTES,
    CallFailure,
    ChatCallFailed,
    Completion,
    StopReason,
    ToolCall,
    Usage,
)
from pikobot.redaction import redact

MAX_TOOL_CALLS = 128
MAX_DETAIL_CHARS = 200
_MAX_COUNTED_TOKENS = 10**12
_MAX_REASON_CHARS = 40

_STOP_REASONS = {
    "stop": StopReason.STOP,
    "eos": StopReason.STOP,
    "eos_token": StopReason.STOP,
    "stop_sequence": StopReason.STOP,
    "end_turn": StopReason.STOP,
    "length": StopReason.LENGTH,
    "max_tokens": StopReason.LENGTH,
    "model_length": StopReason.LENGTH,
    "tool_calls": StopReason.TOOL_CALLS,
    "tool_use": StopReason.TOOL_CALLS,
    "function_call": StopReason.TOOL_CALLS,
    "content_filter": StopReason.CONTENT_FILTER,
    "sensitive": StopReason.CONTENT_FILTER,
}


def _none_as_empty_object(value: object) -> object:
    return {} if value is None else value


def _none_as_empty_list(value: object) -> object:
    return [] if value is None else value


def _object_as_text(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


class _Function(BaseModel):
    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_object_as_text)] = None


class _CallDelta(BaseModel):
    index: int | None = None
    id: str | None = None
    function: Annotated[_Function, BeforeValidator(_none_as_empty_object)] = _Function()


class _Delta(BaseModel):
    content: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[_CallDelta], BeforeValidator(_none_as_empty_list)] = []


class _Choice(BaseModel):
    index: int | None = 0
    delta: Annotated[_Delta, BeforeValidator(_none_as_empty_object)] = _Delta()
    finish_reason: str | None = None


class _Chunk(BaseModel):
    choices: Annotated[list[_Choice], BeforeValidator(_none_as_empty_list)] = []
    usage: Any = None
    error: Any = None


_Tokens = Annotated[int, Field(ge=0, le=_MAX_COUNTED_TOKENS)]


class _PromptDetails(BaseModel):
    cached_tokens: _Tokens | None = None


class _UsageReport(BaseModel):
    prompt_tokens: _Tokens
    completion_tokens: _Tokens
    prompt_tokens_details: _PromptDetails | None = None
    prompt_cache_hit_tokens: _Tokens | None = None


@dataclass
class _PartialCall:
    index: int | None
    id: str
    name: str
    arguments: list[str]


class AnswerBuilder:
    """Takes the data of one event after another; knows the text so far and, in the end, the completion."""

    def __init__(self, *, secrets: tuple[str, ...] = ()) -> None:
        """``secrets`` never appear in a failure's message, even if the provider repeats them."""
        self._secrets = secrets
        self._text: list[str] = []
        self._half_pair = ""
        self._bytes = 0
        self._calls: list[_PartialCall] = []
        self._stop_reason: StopReason | None = None
        self._is_refusal = False
        self._usage: Usage | None = None

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def is_finished(self) -> bool:
        """Whether the finish reason has come; only a usage report may still follow."""
        return self._stop_reason is not None

    def add(self, data: bytes) -> str:
        """Take one event; returns its visible text, often none. Raises ChatCallFailed."""
        chunk = _parse_chunk(data)
        if chunk.error:
            raise _reported_error(chunk.error, self._secrets)
        self._usage = _usage(chunk.usage) or self._usage
        return "".join(self._add_choice(choice) for choice in chunk.choices if not choice.index)

    def completion(self) -> Completion:
        """The whole answer. Raises ChatCallFailed if it broke off, or a tool call has no name."""
        if self._stop_reason is None:
            raise ChatCallFailed(
                "the model's answer broke off before its end; it may have been charged",
                code=CallFailure.TRUNCATED,
            )
        calls = tuple(self._tool_call(position) for position in range(len(self._calls)))
        return Completion(self.text, calls, self._final_reason(), self._usage)

    def _add_choice(self, choice: _Choice) -> str:
        for call in choice.delta.tool_calls:
            self._add_call(call)
        self._is_refusal = self._is_refusal or bool(choice.delta.refusal)
        text = self._whole_characters((choice.delta.content or "") + (choice.delta.refusal or ""))
        if text:
            self._count(text)
            self._text.append(text)
        if choice.finish_reason:
            self._stop_reason = _stop_reason(choice.finish_reason)
        return text

    def _add_call(self, delta: _CallDelta) -> None:
        name, arguments = delta.function.name or "", delta.function.arguments or ""
        self._count(name + arguments + (delta.id or ""))
        call = self._find_call(delta)
        if call is None:
            if len(self._calls) >= MAX_TOOL_CALLS:
                raise _malformed(f"more than {MAX_TOOL_CALLS} tool calls")
            self._calls.append(_PartialCall(delta.index, delta.id or "", name, [arguments]))
            return
        call.id = call.id or delta.id or ""
        if name != call.name:  # some servers repeat the name in every chunk
            call.name += name
        call.arguments.append(arguments)

    def _find_call(self, delta: _CallDelta) -> _PartialCall | None:
        """The call that a delta continues; None if it starts one.

        Its index decides, unless another id comes with a name: some servers give every call the index 0.
        Without an index its id decides, and without an id a name starts a call and anything else continues.
        """
        if delta.index is not None:
            same = [call for call in self._calls if call.index == delta.index]
        elif delta.id:
            same = [call for call in self._calls if call.id == delta.id]
        else:
            same = [] if delta.function.name else self._calls
        call = same[-1] if same else None
        if call and delta.function.name and delta.id and call.id and delta.id != call.id:
            return None
        return call

    def _tool_call(self, position: int) -> ToolCall:
        call = self._calls[position]
        if not call.name:
            raise _malformed("a tool call without a name")
        name, arguments = well_formed(call.name), well_formed("".join(call.arguments))
        is_id_usable = call.id and all(call.id != other.id for other in self._calls[:position])
        return ToolCall(
            well_formed(call.id) if is_id_usable else _invented_id(position, name, arguments),
            name,
            arguments,
        )

    def _final_reason(self) -> StopReason:
        if self._is_refusal:
            return StopReason.CONTENT_FILTER
        if self._stop_reason is StopReason.STOP and self._calls:
            return StopReason.TOOL_CALLS
        if self._stop_reason is StopReason.TOOL_CALLS and not self._calls:
            return StopReason.STOP
        return self._stop_reason or StopReason.STOP

    def _whole_characters(self, text: str) -> str:
        """Text without the half of a surrogate pair at its end, which waits for the other half."""
        text, self._half_pair = self._half_pair + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half_pair = text[:-1], text[-1]
        return well_formed(text)

    def _count(self, text: str) -> None:
        self._bytes += len(text.encode(errors="surrogatepass"))
        if self._bytes > MAX_ANSWER_BYTES:
            raise ChatCallFailed(
                f"the model's answer is larger than {MAX_ANSWER_BYTES} bytes and was given up; "
                "lower chat.max_output_tokens",
                code=CallFailure.TOO_LARGE,
            )


def well_formed(text: str) -> str:
    """Halves of surrogate pairs joined, and lone ones replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def short_detail(text: str, secrets: tuple[str, ...] = ()) -> str:
    """What a provider said about an error: redacted, one line, MAX_DETAIL_CHARS at most."""
    redacted = redact(well_formed(text[: 20 * MAX_DETAIL_CHARS]), secrets)
    line = " ".join("".join(char if char.isprintable() else " " for char in redacted).split())
    return line if len(line) <= MAX_DETAIL_CHARS else line[: MAX_DETAIL_CHARS - 1] + "…"


def error_text(body: object) -> str:
    """The sentence in a provider's error body, whichever of the usual shapes it has."""
    if isinstance(body, dict):
        for key in ("message", "error", "detail", "msg"):
            if body.get(key):
                return error_text(body[key])
    return body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, default=str)


def _parse_chunk(data: bytes) -> _Chunk:
    try:
        document = json.loads(data)
        return _Chunk.model_validate(document)
    except ValidationError as error:
        place = ".".join(str(step) for step in error.errors()[0]["loc"])
        raise _malformed(f"a chunk of the wrong shape (at {place or 'its top'})") from None
    except (ValueError, RecursionError):
        raise _malformed("a chunk that is not JSON") from None


def _stop_reason(reported: str) -> StopReason:
    reason = _STOP_REASONS.get(reported.lower())
    if reason is None:
        shown = short_detail(reported)[:_MAX_REASON_CHARS]
        raise ChatCallFailed(
            f"the model's provider ended the answer with {shown!r}, before it was complete; "
            "it may have been charged",
            code=CallFailure.SERVER_ERROR,
        )
    return reason


def _usage(reported: object) -> Usage | None:
    """A usage report that makes no sense is no reason to lose the answer: then there is none."""
    try:
        report = _UsageReport.model_validate(reported)
    except ValidationError:
        return None
    details = report.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or report.prompt_cache_hit_tokens or 0
    return Usage(report.prompt_tokens, min(cached, report.prompt_tokens), report.completion_tokens)


def _invented_id(position: int, name: str, arguments: str) -> str:
    """The same for the same call, so that a recorded answer and its results still belong together."""
    digest = hashlib.sha256(f"{position}\0{name}\0{arguments}".encode()).hexdigest()
    return f"call_{digest[:24]}"


def _reported_error(error: object, secrets: tuple[str, ...]) -> ChatCallFailed:
    return ChatCallFailed(
        f"the model's provider reported an error in its answer: {short_detail(error_text(error), secrets)}",
        code=CallFailure.SERVER_ERROR,
    )


def _malformed(what: str) -> ChatCallFailed:
    return ChatCallFailed(
        f"the model's provider sent {what}; it may have been charged; "
        "check that its base_url is that of an OpenAI-compatible endpoint",
        code=CallFailure.MALFORMED,
    )
