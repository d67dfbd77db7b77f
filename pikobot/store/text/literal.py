"""Literal search in stored text that takes forms of a character for one, with positions in the original.

Text is compared as it is indexed (`segmentation.fold`): by NFKC and full Unicode case folding (CaseFolding.txt, status
C and F), and by nothing else but the dot of ``İ``: ``STRASSE`` finds ``Straße``, ``ς`` finds ``Σ``, ``é`` finds ``e``
with a mark of its own, ``138`` finds ``１３８``; an accent is never dropped. Folding may lengthen a character (``ß``
to ``ss``) and join others, so a match may begin or end inside of what stands in the original; the span then covers
that whole. `contains_folded` is true exactly when `find_folded` finds a span: SQLite filters with the one, excerpts
are cut with the other.
"""

import re
import unicodedata
from bisect import bisect_right
from functools import lru_cache

from pikobot.store.text.segmentation import LONG_RUN_OF_MARKS, is_cjk

# Such a needle compares as it is: none of its characters folds, and only those that `_FOLDS_INTO_HAN` knows fold to it.
_HAN = re.compile("[\u4e00-\u9fff]+")
_FOLDS_INTO_HAN = re.compile(
    "[\u2e80-\u2fdf\u3038-\u303a\u3190-\u319f\u3200-\u33ff\uf900-\ufaff\U0001f200-\U0001f2ff\U0002f800-\U0002fa1f]"
)
# Replaced one by one, which is several times faster than to normalise every text of Chinese for them.
_WIDE_PUNCTUATION = tuple(zip("，！？：；（）", ",!?:;()", strict=True))
# In a shorter text the order of marks costs little, however many there are.
_MAX_UNCUT = 2000
# How much of a span that is cut itself may be given up for a clean edge.
_MAX_CLUSTER = 32
_ZERO_WIDTH_JOINER = "\u200d"


def folded(text: str) -> str:
    """The text in the form that is compared."""
    return _folded(text, len(text) > _MAX_UNCUT)


def contains_folded(text: str, folded_needle: str) -> bool:
    """Whether the text contains the needle, which was `folded` once by the caller."""
    if not text.isascii() and _is_han(folded_needle):
        if folded_needle in text:
            return True
        if not _FOLDS_INTO_HAN.search(text):
            return False
    return folded_needle in folded(text)


def contains_word_folded(text: str, folded_needle: str) -> bool:
    """Whether the text contains the needle (see `contains_folded`) where no word goes on before or after it.

    Scripts that don't separate words go on nowhere: a CJK needle, or one between CJK characters, is found anywhere.
    """
    if not folded_needle or not contains_folded(text, folded_needle):
        return False
    compared = folded(text)
    at = compared.find(folded_needle)
    while at >= 0:
        end = at + len(folded_needle)
        if not _goes_on(compared, at) and not _goes_on(compared, end):
            return True
        at = compared.find(folded_needle, at + 1)
    return False


def words_around(text: str, needle: str) -> list[str]:
    """The distinct words of a text, as they stand, that hold a needle within them."""
    words = dict.fromkeys(re.findall("\\w+", text))
    wanted = folded(needle)
    return [
        word for word in words if contains_folded(word, wanted) and not contains_word_folded(word, wanted)
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
    wanted = folded(needle)
    tail = text[start:]
    is_cut = len(tail) > _MAX_UNCUT
    at = _folded(tail, is_cut).find(wanted) if wanted else -1
    if at < 0:
        return None
    if tail.isascii():
        return start + at, start + at + len(wanted)
    begin = _original_index(tail, at, is_cut)
    end = _original_index(tail, at + len(wanted) - 1, is_cut) + 1
    while end < len(tail) and not _begins_anew(tail[end]):
        end += 1
    return start + begin, start + end


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
def _is_han(needle: str) -> bool:
    return _HAN.fullmatch(needle) is not None


def _folded(text: str, is_cut: bool) -> str:
    if text.isascii():
        return text.lower()
    if is_cut:
        text = LONG_RUN_OF_MARKS.sub(r"\1 ", text)
    for wide, narrow in _WIDE_PUNCTUATION:
        text = text.replace(wide, narrow)
    text = unicodedata.normalize("NFKC", text).casefold().replace("i\u0307", "i")
    return unicodedata.normalize("NFKC", text)


def _original_index(text: str, folded_index: int, is_cut: bool) -> int:
    """Return where the characters begin that the folded position comes from.

    A text that is cut where characters begin anew folds to what its parts fold to, one after the other.
    """

    def folded_length(at: int) -> int:
        return len(_folded(text[: _anew_at(text, at)], is_cut))

    return _anew_at(text, bisect_right(range(len(text)), folded_index, key=folded_length) - 1)


def _anew_at(text: str, at: int) -> int:
    while at > 0 and not _begins_anew(text[at]):
        at -= 1
    return at


def _begins_anew(char: str) -> bool:
    """Whether a character joins none before it when normalised (UAX #15); marks and inner letters of Hangul do."""
    first = unicodedata.normalize("NFKD", char)[0]
    return not unicodedata.category(first).startswith("M") and not "\u1160" <= first <= "\u11ff"


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
