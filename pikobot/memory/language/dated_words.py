"""The patterns behind `periods`: each finds words in folded text and reads the days that they name.

A reader gives None for what is no date after all (30 February), and for what has not begun.
"""

import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import NamedTuple

_FIRST_YEAR, _LAST_YEAR = 1900, 2099
_DAY = timedelta(days=1)


class Span(NamedTuple):
    """Characters [start, end) name the days from first to last; ``how`` is the word that bends them, or empty.

    ``is_yearly``: a month or a day of it without a year, of which there is one every year.
    """

    start: int
    end: int
    first: date
    last: date
    how: str = ""
    is_yearly: bool = False


Reader = Callable[[re.Match[str], date], Span | None]

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS = "mon tue wed thu fri sat sun".split()
_MONTH = (
    "(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    "oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\\b\\.?"
)
_WEEKDAY = "(?P<weekday>(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_YEAR = "(?P<year>(?:19|20)\\d\\d)"
_DAY_OF_MONTH = "(?P<day>[12]\\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_COUNTS = "a one two three four five six seven eight nine ten eleven twelve".split()
_COUNT = f"(?P<count>\\d{{1,3}}|an|a couple of|{'|'.join(_COUNTS)})"
_UNIT = "(?P<unit>day|week|month|year)s?"
_HOW = "(?P<how>in|on|at|during|between|since|before|until|till|after|from|to|by|and|of|last|this)"
_PART = "(?:(?:the )?(?P<part>(?:beginning|start|middle|end)(?= of\\b)|early|mid|late)(?: of(?: the)?)?[ -])"
_NO_VERB = "(?! (?:i|we|you|he|she|it|they|be|have|not)\\b)"  # "which of the 3 may I eat"
_THE = "(?:the )?(?:(?:year|month) (?:of )?)?"

_SENTENCE_END = re.compile("[.!?;。！？；\n]")
_HABIT = re.compile(
    "\\b(?:usually|normally|typically|generally|always|regularly|often|every|each)\\b|"
    "一般|通常|平时|平時|平常|经常|經常|总是|總是|常常|往往|习惯|習慣|每"
)

_ZH_YEAR = "(?:(?P<year>(?:19|20)\\d\\d)年|(?P<named>今年|去年|大?前年))"
_ZH_NUMBER = "[0-9]{1,3}|[一二两兩三四五六七八九十]{1,3}"
_ZH_PART = "(?P<part>份|[上中下]旬|[初底末](?![一二三四五六七八九十]))"
_ZH_MONTH = f"(?P<month>1[0-2]|0?[1-9]|十[一二]|[一二三四五六七八九十])月{_ZH_PART}?"
_ZH_DAY = f"(?:(?P<day>{_ZH_NUMBER})(?:[日号號]|(?=[-–~到至](?:{_ZH_NUMBER})[日号號])))"
_ZH_UNIT = "(?P<unit>天|日|周|週|个?星期|個?星期|个?礼拜|個?禮拜|个月|個月|年)"
_ZH_WEEK = "(?:周|週|个?星期|個?星期|个?礼拜|個?禮拜)"
_ZH_HOW = "(?P<how>以来|以來|之后|之後|以后|以後|之前|以前|为止|為止)?"
# Characters that make another word of the one behind them: next week, every Wednesday, 目前 (at present), Japan.
_ZH_NOT_WEEK = "(?<![一二两兩三四五六七八九十几幾0-9每下个個])"
_ZH_NOT_DAY = "(?<![目以之从從先眼当當提向])"
_ZH_THIS = "(?<![日基书書])(?P<which>上+个?|上+個|这个?|這個?|本)"
_ZH_DIGITS = {char: value for value, char in enumerate("一二三四五六七八九十", 1)} | {"两": 2, "兩": 2}
_ZH_WEEKDAYS = {char: value for value, char in enumerate("一二三四五六日")} | {"天": 6}
_ZH_DAYS = {"今": 0, "昨": 1, "前": 2, "大前": 3}
_ZH_YEARS = {"今年": 0, "去年": 1, "前年": 2, "大前年": 3}


def _span(match: re.Match[str], days: "tuple[date, date] | None", *, is_yearly: bool = False) -> Span | None:
    if days is None:
        return None
    return Span(match.start(), match.end(), *days, match.groupdict().get("how") or "", is_yearly)


def _day_of(year: int, month: int, day: int) -> tuple[date, date] | None:
    try:
        return date(year, month, day), date(year, month, day)
    except ValueError:
        return None


def _month_of(year: int, month: int) -> tuple[date, date] | None:
    if not (_FIRST_YEAR <= year <= _LAST_YEAR and 1 <= month <= 12):
        return None
    following = date(year + month // 12, month % 12 + 1, 1)
    return date(year, month, 1), following - _DAY


def _year_of(year: int) -> tuple[date, date]:
    return date(year, 1, 1), date(year, 12, 31)


def _dated(year: int | None, month: int, day: int | None, today: date) -> tuple[date, date] | None:
    """A month or a day of it; without a year the last one that has begun."""
    for candidate in (today.year, today.year - 1) if year is None else (year,):
        days = _month_of(candidate, month) if day is None else _day_of(candidate, month, day)
        if days is not None and (year is not None or days[0] <= today):
            return days
    return None


def _back(count: int, unit: str, today: date) -> tuple[date, date]:
    """The day, week, month or year that lies so many of them back; 0 is the present one."""
    if unit == "day":
        return today - count * _DAY, today - count * _DAY
    if unit == "week":
        monday = today - (today.weekday() + 7 * count) * _DAY
        return monday, monday + 6 * _DAY
    if unit == "month":
        months = today.year * 12 + today.month - 1 - count
        return _month_of(months // 12, months % 12 + 1) or (today, today)
    return _year_of(max(today.year - count, _FIRST_YEAR))


def _last_ones(count: int, unit: str, today: date) -> tuple[date, date]:
    """So many days up to today: of three months 90, roughly those since the same day three months ago."""
    days = count * {"day": 1, "week": 7, "month": 30, "year": 365}[unit]
    return today - max(days - 1, 0) * _DAY, today


def _weekday_before(weekday: int, today: date) -> tuple[date, date]:
    day = today - ((today.weekday() - weekday - 1) % 7 + 1) * _DAY
    return day, day


def _is_of_habit(match: re.Match[str]) -> bool:
    """Whether the sentence tells what is done on every such weekday."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    sentence = _SENTENCE_END.split(before)[-1] + " " + _SENTENCE_END.split(after)[0]
    return _HABIT.search(sentence) is not None


def number_of(text: str) -> int:
    """A number in digits, Chinese characters up to 99, or English words up to twelve."""
    if text.isdecimal():
        return int(text)
    if text in _COUNTS:
        return max(_COUNTS.index(text), 1)
    if text in ("an", "a couple of"):
        return 2 if "couple" in text else 1
    tens, ten, ones = text.rpartition("十")
    return (_ZH_DIGITS.get(tens, 1) * 10 if ten else 0) + _ZH_DIGITS.get(ones, 0)


def _given(match: re.Match[str], name: str) -> int | None:
    text = match.groupdict().get(name)
    return None if text is None else number_of(text)


def _iso(match: re.Match[str], today: date) -> Span | None:
    year, month, day = (_given(match, name) for name in ("year", "month", "day"))
    return _span(match, _dated(year, month or 0, day, today))


def _english_date(match: re.Match[str], today: date) -> Span | None:
    month = _MONTHS.index(match["month"][:3]) + 1
    year, day, how = _given(match, "year"), _given(match, "day"), match["how"]
    days = _dated(year, month, day, today)
    if days is not None and year is None and how == "last" and days[1] >= today:
        days = _dated(days[0].year - 1, month, day, today)
    if days is not None and day is None:
        days = _part_of(*days, match.groupdict().get("part") or "")
    return _span(match, days, is_yearly=year is None and how not in ("last", "this"))


def _english_month(match: re.Match[str], today: date) -> Span | None:
    """Of a month alone, which needs a word before it."""
    return _english_date(match, today) if match["how"] or match["part"] else None


def _english_year(match: re.Match[str], today: date) -> Span | None:
    return _span(match, _year_of(int(match["year"])))


def _english_day(match: re.Match[str], today: date) -> Span | None:
    word = match["word"]
    back = 2 if "before" in word else 1 if word in ("yesterday", "last night") else 0
    return _span(match, _back(back, "day", today))


def _english_unit(match: re.Match[str], today: date) -> Span | None:
    which, unit = match["which"], match["unit"]
    if unit == "weekend":
        saturday, _ = _weekday_before(5, today + _DAY)
        saturday -= 7 * _DAY if which == "last" and today.weekday() >= 5 else timedelta()
        return _span(match, (saturday, saturday + _DAY))
    if which == "past":
        return _span(match, _last_ones(1, unit, today))
    days = _back({"this": 0, "last": 1}.get(which, 2), unit, today)
    return _span(match, _part_of(*days, match.groupdict().get("part") or "") if unit == "month" else days)


def _english_weekday(match: re.Match[str], today: date) -> Span | None:
    weekday = _WEEKDAYS.index(match["weekday"][:3])
    if _is_of_habit(match) and match["how"] not in ("last", "this"):
        return None
    if match["how"] == "this":
        day = today + (weekday - today.weekday()) * _DAY
        return _span(match, (day, day))
    return _span(match, _weekday_before(weekday, today))


def _ago(match: re.Match[str], today: date) -> Span | None:
    return _span(match, _back(number_of(match["count"]), _unit(match["unit"]), today))


def _recent(match: re.Match[str], today: date) -> Span | None:
    return _span(match, _last_ones(number_of(match["count"]), _unit(match["unit"]), today))


def _unit(word: str) -> str:
    if word in ("day", "week", "month", "year"):
        return word
    return {"天": "day", "日": "day", "月": "month", "年": "year"}.get(word[-1], "week")


def _chinese_date(match: re.Match[str], today: date) -> Span | None:
    year, month, day = (_given(match, name) for name in ("year", "month", "day"))
    named = match.groupdict().get("named")
    if named is not None:
        year = today.year - _ZH_YEARS[named]
    if month is None:
        return _span(match, None if year is None else _year_of(year))
    days = _dated(year, month, day, today)
    if days is not None and day is None:
        days = _part_of(*days, match["part"] or "")
    return _span(match, days, is_yearly=year is None)


def _part_of(first: date, last: date, part: str) -> tuple[date, date]:
    """The ten days of a month that 上旬, 中旬 or 下旬 names; 月初, "early" are the first, 月底, "late" the last."""
    if part in ("上旬", "初", "beginning", "start", "early"):
        return first, first + 9 * _DAY
    if part in ("中旬", "middle", "mid"):
        return first + 10 * _DAY, first + 19 * _DAY
    return (first + 20 * _DAY, last) if part in ("下旬", "底", "末", "end", "late") else (first, last)


def _chinese_day(match: re.Match[str], today: date) -> Span | None:
    return _span(match, _back(_ZH_DAYS[match["word"]], "day", today))


def _chinese_week(match: re.Match[str], today: date) -> Span | None:
    back, weekday = match["which"].count("上"), match["weekday"]
    monday, sunday = _back(back, "week", today)
    if not weekday:
        return _span(match, (monday, sunday))
    if weekday == "末":
        saturday = sunday - _DAY
        saturday -= 7 * _DAY if not match["which"] and saturday > today else timedelta()
        return _span(match, (saturday, saturday + _DAY))
    if not match["which"]:
        if _is_of_habit(match):
            return None
        return _span(match, _weekday_before(_ZH_WEEKDAYS[weekday], today))
    day = monday + _ZH_WEEKDAYS[weekday] * _DAY
    return _span(match, (day, day))


def _chinese_month(match: re.Match[str], today: date) -> Span | None:
    days = _back(match["which"].count("上"), "month", today)
    day = _given(match, "day")
    if day is None:
        return _span(match, _part_of(*days, match["part"] or ""))
    return _span(match, _day_of(days[0].year, days[0].month, day))


PATTERNS: list[tuple[re.Pattern[str], Reader]] = [
    (re.compile(pattern), reader)
    for pattern, reader in (
        (
            f"(?:\\b{_HOW} )?(?<![\\d/.-]){_YEAR}([-/.])(?P<month>\\d{{1,2}})\\3(?P<day>\\d{{1,2}})(?![\\d])",
            _iso,
        ),
        (f"(?:\\b{_HOW} )?(?<![\\d/.-]){_YEAR}[-/](?P<month>\\d{{1,2}})(?![-/\\d])", _iso),
        (
            f"(?:\\b{_HOW} )?(?:the )?\\b{_DAY_OF_MONTH} (?:of )?{_MONTH}(?:,? {_YEAR}\\b|{_NO_VERB})",
            _english_date,
        ),
        (f"(?:\\b{_HOW} )?\\b{_MONTH} (?:the )?{_DAY_OF_MONTH}\\b(?!\\d)(?:,? {_YEAR}\\b)?", _english_date),
        (f"(?:\\b{_HOW} )?(?:\\b{_PART})?{_THE}\\b{_MONTH}(?:,| of)? {_YEAR}\\b", _english_date),
        (f"(?:\\b{_HOW} )?\\b{_PART}?{_THE}\\b{_MONTH}(?! \\d)", _english_month),
        (f"\\b{_HOW} {_PART}?{_THE}{_YEAR}\\b(?![-/.]\\d)", _english_year),
        (
            f"(?:\\b{_HOW} )?\\b(?P<word>(?:the )?day before yesterday|yesterday|last night|today|tonight|"
            "this (?:morning|afternoon|evening))\\b",
            _english_day,
        ),
        (
            f"(?:\\b(?P<how>since|before|until|after|from|to|and|in|at) )?\\b{_PART}?(?:the )?"
            "(?P<which>this|last|past) (?P<unit>weekend|week|month|year)\\b",
            _english_unit,
        ),
        ("\\bthe (?P<which>)(?P<unit>week|month|year) before last\\b", _english_unit),
        (f"\\b(?:the )?(?:last|past) {_COUNT} {_UNIT}\\b", _recent),
        (f"(?:\\b{_HOW} )?\\b{_COUNT} {_UNIT} ago\\b", _ago),
        (f"\\b{_HOW} {_WEEKDAY}\\b", _english_weekday),
        (f"{_ZH_YEAR}(?:的?{_ZH_MONTH}{_ZH_DAY}?)?的?{_ZH_HOW}", _chinese_date),
        (f"(?<![\\d个個几幾十年]){_ZH_MONTH}{_ZH_DAY}?{_ZH_HOW}", _chinese_date),
        (
            _ZH_NOT_DAY
            + "(?P<word>大前|[今昨前])(?:天|日|早|晚|晨|夜)(?:早上|上午|中午|下午|晚上)?"
            + _ZH_HOW,
            _chinese_day,
        ),
        (f"{_ZH_THIS}{_ZH_WEEK}(?P<weekday>[一二三四五六日天末]?){_ZH_HOW}", _chinese_week),
        (f"{_ZH_NOT_WEEK}(?P<which>){_ZH_WEEK}(?P<weekday>[一二三四五六日天末]){_ZH_HOW}", _chinese_week),
        (f"{_ZH_THIS}月(?:{_ZH_DAY}|{_ZH_PART})?{_ZH_HOW}", _chinese_month),
        (f"(?:最近|过去|過去|近|这|這)(?P<count>{_ZH_NUMBER}){_ZH_UNIT}", _recent),
        (f"(?P<count>{_ZH_NUMBER}){_ZH_UNIT}(?:之前|以前|前(?![往后後面台天]))", _ago),
    )
]
