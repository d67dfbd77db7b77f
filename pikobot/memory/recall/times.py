"""Of which time a statement is: when it was said, and which times it names.

"I moved to Porto in March 2024" is of March 2024, whenever it was said; an appointment "on 15 December" may be of the
next one as well as of the last one.
"""

from datetime import UTC, date, datetime, timedelta

from pikobot.memory import moments
from pikobot.memory.language.periods import EveryYear, Period, periods_in
from pikobot.store.sources import Source

DAY_MS = 86_400_000
ANY_OTHER_TIME = timedelta(days=500)
# How a time is named from a later one: the shortest that is called so, the words, and for how many days after it.
_NAMED_LATER = (
    (360, "last year month ago 去年 前年 上个月 上月 年前 月前", 12 * 366),
    (28, "last month week ago 上个月 上月 上周 上星期 月前 周前", 92),
    (7, "last week ago 上周 上星期 上礼拜 周前", 28),
)
_DAY_NAMED_LATER = "yesterday last night ago 昨天 昨晚 昨日 前天 天前"
_DAYS_NAMED_LATER = 10

_MONTHS = """January February March April May June July August September October November December""".split()
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_ZH_WEEKDAYS = "一二三四五六日"


def day_said(at_ms: int, utc_offset_min: int) -> date:
    """The calendar day where it was said."""
    return (datetime.fromtimestamp(at_ms / 1000, UTC) + timedelta(minutes=utc_offset_min)).date()


def moment_of(source: Source) -> int:
    """When it was said; what has no date is older than what has."""
    return source.said_at_ms if source.is_dated else 0


def is_surely_of(source: Source, period: Period) -> bool:
    """Whether it was said in a period, or names a time in it together with its year."""
    return is_said_in(source, period) or any(
        period.holds(named)
        for named in periods_in(source.text, day_said(source.said_at_ms, source.utc_offset_min), is_sure=True)
    )


def is_said_in(source: Source, period: Period) -> bool:
    return source.is_dated and period.includes(day_said(source.said_at_ms, source.utc_offset_min))


def names_earlier_only(source: Source, period: Period) -> bool:
    """Whether all that it names is past and not of the period: "last year I went to Japan" is not of this year."""
    said_on = day_said(source.said_at_ms, source.utc_offset_min)
    named = periods_in(source.text, said_on)
    return bool(named) and all(
        each.last < said_on and not period.includes(each.last) and not period.holds(each) for each in named
    )


def names_time_in(source: Source, period: Period) -> bool:
    said_on = day_said(source.said_at_ms, source.utc_offset_min)
    named = set(periods_in(source.text, said_on))
    if not source.is_dated:  # then only what means the same on another day counts
        named &= set(periods_in(source.text, said_on - ANY_OTHER_TIME))
    return any(map(period.holds, named))


def names_of(period: Period) -> list[str]:
    """How statements may name a day, a month or a year, in words to search for."""
    if period.first is None or period.first.year != period.last.year:
        return []
    year, month, day = period.last.year, period.last.month, period.last.day
    names = [] if isinstance(period, EveryYear) else [str(year), f"{year}年"]
    if period.first.month == month:
        names += [_MONTHS[month - 1].lower(), f"{month}月", f"{month:02}"]
    if period.first == period.last:
        names += [str(day), f"{day:02}", f"{day}日", f"{day}号"]
    return names


def names_from_later(period: Period) -> tuple[list[str], Period] | None:
    """How statements of later days may name it, in words to search for, and when those were said; None: in no way."""
    if period.first is None:
        return None
    length = (period.last - period.first).days + 1
    words, days = next(
        ((words, days) for least, words, days in _NAMED_LATER if length >= least),
        (_DAY_NAMED_LATER, _DAYS_NAMED_LATER),
    )
    named = words.split()
    if length == 1 and not isinstance(period, EveryYear):
        weekday = period.first.weekday()
        named += [_WEEKDAYS[weekday], f"周{_ZH_WEEKDAYS[weekday]}", f"星期{_ZH_WEEKDAYS[weekday]}"]
    try:
        return named, type(period)(period.last + timedelta(1), period.last + timedelta(days))
    except OverflowError:
        return None


def from_ms_of(period: Period) -> int | None:
    """A day early: a source's own offset may be any."""
    return None if period.first is None else moments.first_ms(period.first.isoformat()) - DAY_MS


def to_ms_of(period: Period) -> int:
    return moments.after_ms(period.last.isoformat()) + DAY_MS
