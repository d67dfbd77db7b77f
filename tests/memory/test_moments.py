import time
from collections.abc import Iterator

import pytest

from pikobot.memory.moments import Moment, after_ms, canonical, day_of, first_ms, parse_moment

HOUR_MS = 3_600_000


@pytest.fixture
def in_shanghai(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_a_moment_keeps_its_own_offset() -> None:
    assert parse_moment("1970-01-01T08:00:01.5+08:00") == Moment(1_500, 480)
    assert parse_moment("1970-01-01T00:00:01Z") == Moment(1_000, 0)


@pytest.mark.usefixtures("in_shanghai")
def test_without_an_offset_the_machine_decides() -> None:
    assert parse_moment("1970-01-01T08:00:00") == Moment(0, 480)
    assert parse_moment("1970-01-02") == Moment(16 * HOUR_MS, 480)


@pytest.mark.usefixtures("in_shanghai")
def test_a_range_includes_the_day_or_the_moment_that_it_ends_with() -> None:
    assert after_ms("1970-01-01") == first_ms("1970-01-02")
    assert after_ms("1970-01-01T08:00:00+08:00") == 1
    assert after_ms("9998-12-31") == first_ms("9998-12-31") + 24 * HOUR_MS


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2024-13-01", "0001-01-01", "9999-12-31", "2024-01-01T25:00"]
)
def test_anything_else_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected ISO 8601|the year is outside") as refused:
        parse_moment(text)
    assert text == "" or text not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2024-03-02", "2024-03-02"),
        ("20240302", "2024-03-02"),
        ("2024-W09-6", "2024-03-02"),
        ("2024-03-02T09:30", "2024-03-02T09:30:00"),
        ("2024-03-02 09:30:00.5", "2024-03-02T09:30:00"),
        ("2024-03-02T09:30:00Z", "2024-03-02T09:30:00+00:00"),
        ("20240302T093000+0800", "2024-03-02T09:30:00+08:00"),
    ],
)
def test_a_moment_has_one_stored_form_and_one_day(text: str, stored: str) -> None:
    assert canonical(text) == stored
    assert canonical(stored) == stored
    assert day_of(text) == "2024-03-02"


@pytest.mark.parametrize("text", ["", "2024-02-30", "soon", "0001-01-01"])
def test_what_is_no_moment_is_never_stored(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected ISO 8601|the year is outside"):
        canonical(text)
