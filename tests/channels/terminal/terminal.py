"""What a screen would hold: a small interpreter of what the views print, enough for cursor movement by lines."""

import re

from pikobot.channels.terminal.wrapping import cells

__all__ = ["cells", "screen"]

_TOKEN = re.compile(r"\x1b\[(?P<parameters>[0-9;?]*)(?P<final>[A-Za-z])|(?P<char>[\s\S])")


def screen(written: str) -> list[str]:
    """The lines left on an endlessly high screen; styles are dropped, blank space at the right too."""
    lines, row, column = [""], 0, 0
    for token in _TOKEN.finditer(written):
        char, final = token["char"], token["final"]
        if char == "\n":
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif char == "\r":
            column = 0
        elif char is not None:
            lines[row] = lines[row][:column].ljust(column) + char + lines[row][column + 1 :]
            column += 1
        elif final == "A":
            row = max(row - int(token["parameters"] or 1), 0)
        elif final == "K":
            lines[row] = "" if token["parameters"] == "2" else lines[row][:column]
    return [line.rstrip() for line in lines]
