"""Recall mode: answers without a model, by quoting the statements that match, with their dates.

Nothing is ever phrased as a fact of its own: an answer is quotations, or the plain sentence that none was found.
When the question names a period, what was said in it or is about it is quoted, and the answer says which days were
understood; only when there is nothing, what was said at other times. `quoting` chooses what is quoted.
"""

from dataclasses import dataclass

from pikobot.clock import local_utc_offset_min
from pikobot.memory.embedding.contract import QueryVector
from pikobot.memory.language.questions import (
    Language,
    asks_to_recall,
    is_bare,
    is_question,
    keywords,
    language_of,
)
from pikobot.memory.recall import quoting, wording
from pikobot.memory.recall.asking import is_yes_no
from pikobot.memory.recall.owner_statements import count_of_owner, of_owner
from pikobot.memory.recall.small_talk import SmallTalk, small_talk_of, wants
from pikobot.memory.recall.statements import Statements
from pikobot.memory.recall.times import day_said
from pikobot.memory.recall.wording import spoken_date
from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId
from pikobot.store.text.literal import excerpt, find_folded
from pikobot.store.text.segmentation import fold
from pikobot.text import Count

MAX_QUOTE_CHARS = 400


@dataclass(frozen=True)
class MemoryAnswer:
    """The answer's text and the public ids of the sources that it quotes."""

    text: str
    source_ids: tuple[str, ...]


def answer_from_memory(
    conn: Connection,
    text: str,
    *,
    scope_id: ScopeId | None,
    request_id: SourceId | None,
    now_ms: int,
    meaning: QueryVector | None = None,
) -> MemoryAnswer:
    """Acknowledge a statement; answer a question in its language with a few quotations.

    Where no statement has the words of a question, those nearest to its ``meaning`` are quoted, and said to be that.

    A few bare words may be either: they are acknowledged, and what matches is quoted. Without ``request_id`` nothing
    is kept, and the acknowledgement says so.
    """
    language = language_of(text)
    talk = small_talk_of(text)
    today = day_said(now_ms, local_utc_offset_min(now_ms))
    if talk == "today":
        return MemoryAnswer(wording.spoken_today(today, language), ())
    if talk is not None:
        statements = None if scope_id is None else Statements(conn, scope_id, request_id, now_ms)
        return _small_answer(talk, statements, language)
    asks, words = is_question(text) or asks_to_recall(text), keywords(text)
    found = quoting.nothing(language)
    if scope_id is not None and (asks or (is_bare(text) and not wants(text))):
        statements = Statements(conn, scope_id, request_id, now_ms)
        found = quoting.find(statements, text, today, meaning=meaning if asks else None)
    lines = [] if asks else [_acknowledged(text, language, is_kept=request_id is not None)]
    if asks and is_yes_no(text) and (wish := wants(text)) is not None:
        lines = [wording.CANNOT[wish][language]]
    for section in found.sections if asks or found.quoted else ():
        lines.append(section.heading)
        lines += [_quotation(source, words, language) for source in section.quoted]
    if found.ending:
        lines.append(found.ending)
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in found.quoted))


def _acknowledged(text: str, language: Language, *, is_kept: bool) -> str:
    noted = (wording.NOTED if is_kept else wording.NOT_KEPT)[language]
    wish = wants(text)
    if wish is None:
        return noted
    return noted + ("" if language == "zh" else " ") + wording.CANNOT[wish][language]


def _small_answer(talk: SmallTalk, statements: Statements | None, language: Language) -> MemoryAnswer:
    if talk != "owner":
        return MemoryAnswer(wording.SMALL[talk][language], ())
    quoted = [] if statements is None else of_owner(statements)
    if statements is None or not quoted:
        return MemoryAnswer(wording.NOTHING_TOLD[language], ())
    count, first = count_of_owner(statements)
    since = ""
    if first is not None:
        since = wording.SINCE[language].format(
            day=spoken_date(first.said_at_ms, first.utc_offset_min, language)
        )
    messages = f"{Count(count):message}" if language == "en" else f"{count}条"
    lines = [wording.TOLD[language].format(messages=messages, since=since)]
    lines += [_quotation(source, [], language) for source in quoted]
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in quoted))


def _quotation(source: Source, words: list[str], language: Language) -> str:
    span = next((found for word in words if (found := find_folded(source.text, word))), (0, 0))
    quote = excerpt(source.text, span, MAX_QUOTE_CHARS)
    before = "" if source.text.startswith(quote) else "…"
    after = "" if source.text.endswith(quote) else "…"
    who = spoken_speaker(source.role, source.speaker, language, is_imported=source.origin == "imported")
    day = wording.NO_DATE[language]
    if source.is_dated:
        day = spoken_date(source.said_at_ms, source.utc_offset_min, language)
    flat = before + " ".join(quote.strip().splitlines()) + after
    return f"- {day}，{who}：“{flat}”" if language == "zh" else f"- {day}, {who}: “{flat}”"


def spoken_speaker(role: str, speaker: str, language: Language, *, is_imported: bool = True) -> str:
    """Who said something; the owner's side of an imported conversation by its name, which need not be the owner's."""
    is_named = role == "user" and is_imported and fold(speaker) not in _OWNER_NAMES
    return speaker if is_named else wording.WHO[language].get(role, speaker)


_OWNER_NAMES = frozenset({"owner", "user", "me", "i", "you", "我", "本人", "用户", "主人"})
