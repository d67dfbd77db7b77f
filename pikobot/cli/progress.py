"""Progress bars on stderr, when that is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pikobot.text import Count


def nothing_shown(doing: str, done: int, total: int) -> None:
    """Where no terminal is."""


@contextlib.contextmanager
def progress_in_bytes() -> Iterator[Callable[[str, int, int], None]]:
    """One bar that names what is being done; call it with (doing, bytes done, bytes in all)."""
    if not sys.stderr.isatty():
        yield nothing_shown
        return
    from rich.console import Console  # lazily: only a terminal needs it
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total)


@contextlib.contextmanager
def waiting_work(is_wanted: bool) -> Iterator[Callable[[Mapping[str, Any]], None] | None]:
    """One line that says what waits; call it with the document of `status`. None where it is not wanted or seen."""
    if not is_wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # lazily: only a terminal needs it

    with Console(stderr=True).status("working") as line:
        yield lambda status: line.update(describe_waiting(status))


def describe_waiting(status: Mapping[str, Any]) -> str:
    """What the document of `status` says is still to be done."""
    vectors = status["embedding"]["building"] or status["embedding"]["serving"] or {"waiting": 0}
    counts = (
        f"{Count(status['counts']['runs']['queued']):request}",
        f"{Count(status['extraction']['queued']):message} to learn from",
        f"{Count(vectors['waiting']):text} to embed",
    )
    return f"waiting: {', '.join(counts)}; Ctrl-C stops, the rest is done the next time"
