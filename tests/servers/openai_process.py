"""The scripted provider itself: a small HTTP server on loopback that plays its steps one request at a time.

It runs as its own process, so that it outlives the program under test. Under /control a test reads what was
received and adds steps; everything else is the provider's API. A request's outcome is "running", "answered",
"broken" (as its step said) or "client_left" (the other side closed the connection first).
"""

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers import openai_embeddings as embedding
from tests.servers import openai_steps as steps
from tests.servers.openai_steps import Step

DEFAULT_ECHO = "echo: {text}"
KEEPALIVE_DELAY_MS = 20
STEP_KINDS_WITHOUT_ANSWER = ("status", "hang", "keepalive", "malformed", "raw")


@dataclass
class Received:
    """One request to the provider's API, as a test gets to see it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    outcome: str = "running"


class ClientLeft(Exception):
    """The other side closed the connection while a step was being played."""


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            await self.writer.drain()
        except ConnectionError as error:
            raise ClientLeft from error

    async def send_head(self, status: int, headers: dict[str, str]) -> None:
        lines = [
            f"HTTP/1.1 {status} {_reason(status)}",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        await self.send("\r\n".join([*lines, "", ""]).encode())

    async def send_whole(self, status: int, content_type: str, body: bytes, **headers: str) -> None:
        await self.send_head(
            status, {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}
        )
        await self.send(body)

    async def send_chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def wait_until_left(self) -> None:
        """Returns never: raises ClientLeft when the other side closes."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(1024):
                pass
        raise ClientLeft

    async def pause(self, delay_ms: int) -> None:
        if delay_ms:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait_until_left(), delay_ms / 1000)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass
class Provider:
    script: list[Step]
    echo: str = DEFAULT_ECHO
    received: list[Received] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        with contextlib.suppress(ClientLeft, ConnectionError, asyncio.IncompleteReadError):
            while True:
                method, target, headers, body = await _read_request(reader)
                if target.startswith("/control/"):
                    await self._control(connection, method, target, body)
                elif not await self._answer(connection, method, target, headers, body):
                    break
        writer.close()

    async def _answer(
        self, connection: Connection, method: str, target: str, headers: dict[str, str], body: bytes
    ) -> bool:
        """Play the next step; False when the connection is over with it."""
        received = Received(method, target, headers, json.loads(body) if body else None)
        step = self._next_step(received)
        await self._note(lambda: self.received.append(received))
        outcome = "client_left"
        try:
            outcome = await self._play(connection, step, received)
        finally:
            await self._note(lambda: setattr(received, "outcome", outcome))
        return outcome == "answered"

    async def _play(self, connection: Connection, step: Step, received: Received) -> str:
        if received.method == "GET":
            listing = {"object": "list", "data": [{"id": "scripted", "object": "model"}]}
            await connection.send_whole(200, "application/json", json.dumps(listing).encode())
            return "answered"
        if embedding.is_embeddings(received.path):
            return await _play_embeddings(connection, step, received.body)
        step = steps.resolved(step, received.body)
        kind = steps.kind_of(step)
        if kind == "status":
            return await _play_status(connection, step)
        if kind == "malformed":
            content_type, text = steps.malformed_body(step["malformed"], "scripted")
            await connection.send_whole(200, content_type, text.encode())
            return "answered"
        if kind == "hang" and step["hang"] == "accept":
            await connection.wait_until_left()
        if not received.body.get("stream") and kind not in STEP_KINDS_WITHOUT_ANSWER:
            return await _play_document(connection, step, received.body)
        return await _play_stream(connection, step, received.body)

    def _next_step(self, received: Received) -> Step:
        if received.method == "GET":
            return {"text": ""}
        document = json.dumps(received.body, ensure_ascii=False)
        target = embedding.TARGET if embedding.is_embeddings(received.path) else None
        for position, step in enumerate(self.script):
            if step.get("to") == target and step.get("match", "") in document:
                return self.script.pop(position)
        if target is not None:
            return embedding.vectors()
        return {"text": self.echo.replace("{text}", _last_user_text(received.body))}

    async def _control(self, connection: Connection, method: str, target: str, body: bytes) -> None:
        address = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        if address.path == "/control/steps" and method == "POST":
            self.script.extend(json.loads(body))
        if address.path == "/control/reset" and method == "POST":
            self.script, self.received = [], []
        if address.path == "/control/wait":
            await self._wait(int(query["count"]), query.get("outcome"))
        state = {"requests": [asdict(one) for one in self.received], "steps_left": len(self.script)}
        await connection.send_whole(200, "application/json", json.dumps(state).encode())

    async def _wait(self, count: int, outcome: str | None) -> None:
        """Until so many requests have come, and as many of them have this outcome, if one is given."""
        async with self.changed:
            await self.changed.wait_for(
                lambda: len([one for one in self.received if outcome in (None, one.outcome)]) >= count
            )

    async def _note(self, change: Any) -> None:
        async with self.changed:
            change()
            self.changed.notify_all()


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ", 2)
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return method, target, headers, body


async def _play_status(connection: Connection, step: Step) -> str:
    body = step.get("body")
    is_text = isinstance(body, str)
    data = body.encode() if isinstance(body, str) else json.dumps(body or {}).encode()
    content_type = "text/plain" if is_text else "application/json"
    await connection.send_whole(int(step["status"]), content_type, data, **step.get("headers", {}))
    return "answered"


async def _play_embeddings(connection: Connection, step: Step, request: dict[str, Any]) -> str:
    await connection.pause(int(step.get("delay_ms", 0)))
    if "status" in step:
        return await _play_status(connection, step)
    if "malformed" in step:
        content_type, text = steps.malformed_body(step["malformed"], "scripted")
        await connection.send_whole(200, content_type, text.encode())
        return "answered"
    if step.get("hang") == "accept":
        await connection.wait_until_left()
    body = embedding.answer(step, request)
    await connection.send_head(200, {"Content-Type": "application/json", "Content-Length": str(len(body))})
    if "hang" in step:
        await connection.wait_until_left()
    await connection.send(body[: len(body) // 2] if "cut" in step else body)
    return "broken" if "cut" in step else "answered"


async def _play_document(connection: Connection, step: Step, request: dict[str, Any]) -> str:
    message = steps.whole_message(step)
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": steps.finish_reason(step)}],
        "usage": steps.usage_of(step),
    }
    await connection.send_whole(200, "application/json", json.dumps(document).encode())
    return "answered"


async def _play_stream(connection: Connection, step: Step, request: dict[str, Any]) -> str:
    kind = steps.kind_of(step)
    await connection.send_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
    if kind == "hang" and step["hang"] == "headers":
        await connection.wait_until_left()
    while kind == "keepalive":
        await connection.send_chunk(b": still here\n\n")
        await connection.pause(int(step.get("delay_ms", KEEPALIVE_DELAY_MS)))
    for data in _events(step, request):
        await connection.send_chunk(data)
        await connection.pause(int(step.get("delay_ms", 0)))
    if kind == "hang":
        await connection.wait_until_left()
    if kind == "reset":
        connection.reset()
        return "broken"
    await connection.send(b"0\r\n\r\n")
    return "broken" if kind == "truncate" else "answered"


def _events(step: Step, request: dict[str, Any]) -> Iterator[bytes]:
    model, kind = str(request.get("model")), steps.kind_of(step)
    if kind == "raw":
        for item in step["raw"]:
            yield item.encode() if isinstance(item, str) else _event(item)
        return
    found = steps.deltas(step)
    is_whole = kind not in ("hang", "truncate", "reset")
    for delta in found if is_whole else found[: 1 + len(found) // 2]:
        yield _event(steps.chunk(model, [{"index": 0, "delta": delta, "finish_reason": None}]))
    if not is_whole:
        return
    yield _event(steps.chunk(model, [{"index": 0, "delta": {}, "finish_reason": steps.finish_reason(step)}]))
    usage = steps.usage_of(step)
    if usage is not None and (request.get("stream_options") or {}).get("include_usage"):
        yield _event(steps.chunk(model, [], usage=usage))
    if step.get("done", True):
        yield b"data: [DONE]\n\n"


def _event(document: object) -> bytes:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n".encode()


def _last_user_text(request: dict[str, Any]) -> str:
    texts = [message["content"] for message in request.get("messages", []) if message.get("role") == "user"]
    return str(texts[-1]) if texts else ""


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


async def _exit_with_stdin() -> None:
    """Ends when the process that started this one is gone: its end of the pipe closes."""
    await asyncio.to_thread(sys.stdin.buffer.read)


async def run(port: int, script: list[Step], *, echo: str, follows_stdin: bool) -> None:
    provider = Provider(script, echo)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", port, limit=64 * 1024 * 1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await (_exit_with_stdin() if follows_stdin else asyncio.Event().wait())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.openai_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free port; it is printed first")
    parser.add_argument("--script", type=Path, help="JSON file: a list of steps")
    parser.add_argument("--echo", default=DEFAULT_ECHO, help="the answer when no step is left")
    parser.add_argument("--follow-stdin", action="store_true", help="exit when standard input closes")
    options = parser.parse_args()
    script = json.loads(options.script.read_text("utf-8")) if options.script else []
    asyncio.run(run(options.port, script, echo=options.echo, follows_stdin=options.follow_stdin))
