"""Markdown as a terminal shows it: rich's renderer with nothing hidden.

What differs from rich: HTML and link definitions are shown as text, a link shows its address, an image its
description and address, a line break stays a line break, headings stand at the left, and code has no padding, so
that it can be copied. Text is never taken for rich's own markup.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text

MIN_COLUMN_CELLS = 8  # a table with narrower columns is shown as its source

_parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")


class _Heading(rich_markdown.Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Code(rich_markdown.CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).removesuffix("\n")
        yield Syntax(code, self.lexer_name, theme="ansi_dark", background_color="default", word_wrap=True)


class Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=True)
        self.markup = text
        self.parsed = _parser.parse(text)
        for token in self.parsed:
            if token.children is not None:
                token.children = list(_shown(token.children))


def _shown(tokens: Iterable[Token]) -> Iterator[Token]:
    """The inline tokens, with addresses as text and breaks as breaks."""
    address = ""
    written = ""
    for token in tokens:
        if token.type == "link_open":
            address, written = str(token.attrs.get("href", "")), ""
        elif token.type == "link_close":
            if address not in ("", written, f"mailto:{written}"):
                yield _text(f" ({address})")
        elif token.type == "image":
            source = str(token.attrs.get("src", ""))
            yield _text(f"{token.content} ({source})" if token.content else source)
        elif token.type == "softbreak":
            yield Token("hardbreak", "br", 0)
        else:
            written += token.content
            yield token


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def render(text: str, width: int) -> RenderableType:
    """What to print for one block of Markdown, in at most ``width`` cells where possible."""
    if _is_too_wide(text, width):
        return Text(text.rstrip("\n"))
    return Markdown(text)


def _is_too_wide(text: str, width: int) -> bool:
    first, _, rest = text.partition("\n")
    is_table = "|" in first and rest.lstrip().startswith(("|", "-", ":")) and "-" in rest.partition("\n")[0]
    return is_table and (first.strip().strip("|").count("|") + 1) * MIN_COLUMN_CELLS > width


class Trimmed:
    """A renderable without blank space at its right, top and bottom; with ``last_lines``, only its end."""

    def __init__(self, renderable: RenderableType, last_lines: int | None = None) -> None:
        self._renderable = renderable
        self._last_lines = last_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rendered = console.render_lines(self._renderable, options.update(height=None), pad=False)
        lines = [_without_right_space(line) for line in rendered]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
        for line in lines[-self._last_lines :] if self._last_lines else lines:
            yield from line
            yield Segment.line()


def _without_right_space(line: list[Segment]) -> list[Segment]:
    kept = list(line)
    while kept and not kept[-1].text.rstrip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style, kept[-1].control)
    return kept
