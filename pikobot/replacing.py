"""Replace everything of an instance at once: prepared in a stage, committed by one rename, finished at any open.

    DIR/restoring/   the stage: a complete new instance, without run/; worthless until it is committed
    DIR/restored/    the same directory after the one rename that commits it: what is in it wins

The stage is inside the instance's directory: on the same file system even if that is a mount point, as private,
and nothing of it is forgotten elsewhere. After the commit its members are moved into their places one by one;
each step can be repeated. A process that dies before the commit leaves the old instance and a stage to be
thrown away, one that dies after it the new instance, which whoever opens it next puts together before reading
anything. Only the holder of the exclusive lock does either (`pikobot.serving`).

credentials.toml is moved only to where there is none; run/ is never touched.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import time
from pathlib import Path

from pikobot.errors import InstanceBusy
from pikobot.files import os_failure, sync_directory
from pikobot.workspace import remove_abandoned

STAGE = "restoring"
COMMITTED = "restored"
NAMES = frozenset({STAGE, COMMITTED})
SNAPSHOT_NAME = "backup"  # of the workspaces in run/ that hold a snapshot

DATABASE = "pikobot.sqlite3"
CREDENTIALS = "credentials.toml"
FILES = ("erasures.jsonl", "config.toml")
SKILLS = "skills"

WAIT_S = 10.0
RETRY_S = 0.05


def is_waiting(root: Path) -> bool:
    """Whether a committed replacement has not been put in its place yet."""
    return os.path.lexists(root / COMMITTED)


def commit(root: Path) -> None:
    """Make the stage count. Caller holds the exclusive lock. Raises `PikobotError`; nothing has changed then."""
    stage = root / STAGE
    try:
        _sync_tree(stage)
        os.rename(stage, root / COMMITTED)
        sync_directory(root)
    except OSError as error:
        raise os_failure("replace", root, error) from error


def complete(root: Path) -> None:
    """Move what is committed into its place and remove what was not. Idempotent; caller holds the exclusive lock.

    Raises `PikobotError` when the file system refuses; the next call goes on.
    """
    try:
        if is_waiting(root):
            _put_in_place(root, root / COMMITTED)
        _remove(root / STAGE)
    except OSError as error:
        raise os_failure("finish the restore of", root, error) from error
    remove_abandoned(root / "run", SNAPSHOT_NAME)


def recover(root: Path) -> None:
    """Before anything of an instance is read: finish or undo a replacement whose process has died.

    Takes the lock for that. Raises `InstanceBusy` when another process does it and takes long.
    """
    deadline = time.monotonic() + WAIT_S
    while is_waiting(root) or os.path.lexists(root / STAGE):
        if _complete_alone(root):
            return
        if not is_waiting(root):
            return  # a restore is under way: until it commits the old instance is the instance
        if time.monotonic() >= deadline:
            raise InstanceBusy(f"the instance {root} is being restored: try again when that has ended")
        time.sleep(RETRY_S)


def _complete_alone(root: Path) -> bool:
    """False when somebody else holds the lock."""
    lock = root / "run" / "lock"
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise os_failure("lock", lock, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise os_failure("lock", lock, error) from error
    else:
        complete(root)
        return True
    finally:
        os.close(descriptor)


def _put_in_place(root: Path, committed: Path) -> None:
    """While the new database waits, logs and copies in the directory are the old one's; afterwards its own."""
    if os.path.lexists(committed / DATABASE):
        for old in root.glob(f"{DATABASE}-*"):
            _remove(old)
        for copy in root.glob(f"{DATABASE}.before-*"):
            _remove(copy)
        sync_directory(root)
        os.replace(committed / DATABASE, root / DATABASE)
    for name in FILES:
        if os.path.lexists(committed / name):
            os.replace(committed / name, root / name)
    if os.path.lexists(committed / SKILLS):
        _remove(root / SKILLS)
        os.rename(committed / SKILLS, root / SKILLS)
    if os.path.lexists(committed / CREDENTIALS) and not os.path.lexists(root / CREDENTIALS):
        os.rename(committed / CREDENTIALS, root / CREDENTIALS)
    sync_directory(root)
    _remove(committed)
    sync_directory(root)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()


def _sync_tree(directory: Path) -> None:
    for parent, _, files in os.walk(directory):
        for name in files:
            descriptor = os.open(Path(parent, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_directory(Path(parent))
