"""Private temporary directories, gone when the work ends, or at the next work when the process was killed.

A directory `.NAME._TOKEN.partial` belongs to whoever holds the lock on it; one that nobody holds was left by a crash.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pikobot.clock import Clock
from pikobot.files import DIRECTORY_MODE, os_failure

SUFFIX = ".partial"


@contextlib.contextmanager
def workspace(parent: Path, name: str, clock: Clock) -> Iterator[Path]:
    """A new empty directory in ``parent``, mode 0700; what crashes have left under the same name is removed.

    Raises `PikobotError` when it can't be made.
    """
    remove_abandoned(parent, name)
    path = parent / f"{clock.token(f'.{name}.')}{SUFFIX}"
    try:
        path.mkdir(mode=DIRECTORY_MODE)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise os_failure("make", path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def abandoned(parent: Path, name: str) -> list[Path]:
    """What crashes have left under a name."""
    try:
        with os.scandir(parent) as entries:
            found = [
                Path(entry.path)
                for entry in entries
                if entry.name.startswith(f".{name}.")
                and entry.name.endswith(SUFFIX)
                and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(path for path in found if not _is_held(path))


def remove_abandoned(parent: Path, name: str) -> None:
    for path in abandoned(parent, name):
        shutil.rmtree(path, ignore_errors=True)


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
