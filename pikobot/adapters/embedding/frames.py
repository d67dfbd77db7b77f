"""What goes through the pipes between the program and the process of a local model, and the child's side of it.

    request   length (u32), then JSON {"id", "is_query", "text"}
    answer    length, id (u32 each), kind (u8), then the body: a vector as little-endian float32, or a message

The child says READY or REFUSED first, answers in any order, and ends when its standard input closes: a parent that
was killed leaves no child behind. Messages name kinds of errors, never a text. Only the standard library is loaded
here, and nothing but answers is written to the pipe: what native code prints goes to standard error.
"""

import json
import os
import struct
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum
from typing import Any, BinaryIO, Protocol

LENGTH = struct.Struct(">I")
HEAD = struct.Struct(">IIB")
MAX_ANSWER_BYTES = 4 * 16_384  # a vector of the largest dimension


class Kind(IntEnum):
    READY = 0
    REFUSED = 1
    VECTOR = 2
    FAILED = 3


class Model(Protocol):
    """A loaded model; called from several threads at once."""

    def embed(self, text: str, *, is_query: bool) -> bytes:
        """Little-endian float32, of any length."""
        ...


class ModelMissing(Exception):
    """The model can't be loaded; the message says why and what to do."""


def request_frame(number: int, text: str, *, is_query: bool) -> bytes:
    body = json.dumps({"id": number, "is_query": is_query, "text": text}).encode()
    return LENGTH.pack(len(body)) + body


def serve_model(load: Callable[[], Model], *, threads: int) -> None:
    """Run as the child: load the model, then answer until standard input closes. Does not return.

    Passages have ``threads`` of their own, and a question has another one, so that it doesn't wait for them.
    """
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answers = _Answers(pipe)
    try:
        model = load()
    except Exception as error:  # noqa: BLE001 — the edge of the process: the parent is told why
        message = str(error) if isinstance(error, ModelMissing) else type(error).__name__
        answers.write(0, Kind.REFUSED, message.encode()[:MAX_ANSWER_BYTES])
        os._exit(1)
    answers.write(0, Kind.READY, b"")
    passages, queries = ThreadPoolExecutor(threads), ThreadPoolExecutor(1)
    while (request := _read_request(sys.stdin.buffer)) is not None:
        (queries if request["is_query"] else passages).submit(_answer, model, answers, request)
    os._exit(0)  # at once: threads in native code are not waited for


class _Answers:
    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def write(self, number: int, kind: Kind, body: bytes) -> None:
        try:
            with self._lock:
                self._pipe.write(HEAD.pack(len(body), number, kind) + body)
                self._pipe.flush()
        except OSError:
            os._exit(0)  # the parent is gone


def _answer(model: Model, answers: _Answers, request: dict[str, Any]) -> None:
    try:
        vector = model.embed(request["text"], is_query=request["is_query"])
    except Exception as error:  # noqa: BLE001 — the edge of the process: one text fails, the others go on
        answers.write(request["id"], Kind.FAILED, type(error).__name__.encode())
    else:
        answers.write(request["id"], Kind.VECTOR, vector)


def _read_request(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    length = LENGTH.unpack(head)[0]
    body = stream.read(length)
    return None if len(body) < length else dict(json.loads(body))
