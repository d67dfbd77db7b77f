"""Files that a command line names for reading; ``-`` is stdin."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from pikobot.errors import UsageError
from pikobot.files import os_failure

if TYPE_CHECKING:
    from typing_extensions import Buffer

STDIN = "-"


def named_path(given: str) -> Path:
    """The absolute path of a file that is named on the command line. Raises `UsageError` for what is no name."""
    if not given or "\0" in given:
        raise UsageError("the name of a file is empty or no name")
    return Path(os.path.expanduser(given)).absolute()


class _File(io.FileIO):
    """A file whose failures are ours."""

    def readinto(self, buffer: "Buffer", /) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            raise os_failure("read", Path(str(self.name)), error) from error


@contextlib.contextmanager
def opened(file: str) -> Iterator[BinaryIO]:
    """The file for reading, or stdin. Raises `UsageError` when there is no such file; reading raises `PikobotError`."""
    if file == STDIN:
        yield sys.stdin.buffer
        return
    try:
        stream = io.BufferedReader(_File(file))
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{file} is a directory; name a file, or - for stdin") from None
    except ValueError:  # a NUL character
        raise UsageError(f"{file!a} is no name of a file") from None
    except OSError as error:
        raise os_failure("read", Path(file), error) from error
    with stream:
        yield stream
