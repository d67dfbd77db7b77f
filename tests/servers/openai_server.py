"""A scripted OpenAI-compatible provider for tests, in a process of its own.

    python -m tests.servers.openai_server --port 0 --script FILE.json     prints its port first

or from a test, where it stops with the block and outlives the program under test:

    with ScriptedOpenAI([text("Hello")]) as server:
        … server.base_url …

The steps are described in ``openai_steps`` and ``openai_embeddings``, whose builders are at hand here.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.openai_embeddings import embeddings, vectors
from tests.servers.openai_process import DEFAULT_ECHO, Received, main
from tests.servers.openai_steps import Step, extract, status, text, tool_calls

__all__ = [
    "Received",
    "ScriptedOpenAI",
    "Step",
    "embeddings",
    "extract",
    "status",
    "text",
    "tool_calls",
    "vectors",
]

REPOSITORY = Path(__file__).resolve().parents[2]
CONTROL_TIMEOUT_S = 60


class ScriptedOpenAI:
    """Starts the process on entry and stops it on exit."""

    def __init__(self, script: Sequence[Step] = (), *, echo: str = DEFAULT_ECHO) -> None:
        """``echo`` is the answer when no step is left; ``{text}`` in it is the last user message."""
        self._script = list(script)
        self._echo = echo

    def __enter__(self) -> Self:
        self._start()
        self.push(*self._script)
        return self

    def _start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.servers.openai_server",
            "--follow-stdin",
            "--echo",
            self._echo,
        ]
        self._process = subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill the process: connections break, and new ones are refused. Harmless a second time."""
        self._process.kill()
        self._process.communicate()

    def reset(self) -> None:
        """Forget script and requests; a stopped process starts again, at another port."""
        if self._process.poll() is not None:
            self._start()
        self._control("reset", [])

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def push(self, *steps: Step) -> None:
        """Append steps to the script."""
        self._control("steps", list(steps))

    def requests(self) -> list[Received]:
        """Everything received so far, oldest first."""
        return [Received(**one) for one in self._control("state")["requests"]]

    def steps_left(self) -> int:
        return int(self._control("state")["steps_left"])

    def wait_for_requests(self, count: int, *, outcome: str | None = None) -> list[Received]:
        """Blocks until so many requests have come, or have come to this outcome; see ``openai_process``."""
        query = f"wait?count={count}" + (f"&outcome={outcome}" if outcome else "")
        return [Received(**one) for one in self._control(query)["requests"]]

    def _control(self, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/control/{path}", data=data)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=CONTROL_TIMEOUT_S) as response:
            return json.load(response)


if __name__ == "__main__":
    main()
