"""Cuts Markdown that arrives in pieces into blocks that can be printed for good.

A block ends where what follows cannot change how it looks: at a blank line before a line that starts something
new, or behind a closing code fence. Invariants: the blocks put together are the text, byte for byte, however it
was cut into pieces; the unfinished rest never exceeds MAX_TAIL_CHARS, so that redrawing it costs the same at the
start and at the end of a long answer. A block longer than that is cut, and `Block.opening` says what has to stand
before the later parts so that code stays code and a table a table.
"""

import re
from dataclasses import dataclass

MAX_TAIL_CHARS = 4_000
MAX_MARKER_CHARS = 11  # "123456789. " is the longest list marker (CommonMark 0.31, section 5.2)

_FENCE = re.compile(r"\s*(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)\n?\Z")
_LIST_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s")
_TABLE_BORDER = re.compile(r"\s*\|?\s*:?-+:?\s*(?:\|\s*:?-*:?\s*)*\n\Z")
_SENTENCE_ENDS = " 。！？；，、"


@dataclass(frozen=True)
class Block:
    text: str
    opening: str = ""  # rendered before the text, and no part of it
    is_continued: bool = False  # the part before it was cut off at the limit: no space between the two

    @property
    def markdown(self) -> str:
        return self.opening + self.text


class BlockSplitter:
    """Feed it pieces; it returns each block once, and `tail` is what has not been returned yet."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._chars = 0  # in _lines
        self._line = ""  # the last line, without its newline yet
        self._fence = ""  # the marks that opened the code we are in
        self._fence_line = ""
        self._is_list = False
        self._opening = ""
        self._is_continued = False

    @property
    def tail(self) -> Block:
        return Block("".join(self._lines) + self._line, self._opening, self._is_continued)

    def feed(self, piece: str) -> list[Block]:
        done: list[Block] = []
        start = 0
        while start < len(piece):
            end = piece.find("\n", start) + 1 or len(piece)
            self._line += piece[start:end]
            start = end
            if self._lines and self._is_border():
                self._emit(done)
            while self._chars + len(self._line) > MAX_TAIL_CHARS:
                self._cut(done)
            if self._line.endswith("\n"):
                self._end_line(done)
        return done

    def finish(self) -> list[Block]:
        rest = self.tail
        self._lines, self._chars, self._line = [], 0, ""
        self._fence, self._opening, self._is_list, self._is_continued = "", "", False, False
        return [rest] if rest.text else []

    def _is_border(self) -> bool:
        """Whether the block of the complete lines ends before the line that has begun."""
        if self._fence or self._lines[-1].strip() or not self._line or self._line[0].isspace():
            return False
        if not self._is_list:
            return True
        is_decidable = len(self._line) > MAX_MARKER_CHARS or self._line.endswith("\n")
        return (is_decidable or not self._line[0].isascii()) and not _LIST_MARKER.match(self._line)

    def _end_line(self, done: list[Block]) -> None:
        line, self._line = self._line, ""
        self._lines.append(line)
        self._chars += len(line)
        if self._fence:
            marks = line.strip()
            if marks.startswith(self._fence) and not marks.strip(self._fence[0]):
                self._fence = ""
                if not self._is_list:
                    self._emit(done)
        elif opened := _FENCE.match(line):
            self._fence, self._fence_line = opened["marks"], line
        elif _LIST_MARKER.match(line):
            self._is_list = True

    def _emit(self, done: list[Block]) -> None:
        done.append(Block("".join(self._lines), self._opening, self._is_continued))
        self._lines, self._chars = [], 0
        self._opening, self._is_continued, self._is_list = "", False, False

    def _cut(self, done: list[Block]) -> None:
        """Give out what is there although it goes on; at least one character, so that this ends."""
        opening, is_list = self._opening_of_the_rest(), self._is_list
        kept: list[str] = []
        if self._lines:
            kept = self._items_to_keep()
        else:
            place = self._place_in_line()
            self._lines, self._line = [self._line[:place]], self._line[place:]
        self._emit(done)
        self._lines, self._chars = kept, sum(map(len, kept))
        self._opening, self._is_continued, self._is_list = opening, True, is_list

    def _items_to_keep(self) -> list[str]:
        """Of a list: its last item, which is unfinished, unless it is the whole block."""
        if not self._is_list or self._fence:
            return []
        for index in range(len(self._lines) - 1, len(self._lines) // 2, -1):
            if _LIST_MARKER.match(self._lines[index]):
                kept, self._lines = self._lines[index:], self._lines[:index]
                return kept
        return []

    def _place_in_line(self) -> int:
        half = MAX_TAIL_CHARS // 2
        best = max(self._line.rfind(mark, half, MAX_TAIL_CHARS) for mark in _SENTENCE_ENDS)
        return best + 1 if best > 0 else MAX_TAIL_CHARS

    def _opening_of_the_rest(self) -> str:
        if self._fence:
            return self._fence_line
        if self._opening or len(self._lines) < 2:
            return self._opening if not self._opening.lstrip().startswith(("`", "~")) else ""
        is_table = "|" in self._lines[0] and _TABLE_BORDER.match(self._lines[1])
        return "".join(self._lines[:2]) if is_table else ""
