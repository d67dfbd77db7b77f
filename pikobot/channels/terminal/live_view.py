"""An answer on a real terminal: finished blocks of Markdown for good, the unfinished rest in a region that is redrawn.

The region holds at most what fits the screen, and is redrawn at most every REDRAW_S, so that an answer of any
length costs in proportion to its length. Nothing but this object may print while it is open; notices pass through
it, because stderr is usually the same screen.
"""

from collections.abc import Callable, Mapping
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from pikobot.channels.terminal.blocks import Block, BlockSplitter
from pikobot.channels.terminal.control_sequences import ControlStripper, strip_control_sequences
from pikobot.channels.terminal.markdown import Trimmed, render
from pikobot.channels.terminal.views import Notices
from pikobot.streams import make_forgiving

REDRAW_S = 0.08


def open_console(stdout: TextIO, environ: Mapping[str, str]) -> Console:
    """A console that takes text as text: no markup, no emoji codes, no guessed highlighting."""
    make_forgiving(stdout)
    return Console(
        file=stdout, markup=False, emoji=False, highlight=False, legacy_windows=False, _environ=environ
    )


class LiveView:
    """``now`` gives seconds on a clock that never goes back."""

    def __init__(self, console: Console, notices: Notices, now: Callable[[], float]) -> None:
        self._console = console
        self._notices = notices
        self._now = now
        self._stripper = ControlStripper()
        self._splitter = BlockSplitter()
        self._activity = ""
        self._live: Live | None = None
        self._drawn_at = float("-inf")
        self._is_stale = False
        self._has_printed = False

    def text(self, piece: str) -> None:
        self._add(self._stripper.feed(piece))
        self._is_stale = True
        self.refresh()

    def activity(self, label: str | None) -> None:
        label = strip_control_sequences(label or "")
        if label != self._activity:
            self._activity = label
            self._is_stale = True
            self.refresh()

    def wait(self, label: str) -> None:
        self.activity(label)

    def notice(self, line: str) -> None:
        self._hide()
        self._notices.say(line)
        self._is_stale = True
        self.refresh()

    def refresh(self) -> None:
        if self._is_stale and self._now() - self._drawn_at >= REDRAW_S:
            self._draw()

    def close(self) -> None:
        self._hide()
        self._add(self._stripper.finish())
        for block in self._splitter.finish():
            self._print(block)

    def _add(self, text: str) -> None:
        for block in self._splitter.feed(text):
            self._print(block)

    def _print(self, block: Block) -> None:
        if not block.text.strip():
            return
        if self._live is not None:
            self._live.update(Text(""), refresh=False)
        if self._has_printed and not block.is_continued:
            self._console.print()
        self._console.print(Trimmed(render(block.markdown, self._console.width)))
        self._has_printed = True

    def _draw(self) -> None:
        region = self._region()
        if region is None:
            self._hide()
        elif self._live is None:
            self._live = Live(
                region,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
        else:
            self._live.update(region, refresh=True)
        self._drawn_at, self._is_stale = self._now(), False

    def _region(self) -> RenderableType | None:
        tail = self._splitter.tail
        parts: list[RenderableType] = []
        height = max(self._console.height - 2, 1)
        if tail.text.strip():
            if self._has_printed and not tail.is_continued:
                parts.append(Text(""))
            parts.append(Trimmed(render(tail.markdown, self._console.width), last_lines=max(height - 2, 1)))
        if self._activity:
            parts.append(Text(self._activity, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts) if parts else None

    def _hide(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
