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

_MONTHS = """January February March April May June July August September October November December""".split()


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


def from_ms_of(period: Period) -> int | None:
    """A day early: a source's own offset may be any."""
    return None if period.first is None else moments.first_ms(period.first.isoformat()) - DAY_MS


def to_ms_of(period: Period) -> int:
    return moments.after_ms(period.last.isoformat()) + DAY_MS
