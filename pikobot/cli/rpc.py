"""`pikobot rpc`: call a method of the operator and print one JSON document.

The process that serves the instance answers; when nobody does, the database is opened here. With ``--batch``
every line of a file is a call ``{"method","params"}``, answered by one line in the same order, and a failed
call stops nothing: the exit code is 1 if any failed. Errors are JSON too, on stderr unless they are a line of
a batch. An erasure that leaves traces has failed as well, though its receipt is printed.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from pikobot.channels.operator.client import Operator, connect_operator
from pikobot.channels.operator.protocol import MAX_REQUEST_BYTES, Json, encode, error_object
from pikobot.cli.inputs import STDIN, opened
from pikobot.clock import SystemClock
from pikobot.errors import ExitCode, MalformedRequest, PikobotError, UsageError
from pikobot.instance import Instance, open_instance
from pikobot.memory.forgetting.receipts import tells_of_traces
from pikobot.streams import emit_utf8, take_failure
from pikobot.text import parse_json

LEAVES_TRACES = (
    "what was erased is not proved to be gone from every file: the receipt names where, and what to do"
)


def rpc(
    root: Path,
    method: str | None,
    params: str | None = None,
    *,
    batch: str | None = None,
    timing: bool = False,
) -> ExitCode:
    """Run the command on the instance in an absolute directory; returns the exit code, raises nothing of ours.

    ``params`` is a JSON object or ``-`` for stdin, ``batch`` a file or ``-``. Results go to stdout as UTF-8
    whatever the locale. ``timing`` adds ``elapsedMs``: how long the call took, without this process's start.
    """
    try:
        if (batch is None) == (method is None) or (batch is not None and params is not None):
            raise UsageError("give either METHOD and its parameters, or --batch FILE")
        if batch is not None:
            code = _batch(root, batch, timing=timing)
            _raise_lost()
            return code
        arguments = {} if params is None else parse_json(_params(params), "the parameter object")
        with connect_operator(open_instance(root), SystemClock()) as operator:
            result = _call(operator, str(method), arguments, timing=timing)
            _print(_completed(root, result))
        _raise_lost()
        _raise_traces(result)
    except PikobotError as error:
        sys.stderr.write(json.dumps(_error(root, error), ensure_ascii=False) + "\n")
        return error.exit_code
    return ExitCode.DONE


def _params(given: str) -> str | bytes:
    if given != STDIN:
        return given
    read = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    if len(read) > MAX_REQUEST_BYTES:
        raise UsageError(f"the parameters are longer than {MAX_REQUEST_BYTES} bytes")
    return read


def _batch(root: Path, file: str, *, timing: bool) -> ExitCode:
    has_failed = False
    with opened(file) as stream, connect_operator(open_instance(root), SystemClock()) as operator:
        for line in _bounded_lines(stream):
            try:
                result = _answer_line(operator, line, timing=timing)
                has_failed |= tells_of_traces(result)
                _print(_completed(root, result))
            except PikobotError as error:
                has_failed = True
                _print(_error(root, error))
    return ExitCode.FAILED if has_failed else ExitCode.DONE


def _bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines that aren't empty; of one that is too long only so much that it is refused."""
    while line := stream.readline(MAX_REQUEST_BYTES + 1):
        start = line
        while not line.endswith(b"\n") and (line := stream.readline(MAX_REQUEST_BYTES)):
            pass
        if not start.isspace():
            yield start


def _answer_line(operator: Operator, line: bytes, *, timing: bool) -> Json:
    if len(line) > MAX_REQUEST_BYTES:
        raise MalformedRequest(f"the line is longer than {MAX_REQUEST_BYTES} bytes")
    call = parse_json(line, "the line")
    if (
        not isinstance(call, dict)
        or not isinstance(call.get("method"), str)
        or call.keys() - {"method", "params"}
    ):
        raise MalformedRequest('the line must be an object {"method": "…", "params": {…}} and nothing else')
    return _call(operator, call["method"], call.get("params", {}), timing=timing)


def _call(operator: Operator, method: str, params: object, *, timing: bool) -> Json:
    start_ns = time.perf_counter_ns()
    result = operator.call(method, params)
    elapsed_ms = round((time.perf_counter_ns() - start_ns) / 1e6, 3)
    return result | {"elapsedMs": elapsed_ms} if timing else result


def _completed(root: Path, result: Json) -> Json:
    """The result with the commands of its complaints naming the instance; nothing that somebody said is touched."""
    completed = Instance(root).completed
    degraded = result.get("degraded")
    if isinstance(degraded, str):
        result["degraded"] = completed(degraded)
    elif isinstance(degraded, list):
        result["degraded"] = [completed(str(reason)) for reason in degraded]
    embedding = result.get("embedding")
    if isinstance(embedding, dict) and isinstance(embedding.get("problem"), str):
        embedding["problem"] = completed(embedding["problem"])
    return result


def _error(root: Path, error: PikobotError) -> Json:
    return {"error": error_object(error) | {"message": Instance(root).completed(str(error))}}


def _raise_lost() -> None:
    if (failure := take_failure()) is not None:
        raise failure


def _raise_traces(result: Json) -> None:
    if tells_of_traces(result):
        raise PikobotError(LEAVES_TRACES)


def _print(document: Json) -> None:
    emit_utf8(encode(document))
