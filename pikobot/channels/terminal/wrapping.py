"""Lines for a terminal, broken between words instead of wherever its edge happens to be.

Widths are cells: a wide character (UAX #11, W and F) takes two, a combining mark none. Chinese breaks between any two
characters, but no row begins with a closing sign or ends with an opening one. What goes on in the next row stands
under the text of the first: behind the indentation, or in the second column of a list of two.
"""

import os
import re
import unicodedata
from collections.abc import Mapping
from typing import TextIO

# Narrower than this nothing is gained by keeping words whole.
MIN_COLUMNS = 10

_OPENING, _CLOSING = "“‘（《「『【〈［([{", "，。、！？：；”’）》」』】〉］…,.!?:;)]}"
_WIDE = (
    "\u1100-\u115f\u2e80-\u2fff\u3012-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff02-\uff07\uff0a\uff0b\uff0d\uff0e"
    "\uff0f-\uff19\uff1c-\uff1e\uff20-\uff3a\uff3c\uff3e-\uff5a\U0001f300-\U0001faff\U00020000-\U0003fffd"
)
_UNIT = re.compile(
    rf"\s+|[{re.escape(_OPENING)}]*(?:[{_WIDE}]|[^\s{_WIDE}]+?(?=[\s{_WIDE}]|[{re.escape(_OPENING)}](?=[{_WIDE}])|\Z)|)"
    rf"[{re.escape(_CLOSING)}]*"
)
_FIRST_COLUMN = re.compile(r"\s*\S.*?\s{2,}(?=\S)")
_INDENTATION = re.compile(r"\s*(?:[-•*] )?")


def cells(text: str) -> int:
    """How many columns a terminal needs for the text."""
    return sum(_cells_of(char) for char in text)


def columns_of(stream: TextIO, environ: Mapping[str, str]) -> int | None:
    """The width of the terminal that a stream is, now; None when it is none."""
    if not stream.isatty():
        return None
    given = environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def wrapped(text: str, columns: int | None) -> str:
    """The lines of a text in rows of at most so many cells; unchanged where there is no such width."""
    if columns is None or columns < MIN_COLUMNS:
        return text
    return "\n".join(row for line in text.split("\n") for row in _rows(line, columns))


def _rows(line: str, columns: int) -> list[str]:
    if cells(line) <= columns:
        return [line]
    indent = " " * _hanging(line, columns)
    rows, row = [], ""
    for unit in _units(line):
        if cells(row) + cells(unit) > columns and row.strip():
            rows.append(row.rstrip())
            row = indent
        if unit.isspace() and rows and not row.strip():
            continue
        while cells(row) + cells(unit) > columns and not unit.isspace():
            fitting = _fitting(unit, columns - cells(row))
            rows.append(row + unit[:fitting])
            row, unit = indent, unit[fitting:]
        row += unit
    return [*rows, row.rstrip()] if row.strip() or not rows else rows


def _units(line: str) -> list[str]:
    return [match.group() for match in _UNIT.finditer(line) if match.group()]


def _hanging(line: str, columns: int) -> int:
    """Where rows after the first begin."""
    column = _FIRST_COLUMN.match(line)
    if column is not None and cells(column.group()) <= columns // 2:
        return cells(column.group())
    indentation = _INDENTATION.match(line)
    return min(cells(indentation.group()), columns // 2) if indentation is not None else 0


def _fitting(unit: str, room: int) -> int:
    """How many characters of it fit; at least one, so that this ends."""
    used = 0
    for index, char in enumerate(unit):
        used += _cells_of(char)
        if used > room:
            return max(index, 1)
    return len(unit)


def _cells_of(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
