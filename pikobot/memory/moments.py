"""Moments written by people and programs: ISO 8601, with or without an offset.

A moment without an offset is in this machine's time zone at that moment. A date alone is its first instant.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

DATE_CHARS = 10
# Far enough from the ends of the calendar that no offset can push a moment over them.
FIRST_YEAR, LAST_YEAR = 2, 9998
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Moment:
    at_ms: int
    utc_offset_min: int


def parse_moment(text: str) -> Moment:
    """Raises `ValueError`, whose message doesn't repeat the text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected ISO 8601 such as 2024-03-02T09:30:00+08:00") from None
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"the year is outside {FIRST_YEAR} to {LAST_YEAR}")
    return _resolved(moment)


def first_ms(text: str) -> int:
    """Where a range begins that starts with this date or date-time."""
    return parse_moment(text).at_ms


def after_ms(text: str) -> int:
    """Where a range ends that includes this date or date-time: the first millisecond after it."""
    if len(text) > DATE_CHARS:
        return parse_moment(text).at_ms + 1
    parse_moment(text)
    next_day = date.fromisoformat(text) + timedelta(days=1)
    return _resolved(datetime.combine(next_day, time())).at_ms


def canonical(text: str) -> str:
    """A date or date-time in the one form that is stored: ``2024-03-02``, or to the second, with its offset if any.

    Raises `ValueError`, whose message doesn't repeat the text.
    """
    parse_moment(text)
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return datetime.fromisoformat(text).isoformat(timespec="seconds")


def day_of(text: str) -> str:
    """The calendar day that a date or date-time names as it is written."""
    return datetime.fromisoformat(text).date().isoformat()


def _resolved(moment: datetime) -> Moment:
    aware = moment.astimezone() if moment.tzinfo is None else moment
    offset = aware.utcoffset() or timedelta()
    return Moment((aware - _EPOCH) // _MILLISECOND, int(offset.total_seconds() // 60))
