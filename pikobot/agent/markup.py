"""Tool markup that a model writes into its answer, and its server takes for text: cut out of the stream. Pure.

Small models, and servers that don't know a model's template, let `<tool_call>…</tool_call>` through as text, or a
made-up `<tool_response>…</tool_response>`. Neither is a call (calls come as such) nor an answer. What stands in a line
or in a code fence is the model speaking about such markup, and stays.
"""

import re

_CLOSINGS = {f"<{name}>": f"</{name}>" for name in ("tool_call", "tool_response")}
_FENCE = "```"
_LINES = re.compile(r"[^\n]*\n|[^\n]+")


class MarkupFilter:
    """Takes the pieces of one answer; holds back only what may still begin a block. An open block goes to the end."""

    def __init__(self) -> None:
        self._held = ""
        self._closing: str | None = None  # of the block that is being left out
        self._is_in_line = False  # the line's beginning has been decided on
        self._is_fenced = False
        self._is_after_block = False

    def feed(self, piece: str) -> str:
        return "".join(map(self._take, _LINES.findall(piece)))

    def finish(self) -> str:
        """What was held back at the end of the answer."""
        return "" if self._closing else self._held

    def _take(self, part: str) -> str:
        if self._closing is not None:
            return self._leave_out(part, self._closing)
        if self._is_in_line:
            self._is_in_line = not part.endswith("\n")
            return part
        if self._is_after_block and not self._held and part == "\n":
            self._is_after_block = False
            return ""
        self._held += part
        line = self._held.lstrip(" ")
        if line.startswith(_FENCE):
            self._is_fenced = not self._is_fenced
        elif not self._is_fenced and (opening := next(filter(line.startswith, _CLOSINGS), None)):
            self._closing, self._held = _CLOSINGS[opening], ""
            return self._leave_out(line.removeprefix(opening), self._closing)
        elif any(beginning.startswith(line) for beginning in (_FENCE, *_CLOSINGS)):
            return ""
        shown, self._held = self._held, ""
        self._is_in_line, self._is_after_block = not shown.endswith("\n"), False
        return shown

    def _leave_out(self, part: str, closing: str) -> str:
        before, found, rest = (self._held + part).partition(closing)
        if not found:
            self._held = before[-len(closing) :]
            return ""
        self._closing, self._held, self._is_after_block = None, "", True
        return self._take(rest) if rest else ""
