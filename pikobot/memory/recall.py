"""Recall mode: answers without a model, by quoting the statements that match, with their dates.

Nothing is ever phrased as a fact of its own: an answer is quotations, or the plain sentence that none was found.
When the question names a period, what was said in it or is about it is quoted, and the answer says which days were
understood; only when there is nothing, what was said at other times. `statements` chooses what is quoted.
"""

from dataclasses import astuple, dataclass, replace

from pikobot.clock import local_utc_offset_min
from pikobot.memory.embedding import QueryVector
from pikobot.memory.periods import EveryYear, Understood, find_period
from pikobot.memory.questions import (
    Language,
    is_bare,
    is_question,
    keywords,
    language_of,
    subject_words,
)
from pikobot.memory.recall_wording import (
    FOUND,
    FOUND_BY_MEANING,
    FOUND_ELSEWHERE,
    FOUND_IN,
    MORE,
    NO_DATE,
    NOT_KEPT,
    NOTED,
    NOTHING,
    NOTHING_EVER,
    NOTHING_IN,
    NOTHING_TOLD,
    SINCE,
    SMALL,
    TOLD,
    WHO,
    spoken_date,
    spoken_period,
)
from pikobot.memory.small_talk import SmallTalk, small_talk_of
from pikobot.memory.statements import Statements, day_said, is_of
from pikobot.store.connection import Connection
from pikobot.store.literal import excerpt, find_folded
from pikobot.store.scopes import ScopeId
from pikobot.store.segmentation import fold
from pikobot.store.sources import Source, SourceId
from pikobot.text import Count

MAX_QUOTE_CHARS = 400


@dataclass(frozen=True)
class MemoryAnswer:
    """The answer's text and the public ids of the sources that it quotes."""

    text: str
    source_ids: tuple[str, ...]


@dataclass(frozen=True)
class _Found:
    """The statements, with the line before them, or in their place, and what is said after them."""

    heading: str
    quoted: list[Source]
    ending: str = ""


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
    if talk is not None:
        statements = None if scope_id is None else Statements(conn, scope_id, request_id, now_ms)
        return _small_answer(talk, statements, language)
    asks, words = is_question(text), keywords(text)
    found = _Found(NOTHING[language], [])
    if words and scope_id is not None and (asks or is_bare(text)):
        statements = Statements(conn, scope_id, request_id, now_ms)
        understood = find_period(text, day_said(now_ms, local_utc_offset_min(now_ms)))
        found = _looked_up(statements, words, understood, language)
        if not found.quoted:
            found = _looked_up(replace(statements, asides=True), words, understood, language)
        if not found.quoted and understood is None and asks and meaning is not None:
            quoted = statements.like(meaning)
            found = _Found(FOUND_BY_MEANING[language], quoted) if quoted else found
    lines = [] if asks else [(NOTED if request_id is not None else NOT_KEPT)[language]]
    if asks or found.quoted:
        lines.append(found.heading)
    lines += [_quotation(source, words, language) for source in found.quoted]
    if found.ending:
        lines.append(found.ending)
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in found.quoted))


def _small_answer(talk: SmallTalk, statements: Statements | None, language: Language) -> MemoryAnswer:
    if talk != "owner":
        return MemoryAnswer(SMALL[talk][language], ())
    quoted = [] if statements is None else statements.of_owner()
    if statements is None or not quoted:
        return MemoryAnswer(NOTHING_TOLD[language], ())
    count, first = statements.count_of_owner()
    since = ""
    if first is not None:
        since = SINCE[language].format(day=spoken_date(first.said_at_ms, first.utc_offset_min, language))
    messages = f"{Count(count):message}" if language == "en" else f"{count}条"
    lines = [TOLD[language].format(messages=messages, since=since)]
    lines += [_quotation(source, [], language) for source in quoted]
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in quoted))


def _looked_up(
    statements: Statements, words: list[str], understood: Understood | None, language: Language
) -> _Found:
    if understood is not None:
        return _found_in(statements, understood, language)
    quoted = statements.about(words)
    return _Found((FOUND if quoted else NOTHING)[language], quoted)


def _found_in(statements: Statements, understood: Understood, language: Language) -> _Found:
    """What was said in a period, or is about it; of a subject that has nothing there, what was said otherwise.

    A month or day without a year is that of any year, unless all that is found is of the last one.
    """
    last = period = understood.period
    if understood.is_yearly:
        period = EveryYear(*astuple(last))
    spoken = spoken_period(period, language)
    subject, period_words = subject_words(understood.rest), keywords(understood.words)
    quoted, has_more = (
        (statements.about_in(subject, period, period_words), False)
        if subject
        else statements.of(period, period_words)
    )
    if quoted:
        is_last = all(is_of(source, last) for source in quoted)
        named = spoken_period(last, language) if is_last else spoken
        return _Found(FOUND_IN[language].format(period=named), quoted, MORE[language] if has_more else "")
    if not subject:
        return _Found(NOTHING_IN[language].format(period=spoken), [])
    if quoted := statements.about(subject):
        return _Found(FOUND_ELSEWHERE[language].format(period=spoken), quoted)
    return _Found(NOTHING_EVER[language].format(period=spoken), [])


def _quotation(source: Source, words: list[str], language: Language) -> str:
    span = next((found for word in words if (found := find_folded(source.text, word))), (0, 0))
    quote = excerpt(source.text, span, MAX_QUOTE_CHARS)
    before = "" if source.text.startswith(quote) else "…"
    after = "" if source.text.endswith(quote) else "…"
    who = spoken_speaker(source.role, source.speaker, language, is_imported=source.origin == "imported")
    day = NO_DATE[language]
    if source.is_dated:
        day = spoken_date(source.said_at_ms, source.utc_offset_min, language)
    flat = before + " ".join(quote.strip().splitlines()) + after
    return f"- {day}，{who}：“{flat}”" if language == "zh" else f"- {day}, {who}: “{flat}”"


def spoken_speaker(role: str, speaker: str, language: Language, *, is_imported: bool = True) -> str:
    """Who said something; the owner's side of an imported conversation by its name, which need not be the owner's."""
    is_named = role == "user" and is_imported and fold(speaker) not in _OWNER_NAMES
    return speaker if is_named else WHO[language].get(role, speaker)


_OWNER_NAMES = frozenset({"owner", "user", "me", "i", "you", "我", "本人", "用户", "主人"})
