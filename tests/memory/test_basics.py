from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.memory.assertions import Assertion, Statement, correct, remember
from pikobot.memory.basics import Basics, escaped_line, owner_basics, standing_preferences
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, find_scope, owner_scope
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, NOW_MS, say


def basics(db: Database, *, now_ms: int = NOW_MS, scope: Scope | None = None, **options: Any) -> Basics:
    with db.read() as conn:
        return owner_basics(conn, find_scope(conn, scope or owner_scope()), now_ms=now_ms, **options)


def stated(db: Database, text: str, **fields: Any) -> str:
    done = db.perform(remember, Assertion(text=text, **fields), Statement(owner_scope()))
    assert done is not None
    return done.fact.public_id


def inferred(db: Database, quote: str, attribute: str, value: str, **changes: Any) -> str:
    at_ms = changes.pop("at_ms", NOW_MS)
    expires = changes.pop("expires_at_ms", None)
    [said] = say(db, quote, at_ms=at_ms, expires_at_ms=expires)
    return learn(db, f"{attribute} is {value}", said, attribute=attribute, value=value, **changes)


def test_nothing_is_known_at_first(db: Database) -> None:
    assert basics(db) == Basics("")
    say(db, "hello")
    assert basics(db) == Basics("")
    with db.read() as conn:
        assert standing_preferences(conn, None, now_ms=NOW_MS) == []


def test_each_basic_is_a_line_with_its_quote_and_date(db: Database) -> None:
    job = inferred(db, "我是老师", "occupation", "老师")
    home = inferred(db, "I live in Porto <now>", "home_city", "Porto")
    name = stated(db, "Call me 小明", attribute="preferred_name", value="小明")
    inferred(db, "I like tea", "favourite_drink", "tea")
    block = basics(db)
    assert block.text == (
        "- preferred_name: 小明 (stated on 2024-03-01)\n"
        "- home_city: Porto (inferred from “I live in Porto &lt;now&gt;”, 2024-03-01)\n"
        "- occupation: 老师 (inferred from “我是老师”, 2024-03-01)"
    )
    assert block.fact_ids == (name, home, job)
    assert len(block.source_ids) == 3


def test_an_explicit_value_outranks_a_newer_inferred_one(db: Database) -> None:
    explicit = stated(db, "I live in Porto", attribute="home_city", value="Porto")
    inferred(db, "I am in Lisbon", "home_city", "Lisbon", at_ms=NOW_MS + DAY_MS)
    assert basics(db).text == "- home_city: Porto (stated on 2024-03-01)"
    done = db.perform(correct, explicit, Assertion(text="I moved to Braga"))
    assert done is not None
    assert basics(db).text == "- home_city: I moved to Braga (stated on 2024-03-01)"


def test_what_differs_is_labelled_newest_first_and_bounded(db: Database) -> None:
    for day, city in enumerate(("Faro", "Lisbon", "Braga", "Porto", "porto")):
        inferred(db, f"I live in {city}", "home_city", city, at_ms=NOW_MS + day * DAY_MS)
    assert basics(db).text == (
        "- home_city is not clear; stated were: porto (inferred from “I live in porto”, 2024-03-05); "
        "Braga (inferred from “I live in Braga”, 2024-03-03); "
        "Lisbon (inferred from “I live in Lisbon”, 2024-03-02)"
    )


def test_what_is_over_or_expired_is_left_out(db: Database) -> None:
    inferred(db, "I teach until spring", "occupation", "teacher", valid_until="2024-02-29")
    inferred(db, "I live in Porto", "home_city", "Porto", expires_at_ms=NOW_MS + 1)
    assert basics(db).text.startswith("- home_city: Porto")
    assert basics(db, now_ms=NOW_MS + 1) == Basics("")


def test_only_what_the_owner_said_alone_counts(db: Database) -> None:
    [asked] = say(db, "Do you live in Porto?", role="assistant", speaker="pikobot")
    [yes] = say(db, "Yes", at_ms=NOW_MS + 1)
    learn(db, "lives in Porto", yes, attribute="home_city", value="Porto", depends_on=(asked,))
    [friend] = say(db, "安娜是医生", role="participant", speaker="安娜")
    learn(db, "安娜 is a doctor", friend, subject="安娜", attribute="occupation", value="doctor")
    assert basics(db) == Basics("")


@pytest.mark.parametrize("max_chars", [0, 40, 70, 500, 2_000, 99_999])
def test_the_block_never_exceeds_its_room(db: Database, max_chars: int) -> None:
    for attribute in ("preferred_name", "name", "home_city", "home_country", "occupation"):
        for number in range(4):
            inferred(db, f"{'<&>' * 300} {number}", attribute, "&" * 200 + f"{number}")
    block = basics(db, max_chars=max_chars)
    assert len(block.text) <= min(max_chars, 2_000)
    assert (block.text == "") == (max_chars < 2_000)
    assert "\n\n" not in block.text


@settings(max_examples=80)
@given(text=st.text(alphabet="<&>a 文\n", max_size=60), limit=st.integers(8, 30))
def test_a_cut_value_is_one_whole_escaped_line(text: str, limit: int) -> None:
    flat = escaped_line(text, limit)
    assert len(flat) <= limit
    assert "\n" not in flat
    assert not set(flat) & set("<>")
    assert flat.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "").count("&") == 0


def preferences(db: Database, *, now_ms: int = NOW_MS) -> list[str]:
    with db.read() as conn:
        scope_id = find_scope(conn, owner_scope())
        return [fact.text for fact in standing_preferences(conn, scope_id, now_ms=now_ms)]


def test_only_explicit_preferences_of_the_owner_stand(db: Database) -> None:
    first = stated(db, "Answer briefly", kind="preference")
    stated(db, "answer  BRIEFLY", kind="preference")
    stated(db, "用中文回答", kind="preference")
    stated(db, "Ana likes long answers", kind="preference", subject="Ana")
    stated(db, "I live in Porto")
    inferred(db, "I like tea", "likes", "tea", kind="preference")
    stated(db, "No calls this week", kind="preference", valid_until="2024-03-02")
    assert preferences(db) == ["answer  BRIEFLY", "用中文回答", "No calls this week"]
    assert preferences(db, now_ms=NOW_MS + 2 * DAY_MS) == ["answer  BRIEFLY", "用中文回答"]
    db.perform(correct, first, Assertion(text="Answer at length"))
    assert preferences(db)[:1] == ["用中文回答"]
    assert "Answer at length" in preferences(db)
