"""Whether an element copies a known fact instead of saying what a new message says: small models do.

Stored with the quote of another message, such a fact would be wrong, and outlive the forgetting of its real source.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from pikobot.adapters.mem0.candidates import KnownFact

_WORD = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]{4,}|\d+")
_STEM_CHARS = 5
_LEAST_WORD_CHARS = 4
LEAST_SHARED = 2  # "started", of a business or of going to the gym, is no evidence alone
_SAYS_NOTHING = frozenset(
    "user owner 用户 主人 about been from have into last next that their them they this very were will with".split()
)


def is_copied(text: str, known: Iterable[KnownFact], sources: Sequence[str]) -> bool:
    """Whether the text is that of a known fact, and next to no word of it is in the sources that it names now."""
    if _folded(text) not in {_folded(fact.text) for fact in known}:
        return False
    stems = _stems(text)
    said = set().union(*map(_stems, sources))
    shared = [stem for stem in stems if any(_are_forms(stem, other) for other in said)]
    return len(shared) < min(LEAST_SHARED, len(stems))


def _are_forms(stem: str, other: str) -> bool:
    """Whether they may begin one word: "live" and "lives". Numbers and characters are the same or others."""
    is_word = stem[0].isalpha() and len(min(stem, other, key=len)) >= _LEAST_WORD_CHARS
    return stem == other or (is_word and (stem.startswith(other) or other.startswith(stem)))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _stems(text: str) -> set[str]:
    """Beginnings of words, and pairs of characters in Chinese: what two wordings of one thing share."""
    stems: set[str] = set()
    for run in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if "\u3400" <= run[0] <= "\u9fff":
            stems |= {run[at : at + 2] for at in range(max(1, len(run) - 1))}
        else:
            stems.add(run[:_STEM_CHARS])
    return stems - _SAYS_NOTHING
