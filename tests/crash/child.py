"""One `pikobot run` that is killed, as by kill -9, right before its step number n.

    python -m tests.crash.child N INSTANCE THREAD TEXT

A step is an SQL statement, of any connection, or a change of a file outside the database. Without a kill the
number of steps stands on the last line of stderr. The provider's client is replaced by a plain HTTP request:
importing the real one takes longer than everything else here.
"""

import asyncio
import itertools
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from pikobot import supervisor
from pikobot.adapters.chat import Completion, Message, StopReason, StreamItem, TextDelta, ToolSchema, Usage
from pikobot.adapters.openai_chat import ChatEndpoint
from pikobot.cli.run import RunOptions, run

FILE_STEPS = ("fsync", "replace", "rename", "unlink", "rmdir", "ftruncate")


class PlainModel:
    """Asks the scripted provider without streaming."""

    def __init__(self, endpoint: ChatEndpoint, **unused: Any) -> None:
        self._url = f"{endpoint.base_url}/chat/completions"
        self.name = endpoint.model

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolSchema], **unused: Any
    ) -> AsyncIterator[StreamItem]:
        body = {"model": self.name, "messages": [message.to_json() for message in messages]}
        choice = (await asyncio.to_thread(self._post, body))["choices"][0]
        answer = Message.from_json(choice["message"])
        if answer.content:
            yield TextDelta(answer.content)
        yield Completion(
            answer.content, answer.tool_calls, StopReason(choice["finish_reason"]), Usage(10, 0, 5)
        )

    async def aclose(self) -> None:
        pass

    def _post(self, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self._url, json.dumps(body).encode())
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as response:
            return json.load(response)


def count_steps(last: int) -> Callable[[], int]:
    """Install the bomb; the returned function tells how many steps there were."""
    counter = itertools.count()

    def step() -> None:
        if next(counter) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_statement(*unused: Any) -> bool:
        step()
        return True

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            step()
            return function(*args, **kwargs)

        return call

    def on_connection(connection: apsw.Connection) -> None:
        connection.exec_trace = on_statement

    apsw.connection_hooks.append(on_connection)
    for name in FILE_STEPS:
        setattr(os, name, counted(getattr(os, name)))
    return lambda: next(counter)


def main() -> int:
    last, instance, thread, text = sys.argv[1:]
    steps_taken = count_steps(int(last))
    vars(supervisor)["OpenAIChatModel"] = PlainModel
    code = run(Path(instance), RunOptions(thread=thread, message=text, is_ephemeral=False, is_headless=False))
    sys.stderr.write(f"\n{steps_taken()}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
