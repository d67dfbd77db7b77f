"""Finding many byte strings in much data: one pass over the data whatever their number.

Of each string a window of four bytes is looked for, the rarest by the frequency of pairs of bytes where the data
begins: a table of 65,536 entries tells for each pair of bytes whether a window begins with it. What is left, a few
positions for a megabyte, is compared with the windows and then with the strings. About 1 ms a megabyte, with numpy;
little data is searched string by string, and somewhat more where numpy would have to be loaded for it. Exact: what is
returned stands there, and nothing is overlooked.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

WINDOW_BYTES = 4
SAMPLE_BYTES = 1 << 18
# Strings times bytes that are searched one by one, in 10 ms, before numpy is loaded, which takes 100; and with it.
FEW = 32 << 20
FEW_WITH_NUMPY = 128 << 10
MAX_COUNTED = (1 << 15) - 1  # of a pair of bytes, so that a product of two and a position fit into 64 bits
MAX_POSITIONS = 2_000  # of one window; a more common one is no help

Windows = dict[bytes, list[tuple[bytes, int]]]
"""By four bytes the strings that have them, and where in each."""


class MultiSearch:
    """A set of strings to be found in any number of pieces of data, none of them empty."""

    def __init__(self, strings: Iterable[bytes]) -> None:
        self._strings = frozenset(filter(None, strings))
        self._short = frozenset(string for string in self._strings if len(string) < WINDOW_BYTES)
        self._windows: Windows = {}

    @property
    def count(self) -> int:
        return len(self._strings)

    @cached_property
    def shortest(self) -> int:
        """The least length of a string; of none it is a large number."""
        return min(map(len, self._strings), default=sys.maxsize)

    @cached_property
    def _plain(self) -> "MultiSearch":
        """Those of them that text in ASCII can have."""
        plain = {string for string in self._strings if _is_plain(string)}
        return self if plain == self._strings else MultiSearch(plain)

    def found_in(self, data: bytes, *, few: int = FEW) -> set[bytes]:
        """Which of the strings stand in the data. ``few``: 0 for data that is a part of much more."""
        if _is_plain(data) and self._plain is not self:
            return self._plain.found_in(data, few=few)
        if "numpy" in sys.modules:
            few = min(few, FEW_WITH_NUMPY)
        if len(self._strings) * len(data) <= few or len(data) < 2 * WINDOW_BYTES:
            return {string for string in self._strings if string in data}
        found = {string for string in self._short if string in data}
        return found | self._in_one_pass(data) if len(self._strings) > len(self._short) else found

    def _in_one_pass(self, data: bytes) -> set[bytes]:
        self._windows = self._windows or _rarest_windows(data, self._strings - self._short)
        found: set[bytes] = set()
        for window, positions in _positions(data, self._windows).items():
            members = self._windows[window]
            if len(positions) > MAX_POSITIONS:
                found.update(string for string, _ in members if string in data)
                continue
            for string, offset in members:
                if any(data.startswith(string, at - offset) for at in positions if at >= offset):
                    found.add(string)
        return found


def _is_plain(data: bytes) -> bool:
    return data.isascii() and b"\0" not in data


def _rarest_windows(data: bytes, strings: Iterable[bytes]) -> Windows:
    """Each string with the offset of the window in it that the data has least."""
    import numpy as np

    sample = data[: min(SAMPLE_BYTES, len(data)) // 2 * 2]
    common = np.bincount(np.frombuffer(sample, "<u2"), minlength=1 << 16)
    ordered = list(strings)
    ends = np.cumsum([len(string) for string in ordered])
    begins = np.concatenate([[0], ends[:-1]])
    octets = np.frombuffer(b"".join(ordered), np.uint8).astype(np.int64)
    frequency = np.minimum(common[octets[:-1] | octets[1:] << 8] + 1, MAX_COUNTED)
    ranked = (frequency[:-2] * frequency[2:] << 32) + np.arange(len(octets) - 3)
    # The last windows of a string reach into the next one.
    ranked[(ends[:-1, None] - np.arange(1, WINDOW_BYTES)).ravel()] = np.iinfo(np.int64).max
    rarest = np.minimum.reduceat(ranked, begins) & 0xFFFFFFFF
    windows: Windows = defaultdict(list)
    for string, offset in zip(ordered, (rarest - begins).tolist(), strict=True):
        windows[string[offset : offset + WINDOW_BYTES]].append((string, offset))
    return windows


def _positions(data: bytes, windows: Iterable[bytes]) -> dict[bytes, list[int]]:
    """Where each of the windows begins, those that do anywhere."""
    import numpy as np

    keys = np.sort(np.frombuffer(b"".join(windows), "<u4"))
    begins = np.zeros(1 << 16, bool)
    begins[keys & 0xFFFF] = True
    found = defaultdict(list)
    for first in (0, 1):
        pairs = np.frombuffer(data, "<u2", (len(data) - first) // 2, first)
        at = np.flatnonzero(np.take(begins, pairs[:-1]))
        values = pairs[at] | np.left_shift(pairs[at + 1], 16, dtype=np.uint32)
        is_window = _is_among(values, keys)
        for position, value in zip((at[is_window] * 2 + first).tolist(), values[is_window], strict=True):
            found[value.tobytes()].append(position)
    return found


def _is_among(values: "npt.NDArray[Any]", keys: "npt.NDArray[Any]") -> "npt.NDArray[np.bool_]":
    import numpy as np

    nearest = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.asarray(keys[nearest] == values)
