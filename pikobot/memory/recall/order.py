"""Which of the statements found go first: what answers before what is only like it, the newest of two versions."""

from collections.abc import Iterable, Sequence

from pikobot.memory.language.questions import is_bare, is_lookup, language_of
from pikobot.memory.recall.asking import Saying, Sought
from pikobot.memory.recall.telling import OTHER_KIND, held, identifies, kind_told, says_more
from pikobot.memory.recall.times import moment_of
from pikobot.store.sources import Source
from pikobot.store.text.segmentation import fold, pieces

MAX_LISTED = 10


def ordered(found: Sequence[Source], sought: Sought) -> list[Source]:
    """Of what holds the same words of the question the newest first, in the places that they have together.

    What says it of whoever asks goes before, and what holds more of the names.
    """
    groups: dict[tuple[int, frozenset[str]], list[Source]] = {}
    keys = [(sought.names_in(spoken_text(source)), held(source.text, sought.words)) for source in found]
    for source, key in zip(found, keys, strict=True):
        groups.setdefault(key, []).append(source)
    for group in groups.values():
        group.sort(key=lambda source: _precedence(source, sought), reverse=True)
    return [groups[key].pop(0) for key in keys]


def _precedence(source: Source, sought: Sought) -> tuple[bool, bool, bool, int]:
    says_own = any(pair in fold(source.text) for pair in sought.own)
    says_own |= sought.asks_who and any(
        identifies(source.text, name) for name in (*sought.names, sought.words)
    )
    is_named = is_lookup(source.text) or (language_of(source.text) == "en" and is_bare(source.text))
    return not is_named, says_own, sought.is_of_owner and source.role == "user", moment_of(source)


def spoken_text(source: Source) -> str:
    return f"{source.speaker}: {source.text}"


def has_name(source: Source, name: frozenset[str]) -> bool:
    return bool(held(spoken_text(source), name))


def is_by(source: Source, saying: Saying) -> bool:
    if saying.is_owner:
        return source.role == "user"
    if saying.is_pikobot:
        return source.role == "assistant"
    return source.role != "assistant" and saying.is_by(source.speaker)


def last_told(every: Sequence[Source]) -> tuple[list[Source], bool]:
    """The last ones that tell something, or if none does, of all; in order, and whether there are more."""
    telling = [source for source in every if says_more(source.text) and not is_lookup(source.text)] or every
    newest = sorted(telling, key=lambda source: (source.said_at_ms, source.id), reverse=True)
    return newest[:MAX_LISTED][::-1], len(telling) > MAX_LISTED


def of_each_kind(told: Sequence[Source]) -> list[Source]:
    """One of each kind, the newest, then what else speaks of the owner, and then the rest, newest first."""
    newest = sorted(told, key=lambda source: (source.said_at_ms, source.id), reverse=True)
    seen: set[int] = set()
    ranked: list[tuple[int, Source]] = []
    for source in newest:
        kind = kind_told(source.text)
        ranked.append((kind if kind not in seen or kind >= OTHER_KIND else OTHER_KIND, source))
        seen.add(kind)
    return [source for _, source in sorted(ranked, key=lambda each: each[0])]


def distinct(sources: Iterable[Source]) -> list[Source]:
    """Each text once, where it comes first; case, spaces and punctuation make no other text."""
    kept: dict[tuple[str, ...], Source] = {}
    for source in sources:
        kept.setdefault(tuple(pieces(source.text)) or (source.text,), source)
    return list(kept.values())
