"""Opening an instance's database for use: its own, migrated, prepared, and obeying the erasure ledger.

Everything that reads memory opens it here. An older copy of the database that somebody has put back is brought up
to the ledger, and an erasure that was cut off is finished, before the first read. A database that is gone, or
another instance's in its place, is refused before anything is created or changed.
"""

from pathlib import Path

from pikobot import identity
from pikobot.clock import Clock
from pikobot.memory.forgetting.forget import finish_interrupted
from pikobot.store.connection import Database
from pikobot.store.erasing.erasures import instance_id
from pikobot.store.prepare import instance_in, open_database


def open_memory(
    database_path: Path, ledger_path: Path, clock: Clock, *, is_checked: bool = False
) -> Database:
    """The open database. Caller holds one of the instance's locks, ``is_checked`` since it called `refuse_another`.

    Raises what `refuse_another`, `open_database` and `finish_interrupted` raise; the database is closed again in
    that case.
    """
    if not is_checked:
        refuse_another(database_path, ledger_path)
    db = open_database(database_path, clock)
    try:
        with db.read() as conn:
            found = instance_id(conn)
        identity.record_id(database_path, found)
        finish_interrupted(db, ledger_path)
    except BaseException:
        db.close()
        raise
    return db


def refuse_another(database_path: Path, ledger_path: Path) -> None:
    """Raise `DamagedData` unless the database is this instance's, or is yet to be made. Changes nothing."""
    identity.refuse_lost(database_path, ledger_path)
    if not identity.is_marked(database_path, ledger_path):
        return
    found, expected = instance_in(database_path), identity.recorded_id(database_path)
    if found is None:
        raise identity.lost(
            database_path, "is not the database that this instance had: it holds nothing of pikobot's"
        )
    if expected is not None and found != expected:
        raise identity.lost(database_path, f"belongs to another instance ({found}; this one is {expected})")
