"""`pikobot import`: load conversations from a file into an instance that nobody serves.

One line on stdout says what became of the records; every line that couldn't be stored is named on stderr, and the
exit code is 1 if there was any. Killed or repeated, the import goes on where it stood.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pikobot.cli.inputs import opened
from pikobot.cli.making import open_or_make
from pikobot.clock import Clock, SystemClock
from pikobot.errors import ExitCode, UsageError
from pikobot.memory.forgetting.retention import count_beyond
from pikobot.memory.imports import ImportReport, Problem, import_jsonl
from pikobot.memory.opening import open_memory
from pikobot.serving import acquire_serving_lock
from pikobot.streams import emit
from pikobot.text import Count

FORMATS = ("jsonl",)
MAX_EXPLAINED = 50
NUMBERS_A_LINE = 10


def import_(format_name: str, file: str, root: Path, *, clock: Clock | None = None) -> ExitCode:
    """Import a file, or stdin for ``-``, into the instance in an absolute directory. A new one is made when needed.

    Raises `UsageError` for an unknown format or a missing file, `InstanceBusy` while a process serves the
    instance, and what opening it raises.
    """
    if format_name not in FORMATS:
        raise UsageError(f"{format_name!r:.60} is not an import format; known are {', '.join(FORMATS)}")
    clock = clock or SystemClock()
    listing = _Listing()
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(opened(file))  # first: for a wrong name no instance is made
        instance = open_or_make(root)
        config = instance.load_config()
        stack.enter_context(acquire_serving_lock(instance, clock))
        db = open_memory(instance.database_path, instance.ledger_path, clock)
        stack.callback(db.close)
        report = import_jsonl(
            db,
            stream,
            message_days=config.retention.message_days,
            learns=config.extraction.enabled and config.memory.extract_imports,
            on_problem=listing.add,
            on_progress=stack.enter_context(_progress(stream)),
        )
        listing.end()
        beyond = count_beyond(db, config.retention.max_sources)
    if beyond:
        sys.stderr.write(
            f"{Count(beyond):message} beyond retention.max_sources: the oldest will be removed\n"
        )
    emit(_summary(report) + "\n")
    return ExitCode.DONE if report.is_clean else ExitCode.FAILED


class _Listing:
    """Names every line that was not stored on stderr, as they come, neighbours with the same reason together.

    After MAX_EXPLAINED reasons only the numbers are written, so that the wrong file does not fill the screen.
    """

    def __init__(self) -> None:
        self._first = self._last = 0
        self._reason = ""
        self._explained = 0
        self._numbers: list[str] = []

    def add(self, problem: Problem) -> None:
        is_more = self._explained >= MAX_EXPLAINED
        if problem.line == self._last + 1 and (is_more or problem.reason == self._reason):
            self._last = problem.line
            return
        self._write_range()
        self._first = self._last = problem.line
        self._reason = problem.reason

    def end(self) -> None:
        self._write_range()
        self._write_numbers()

    def _write_range(self) -> None:
        if not self._last:
            return
        numbers = str(self._first) if self._first == self._last else f"{self._first}-{self._last}"
        if self._explained >= MAX_EXPLAINED:
            self._numbers.append(numbers)
            if len(self._numbers) >= NUMBERS_A_LINE:
                self._write_numbers()
            return
        self._explained += 1
        word = "line" if self._first == self._last else "lines"
        sys.stderr.write(f"{word} {numbers}: {self._reason}\n")

    def _write_numbers(self) -> None:
        if self._numbers:
            sys.stderr.write(f"also not stored, lines: {', '.join(self._numbers)}\n")
            self._numbers = []


def _summary(report: ImportReport) -> str:
    """Only what happened: ``6685 added, 10 already there``."""
    counts = [
        (report.already_there, "already there"),
        (report.changed, "changed (kept the first)"),
        (report.erased, "erased before (left out)"),
        (report.expired, "older than retention.message_days (left out)"),
        (report.bad, "bad"),
    ]
    return ", ".join([f"{report.added} added", *(f"{count} {what}" for count, what in counts if count)])


@contextlib.contextmanager
def _progress(stream: BinaryIO) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr if that is a terminal; its length is unknown for a pipe."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # lazily: only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("import", total=_size(stream))
        yield lambda consumed: bar.update(task, completed=consumed)


def _size(stream: BinaryIO) -> int | None:
    try:
        status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
