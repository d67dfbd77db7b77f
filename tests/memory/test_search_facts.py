"""Facts among the results of search and list."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.memory.assertions import Assertion, Statement, correct, remember
from pikobot.memory.fusion import Candidate, first_row_at, fused, keys_of
from pikobot.memory.params import validated
from pikobot.memory.records import Page
from pikobot.memory.search import ListParams, SearchParams, list_memory, search
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, find_scope, owner_scope
from tests.memory.learning import batch, candidate, commit, learn, quoting
from tests.memory.remembering import DAY_MS, NOW_MS, say

GROUP = Scope("shared", "main", "bot", "-5", "0")


def find(db: Database, query: str, *, now_ms: int = NOW_MS, **params: Any) -> Page:
    with db.read() as conn:
        checked = validated(SearchParams, {"query": query} | params)
        return search(conn, checked, allowed_scopes=None, now_ms=now_ms)


def listed(db: Database, **params: Any) -> Page:
    with db.read() as conn:
        return list_memory(conn, validated(ListParams, params), allowed_scopes=None, now_ms=NOW_MS)


def ids(page: Page) -> list[str]:
    return [record.id for record in page.records]


def test_a_fact_takes_in_its_own_source_and_quotes_it(db: Database) -> None:
    [other] = say(db, "Porto is rainy", thread="weather")
    [said] = say(db, "我五月搬到了 Porto", external_id="D1:3")
    fact = learn(
        db,
        "The owner lives in Porto",
        said,
        kind="event",
        tags=("home",),
        entities=("Porto",),
        event_time="2023-05-01",
    )
    page = find(db, "Porto")
    assert ids(page) == [fact, other]
    record = page.records[0].as_json()
    assert isinstance(record.pop("score"), float)
    assert record == {
        "id": fact,
        "type": "fact",
        "text": "The owner lives in Porto",
        "basis": "inferred",
        "status": "stored",
        "kind": "event",
        "tags": ["home"],
        "entities": ["Porto"],
        "scope": "private:main:local:terminal:owner",
        "time": "2023-05-01",
        "source": {
            "id": said,
            "externalId": "D1:3",
            "role": "user",
            "speaker": "owner",
            "time": "2024-03-01T13:33:20Z",
            "quote": "我五月搬到了 Porto",
        },
    }
    assert page.records[0].source_ids == (said,)


def test_types_choose_facts_or_sources(db: Database) -> None:
    [said] = say(db, "I swim")
    fact = learn(db, "The owner can swim", said)
    assert ids(find(db, "swim", types=["fact"])) == [fact]
    assert ids(find(db, "swim", types=["source"])) == [said]
    assert ids(listed(db, types=["fact"])) == [fact]
    assert ids(listed(db)) == [fact, said]


@pytest.mark.parametrize("query", ["Porto", "波尔图"])
def test_the_same_statement_is_one_result(db: Database, query: str) -> None:
    first, second = say(db, "I live in Porto 波尔图", "波尔图 Porto is home")
    home = {"attribute": "home_city", "value": "Porto"}
    facts = [learn(db, f"lives in 波尔图 Porto {n}", said, **home) for n, said in enumerate((first, second))]
    page = find(db, query, types=["fact"])
    assert len(page.records) == 1
    assert ids(listed(db, types=["fact"])) == facts[:1]


def test_history_is_found_only_when_it_is_asked_for(db: Database) -> None:
    [said] = say(db, "I live in Lisbon")
    old = learn(db, "lives in Lisbon", said, attribute="home_city", value="Lisbon")
    done = db.perform(correct, old, Assertion(text="lives in Porto, not in Lisbon", value="Porto"))
    assert done is not None
    new = done.fact.public_id
    assert ids(find(db, "Lisbon", types=["fact"])) == [new]
    with_history = find(db, "Lisbon", types=["fact"], history=True)
    assert {record.id: record.status for record in with_history.records} == {
        old: "superseded",
        new: "current",
    }


def test_filters_of_facts_exclude_sources_and_hold_together(db: Database) -> None:
    [said] = say(db, "Ana likes tea and Bob likes tea")
    both = learn(db, "Ana likes tea", said, subject="Ana", kind="preference", tags=("tea", "friends"))
    learn(db, "Bob likes tea", said, subject="Bob", kind="preference", tags=("tea",))
    learn(db, "tea is hot", said, subject="tea", tags=("friends",))
    for filters in (
        {"tags": ["tea", "friends"]},
        {"entity": "ANA"},
        {"entity": "ana", "kind": "preference", "basis": "inferred"},
    ):
        assert ids(find(db, "tea", **filters)) == [both], filters
        assert ids(listed(db, **filters)) == [both], filters
    assert ids(find(db, "tea", entity="Ana", basis="explicit")) == []


def test_a_range_of_days_is_that_of_the_event(db: Database) -> None:
    [said] = say(db, "yesterday was the party")
    party = learn(db, "There was a party", said, kind="event", event_time="2024-02-29")
    of_event: dict[str, Any] = {"from": "2024-02-29", "to": "2024-02-29"}
    of_message: dict[str, Any] = {"from": "2024-03-01", "to": "2024-03-01"}
    assert ids(find(db, "party", **of_event)) == [party]
    assert ids(find(db, "party", **of_message)) == [said]
    assert ids(listed(db, **of_event)) == [party]
    assert ids(listed(db)) == [said, party]


def test_only_allowed_scopes_are_read(db: Database) -> None:
    [said] = say(db, "Ana swims", scope=GROUP)
    learn(db, "Ana swims", said, subject="Ana")
    say(db, "hello")
    with db.read() as conn:
        own = find_scope(conn, owner_scope())
        assert own is not None
        page = search(conn, validated(SearchParams, {"query": "swims"}), allowed_scopes=[own], now_ms=NOW_MS)
    assert ids(page) == []
    assert len(find(db, "swims", scope=str(GROUP)).records) == 1


def test_what_has_expired_with_a_source_is_not_found(db: Database) -> None:
    [said] = say(db, "I swim", expires_at_ms=NOW_MS + 1)
    fact = learn(db, "The owner can swim", said)
    assert ids(find(db, "swim")) == [fact]
    assert ids(find(db, "swim", now_ms=NOW_MS + 1)) == []


def test_a_fact_with_two_quotes_shows_the_one_that_answers(db: Database) -> None:
    moved, where = say(db, "I moved last week", "the place is Porto")
    wanted = candidate(
        db, "moved to Porto", evidence=(quoting(db, moved, "moved"), quoting(db, where, "is Porto"))
    )
    commit(db, [wanted], batch(db, moved, where))
    [record] = find(db, "Porto").records
    assert (record.type, record.source.id, record.source.quote) == ("fact", where, "is Porto")
    assert set(record.source_ids) == {moved, where}


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_of_facts_and_sources_are_parts_of_one_list(db: Database, limit: int) -> None:
    said = say(db, *(f"tea {'and milk ' * (number % 4)}{number}" for number in range(12)))
    for number, public_id in enumerate(said[::2]):
        learn(db, f"tea fact {number} {'milk ' * (number % 3)}", public_id, subject="tea")
    pages: list[Callable[..., Page]] = [partial(find, db, "tea"), partial(listed, db)]
    for page_of in pages:
        everything = ids(page_of(limit=50))
        page = page_of(limit=limit)
        given = ids(page)
        while page.cursor is not None:
            page = page_of(limit=limit, cursor=page.cursor)
            given += ids(page)
        assert given == everything
        assert len(set(given)) == len(given)


def test_an_explicit_statement_is_marked_current(db: Database) -> None:
    done = db.perform(remember, Assertion(text="我对花生过敏"), Statement(owner_scope()))
    assert done is not None
    [record] = find(db, "花生").records
    assert (record.id, record.basis, record.status) == (done.fact.public_id, "explicit", "current")
    assert record.source.quote == "我对花生过敏"


def test_places_are_added_up_and_equals_keep_their_order() -> None:
    ranked = fused([keys_of("fact", [1, 2]), [*keys_of("source", [1]), *keys_of("fact", [2])]])
    assert [(each.type, each.row_id) for each in ranked] == [("fact", 2), ("fact", 1), ("source", 1)]
    assert fused([]) == []


@settings(max_examples=60)
@given(rows=st.lists(st.integers(1, 40), min_size=1), key=st.integers(0, 200))
def test_rows_before_a_key_are_those_of_smaller_keys(rows: list[int], key: int) -> None:
    for record_type in ("source", "fact"):
        first = first_row_at(record_type, key)
        for row in rows:
            own = Candidate(record_type, row, 0.0).key
            assert (row < first) == (own < key)


def test_a_later_event_is_listed_before_what_was_said_after_it(db: Database) -> None:
    early, late = say(db, "the wedding is in June", at_ms=NOW_MS - DAY_MS) + say(db, "tea")
    plan = learn(db, "The wedding is in June", early, kind="plan", event_time="2024-06-01")
    assert ids(listed(db)) == [plan, late, early]
