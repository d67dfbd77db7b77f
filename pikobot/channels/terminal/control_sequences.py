"""Takes terminal control sequences out of text that somebody else wrote (ECMA-48, xterm's ctlseqs).

Without this an answer could move the cursor, rewrite what was printed, set the clipboard or the title, or make the
terminal type. After stripping, no control character is left but newline and tab, so a sequence that was not
recognised is shown as harmless text instead of being obeyed.
"""

import re

MAX_PAYLOAD_CHARS = 4096  # of an OSC or DCS that nobody ended: what follows is text again

_STRING_INTRODUCER = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])"
_PAYLOAD = rf"[^\n\x07\x1b\x9c]{{0,{MAX_PAYLOAD_CHARS}}}"
_CSI = r"(?:\x1b\[|\x9b)[0-?]*[ -/]*"

_SEQUENCES = re.compile(
    rf"{_STRING_INTRODUCER}{_PAYLOAD}(?:\x07|\x9c|\x1b\\)?"  # OSC, DCS, SOS, PM, APC: with what they carry
    rf"|{_CSI}[@-~]"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_UNFINISHED = re.compile(rf"(?:{_STRING_INTRODUCER}{_PAYLOAD}\x1b?|{_CSI}|\x1b[ -/]*)\Z")
_SUSPICIOUS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def strip_control_sequences(text: str) -> str:
    """The text without control sequences and control characters, newline and tab excepted."""
    return _SEQUENCES.sub("", text) if _SUSPICIOUS.search(text) else text


class ControlStripper:
    """The same for text that arrives in pieces: a sequence cut in two is still one sequence."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        text = self._held + piece
        if not _SUSPICIOUS.search(text):
            self._held = ""
            return text
        unfinished = _UNFINISHED.search(text)
        self._held = text[unfinished.start() :] if unfinished else ""
        return strip_control_sequences(text[: len(text) - len(self._held)])

    def finish(self) -> str:
        held, self._held = self._held, ""
        return strip_control_sequences(held)
