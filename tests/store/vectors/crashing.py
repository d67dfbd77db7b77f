"""Changes a vector set and is killed, as by kill -9, at its step number n; a step is a statement or a blob write.

    python -m tests.store.vectors.crashing PATH put|delete|rebuild|drop N

Without a kill the number of steps is printed.
"""

import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from pikobot.clock import SystemClock
from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import SetId, drop_set, list_sets
from pikobot.store.vectors.rebuild import rebuild_blocks
from pikobot.store.vectors.removal import delete_vectors
from tests.store.vectors.embeddings import embedded, facts

DIMENSION = 16


def change(tx: Connection, what: str) -> None:
    sets = list_sets(tx)
    set_id = sets[0].id
    match what:
        case "put":
            vectors = embedded(np.random.default_rng(9), 60, DIMENSION)
            put_vectors(tx, set_id, facts(vectors, ensure_scope(tx, owner_scope()), 260))
        case "delete":
            delete_vectors(tx, set_id, [Owner(OwnerKind.FACT, i) for i in range(1, 300, 29)])
        case "rebuild":
            rebuild_blocks(tx, set_id)
        case "drop":
            drop_set(tx, SetId(sets[1].id), max_blocks=1)


class Bomb:
    """Counts steps and kills the process at the last one."""

    def __init__(self, last: int) -> None:
        self._steps = itertools.count(1)
        self._last = last
        self.passed = 0

    def step(self, *_: object) -> bool:
        self.passed = next(self._steps)
        if self.passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        return True


class CountedBlob:
    """A blob handle whose writes are steps."""

    def __init__(self, blob: apsw.Blob, step: Callable[[], bool]) -> None:
        self._blob = blob
        self._step = step

    def write(self, data: bytes) -> None:
        self._step()
        self._blob.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blob, name)


def main() -> None:
    path, what, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    bomb = Bomb(last)

    class CountedConnection(apsw.Connection):
        def blob_open(self, *args: Any) -> Any:
            return CountedBlob(super().blob_open(*args), bomb.step)

    apsw.Connection = CountedConnection  # type: ignore[misc]  # in this process only
    db = Database(path, SystemClock())

    def operation(database: Database) -> None:
        database.maintenance_connection().exec_trace = bomb.step
        with database.write("a change that may be cut off") as tx:
            change(tx, what)

    db.perform(operation)
    print(bomb.passed)
    db.close()


if __name__ == "__main__":
    main()
