"""Recall mode: answers without a model, by quoting the statements that match, with their dates.

Nothing is ever phrased as a fact of its own: an answer is quotations, or the plain sentence that none was found.
When the question names a period, what was said in it or is about it is quoted, and the answer says which days were
understood; only when there is nothing, what was said at other times. `statements` chooses what is quoted.
"""

from dataclasses import astuple, dataclass, replace
from datetime import date, timedelta

from pikobot.clock import local_utc_offset_min
from pikobot.memory.embedding import QueryVector
from pikobot.memory.periods import EveryYear, Period, Understood, find_period
from pikobot.memory.questions import (
    Language,
    is_bare,
    is_question,
    keywords,
    language_of,
    subject_words,
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

_MONTHS = """January February March April May June July August September October November December""".split()


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
    found = _Found(_NOTHING[language], [])
    if words and scope_id is not None and (asks or is_bare(text)):
        statements = Statements(conn, scope_id, request_id, now_ms)
        understood = find_period(text, day_said(now_ms, local_utc_offset_min(now_ms)))
        found = _looked_up(statements, words, understood, language)
        if not found.quoted:
            found = _looked_up(replace(statements, asides=True), words, understood, language)
        if not found.quoted and understood is None and asks and meaning is not None:
            quoted = statements.like(meaning)
            found = _Found(_FOUND_BY_MEANING[language], quoted) if quoted else found
    lines = [] if asks else [(_NOTED if request_id is not None else _NOT_KEPT)[language]]
    if asks or found.quoted:
        lines.append(found.heading)
    lines += [_quotation(source, words, language) for source in found.quoted]
    if found.ending:
        lines.append(found.ending)
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in found.quoted))


def _small_answer(talk: SmallTalk, statements: Statements | None, language: Language) -> MemoryAnswer:
    if talk != "owner":
        return MemoryAnswer(_SMALL[talk][language], ())
    quoted = [] if statements is None else statements.of_owner()
    if statements is None or not quoted:
        return MemoryAnswer(_NOTHING_TOLD[language], ())
    count, first = statements.count_of_owner()
    since = ""
    if first is not None:
        since = _SINCE[language].format(day=spoken_date(first.said_at_ms, first.utc_offset_min, language))
    messages = f"{Count(count):message}" if language == "en" else f"{count}条"
    lines = [_TOLD[language].format(messages=messages, since=since)]
    lines += [_quotation(source, [], language) for source in quoted]
    return MemoryAnswer("\n".join(lines), tuple(source.public_id for source in quoted))


def spoken_date(at_ms: int, utc_offset_min: int, language: Language) -> str:
    """The calendar day where it was said: ``2 March 2024`` or ``2024年3月2日``."""
    return _spoken_day(day_said(at_ms, utc_offset_min), language)


def spoken_period(period: Period, language: Language) -> str:
    """The days of a period in few words: ``March 2024``, ``4 March 2024 to 10 March 2024``, ``2024年``."""
    first, last = period.first, period.last
    if first is None:
        return _UNTIL[language].format(day=_spoken_day(last, language))
    if isinstance(period, EveryYear):
        return _EVERY_YEAR[language].format(days=_spoken_days(first, last, language))
    if first == last:
        return _spoken_day(first, language)
    is_to_months_end = (last + timedelta(days=1)).day == 1
    if first.day == 1 and is_to_months_end and (first.year, first.month) == (last.year, last.month):
        return (
            f"{last.year}年{last.month}月" if language == "zh" else f"{_MONTHS[last.month - 1]} {last.year}"
        )
    if (first.month, first.day, last.month, last.day) == (1, 1, 12, 31) and first.year == last.year:
        return f"{last.year}年" if language == "zh" else str(last.year)
    return _RANGE[language].format(first=_spoken_day(first, language), last=_spoken_day(last, language))


def _looked_up(
    statements: Statements, words: list[str], understood: Understood | None, language: Language
) -> _Found:
    if understood is not None:
        return _found_in(statements, understood, language)
    quoted = statements.about(words)
    return _Found((_FOUND if quoted else _NOTHING)[language], quoted)


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
        return _Found(_FOUND_IN[language].format(period=named), quoted, _MORE[language] if has_more else "")
    if not subject:
        return _Found(_NOTHING_IN[language].format(period=spoken), [])
    if quoted := statements.about(subject):
        return _Found(_FOUND_ELSEWHERE[language].format(period=spoken), quoted)
    return _Found(_NOTHING_EVER[language].format(period=spoken), [])


def _spoken_day(day: date, language: Language) -> str:
    if language == "zh":
        return f"{day.year}年{day.month}月{day.day}日"
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _spoken_days(first: date, last: date, language: Language) -> str:
    """The days of every year: ``March``, ``5 March``, ``March to May``; whole months where they are whole."""
    is_whole = first.day == 1 and (last + timedelta(days=1)).day == 1
    spoken = []
    for day in (first, last):
        if language == "zh":
            spoken.append(f"{day.month}月" if is_whole else f"{day.month}月{day.day}日")
        else:
            spoken.append(_MONTHS[day.month - 1] if is_whole else f"{day.day} {_MONTHS[day.month - 1]}")
    if spoken[0] == spoken[1]:
        return spoken[0]
    return _RANGE[language].format(first=spoken[0], last=spoken[1])


def _quotation(source: Source, words: list[str], language: Language) -> str:
    span = next((found for word in words if (found := find_folded(source.text, word))), (0, 0))
    quote = excerpt(source.text, span, MAX_QUOTE_CHARS)
    before = "" if source.text.startswith(quote) else "…"
    after = "" if source.text.endswith(quote) else "…"
    who = source.speaker if _is_named(source) else _WHO[language].get(source.role, source.speaker)
    day = _NO_DATE[language]
    if source.is_dated:
        day = spoken_date(source.said_at_ms, source.utc_offset_min, language)
    flat = before + " ".join(quote.strip().splitlines()) + after
    return f"- {day}，{who}：“{flat}”" if language == "zh" else f"- {day}, {who}: “{flat}”"


def _is_named(source: Source) -> bool:
    """Whether the owner's side of an imported conversation has a name: it need not be the owner's."""
    return source.role == "user" and source.origin == "imported" and fold(source.speaker) not in _OWNER_NAMES


_OWNER_NAMES = frozenset({"owner", "user", "me", "i", "you", "我", "本人", "用户", "主人"})
_SMALL = {
    "greeting": {
        "en": "Hello. Tell me something, or ask about what was said: I answer by quoting it. "
        "In a chat /help lists the commands.",
        "zh": "你好。可以告诉我一些事，或者问说过的话：我用原话回答。聊天时输入 /help 可以看到所有命令。",
    },
    "abilities": {
        "en": "Without a model I keep what you say and answer questions by quoting it, with its date: "
        "“Where did I move?”, “What did I say last week?”, or a few words to look up. “Forget …” erases, "
        "after you have seen what. In a chat /help lists the commands.",
        "zh": "没有模型时，我保存你说的话，并用带日期的原话回答问题：“我搬到哪里了？”“上周我说了什么？”，"
        "或者只输入几个词来查找。"
        "“忘掉……”会先给你看内容，再删除。聊天时输入 /help 可以看到所有命令。",
    },
}
_TOLD = {
    "en": "I have {messages} from you{since}. What you told about yourself or last:",
    "zh": "我存有你的{messages}消息{since}。你说过的关于自己的话，或最近的话：",
}
_SINCE = {"en": ", the first of {day}", "zh": "，最早的是{day}"}
_NOTHING_TOLD = {"en": "You have told me nothing yet.", "zh": "你还没有告诉过我什么。"}
_NOTED = {"en": "Noted.", "zh": "已记下。"}
_NOT_KEPT = {"en": "Understood, and not kept.", "zh": "知道了，没有保存。"}
_NOTHING = {
    "en": "I found no statement about that. That does not mean that it was never said: other words may find it.",
    "zh": "没有找到相关的原话。这不表示从未说过，换个说法也许能找到。",
}
_NOTHING_IN = {
    "en": "I found no statement from {period}, nor about it. Other words for the time, or a subject, may find it.",
    "zh": "没有找到{period}说的原话，也没有关于那段时间的。换个时间说法，或说出主题，也许能找到。",
}
_NOTHING_EVER = {
    "en": "I found no statement about that, neither from {period} nor from another time. "
    "That does not mean that it was never said: other words may find it.",
    "zh": "没有找到相关的原话，{period}没有，其他时间也没有。这不表示从未说过，换个说法也许能找到。",
}
_FOUND = {"en": "This is what was said:", "zh": "找到这些原话："}
_FOUND_BY_MEANING = {
    "en": "No statement has these words; in meaning these are the nearest:",
    "zh": "没有原话用到这些词，意思最接近的是：",
}
_FOUND_IN = {"en": "From {period}, or about it:", "zh": "{period}说的，或关于那段时间的原话："}
_FOUND_ELSEWHERE = {
    "en": "Nothing about that is from {period}. At other times this was said:",
    "zh": "{period}没有相关的原话。其他时间说过：",
}
_MORE = {
    "en": "There is more from that time; name a subject to find it.",
    "zh": "那段时间还有更多原话；说出主题可以找到。",
}
_UNTIL = {"en": "the time until {day}", "zh": "{day}及以前"}
_RANGE = {"en": "{first} to {last}", "zh": "{first}至{last}"}
_EVERY_YEAR = {"en": "{days} of any year", "zh": "历年{days}"}
_NO_DATE = {"en": "no date", "zh": "日期不明"}
_WHO = {"en": {"user": "you", "assistant": "assistant"}, "zh": {"user": "你", "assistant": "助手"}}
