"""Where an answer appears: the interface of a view, the plain one for pipes and dumb terminals, and the notices.

An answer goes to stdout, everything else to stderr. Streams are made forgiving first (`pikobot.streams`).
"""

import contextlib
import io
import os
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from pikobot.channels.terminal.control_sequences import ControlStripper, strip_control_sequences
from pikobot.channels.terminal.wrapping import columns_of, wrapped
from pikobot.streams import make_forgiving

_DIM, _RED, _PLAIN, _ERASE_LINE = "\x1b[2m", "\x1b[31m", "\x1b[0m", "\r\x1b[K"


class AnswerView(Protocol):
    """Shows one answer. `close` is called once, also after a failure; nothing is shown after it."""

    def text(self, piece: str) -> None: ...

    def activity(self, label: str | None) -> None:
        """What is being done while there is no new text; replaces the last label, None removes it."""
        ...

    def wait(self, label: str) -> None:
        """There is nothing to tell but that it goes on: an activity for those who watch, not for a log."""
        ...

    def notice(self, line: str) -> None: ...

    def refresh(self) -> None:
        """Called a few times a second: show what has been held back until now."""
        ...

    def close(self) -> None: ...


def is_rich_terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the cursor can be moved there: a terminal that is not dumb."""
    return stream.isatty() and environ.get("TERM", "") not in ("dumb", "unknown", "")


def silence(stream: TextIO) -> None:
    """Send what is left in a stream whose reader has gone to nowhere, so that leaving makes no complaint."""
    with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class Notices:
    """Lines for the owner on stderr; a closed stderr loses them silently."""

    def __init__(
        self, stream: TextIO, environ: Mapping[str, str], completed: Callable[[str], str] = str
    ) -> None:
        self._stream = stream
        self._environ = environ
        self._completed = completed
        self.is_terminal = is_rich_terminal(stream, environ)
        self._is_coloured = self.is_terminal and not environ.get("NO_COLOR")
        self._activity = ""
        make_forgiving(stream)

    def say(self, line: str) -> None:
        self._write_line(line, _DIM)

    def fail(self, line: str) -> None:
        self._write_line(line, _RED if self._is_coloured else "")

    def activity(self, label: str | None) -> None:
        """One line that the next one replaces; where the cursor cannot go back, a line of its own."""
        label = strip_control_sequences(label or "")
        if label == self._activity:
            return
        if not self.is_terminal:
            self._write(f"{label}\n" if label else "")
        else:
            self._write(_ERASE_LINE + (f"{_DIM}{label}{_PLAIN}" if label else ""))
        self._activity = label

    def _write_line(self, line: str, style: str) -> None:
        self.activity(None)
        line = strip_control_sequences(self._completed(line))
        line = wrapped(line, columns_of(self._stream, self._environ))
        self._write(f"{style}{line}{_PLAIN}\n" if style and self.is_terminal else f"{line}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()


class PlainView:
    """The answer as it comes, as text: no cursor movement, and exactly one newline at its end.

    Raises BrokenPipeError when the reader has gone.
    """

    def __init__(self, stdout: TextIO, notices: Notices) -> None:
        self._stdout = stdout
        self._notices = notices
        self._stripper = ControlStripper()
        self._newlines = ""  # held back: only the last one of the answer is printed
        self._has_text = False

    def text(self, piece: str) -> None:
        self._put(self._stripper.feed(piece))

    def activity(self, label: str | None) -> None:
        if not (self._has_text and self._shares_line()):
            self._notices.activity(label)

    def wait(self, label: str) -> None:
        self.activity(label if self._notices.is_terminal else None)

    def notice(self, line: str) -> None:
        if self._has_text and self._shares_line():
            self._stdout.write("\n")
            self._stdout.flush()
        self._notices.say(line)

    def refresh(self) -> None:
        pass

    def close(self) -> None:
        self._notices.activity(None)
        self._put(self._stripper.finish())
        if self._has_text:
            self._stdout.write("\n")
            self._stdout.flush()

    def _shares_line(self) -> bool:
        return self._stdout.isatty()

    def _put(self, text: str) -> None:
        if not text:
            return
        self._notices.activity(None)
        body = text.rstrip("\n")
        if body:
            self._stdout.write(self._newlines + body)
            self._stdout.flush()
            self._newlines, self._has_text = "", True
        self._newlines += text[len(body) :]
