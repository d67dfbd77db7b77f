"""A child process with a model in it: native code that crashes there ends the child, not the program.

Started by exec, not by fork: a fork copies locks that threads of native code hold. The child gets a small
environment without any secret and no network is asked for. When it dies, everything that was asked of it fails with
ProcessDied, and it is of no further use: starting another one is the caller's business.
"""

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from pikobot.adapters.embedding.frames import HEAD, MAX_ANSWER_BYTES, Kind, request_frame
from pikobot.adapters.embedding.vocabulary import EmbeddingFailed, EmbeddingFailure

_IMPORT_ROOT = Path(__file__).resolve().parents[3]
_KEPT_VARIABLES = frozenset(
    "PATH HOME USERPROFILE LANG TMPDIR TEMP TMP SYSTEMROOT PYTHONPATH PYTHONHOME VIRTUAL_ENV "
    "LD_LIBRARY_PATH DYLD_LIBRARY_PATH OPENBLAS_CORETYPE OPENBLAS_L2_SIZE".split()
)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_NO_NETWORK = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"), "1")


class ProcessDied(Exception):
    """The child ended, or was ended because it didn't answer in time."""


class _Garbled(Exception):
    """No answer came, or something that is none."""


@dataclass(frozen=True)
class WorkerCommand:
    """A module to run, its arguments, and the variables it needs beside the usual ones."""

    module: str
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-P", "-m", self.module, *self.arguments]

    def environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _KEPT_VARIABLES or name.startswith("LC_")
        }
        roots = [str(_IMPORT_ROOT), *filter(None, [kept.get("PYTHONPATH")])]
        return {**kept, **_ONE_THREAD, **_NO_NETWORK, "PYTHONPATH": os.pathsep.join(roots), **self.variables}


class ModelProcess:
    """One started child. Make it with `start`, end it with `aclose`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._asked: dict[int, asyncio.Future[bytes]] = {}
        self._last_number = 0
        self._is_dead = False
        self._ends_itself = False
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, command: WorkerCommand, *, timeout_s: float) -> Self:
        """Returns when the model is loaded. Raises ProcessDied, and EmbeddingFailed when the child refuses."""
        child = cls(
            await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=command.environment(),
                start_new_session=True,  # an interrupt from the keyboard is for the program alone
            )
        )
        try:
            async with asyncio.timeout(timeout_s):
                _, kind, body = await child._read()
        except (TimeoutError, _Garbled) as error:
            await child.aclose()
            raise ProcessDied from error
        except asyncio.CancelledError:
            await child.aclose()
            raise
        if kind is not Kind.READY:
            child._ends_itself = True
            await child.aclose()
            raise EmbeddingFailed(
                f"the local embedding model can't be loaded: {body.decode(errors='replace')}",
                code=EmbeddingFailure.NOT_STARTED,
            )
        child._reader = asyncio.create_task(child._deliver())
        return child

    @property
    def is_alive(self) -> bool:
        return not self._is_dead

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, text: str, *, is_query: bool, timeout_s: float) -> bytes:
        """The vector of one text, little-endian float32. Raises ProcessDied, and EmbeddingFailed about the text."""
        if self._is_dead or self._process.stdin is None:
            raise ProcessDied
        self._last_number += 1
        number = self._last_number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            async with asyncio.timeout(timeout_s):
                self._process.stdin.write(request_frame(number, text, is_query=is_query))
                await self._process.stdin.drain()
                return await answer
        except TimeoutError as error:
            self._kill()
            raise ProcessDied from error
        except (ConnectionError, OSError) as error:
            raise ProcessDied from error
        finally:
            self._asked.pop(number, None)
            if not answer.cancel() and not answer.cancelled():
                answer.exception()  # looked at, whichever of two errors came first

    async def aclose(self) -> None:
        """End the child; whoever waits for an answer gets ProcessDied."""
        self._kill()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._reader is not None:
            await self._reader
        await self._process.wait()

    def _kill(self) -> None:
        """Unless it has ended: to signal such a one would take its exit status from the event loop."""
        self._is_dead = True
        if not self._ends_itself:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _deliver(self) -> None:
        """Hand answers to who asked, until the child ends or says something that is no answer."""
        try:
            while True:
                number, kind, body = await self._read()
                asked = self._asked.pop(number, None)
                if asked is None or asked.done():
                    continue  # whoever asked has left
                if kind is Kind.VECTOR:
                    asked.set_result(body)
                else:
                    asked.set_exception(_failed(body))
        except _Garbled:
            pass
        finally:
            self._kill()
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ProcessDied())

    async def _read(self) -> tuple[int, Kind, bytes]:
        """Raises _Garbled at the end, and for what is no answer."""
        if self._process.stdout is None:
            raise _Garbled
        try:
            length, number, kind = HEAD.unpack(await self._process.stdout.readexactly(HEAD.size))
            if length > MAX_ANSWER_BYTES or kind > max(Kind):
                raise _Garbled
            return number, Kind(kind), await self._process.stdout.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self._ends_itself = True
            raise _Garbled from error


def _failed(kind: bytes) -> EmbeddingFailed:
    return EmbeddingFailed(
        f"the local model failed on a text ({kind.decode(errors='replace')[:80]})",
        code=EmbeddingFailure.UNUSABLE_VECTOR,
        is_about_text=True,
    )
