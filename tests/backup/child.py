"""One backup or restore that is killed, as by kill -9, right before its step number n, or whose disk is full.

    python -m tests.backup.child N LIMIT DIR backup|restore INSTANCE FILE [LEDGER]

A step is a change below DIR (a file opened to write, made, renamed, removed, synced) or an SQL statement of any
connection. No file may grow beyond LIMIT bytes. Without a kill the number of steps stands on stdout, a failure of
ours on stderr with its exit code.
"""

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from pikobot.backup.archive import create_backup
from pikobot.backup.restore import restore
from pikobot.clock import SystemClock
from pikobot.errors import PikobotError
from pikobot.instance import open_instance

EVENTS = frozenset({"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"})


class Bomb:
    """Counts steps and kills this process before the last one."""

    def __init__(self, last: int, directory: str) -> None:
        self.steps = 0
        self._last = last
        self._directory = directory

    def step(self) -> None:
        if self.steps == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or not str(arguments[0]).startswith(self._directory):
            return
        is_reading = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not is_reading:
            self.step()

    def on_connection(self, connection: apsw.Connection) -> None:
        def on_statement(*unused: Any) -> bool:
            self.step()
            return True

        connection.exec_trace = on_statement

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            self.step()
            return call(*arguments)

        return counting


def main() -> int:
    last, limit, directory, what, instance, file, *ledgers = sys.argv[1:]
    bomb = Bomb(int(last), directory)
    sys.addaudithook(bomb.on_event)
    apsw.connection_hooks.append(bomb.on_connection)
    os.fsync = bomb.counted(os.fsync)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        if what == "backup":
            create_backup(open_instance(Path(instance)), Path(file), clock=SystemClock())
        else:
            restore(Path(file), Path(instance), clock=SystemClock(), ledgers=[Path(one) for one in ledgers])
    except PikobotError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(f"{bomb.steps}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
