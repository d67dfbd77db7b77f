"""The standard streams: text as UTF-8 whatever the locale says, and one sentence for what can't be read or written.

`prepare` is called once, when the program starts. After it a write to stdout that fails raises `OutputFailed`, or
`BrokenPipeError` when its reader has gone, once: what is written afterwards goes nowhere, and leaving is quiet.
What can't be said on stderr is lost. A stream that the caller has closed keeps its number occupied; else the next
file that is opened, the database for one, would be written to as if it were the terminal.
"""

import codecs
import contextlib
import errno
import io
import json
import os
import sys
from typing import TYPE_CHECKING, TextIO

from pikobot.errors import PikobotError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Buffer

STDIN, STDOUT, STDERR = 0, 1, 2

_WORDS = {errno.EBADF: "it is closed", errno.EISDIR: "it is a directory", errno.ENOSPC: "the disk is full"}


class OutputFailed(PikobotError):
    """stdout takes nothing any more."""


def prepare() -> None:
    """Make the three streams what this module promises; starts the program again where names of files are ASCII."""
    for descriptor, unusable in ((STDIN, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        _occupy(descriptor, unusable)
    _leave_ascii()
    sys.stdin = _text(sys.stdin, io.BufferedReader(_Input()))
    sys.stdout = _text(sys.stdout, io.BufferedWriter(_Output()))
    sys.stderr = _text(sys.stderr, io.BufferedWriter(_Unheard()))


def emit(text: str) -> None:
    """Write a command's result to stdout. When that fails, the command's own outcome stands; see `take_failure`."""
    with contextlib.suppress(BrokenPipeError, OutputFailed):
        sys.stdout.write(text)
        sys.stdout.flush()


def emit_utf8(data: bytes) -> None:
    """`emit` for a document that is UTF-8 in every locale."""
    with contextlib.suppress(BrokenPipeError, OutputFailed):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def emit_json(document: object) -> None:
    """`emit_utf8` for one JSON document, on a line of its own."""
    emit_utf8(json.dumps(document, ensure_ascii=False).encode() + b"\n")


def take_failure() -> OutputFailed | None:
    """Why stdout could not be written, for whoever asks first. A reader that has gone is no failure."""
    if not isinstance(raw := getattr(getattr(sys.stdout, "buffer", None), "raw", None), _Output):
        return None
    failure, raw.failure = raw.failure, None
    return failure


def make_forgiving(stream: TextIO) -> None:
    """ASCII becomes UTF-8, which contains it; what another encoding lacks is written as an escape, never dropped."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=_encoding(stream.encoding), errors="backslashreplace")


def _encoding(named: str) -> str:
    return "utf-8" if codecs.lookup(named).name == "ascii" else named


def _occupy(descriptor: int, flags: int) -> None:
    """Lower numbers are taken already, so that the file gets this one; using the stream fails as if it were closed."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, flags), True)


def _leave_ascii() -> None:
    """In Python's UTF-8 mode, arguments and names of files are what they are everywhere else."""
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and not sys.flags.utf8_mode:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 — no shell


def _text(replaced: TextIO | None, binary: io.BufferedReader | io.BufferedWriter) -> TextIO:
    encoding = "utf-8" if replaced is None else _encoding(replaced.encoding)
    by_lines = binary.isatty() or binary.fileno() == STDERR
    return io.TextIOWrapper(binary, encoding=encoding, errors="backslashreplace", line_buffering=by_lines)


class _Raw(io.RawIOBase):
    """A stream by its number, which is never closed."""

    descriptor: int

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)


class _Input(_Raw):
    descriptor = STDIN

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer", /) -> int:
        view = memoryview(buffer)
        try:
            data = os.read(self.descriptor, len(view))
        except OSError as error:
            raise UsageError(f"stdin can't be read: {_reason(error)}") from error
        view[: len(data)] = data
        return len(data)


class _Output(_Raw):
    descriptor = STDOUT
    failure: OutputFailed | None = None
    _is_lost = False

    def writable(self) -> bool:
        return True

    def write(self, data: "Buffer", /) -> int:
        if self._is_lost:
            return len(memoryview(data))
        try:
            return os.write(self.descriptor, data)
        except OSError as error:
            self._is_lost = True
            if isinstance(error, BrokenPipeError):
                raise
            self.failure = OutputFailed(f"stdout can't be written: {_reason(error)}; what was done is kept")
            raise self.failure from error


class _Unheard(_Raw):
    descriptor = STDERR

    def writable(self) -> bool:
        return True

    def write(self, data: "Buffer", /) -> int:
        with contextlib.suppress(OSError):
            return os.write(self.descriptor, data)
        return len(memoryview(data))


def _reason(error: OSError) -> str:
    return _WORDS.get(error.errno or 0) or error.strerror or "unknown error"
