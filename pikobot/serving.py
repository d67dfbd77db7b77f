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
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pikobot import replacing
from pikobot.clock import Clock, SystemClock, iso_time, local_utc_offset_min
from pikobot.errors import InstanceBusy, PikobotError
from pikobot.files import DIRECTORY_MODE, FILE_MODE, copy_remedy, is_read_only, os_failure
from pikobot.instance import Instance

VISITOR_WAIT_S = 5.0
RETRY_S = 0.05
MAX_SOCKET_PATH_BYTES = 100  # sockaddr_un holds 104 on macOS, 108 on Linux, a terminating NUL included


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
            _unlock(descriptor)

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
        _unlock(shared)
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
        _unlock(descriptor)
        raise InstanceBusy(
            f"a restore of {instance.root} was cut off: run the command again, it is finished then"
        )
    return InstanceLock(descriptor, is_serving=False)


def _complete_restore(instance: Instance, descriptor: int) -> None:
    try:
        replacing.complete(instance.root)
    except BaseException:
        _unlock(descriptor)
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
        _unlock(descriptor)  # the directory was replaced between open and lock: take the new file


def _unlock(descriptor: int) -> None:
    """Not by closing alone: a child that is just being started has a copy of the descriptor, and so would its lock."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _open_lock_file(instance: Instance) -> int:
    """On a read-only file system the file that is there: it locks out who uses the instance by another path."""
    flags = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        if is_read_only(instance.root):
            return os.open(instance.lock_path, os.O_RDONLY | flags)
        instance.run_dir.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        return os.open(instance.lock_path, os.O_RDWR | os.O_CREAT | flags, FILE_MODE)
    except FileNotFoundError as error:
        if not is_read_only(instance.root):
            raise os_failure("lock", instance.lock_path, error) from error
        raise PikobotError(
            f"{instance.lock_path} is missing, and on a read-only file system it can't be made, so that it can't be "
            f"known whether somebody uses the instance: {copy_remedy(instance.root)}"
        ) from error
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


@contextlib.contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """What to bind or to connect to while the block runs: the path, or its name alone in its own directory.

    A Unix socket's address has room for about 100 bytes, so a longer path is made the current directory meanwhile:
    that of the whole process, whose other files all have absolute paths. Raises OSError.
    """
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        yield str(path)
        return
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(path.parent)
        try:
            yield path.name
        finally:
            os.fchdir(here)
    finally:
        os.close(here)


def remove_socket(instance: Instance) -> None:
    """Remove the socket, also one that a crash has left. Caller holds the serving lock; idempotent."""
    path = instance.socket_path
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise PikobotError(f"{path} is not a socket: move it away")
        path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        raise os_failure("remove the socket", path, error) from error
