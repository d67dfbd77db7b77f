"""Opening an instance's database for use: migrated, prepared, and obeying the erasure ledger.

Everything that reads memory opens it here. An older copy of the database that somebody has put back is brought up
to the ledger, and an erasure that was cut off is finished, before the first read.
"""

from pathlib import Path

from pikobot.clock import Clock
from pikobot.memory.forget import finish_interrupted
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database


def open_memory(database_path: Path, ledger_path: Path, clock: Clock) -> Database:
    """The open database. Caller holds one of the instance's locks.

    Raises what `open_database` and `finish_interrupted` raise; the database is closed again in that case.
    """
    db = open_database(database_path, clock)
    try:
        finish_interrupted(db, ledger_path)
    except BaseException:
        db.close()
        raise
    return db
