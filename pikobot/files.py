"""Files of an instance: read as TOML, checked for privacy, replaced atomically.

Every file that holds settings or secrets goes through here, so that each failure of the file system ends
in one sentence with the path and the remedy. Invariants: a file is either its old or its new content,
never a part; what is written is mode 0600. Contents never appear in an error.
"""

import contextlib
import errno
import os
import re
import shlex
import stat
import tempfile
import tomllib
from pathlib import Path

from pikobot.errors import ConfigError, PikobotError, UsageError

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
MAX_TOML_BYTES = 1_000_000

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "the disk quota is used up: free some space and try again",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.EACCES: "permission denied: check who owns it and its mode",
    errno.EPERM: "not permitted: check who owns it and its mode",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.EISDIR: "it is a directory: name a file",
    errno.ELOOP: "its symbolic links go in a circle: choose another path",
    errno.ENOTDIR: "a part of the path is a file, not a directory: choose another path",
    errno.EMFILE: "too many files are open: raise the limit (`ulimit -n`) and try again",
}


_WRONG_PATHS = frozenset({errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR})


def os_failure(doing: str, path: Path, error: OSError) -> PikobotError:
    """The sentence for a failed system call: what was being done, to what, and what helps.

    A `UsageError` when it is the path that can't be right.
    """
    remedy = _REMEDIES.get(error.errno or 0) or (error.strerror or "unknown error")
    return (UsageError if error.errno in _WRONG_PATHS else PikobotError)(f"cannot {doing} {path}: {remedy}")


def is_read_only(path: Path) -> bool:
    """Whether the file system that holds it takes no writes, whoever asks; False where that can't be seen."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def copy_remedy(root: Path) -> str:
    """What to do with an instance on a read-only file system, for all that `pikobot verify` does not tell."""
    return f"copy it to a disk that can be written (`cp -a {shlex.quote(str(root))} COPY`) and use the copy"


def check_private(path: Path, status: os.stat_result) -> None:
    """Raise ConfigError, with the command that fixes it, unless the file or directory is ours alone."""
    if status.st_uid != os.geteuid():
        raise ConfigError(
            f"{path} belongs to another user (uid {status.st_uid}, this process is uid {os.geteuid()}): "
            f"run pikobot as its owner, or `sudo chown -R {os.geteuid()} {shlex.quote(str(path))}`"
        )
    is_wider = stat.S_IMODE(status.st_mode) & 0o077
    if is_wider:
        mode = "700" if stat.S_ISDIR(status.st_mode) else "600"
        raise ConfigError(
            f"{path} is open to other users (mode {stat.S_IMODE(status.st_mode):04o}): "
            f"run `chmod {mode} {shlex.quote(str(path))}`"
        )


def read_text(path: Path, *, private: bool = False) -> str:
    """The whole file as text, line ends as they are, without a byte order mark.

    With ``private`` the open file must be ours and closed to others. FileNotFoundError is left to the caller;
    everything else is PikobotError, and what the user can mend in the file itself ConfigError.
    """
    try:
        with path.open("rb") as file:
            if private:
                check_private(path, os.fstat(file.fileno()))
            data = file.read(MAX_TOML_BYTES + 1)
    except FileNotFoundError:
        raise
    except IsADirectoryError as error:
        raise ConfigError(f"{path} is a directory; a file belongs there: move it away") from error
    except OSError as error:
        raise os_failure("read", path, error) from error
    if len(data) > MAX_TOML_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_TOML_BYTES} bytes: this is not a settings file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path} line {line}: not UTF-8 text; save the file as UTF-8") from None


def parse_toml(text: str, name: str | Path) -> dict[str, object]:
    """Strict TOML. Raises ConfigError with the line; the text itself stays out of the message."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_describe_toml_error(str(error), text, name)) from None
    except RecursionError:
        raise ConfigError(f"{name}: nested too deeply; the settings are one level of sections") from None
    except ValueError:  # a number longer than the interpreter converts
        raise ConfigError(f"{name}: a number is too long") from None


def _describe_toml_error(message: str, text: str, name: str | Path) -> str:
    problem, _, _ = message.partition(" (at ")
    position = re.search(r"at line (\d+)", message)
    line = position.group(1) if position else str(text.count("\n") + 1)
    if "overwrite" in problem or "twice" in problem:
        return f"{name} line {line}: this key or section is there twice; remove one"
    return f'{name} line {line}: not valid TOML; a setting is written key = "text", key = 12 or key = true'


def write_private_file(path: Path, text: str) -> None:
    """Replace a file with UTF-8 text: temporary file, fsync, rename, fsync of the directory. Mode 0600.

    A symbolic link stays a link and its target is replaced. On any failure the old file is untouched.
    """
    temporary: str | None = None
    try:
        target = Path(os.path.realpath(path))
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with open(descriptor, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        temporary = None
        sync_directory(target.parent)
    except OSError as error:
        raise os_failure("write", path, error) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def sync_directory(path: Path) -> None:
    """Make renames and new names in a directory survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
