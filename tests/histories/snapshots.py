"""A kill -9 at a random step, without a process of its own: the files as they are at that moment are what it leaves.

A step is an SQL statement of any connection, or a file that is synced, renamed or cut. One of the steps of an
operation is chosen while it goes on, each with the same chance.
"""

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

FILE_STEPS = ("fsync", "replace", "ftruncate")


class Killer:
    """Keeps a copy of a directory as it was before one of the steps."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._lock = threading.RLock()
        self._source: Path | None = None
        self._target = Path()
        self._steps = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count the steps of every connection that is opened meanwhile."""
        real = {name: getattr(os, name) for name in FILE_STEPS}
        apsw.connection_hooks.append(self._on_connection)
        for name in FILE_STEPS:
            setattr(os, name, self._counted(real[name]))
        try:
            yield
        finally:
            apsw.connection_hooks.remove(self._on_connection)
            for name in FILE_STEPS:
                setattr(os, name, real[name])

    @contextmanager
    def killing(self, source: Path, target: Path) -> Iterator[None]:
        """Leave in ``target`` what a kill at one of the block's steps would have left of ``source``."""
        self._source, self._target, self._steps = source, target, 0
        try:
            yield
        finally:
            self._source = None

    def _on_connection(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._on_statement

    def _on_statement(self, *unused: Any) -> bool:
        self._step()
        return True

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any, **named: Any) -> Any:
            self._step()
            return call(*arguments, **named)

        return counting

    def _step(self) -> None:
        if self._source is None:
            return
        with self._lock:
            self._steps += 1
            if self._chance.randrange(self._steps) == 0:
                shutil.rmtree(self._target, ignore_errors=True)
                copy_files(self._source, self._target)


def copy_files(source: Path, target: Path) -> None:
    """Everything but SQLite's index of its WAL, which a crash leaves useless, and sockets."""
    shutil.copytree(source, target, ignore=_passed_over)


def _passed_over(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith("-shm") or Path(directory, name).is_socket()]
