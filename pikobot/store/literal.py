"""Case-insensitive literal search in stored text, with positions in the original.

Matching is by full Unicode case folding (CaseFolding.txt, status C and F) and by nothing else: ``STRASSE``
finds ``Straße``, ``ς`` finds ``Σ``, an accent is never dropped. Folding may lengthen a character (``ß`` to
``ss``), so a match may begin or end inside one; the span then covers that character whole. `contains_folded`
is true exactly when `find_folded` finds a span: SQLite filters with the one, excerpts are cut with the
other.
"""

import re
import unicodedata
from functools import lru_cache

from pikobot.store.segmentation import is_cjk

# No character outside this range folds into it and none inside folds at all, so such a needle compares as it
# is.
_CASELESS = re.compile("[\u3000-\u9fff]+")
# How much of a span that is cut itself may be given up for a clean edge.
_MAX_CLUSTER = 32
_ZERO_WIDTH_JOINER = "\u200d"


def contains_folded(text: str, folded_needle: str) -> bool:
    """Whether the text contains the needle, which was folded with ``str.casefold`` once by the caller."""
    return folded_needle in text or (not _is_caseless(folded_needle) and folded_needle in text.casefold())


def contains_word_folded(text: str, folded_needle: str) -> bool:
    """Whether the text contains the needle (see `contains_folded`) where no word goes on before or after it.

    Scripts that don't separate words go on nowhere: a CJK needle, or one between CJK characters, is found anywhere.
    """
    if not folded_needle or not contains_folded(text, folded_needle):
        return False
    folded = text.casefold()
    at = folded.find(folded_needle)
    while at >= 0:
        end = at + len(folded_needle)
        if not _goes_on(folded, at) and not _goes_on(folded, end):
            return True
        at = folded.find(folded_needle, at + 1)
    return False


def words_around(text: str, needle: str) -> list[str]:
    """The distinct words of a text, as they stand, that hold a needle within them."""
    words = dict.fromkeys(re.findall("\\w+", text))
    folded = needle.casefold()
    return [
        word for word in words if contains_folded(word, folded) and not contains_word_folded(word, folded)
    ]


def _goes_on(text: str, at: int) -> bool:
    """Whether the characters on both sides of a position belong to one word."""
    return 0 < at < len(text) and all(
        (char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")) and not is_cjk(char)
        for char in text[at - 1 : at + 1]
    )


def find_folded(text: str, needle: str, start: int = 0) -> tuple[int, int] | None:
    """Return the first match at or after ``start`` as (begin, end) in ``text``, or None.

    An empty needle matches nothing.
    """
    wanted = needle.casefold()
    tail = text[start:]
    folded = tail.casefold()
    at = folded.find(wanted) if wanted else -1
    if at < 0:
        return None
    if len(folded) == len(tail):
        return start + at, start + at + len(wanted)
    return start + _original_index(tail, at), start + _original_index(tail, at + len(wanted) - 1) + 1


def excerpt(text: str, span: tuple[int, int], max_chars: int = 1000) -> str:
    """Return an unchanged part of the text around the span, at most ``max_chars`` characters.

    Context is shared evenly between both sides. Accented letters, emoji sequences and flags at the edges are
    left out rather than cut. A span that is longer than the limit is shown from its beginning.
    """
    begin, end = span
    spare = max(max_chars - (end - begin), 0)
    first = max(begin - spare // 2, 0)
    last = min(first + max_chars, len(text))
    if spare:
        first = max(min(first, last - max_chars), 0)
    while first < begin and not _is_boundary(text, first):
        first += 1
    least = end if end <= last else last - _MAX_CLUSTER
    while last > max(least, first + 1) and not _is_boundary(text, last):
        last -= 1
    return text[first:last]


@lru_cache(maxsize=64)
def _is_caseless(needle: str) -> bool:
    return _CASELESS.fullmatch(needle) is not None


def _original_index(text: str, folded_index: int) -> int:
    """Return which character of the text the folded position comes from."""
    position = 0
    for index, char in enumerate(text):
        position += len(char.casefold())
        if position > folded_index:
            return index
    return len(text)


def _is_boundary(text: str, at: int) -> bool:
    """Whether the text may be cut before this position (UAX #29, as far as excerpts need it)."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if (
        unicodedata.category(after).startswith("M")
        or after == _ZERO_WIDTH_JOINER
        or before == _ZERO_WIDTH_JOINER
    ):
        return False
    if "\U0001f3fb" <= after <= "\U0001f3ff" or (before == "\r" and after == "\n"):
        return False
    if _is_flag_letter(before) and _is_flag_letter(after):
        return _flag_letters_before(text, at) % 2 == 0
    return True


def _is_flag_letter(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"


def _flag_letters_before(text: str, at: int) -> int:
    begin = at
    while begin > 0 and _is_flag_letter(text[begin - 1]):
        begin -= 1
    return at - begin
