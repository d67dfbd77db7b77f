"""Progress bars on stderr, when that is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator


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
