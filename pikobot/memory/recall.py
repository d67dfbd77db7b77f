"""Recall mode: answers without a model, by quoting the statements that match, with their dates.

Nothing is ever phrased as a fact of its own: an answer is quotations, or the plain sentence that none was found.
Earlier answers of recall mode and bare questions are not statements and are not quoted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pikobot.memory.questions import (
    Language,
    is_bare,
    is_only_question,
    is_question,
    keywords,
    language_of,
)
from pikobot.store.connection import Connection
from pikobot.store.literal import excerpt, find_folded
from pikobot.store.query_terms import widened
from pikobot.store.scopes import ScopeId
from pikobot.store.segmentation import fold, is_cjk, pairs, pieces
from pikobot.store.sources import Source, SourceId, load_sources
from pikobot.store.text_index import TextHit, search_text

MAX_QUOTES = 5
# Earlier questions about the same thing match as well as its statements do: look further until there are enough.
CANDIDATES = (50, 500, 5_000)
MAX_QUOTE_CHARS = 400
# A statement that matches much less than the best one shares a common word with the question, not its subject.
LEAST_SHARE_OF_BEST = 0.5

_MONTHS = """January February March April May June July August September October November December""".split()


@dataclass(frozen=True)
class MemoryAnswer:
    """The answer's text and the public ids of the sources that it quotes."""

    text: str
    source_ids: tuple[str, ...]


def answer_from_memory(
    conn: Connection, text: str, *, scope_id: ScopeId | None, request_id: SourceId | None, now_ms: int
) -> MemoryAnswer:
    """Acknowledge a statement; answer a question in its language with up to five quotations.

    A few bare words may be either: they are acknowledged, and what matches is quoted. Without ``request_id`` nothing
    is kept, and the acknowledgement says so.
    """
    language = language_of(text)
    asks, words = is_question(text), keywords(text)
    noted = (_NOTED if request_id is not None else _NOT_KEPT)[language]
    quoted: list[Source] = []
    if words and scope_id is not None and (asks or is_bare(text)):
        quoted = _matching_statements(conn, words, scope_id, request_id, now_ms)
    if not quoted:
        return MemoryAnswer(_NOTHING[language] if asks else noted, ())
    lines = [] if asks else [noted]
    lines += [_FOUND[language], *(_quotation(source, words, language) for source in quoted)]
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in quoted))


def spoken_date(at_ms: int, utc_offset_min: int, language: Language) -> str:
    """The calendar day where it was said: ``2 March 2024`` or ``2024年3月2日``."""
    day = datetime.fromtimestamp(at_ms / 1000, UTC) + timedelta(minutes=utc_offset_min)
    if language == "zh":
        return f"{day.year}年{day.month}月{day.day}日"
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _matching_statements(
    conn: Connection, words: list[str], scope_id: ScopeId, request_id: SourceId | None, now_ms: int
) -> list[Source]:
    kept: dict[str, Source] = {}
    for limit in CANDIDATES:
        hits = search_text(
            conn,
            query=" ".join(words),
            scope_ids=[scope_id],
            now_ms=now_ms,
            limit=limit,
            exclude_ids=() if request_id is None else (request_id,),
        )
        kept = _distinct_statements(conn, hits, words, now_ms)
        if len(kept) >= MAX_QUOTES or len(hits) < limit:
            break
    return list(kept.values())[:MAX_QUOTES]


def _distinct_statements(
    conn: Connection, hits: Sequence[TextHit], words: Sequence[str], now_ms: int
) -> dict[str, Source]:
    """What was stated, by its text, best first, without what matches much less than the best."""
    loaded = load_sources(conn, [SourceId(hit.source_id) for hit in hits], now_ms=now_ms)
    kept: dict[str, Source] = {}
    floor = 0.0
    for hit in hits:
        source = loaded.get(SourceId(hit.source_id))
        if source is None or not _is_statement(source) or not _tells(source.text, words):
            continue
        floor = floor if kept else hit.score * LEAST_SHARE_OF_BEST
        if hit.score >= floor:
            kept.setdefault(source.text, source)
    return kept


def _is_statement(source: Source) -> bool:
    return source.origin != "recall" and not is_only_question(source.text)


def _tells(text: str, words: Sequence[str]) -> bool:
    """Whether a text holds a word of the question itself, not only its speaker or a neighbour, and more than it."""
    folded = fold(text)
    stems = [
        part
        for word in widened(words)
        for part in (pairs(word) if is_cjk(word) else [word[: max(3, len(word) - 3)]])
    ]
    return any(stem in folded for stem in stems) and not set(pieces(text)) <= set(words)


def _quotation(source: Source, words: list[str], language: Language) -> str:
    span = next((found for word in words if (found := find_folded(source.text, word))), (0, 0))
    quote = excerpt(source.text, span, MAX_QUOTE_CHARS)
    before = "" if source.text.startswith(quote) else "…"
    after = "" if source.text.endswith(quote) else "…"
    who = _WHO[language].get(source.role, source.speaker)
    date = spoken_date(source.said_at_ms, source.utc_offset_min, language)
    flat = before + " ".join(quote.strip().splitlines()) + after
    return f"- {date}，{who}：“{flat}”" if language == "zh" else f"- {date}, {who}: “{flat}”"


_NOTED = {"en": "Noted.", "zh": "已记下。"}
_NOT_KEPT = {"en": "Understood, and not kept.", "zh": "知道了，没有保存。"}
_NOTHING = {
    "en": "I found no statement about that. That does not mean that it was never said: other words may find it.",
    "zh": "没有找到相关的原话。这不表示从未说过，换个说法也许能找到。",
}
_FOUND = {"en": "This is what was said:", "zh": "找到这些原话："}
_WHO = {"en": {"user": "you", "assistant": "assistant"}, "zh": {"user": "你", "assistant": "助手"}}
