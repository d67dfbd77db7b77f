"""Whether the database of an instance is there and its own: a lost one must never be replaced by a new one in silence.

    instance-id   one line, the id that stands in the database; written as soon as there is one, again when it is lost

The mark, the erasure ledger, a write-ahead log or a copy made for a migration say that there was a database. Where
one of them is and the database is missing or empty, nothing may go on. A directory that was only prepared, or whose
first start was cut off before anything was kept, has none of them. Nothing here opens the database.
"""

import os
import re
import shlex
import stat
from pathlib import Path

from pikobot.errors import DamagedData, PikobotError
from pikobot.files import copy_remedy, is_read_only, os_failure, write_private_file

NAME = "instance-id"
MAX_LINE_BYTES = 1000

_ID = re.compile(r"ins_[A-Za-z0-9_-]{1,100}")


def has_traces(database: Path, ledger: Path) -> bool:
    """Whether there was a database at that path, by what else is there."""
    if is_marked(database, ledger):
        return True
    names = (f"{database.name}-wal", f"{database.name}.before-")
    try:
        return database.parent.is_dir() and any(
            name.startswith(names) for name in os.listdir(database.parent)
        )
    except OSError as error:
        raise os_failure("look into", database.parent, error) from error


def refuse_lost(database: Path, ledger: Path, *, only_reads: bool = False) -> None:
    """Raise `DamagedData` when there was a database that is gone, `PikobotError` when it can't be read and written.

    Who ``only_reads`` may do so on a file system that takes no writes. Creates and changes nothing.
    """
    problem = _problem(database, ledger)
    if problem is not None:
        raise lost(database, problem)
    if not database.exists():
        return
    if is_read_only(database):
        if only_reads and os.access(database, os.R_OK):
            return
        raise PikobotError(f"{database} is on a read-only file system: {copy_remedy(database.parent)}")
    if not os.access(database, os.R_OK | os.W_OK):
        raise PikobotError(
            f"cannot read and write {database}: check who owns it, its mode (`chmod 600 {shlex.quote(str(database))}`) "
            "and that its file system is writable"
        )


def lost(database: Path, problem: str) -> DamagedData:
    """The failure that says what is wrong with a database and how to get it back."""
    option = f"--instance {shlex.quote(str(database.parent))}"
    return DamagedData(
        f"{database} {problem}. Nothing was changed: put the file back, or restore a backup with "
        f"`pikobot restore BACKUP {option}` (RECOVERY.md)"
    )


def _problem(database: Path, ledger: Path) -> str | None:
    try:
        status = database.stat()
    except FileNotFoundError:
        return "is missing, and this instance had one" if has_traces(database, ledger) else None
    except OSError as error:
        raise os_failure("open the database", database, error) from error
    if not stat.S_ISREG(status.st_mode):
        return "is not a file"
    if status.st_size == 0 and has_traces(database, ledger):
        return "is empty, and this instance had one that was not"
    return None


def is_marked(database: Path, ledger: Path) -> bool:
    """Whether a database in this place must have an id: it gets one before mark and ledger are written."""
    return os.path.lexists(database.with_name(NAME)) or os.path.lexists(ledger)


def recorded_id(database: Path) -> str | None:
    """What the mark says; None when there is none or it is no id."""
    return _valid(_first_line(database.with_name(NAME)).decode(errors="replace").rstrip("\n"))


def record_id(database: Path, instance_id: str) -> None:
    """Write the mark. Call it when the database has its id and before anything is kept in it. Idempotent."""
    if recorded_id(database) != instance_id:
        write_private_file(database.with_name(NAME), f"{instance_id}\n")


def _valid(instance_id: str) -> str | None:
    return instance_id if _ID.fullmatch(instance_id) else None


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(MAX_LINE_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise os_failure("read", path, error) from error
