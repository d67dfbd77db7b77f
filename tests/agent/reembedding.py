"""Embeds all of a database anew for another profile and is killed, as by kill -9, at its step number n.

    python -m tests.agent.reembedding PATH N

A step is a statement of the writing connection. Without a kill the number of steps is printed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from pikobot.clock import SystemClock
from pikobot.store.connection import Database
from tests.memory.meaning import Meaning, embed_all, engine


def main() -> None:
    path, last = Path(sys.argv[1]), int(sys.argv[2])
    passed = 0

    def step(*_: object) -> bool:
        nonlocal passed
        passed += 1
        if passed == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def watch(database: Database) -> None:
        database.maintenance_connection().exec_trace = step

    db = Database(path, SystemClock())
    db.perform(watch)
    asyncio.run(embed_all(db, engine(Meaning(), "meaning-2", price="1", batch=2)))
    print(passed)
    db.close()


if __name__ == "__main__":
    main()
