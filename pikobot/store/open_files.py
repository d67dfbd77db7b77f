"""Whether the files of an open database still stand where they were opened.

SQLite goes on with a file that was deleted or replaced: all would work, and be gone with the process. Each commit is
therefore preceded by a look at their names, as is each new connection; who serves an instance looks from time to time.
Links are followed, nothing is opened: closing a second descriptor of a database would take SQLite's locks away.
"""

import os
from pathlib import Path

from pikobot import identity
from pikobot.errors import DamagedData
from pikobot.files import os_failure

COMPANIONS = ("-wal", "-shm")
Identity = tuple[int, int]  # device and number


class OpenFiles:
    """The files that belong to a database path now, for as long as a connection keeps them open.

    A new database has its companions from the first transaction on.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = _identity(path)
        companions = [path.with_name(path.name + suffix) for suffix in COMPANIONS]
        self._companions = {each: _identity(each) for each in companions}

    def check(self) -> None:
        """Raise `DamagedData` when one of them was deleted or replaced, `PikobotError` where that can't be seen."""
        found = _identity(self._path)
        if found != self._database:
            raise identity.lost(self._path, f"was {_became(found)} while it was in use")
        for path, opened in self._companions.items():
            found = _identity(path)
            if opened is None:
                self._companions[path] = found
            elif found != opened:
                raise DamagedData(
                    f"{path} was {_became(found)} while it was in use, so that nothing can be kept any more: end every "
                    "pikobot of this instance, copy its directory, then see `pikobot verify` (RECOVERY.md)"
                )

    def has_foreign_companions(self) -> bool:
        """Whether a file of another database stands where SQLite would remove its own."""
        return any(
            _identity(path) not in (None, opened)
            for path, opened in self._companions.items()
            if opened is not None
        )


def _became(found: Identity | None) -> str:
    return "deleted or moved" if found is None else "replaced by another file"


def _identity(path: Path) -> Identity | None:
    """That of the file; None when there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise os_failure("look for", path, error) from error
    return status.st_dev, status.st_ino
