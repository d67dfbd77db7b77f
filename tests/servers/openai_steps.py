"""Steps of the scripted provider: what it does with one request, as JSON, and the chunks that say it.

A step is an object; the first of these keys that it has decides what happens:

    text        streamed in ``chunks`` pieces with ``delay_ms`` between; ``reasoning``, ``refusal`` go along
    tool_calls  [{"name", "arguments", "id"?}], streamed side by side; ``text`` may come before them
    raw         a list of chunks as they are: objects become JSON, strings are sent unchanged
    status      an HTTP error with ``body`` (object or text) and ``headers``
    hang        "accept": not even headers; "headers": only those; "half": half of the answer, then nothing
    keepalive   comments for ever, one every ``delay_ms``
    truncate    half of this text, then a clean end without a finish reason
    reset       half of this text, then the connection is reset
    big         an answer of that many bytes
    malformed   "json", "html", "document" or "types"
    length      this text, cut off by the token limit
    extract     elements of an answer to an extraction request; a source id such as "owner:last" or "assistant:0"
                stands for the message of that role in the request, counted from its first

Any step may have ``usage`` (null: none is sent; default: made up), ``finish_reason``, ``done`` (false: the
stream ends without [DONE]) and ``match``: then it waits for a request whose body contains that text.
"""

import json
from collections.abc import Iterator
from typing import Any

Step = dict[str, Any]

_KINDS_BEFORE_TEXT = "tool_calls raw status hang keepalive truncate reset big malformed length extract"
KINDS = (*_KINDS_BEFORE_TEXT.split(), "text")
DEFAULT_CHUNKS = 3
BIG_PIECE_CHARS = 4096


def text(answer: str, **options: Any) -> Step:
    return {"text": answer, **options}


def tool_calls(*calls: tuple[str, str], **options: Any) -> Step:
    """Calls as pairs of name and raw arguments."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in calls], **options}


def extract(*elements: dict[str, Any], **options: Any) -> Step:
    """An answer to an extraction request, with ids of sources that only the request tells."""
    return {"extract": list(elements), **options}


def resolved(step: Step, request: dict[str, Any]) -> Step:
    """The step as it is played for a request."""
    if "extract" not in step:
        return step
    prompt = "\n".join(str(message.get("content") or "") for message in request.get("messages", []))
    rest = {key: value for key, value in step.items() if key != "extract"}
    return {"text": extraction_answer(step["extract"], prompt), **rest}


def extraction_answer(elements: list[dict[str, Any]], prompt: str) -> str:
    """The document of these elements, with the ids that the messages of the prompt have."""
    ids: dict[str, list[str]] = {}
    for turn in _turns(prompt):
        ids.setdefault(turn["role"], []).append(turn["source_id"])

    def known(name: str) -> str:
        role, _, place = name.partition(":")
        if role not in ids or not (place == "last" or place.isdecimal()):
            return name
        return ids[role][-1 if place == "last" else int(place)]

    for element in (elements := json.loads(json.dumps(elements))):
        for quote in element.get("evidence", []):
            quote["source_id"] = known(quote["source_id"])
        element["depends_on"] = [known(name) for name in element.get("depends_on", [])]
    numbered = [{"id": str(number), **element} for number, element in enumerate(elements)]
    return json.dumps({"memory": numbered}, ensure_ascii=False)


def _turns(prompt: str) -> Iterator[dict[str, Any]]:
    """The messages in an extraction prompt: lines of a role and a JSON object."""
    for line in prompt.splitlines():
        _, _, document = line.partition(": ")
        if document.startswith('{"source_id": "src_'):
            yield json.loads(document)


def status(code: int, body: object = None, **headers: str) -> Step:
    """An HTTP error; header names are written with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": code, "body": body, "headers": named}


def kind_of(step: Step) -> str:
    for kind in KINDS:
        if kind in step:
            return kind
    raise ValueError(f"no such step: {sorted(step)}; known are {', '.join(KINDS)}")


def deltas(step: Step) -> list[dict[str, Any]]:
    """The deltas of an answer, without its finish reason."""
    kind = kind_of(step)
    if kind == "big":
        return [{"content": piece} for piece in _big_pieces(int(step["big"]))]
    count = int(step.get("chunks", DEFAULT_CHUNKS))
    found: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    found += [{"reasoning_content": piece} for piece in pieces(step.get("reasoning", ""), count)]
    found += [{"content": piece} for piece in pieces(_answer_text(step, kind), count)]
    found += [{"refusal": piece} for piece in pieces(step.get("refusal", ""), count)]
    if kind == "tool_calls":
        found += [{"tool_calls": [delta]} for delta in _call_deltas(step["tool_calls"], count)]
    return found


def finish_reason(step: Step) -> str:
    default = {"length": "length", "tool_calls": "tool_calls"}.get(kind_of(step), "stop")
    return str(step.get("finish_reason", default))


def usage_of(step: Step) -> dict[str, Any] | None:
    default = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    found: dict[str, Any] | None = step.get("usage", default)
    return found


def chunk(model: str, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": model,
        "choices": choices,
        **more,
    }


def whole_message(step: Step) -> dict[str, Any]:
    """The message of an answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": _answer_text(step, kind_of(step)) or None}
    if "tool_calls" in step:
        message["tool_calls"] = [
            {
                "id": _call_id(call, n),
                "type": "function",
                "function": _function(call["name"], call["arguments"]),
            }
            for n, call in enumerate(step["tool_calls"])
        ]
    return message


def pieces(whole: str, count: int) -> list[str]:
    """The text in at most ``count`` pieces, none empty."""
    size = max(1, -(-len(whole) // max(1, count)))
    return [whole[start : start + size] for start in range(0, len(whole), size)]


def malformed_body(form: str, model: str) -> tuple[str, str]:
    """Content type and body of an answer that is none."""
    if form == "html":
        return "text/html", "<!doctype html>\n<html><body>Welcome to the proxy</body></html>"
    if form == "document":
        document = {"choices": [{"message": {"role": "assistant", "content": "not streamed"}}]}
        return "application/json", json.dumps(document)
    if form == "types":
        return (
            "text/event-stream",
            f"data: {json.dumps(chunk(model, [{'index': 0, 'delta': {'content': 7}}]))}\n\n",
        )
    if form == "json":
        return "text/event-stream", 'data: {"choices": [{"delta": {"content": "half\n\n'
    raise ValueError(f"no such malformed answer: {form}")


def _answer_text(step: Step, kind: str) -> str:
    if kind in ("length", "truncate", "reset"):
        return str(step[kind])
    if kind == "big":
        return "".join(_big_pieces(int(step["big"])))
    return str(step.get("text") or "")


def _big_pieces(size: int) -> Iterator[str]:
    for start in range(0, size, BIG_PIECE_CHARS):
        yield "x" * min(BIG_PIECE_CHARS, size - start)


def _call_deltas(calls: list[dict[str, Any]], count: int) -> Iterator[dict[str, Any]]:
    """Parallel calls, their arguments interleaved piece by piece."""
    for index, call in enumerate(calls):
        yield {
            "index": index,
            "id": _call_id(call, index),
            "type": "function",
            "function": _function(call["name"], ""),
        }
    split = [pieces(call["arguments"], count) for call in calls]
    for round_number in range(max((len(parts) for parts in split), default=0)):
        for index, parts in enumerate(split):
            if round_number < len(parts):
                yield {"index": index, "function": {"arguments": parts[round_number]}}


def _call_id(call: dict[str, Any], index: int) -> str:
    return str(call.get("id", f"call_{index}"))


def _function(name: str, arguments: str) -> dict[str, str]:
    return {"name": name, "arguments": arguments}
