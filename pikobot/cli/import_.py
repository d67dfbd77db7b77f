"""`pikobot import`: load conversations from a file into an instance that nobody serves.

One line on stdout says what became of the records; lines that couldn't be stored are named on stderr, and the
exit code is 1 if there were any. Killed or repeated, the import goes on where it stood.
"""

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from pikobot.clock import Clock, SystemClock
from pikobot.errors import ExitCode, UsageError
from pikobot.files import os_failure
from pikobot.instance import open_instance
from pikobot.memory.imports import ImportReport, import_jsonl
from pikobot.memory.opening import open_memory
from pikobot.serving import acquire_serving_lock
from pikobot.streams import emit

FORMATS = ("jsonl",)
STDIN = "-"


def import_(format_name: str, file: str, root: Path, *, clock: Clock | None = None) -> ExitCode:
    """Import a file, or stdin for ``-``, into the instance in an absolute directory.

    Raises `UsageError` for an unknown format or a missing file, `InstanceBusy` while a process serves the
    instance, and what opening it raises.
    """
    if format_name not in FORMATS:
        raise UsageError(f"{format_name!r:.60} is not an import format; known are {', '.join(FORMATS)}")
    clock = clock or SystemClock()
    instance = open_instance(root)
    config = instance.load_config()
    with (
        _opened(file) as stream,
        acquire_serving_lock(instance, clock),
        contextlib.closing(open_memory(instance.database_path, instance.ledger_path, clock)) as db,
        _progress(stream) as on_progress,
    ):
        report = import_jsonl(
            db,
            stream,
            message_days=config.retention.message_days,
            learns=config.extraction.enabled and config.memory.extract_imports,
            on_progress=on_progress,
        )
    for problem in report.problems:
        sys.stderr.write(f"line {problem.line}: {problem.reason}\n")
    unnamed = report.bad + report.changed - len(report.problems)
    if unnamed:
        sys.stderr.write(f"… and {unnamed} more\n")
    emit(_summary(report) + "\n")
    return ExitCode.DONE if report.is_clean else ExitCode.FAILED


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
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STDIN:
        yield sys.stdin.buffer
        return
    try:
        stream = open(file, "rb")  # noqa: SIM115 — closed below; only opening it is translated
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    except IsADirectoryError:
        raise UsageError(f"{file} is a directory; name a file, or - for stdin") from None
    except OSError as error:
        raise os_failure("read", Path(file), error) from error
    with stream:
        yield stream


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
