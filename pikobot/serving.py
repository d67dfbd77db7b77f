"""One process serves an instance: its lock, and where its socket is.

The lock is flock(2) on run/lock: exclusive for the process that serves, shared for short commands that open
the database when nobody serves. The kernel releases it when its process ends, however that happens; what is
written in the file only names the holder for messages. The file is never removed and its descriptor is
closed on exec. A child made by fork alone would share the lock: start children with exec.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pikobot import replacing
from pikobot.clock import Clock, SystemClock, iso_time, local_utc_offset_min
from pikobot.errors import InstanceBusy, PikobotError
from pikobot.files import DIRECTORY_MODE, FILE_MODE, os_failure
from pikobot.instance import Instance

VISITOR_WAIT_S = 5.0
RETRY_S = 0.05
MAX_SOCKET_PATH_BYTES = 100  # sockaddr_un holds 104 on macOS, 108 on Linux, a terminating NUL included

_SOCKET_DIRECTORY_PREFIX = "pikobot-"


@dataclass(frozen=True)
class ServedBy:
    """The process that serves an instance, as far as it has said; talk to it over the socket."""

    pid: int | None
    started_at_ms: int | None

    def __str__(self) -> str:
        if self.pid is None or self.started_at_ms is None:
            return "another process"
        since = iso_time(self.started_at_ms, local_utc_offset_min(self.started_at_ms))
        return f"process {self.pid} since {since}"


class InstanceLock:
    """A held lock; ``with`` or ``release`` gives it back, and so does the end of the process."""

    def __init__(self, descriptor: int, *, is_serving: bool) -> None:
        self._descriptor: int | None = descriptor
        self.is_serving = is_serving

    def release(self) -> None:
        """Idempotent. A serving lock forgets its holder's name first."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            if self.is_serving:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def acquire_serving_lock(
    instance: Instance, clock: Clock | None = None, *, visitor_wait_s: float = VISITOR_WAIT_S
) -> InstanceLock:
    """The lock for the one process that serves the instance or changes it as a whole.

    Raises InstanceBusy at once if another process serves it, and after ``visitor_wait_s`` if short commands
    do not finish. Blocks the thread while it waits. A restore that was cut off is finished or undone first.
    """
    deadline = time.monotonic() + visitor_wait_s
    while True:
        descriptor = _try_lock(instance, fcntl.LOCK_EX)
        if descriptor is not None:
            _complete_restore(instance, descriptor)
            _write_holder(descriptor, clock or SystemClock())
            return InstanceLock(descriptor, is_serving=True)
        shared = _try_lock(instance, fcntl.LOCK_SH)
        if shared is None:
            raise InstanceBusy(_served_sentence(instance, _read_holder(instance)))
        os.close(shared)
        if time.monotonic() >= deadline:
            raise InstanceBusy(
                f"the instance {instance.root} is in use by another command: try again when it has ended"
            )
        time.sleep(RETRY_S)


def acquire_visitor_lock(instance: Instance) -> InstanceLock | ServedBy:
    """The lock for a short command that opens the database itself; ServedBy if a process serves it."""
    descriptor = _try_lock(instance, fcntl.LOCK_SH)
    if descriptor is None:
        return _read_holder(instance)
    if replacing.is_waiting(instance.root):
        os.close(descriptor)
        raise InstanceBusy(
            f"a restore of {instance.root} was cut off: run the command again, it is finished then"
        )
    return InstanceLock(descriptor, is_serving=False)


def _complete_restore(instance: Instance, descriptor: int) -> None:
    try:
        replacing.complete(instance.root)
    except BaseException:
        os.close(descriptor)
        raise


def _served_sentence(instance: Instance, holder: ServedBy) -> str:
    stop = f"stop it (`kill {holder.pid}`)" if holder.pid is not None else "stop it"
    return (
        f"the instance {instance.root} is served by {holder}: talk to it with "
        f"`pikobot rpc METHOD {instance.option}`, or {stop} and try again"
    )


def _try_lock(instance: Instance, operation: int) -> int | None:
    """Descriptor of the locked file, or None if the lock is taken."""
    while True:
        descriptor = _open_lock_file(instance)
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
            if _is_still_at(descriptor, instance.lock_path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise PikobotError(
                    f"the file system of {instance.root} has no locks: put the instance on a local disk"
                ) from error
            raise os_failure("lock", instance.lock_path, error) from error
        os.close(descriptor)  # the directory was replaced between open and lock: take the new file


def _open_lock_file(instance: Instance) -> int:
    try:
        instance.run_dir.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(instance.lock_path, flags, FILE_MODE)
    except OSError as error:
        raise os_failure("lock", instance.lock_path, error) from error


def _is_still_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int, clock: Clock) -> None:
    """Name the holder for other processes' messages; a full disk must not stop the holder."""
    holder = json.dumps({"pid": os.getpid(), "startedAtMs": clock.now_ms()}) + "\n"
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)


def _read_holder(instance: Instance) -> ServedBy:
    """What the holder wrote; nothing if it is between taking the lock and writing."""
    try:
        holder = json.loads(instance.lock_path.read_bytes()[:200])
        return ServedBy(pid=int(holder["pid"]), started_at_ms=int(holder["startedAtMs"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ServedBy(pid=None, started_at_ms=None)


def prepare_socket_path(instance: Instance) -> Path:
    """Where the server binds its socket; a socket left by a crash is removed. Caller holds the serving lock.

    A Unix socket's address has room for about 100 bytes. For a longer path the socket is made in a private
    directory under the system's temporary directory, and run/rpc.sock is a symbolic link to it.
    """
    remove_socket(instance)
    if _fits(instance.socket_path):
        return instance.socket_path
    try:
        directory = Path(tempfile.mkdtemp(prefix=_SOCKET_DIRECTORY_PREFIX))
        target = directory / instance.socket_path.name
        if not _fits(target):
            directory.rmdir()
            raise PikobotError(
                f"{instance.socket_path} and {target} are too long for a socket: set TMPDIR to a short path"
            )
        instance.socket_path.symlink_to(target)
    except OSError as error:
        raise os_failure("make the socket", instance.socket_path, error) from error
    return target


def resolve_socket_path(instance: Instance) -> Path:
    """Where a client connects. Raises PikobotError if its link leads to a directory that is not ours."""
    try:
        target = Path(os.readlink(instance.socket_path))
    except OSError:
        return instance.socket_path
    if not _is_our_directory(target.parent):
        raise PikobotError(
            f"the socket of {instance.root} was in {target.parent}, which is gone or not ours: restart the "
            "process that serves the instance"
        )
    return target


def remove_socket(instance: Instance) -> None:
    """Remove the socket, and the directory made for it. Caller holds the serving lock; idempotent."""
    path = instance.socket_path
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            directory = Path(os.readlink(path)).parent
            if directory.name.startswith(_SOCKET_DIRECTORY_PREFIX) and _is_our_directory(directory):
                shutil.rmtree(directory, ignore_errors=True)
        elif not stat.S_ISSOCK(mode):
            raise PikobotError(f"{path} is not a socket: move it away")
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise os_failure("remove the socket", path, error) from error


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES


def _is_our_directory(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    is_private = status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
    return stat.S_ISDIR(status.st_mode) and is_private
