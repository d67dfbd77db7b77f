"""The period that a text names, in English or Chinese: a day, a week, a month, a year, or the days between two.

Only what can be read one way is a period: "March 2024", "last week", "2 March", "since Monday", "three days ago",
``上周三``, ``2024年3月``, ``最近三天``. A day or month without a year is the last one that has begun, and may be meant
of another year. A week begins on Monday, a year or a month alone needs a word before it ("in 2024", "since May"), as
numbers and "may" are mostly something else; beside a month or a day they say of which year it is. Seasons, feasts,
"recently" and the weekday of a habit ("I usually swim on Monday") are not periods. Days are those of the calendar
where it was said.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

from pikobot.memory.language.dated_words import PATTERNS, Span, number_of
from pikobot.store.text.segmentation import fold

MAX_CHARS_READ = 4_000
# How a word around a period bends it.
_SINCE = frozenset({"since", "以来", "以來"})
_AFTER = frozenset({"after", "之后", "之後", "以后", "以後"})
_BEFORE = frozenset({"before", "之前", "以前"})
_UNTIL = frozenset({"until", "till", "by", "为止", "為止"})
_BENT = _SINCE | _AFTER | _BEFORE | _UNTIL
_LAST_DAY = re.compile(
    "\\s*(?:to|until|till|-|–|~|到|至)\\s*(?:the )?(?P<day>[0-9]{1,2}|[一二三四五六七八九十]{1,3})(?:[日号號]|"
    "(?:st|nd|rd|th)?\\b(?![-/.:]\\d)(?! (?:o'clock|am|pm|people|times)\\b)(?:,? (?P<year>(?:19|20)\\d\\d)\\b)?)"
)
_FIRST_DAY = re.compile(
    "(?:\\b(?P<how>between|from|on|during) )?(?:the )?(?<![\\d/.:-])\\b(?P<day>[12]\\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
    "\\s*(?P<join>to|until|till|and|-|–|~)?\\s*$"
)
_JOINS = frozenset({"to", "until", "till", "and", "-", "–", "到", "至", "和", "与", "與", "~"})
_ANDS = frozenset({"and", "和", "与", "與"})
_BETWEEN = ("之间", "之間")
# What may stand between a month and the year that it is of.
_BESIDE = frozenset({"", ",", "of", "in", "的"})
_IN = frozenset({"", "in", "at", "of", "on", "during", "from"})


@dataclass(frozen=True)
class Period:
    """From the first day to the last, both included; open to the past when there is no first."""

    first: date | None
    last: date

    def holds(self, other: "Period") -> bool:
        begins = self.first is None or (other.first is not None and self.first <= other.first)
        return begins and other.last <= self.last

    def includes(self, day: date) -> bool:
        return (self.first is None or self.first <= day) and day <= self.last


class EveryYear(Period):
    """The same days of every year, the last of them from first to last; not longer than a year."""

    def holds(self, other: "Period") -> bool:
        return other.first is not None and any(
            super(EveryYear, self).holds(Period(_moved(other.first, years), _moved(other.last, years)))
            for years in self._years_to(other.last)
        )

    def includes(self, day: date) -> bool:
        return any(super(EveryYear, self).includes(_moved(day, years)) for years in self._years_to(day))

    def _years_to(self, day: date) -> set[int]:
        return {end.year - day.year for end in (self.first, self.last) if end is not None}


class Understood(NamedTuple):
    """The period of a text, the folded words that name it, and the folded text without them.

    ``is_yearly``: it may be meant of another year as well, as the text names none.
    """

    period: Period
    words: str
    rest: str
    is_yearly: bool = False


def find_period(text: str, today: date) -> Understood | None:
    """The period that a question is about; None when it names none, or more than one."""
    folded = fold(text[:MAX_CHARS_READ])
    found = list(_phrases(folded, today))
    if len({phrase.period for phrase in found}) != 1:
        return None
    rest = folded
    for phrase in reversed(found):
        rest = rest[: phrase.start] + " " + rest[phrase.end :]
    words = " ".join(folded[phrase.start : phrase.end] for phrase in found)
    return Understood(found[0].period, words, rest, all(phrase.is_yearly for phrase in found))


def last_years(period: EveryYear, years: int) -> Iterator[Period]:
    """The days of so many single years, the last year first."""
    for back in range(years):
        if period.first is None:
            yield Period(None, _moved(period.last, -back))
        else:
            yield Period(_moved(period.first, -back), _moved_last(period.first, period.last, -back))


def periods_in(text: str, said_on: date, *, is_sure: bool = False) -> list[Period]:
    """The periods that a statement names, as they may have been meant on the day that it was said.

    "On 15 December" is of the next one as well as of the last one; ``is_sure`` leaves such out.
    """
    named: list[Period] = []
    for phrase in _phrases(fold(text[:MAX_CHARS_READ]), said_on):
        is_open = phrase.is_yearly and not phrase.period.includes(said_on)
        named += [] if is_open and is_sure else [phrase.period]
        if is_open and not is_sure and phrase.period.first is not None:
            first, last = phrase.period.first, phrase.period.last
            named.append(Period(_moved(first, 1), _moved_last(first, last, 1)))
    return named


def without_periods(text: str, said_on: date) -> str:
    """The folded text without the words that name its periods."""
    folded = rest = fold(text[:MAX_CHARS_READ])
    for phrase in reversed(list(_phrases(folded, said_on))):
        rest = rest[: phrase.start] + " " + rest[phrase.end :]
    return rest


class _Phrase(NamedTuple):
    """Characters [start, end) name a period."""

    start: int
    end: int
    period: Period
    is_yearly: bool


def _phrases(folded: str, today: date) -> Iterator[_Phrase]:
    """Every period with the characters that name it; two that are joined ("from … to …") are one."""
    spans = _with_years(folded, _with_both_days(folded, _spans(folded, today)))
    while spans:
        span = spans.pop(0)
        if spans and _are_joined(folded, span, spans[0]):
            other = spans.pop(0)
            span, other = _in_one_year(span, other)
            is_yearly = span.is_yearly and other.is_yearly
            first = span.first if span.first <= other.last else _moved(span.first, -1)
            yield _Phrase(span.start, other.end, Period(first, other.last), is_yearly)
            continue
        period = _bent(span, today)
        if period is not None:
            yield _Phrase(span.start, span.end, period, span.is_yearly and span.how not in _BENT)


def _with_both_days(folded: str, spans: list[Span]) -> list[Span]:
    whole: list[Span] = []
    for position, span in enumerate(spans):
        begin = whole[-1].end if whole else 0
        end = spans[position + 1].start if position + 1 < len(spans) else len(folded)
        whole.append(_with_first_day(folded, _with_last_day(folded, span, end), begin))
    return whole


def _with_last_day(folded: str, span: Span, end: int) -> Span:
    """The span of "3 to 9" where only "March 3" was read: the days up to that one of the month, and its year."""
    following = _LAST_DAY.match(folded, span.end)
    if following is None or span.first != span.last or following.end() > end:
        return span
    try:
        last = span.last.replace(day=number_of(following["day"]))
    except ValueError:
        return span
    years = int(following["year"]) - last.year if following["year"] and span.is_yearly else 0
    if last < span.first:
        return span
    return span._replace(
        end=following.end(),
        first=_moved(span.first, years),
        last=_moved(last, years),
        is_yearly=span.is_yearly and not years and not following["year"],
    )


def _with_first_day(folded: str, span: Span, begin: int) -> Span:
    """The span of "3 to 6 March", or "between 3 and 6 March", where only "6 March" was read."""
    preceding = _FIRST_DAY.search(folded, max(begin, span.start - 24), span.start)
    if preceding is None or span.first != span.last or not folded[span.start : span.end][-1].isalnum():
        return span
    how = preceding["how"] or ""
    join = preceding["join"] or span.how
    if join not in _JOINS or (join in _ANDS and how != "between"):
        return span
    day = number_of(preceding["day"])
    if day >= span.last.day:
        return span
    return span._replace(start=preceding.start(), first=span.last.replace(day=day), how=how)


def _with_years(folded: str, spans: list[Span]) -> list[Span]:
    """A month or day without a year is of the year that stands beside it: "May last year", "last year in May"."""
    kept: list[Span] = []
    for span in spans:
        before = kept[-1] if kept else None
        if before is None or folded[before.end : span.start].strip() not in _BESIDE:
            kept.append(span)
        elif before.is_yearly and span.how in _IN and _is_year(span):
            kept[-1] = _of_year(before, span.first.year)._replace(end=span.end)
        elif span.is_yearly and span.how in _IN and _is_year(before):
            kept[-1] = _of_year(span, before.first.year)._replace(start=before.start, how=before.how)
        else:
            kept.append(span)
    return kept


def _is_year(span: Span) -> bool:
    year = span.first.year
    return (span.first, span.last) == (date(year, 1, 1), date(year, 12, 31)) and not span.is_yearly


def _of_year(span: Span, year: int) -> Span:
    years = year - span.first.year
    return span._replace(
        first=_moved(span.first, years), last=_moved_last(span.first, span.last, years), is_yearly=False
    )


def _in_one_year(span: Span, other: Span) -> tuple[Span, Span]:
    """A month or day without a year is of the year that the other end names: the next one after it, or before it."""
    if other.is_yearly and not span.is_yearly:
        years = span.first.year - other.first.year
        years += _moved(other.last, years) < span.first
        return span, _of_year(other, other.first.year + years)._replace(is_yearly=True)
    if span.is_yearly and not other.is_yearly:
        years = other.last.year - span.first.year
        years -= _moved(span.first, years) > other.last
        return _of_year(span, span.first.year + years)._replace(is_yearly=True), other
    return span, other


def _spans(folded: str, today: date) -> list[Span]:
    """What the patterns read, from left to right; where they overlap, the longest that begins first."""
    found = [
        span
        for pattern, read in PATTERNS
        for match in pattern.finditer(folded)
        if (span := read(match, today)) is not None
    ]
    found.sort(key=lambda span: (span.start, -span.end))
    kept: list[Span] = []
    for span in found:
        if not kept or span.start >= kept[-1].end:
            kept.append(span)
    return kept


def _are_joined(folded: str, span: Span, other: Span) -> bool:
    between = folded[span.end : other.start].strip() or other.how
    if between in _ANDS and span.how != "between" and not folded.startswith(_BETWEEN, other.end):
        return False
    is_in_order = span.first <= other.last or span.is_yearly or other.is_yearly
    return between in _JOINS and span.how not in _AFTER | _BEFORE and is_in_order


def _bent(span: Span, today: date) -> Period | None:
    if span.how in _SINCE:
        return Period(span.first, max(today, span.last))
    if span.how in _AFTER:
        return Period(span.last + timedelta(days=1), today) if span.last < today else None
    if span.how in _BEFORE:
        return Period(None, span.first - timedelta(days=1))
    if span.how in _UNTIL:
        return Period(None, span.last)
    return Period(span.first, span.last)


def _moved_last(first: date, last: date, years: int) -> date:
    """The last day of the same days of another year; a whole February ends with its own last one."""
    if first.day == 1 and (last + timedelta(days=1)).day == 1:
        return _moved(last + timedelta(days=1), years) - timedelta(days=1)
    return _moved(last, years)


def _moved(day: date, years: int) -> date:
    """The same day of another year, within the calendar; 29 February is the 28th where there is none."""
    year = min(max(day.year + years, date.min.year), date.max.year)
    try:
        return day.replace(year=year)
    except ValueError:
        return day.replace(year=year, day=day.day - 1)
