"""One tokenization for everything that is indexed and everything that is searched, English and Chinese alike.

FTS5's ``porter unicode61 remove_diacritics 2`` splits and stems words, but takes a run of Chinese for one
word. So text passes through ``segment`` before FTS5 sees it: NFKC and case folding, then every run of CJK
characters (Han, kana, Hangul) becomes its overlapping pairs and its last character alone, apart from its
neighbours: ``修改youer服务端`` is indexed as ``修改 改 youer 服务 务端 端``. Every character starts a token,
so a query of one character is a prefix query (``"端"*``), of two a token, of more a phrase of pairs.

Invariants: linear in the length of the text, total over every Python string. A contentless index forgets a
row only when it is given the identical segmented text, therefore ``SEGMENTER_ID`` is stored with the index
and any change of it means that the index is made again. Query functions return quoted terms only: no
operator of FTS5's language can come from text.
"""

import re
import unicodedata
from collections.abc import Iterator

SEGMENTER_VERSION = 1
# Normalisation follows the interpreter's Unicode tables: a newer Python may segment new characters
# differently.
SEGMENTER_ID = f"{SEGMENTER_VERSION}/unicode-{unicodedata.unidata_version}"

# A literal longer than this is searched by its beginning, which finds at least as much.
MAX_PHRASE_TOKENS = 64
MAX_CHUNKS = 64

_CJK = (
    "\u1100-\u11ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7a3\ud7b0-\ud7fb"
    "\uf900-\ufaff\U0001aff0-\U0001b16f\U00020000-\U0003fffd"
)
_CJK_RUN = re.compile(f"[{_CJK}]+")
# What unicode61 takes for a word, roughly: a superset is harmless, an empty phrase matches nothing.
_PIECE = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}](?:[^\W_{_CJK}]|[\u0300-\u036f])*)")
_UNSTORABLE = re.compile("[\ud800-\udfff\0]")
# Canonical ordering of combining marks is quadratic in the length of their run, so long runs are cut.
LONG_RUN_OF_MARKS = re.compile("((?:[^\\w\\s\x01-\x7f]|[\uff9e\uff9f]){64})")


def fold(text: str) -> str:
    """Return the text in the form that is compared: NFKC, case folded, without NUL and lone surrogates."""
    if text.isascii():
        return text.lower().replace("\0", " ")
    storable = LONG_RUN_OF_MARKS.sub(r"\1 ", _UNSTORABLE.sub(" ", text))
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", storable).casefold())


def segment(text: str) -> str:
    """Return what is handed to FTS5 for this text, when a row is added and again when it is deleted."""
    folded = fold(text)
    return folded if folded.isascii() else _CJK_RUN.sub(_spaced_tokens, folded)


def is_cjk(text: str) -> bool:
    """Whether a folded text is one unbroken run of CJK characters."""
    return _CJK_RUN.fullmatch(text) is not None


def pieces(text: str) -> Iterator[str]:
    """Yield the words and CJK runs of a text in order, folded."""
    return (match.group() for match in _PIECE.finditer(fold(text)))


def pairs(run: str) -> list[str]:
    """Return the overlapping pairs of a CJK run; a single character is returned as it is."""
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def is_prefix(term: str) -> bool:
    """Whether a term stands for every token that begins with it: a CJK character alone."""
    return len(term) == 1 and is_cjk(term)


def quoted(term: str) -> str:
    """Return a folded word, a CJK run of one or two characters, or spaced tokens as one FTS5 string."""
    escaped = '"' + term.replace('"', '""') + '"'
    return escaped + "*" if is_prefix(term) else escaped


def match_expression(text: str) -> str | None:
    """Return the FTS5 expression of a literal search, or None when the text holds nothing searchable.

    Parts separated by white space must all occur; within a part the tokens must follow each other. CJK
    characters at both ends match inside longer runs, other words match whole and by their stem.
    """
    phrases = []
    for chunk in fold(text).split():
        phrase = _phrase([match.group() for match in _PIECE.finditer(chunk)])
        if phrase is not None and phrase not in phrases:
            phrases.append(phrase)
        if len(phrases) == MAX_CHUNKS:
            break
    return " AND ".join(phrases) or None


def _spaced_tokens(match: re.Match[str]) -> str:
    run = match.group()
    if len(run) == 1:
        return f" {run} "
    return f" {' '.join(pairs(run))} {run[-1]} "


def _phrase(parts: list[str]) -> str | None:
    # Only the last run may go on beyond the needle: its last character alone is left out or made a prefix.
    if not parts:
        return None
    tokens: list[str] = []
    for part in parts[:-1]:
        tokens += [*pairs(part), part[-1]] if is_cjk(part) and len(part) > 1 else [part]
    last = parts[-1]
    tokens += pairs(last) if is_cjk(last) else [last]
    is_prefix = is_cjk(last) and len(last) == 1 and len(tokens) <= MAX_PHRASE_TOKENS
    escaped = " ".join(tokens[:MAX_PHRASE_TOKENS]).replace('"', '""')
    return f'"{escaped}"{"*" if is_prefix else ""}'
