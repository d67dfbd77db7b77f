"""Server-sent events from bytes: the data of each event, in order (WHATWG HTML, section 9.2.6).

Only ``data`` matters here; other fields and comments (keep-alives) are dropped, and so is an event that the
end of the stream cuts off. Memory is bounded: one event, an endless line included, may hold MAX_EVENT_BYTES.
"""

from pikobot.adapters.chat import MAX_ANSWER_BYTES, CallFailure, ChatCallFailed

# The largest answer in one event, where JSON takes six bytes to escape one.
MAX_EVENT_BYTES = 6 * MAX_ANSWER_BYTES

_FIELDS = (b"", b"data", b"event", b"id", b"retry")  # the empty name is that of a comment


class EventDecoder:
    """Feed it what arrives; it returns the data of the events that are complete."""

    def __init__(self) -> None:
        self._partial_line = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._is_after_cr = False
        self._has_foreign_line = False
        self.has_seen_event = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Raises ChatCallFailed (too_large) for an event beyond the limit."""
        if self._is_after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
        self._is_after_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[bytes] = []
        for line in lines:
            self._partial_line += line
            self._end_line(bytes(self._partial_line), events)
            self._partial_line.clear()
        self._partial_line += rest
        self._check_size()
        return events

    @property
    def has_foreign_line(self) -> bool:
        """Whether something came that no event stream has, such as HTML or a bare JSON document."""
        return self._has_foreign_line or self._partial_line.partition(b":")[0] not in _FIELDS

    def _end_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self.has_seen_event = True
            self._data, self._data_bytes = [], 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(line)
            self._check_size()
        elif name not in _FIELDS:
            self._has_foreign_line = True

    def _check_size(self) -> None:
        if self._data_bytes + len(self._partial_line) > MAX_EVENT_BYTES:
            raise ChatCallFailed(
                f"the model's provider sent an event of more than {MAX_EVENT_BYTES} bytes; "
                "the answer was given up",
                code=CallFailure.TOO_LARGE,
            )
