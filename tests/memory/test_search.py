from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pikobot.errors import InvalidParams
from pikobot.memory.params import validated
from pikobot.memory.records import Page
from pikobot.memory.search import MAX_SCAN_NOTE, SearchParams, search
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, ScopeId, find_scope, owner_scope
from tests.memory.conversing import exchange
from tests.memory.remembering import DAY_MS, NOW_MS, erase, say


def find(db: Database, query: str, **params: object) -> Page:
    return find_within(db, None, query, **params)


def find_within(db: Database, allowed: Sequence[ScopeId] | None, query: str, **params: object) -> Page:
    checked = validated(SearchParams, {"query": query, **params})
    with db.read() as conn:
        return search(conn, checked, allowed_scopes=allowed, now_ms=NOW_MS)


def ids(page: Page) -> list[str]:
    return [record.id for record in page.records]


def test_a_result_has_the_shape_of_the_contract(db: Database) -> None:
    [public_id] = say(db, "我三月搬到了波尔图", utc_offset_min=480, external_id="x:1")
    page = find(db, "波尔图", maxScan=10).as_json()
    [record] = page["results"] if isinstance(page["results"], list) else []
    assert isinstance(record.pop("score"), float)
    assert page == {
        "results": [
            {
                "id": public_id,
                "type": "source",
                "text": "我三月搬到了波尔图",
                "basis": None,
                "status": "stored",
                "kind": None,
                "tags": [],
                "entities": [],
                "scope": "private:main:local:terminal:owner",
                "time": "2024-03-01T21:33:20+08:00",
                "source": {
                    "id": public_id,
                    "externalId": "x:1",
                    "role": "user",
                    "speaker": "owner",
                    "time": "2024-03-01T21:33:20+08:00",
                    "quote": "我三月搬到了波尔图",
                },
            }
        ],
        "degraded": None,
        "cursor": None,
        "note": MAX_SCAN_NOTE,
    }


@pytest.mark.parametrize("query", ["youer", "YOUER", "服务", "服务端", "端", "改", "修改youer服务端"])
def test_a_mixed_run_is_found_by_each_of_its_parts(db: Database, query: str) -> None:
    say(db, "Nothing of the kind", "明天去体检")
    [public_id] = say(db, "请修改youer服务端")
    assert ids(find(db, query)) == [public_id]


@pytest.mark.parametrize(
    ("told", "asked"),
    [
        ("I moved to Porto in March 2024, it rained", "Where did I move?"),
        ("I moved to Porto in March 2024, it rained", "where did I move to"),
        ("2024年3月我搬到了波尔图，下着雨", "我搬到哪里了"),
    ],
)
def test_what_tells_something_comes_before_questions_asked_before(
    db: Database, told: str, asked: str
) -> None:
    [statement] = say(db, told)
    exchange(db, asked)
    exchange(db, f"{asked}？")
    found = ids(find(db, asked))
    assert (found[0], len(found)) == (statement, 3)
    assert find(db, asked, limit=2).records[0].id == statement


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_what_is_shown_does_not_depend_on_how_far_questions_are_looked_for(db: Database, limit: int) -> None:
    for number in range(12):
        exchange(db, f"Where is the lamp{' now' * number}?")
        say(db, f"The lamp is in room {number}, it is{' very' * number} old")
    whole = ids(find(db, "where is the lamp", limit=50))
    assert ids(find(db, "where is the lamp", limit=limit)) == whole[:limit]
    assert len(whole) == 24


def test_the_better_match_comes_first(db: Database) -> None:
    once, twice = say(db, "We had dinner at six", "Dinner with Ana: dinner was fish")
    assert ids(find(db, "dinner Ana")) == [twice, once]


@pytest.mark.parametrize(
    "filters",
    [{"types": ["fact"]}, {"tags": ["food"]}, {"kind": "event"}, {"basis": "inferred"}, {"entity": "Ana"}],
)
def test_filters_that_only_facts_can_match_give_nothing(db: Database, filters: dict[str, object]) -> None:
    say(db, "Dinner with Ana")
    assert find(db, "dinner", **filters) == Page((), None)


def test_a_range_includes_both_ends(db: Database) -> None:
    first, second, third = (say(db, "walk", at_ms=NOW_MS + day * DAY_MS)[0] for day in range(3))
    assert ids(find(db, "walk", to="2024-03-02T13:33:20Z")) == [second, first]
    assert ids(find(db, "walk", **{"from": "2024-03-02T13:33:20Z"})) == [third, second]
    assert ids(find(db, "walk", **{"from": "2024-03-02T13:33:20Z", "to": "2024-03-02T13:33:20Z"})) == [second]


def test_only_allowed_scopes_are_read_and_only_the_named_one(db: Database) -> None:
    group = Scope("shared", "main", "bot", "-5", "0")
    [own], [shared] = say(db, "the garden gate"), say(db, "the garden shed", scope=group)
    with db.read() as conn:
        own_scope, group_scope = find_scope(conn, owner_scope()), find_scope(conn, group)
    assert own_scope is not None
    assert group_scope is not None
    assert ids(find(db, "garden")) == [shared, own]
    assert ids(find_within(db, [own_scope], "garden")) == [own]
    assert ids(find(db, "garden", scope="shared:main:bot:-5:0")) == [shared]
    assert ids(find_within(db, [own_scope], "garden", scope="shared:main:bot:-5:0")) == []
    assert ids(find(db, "garden", scope="shared:main:bot:-6:0")) == []
    assert ids(find_within(db, [], "garden")) == []


def test_what_has_expired_is_not_found(db: Database) -> None:
    say(db, "the old door code", expires_at_ms=NOW_MS)
    [kept] = say(db, "the new door code", expires_at_ms=NOW_MS + 1)
    assert ids(find(db, "door code")) == [kept]


def test_a_long_text_is_shown_around_its_best_match_and_says_so(db: Database) -> None:
    text = "fish. " + "字" * 30_000 + " the fish was grilled in Porto 波尔图 " + "x" * 5_000
    say(db, text)
    for query in ("grilled fish Porto", "波尔图 grilled"):
        [record] = find(db, query).records
        assert "grilled in Porto 波尔图" in record.text
        assert record.text in text
        assert len(record.text) <= 2_000
        assert record.source.quote == record.text
        assert record.as_json()["truncated"] is True


def test_paging_neither_repeats_nor_loses_while_memory_changes(db: Database) -> None:
    stored = say(db, *(f"note number {number}" for number in range(30)))
    page = find(db, "note", limit=7)
    found = ids(page)
    erase(db, found[2])
    erase(db, stored[0])
    say(db, *["note"] * 3)  # shorter, so it ranks before all of the others
    while page.cursor is not None:
        page = find(db, "note", limit=7, cursor=page.cursor)
        found += ids(page)
    assert len(found) == len(set(found))
    assert set(stored[1:]) <= set(found)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(limits=st.lists(st.integers(min_value=1, max_value=9), min_size=12, max_size=12))
def test_pages_of_any_size_are_parts_of_one_list(db: Database, limits: list[int]) -> None:
    with db.read() as conn:
        is_new = not conn.execute("SELECT 1 FROM sources").fetchall()
    if is_new:
        say(db, *(f"tea {'and milk ' * (number % 4)}" for number in range(12)))
    everything = ids(find(db, "tea", limit=50))
    found: list[str] = []
    cursor: str | None = None
    for limit in limits:
        page = find(db, "tea", limit=limit, **({} if cursor is None else {"cursor": cursor}))
        found += ids(page)
        cursor = page.cursor
        if cursor is None:
            break
    assert found == everything


def test_paging_ends_after_a_thousand_results(db: Database) -> None:
    say(db, *["rain"] * 1_003)
    page = find(db, "rain", limit=50)
    found = ids(page)
    while page.cursor is not None:
        page = find(db, "rain", limit=50, cursor=page.cursor)
        found += ids(page)
    assert len(found) == len(set(found)) == 1_000


def test_a_cursor_of_another_question_is_refused(db: Database) -> None:
    say(db, *["rain"] * 5)
    cursor = find(db, "rain", limit=2).cursor
    assert len(find(db, "rain", limit=3, cursor=cursor).records) == 3
    for query, params in (("snow", {}), ("rain", {"to": "2030-01-01"}), ("rain", {"history": True})):
        with pytest.raises(InvalidParams, match=r"^cursor: .*search again"):
            find(db, query, cursor=cursor, **params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([], "params: expected an object"),
        ({}, "query: Field required"),
        ({"query": " \n"}, "query: is empty; say what to look for, or use memory.list"),
        ({"query": 5}, "query: Input should be a valid string"),
        ({"query": "a\0b"}, "query: has a NUL character; remove it"),
        ({"query": "x" * 1_000_000}, "query: String should have at most 4096 characters"),
        ({"query": "x", "limit": "5"}, "limit: Input should be a valid integer"),
        ({"query": "x", "limit": True}, "limit: Input should be a valid integer"),
        ({"query": "x", "limit": 51}, "limit: Input should be less than or equal to 50"),
        ({"query": "x", "maxScan": 0}, "maxScan: Input should be greater than or equal to 1"),
        ({"query": "x", "tags": ["A b"]}, "tags.0: String should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'"),
        ({"query": "x", "from": "soon"}, "from: expected ISO 8601 such as 2024-03-02T09:30:00+08:00"),
        ({"query": "x", "from_": "2024-01-01"}, "from_: unknown key; known are "),
        ({"query": "x", "k" * 1_000_000: 1}, f"'{'k' * 64}\\u2026': unknown key; known are "),
        ({"query": "x", "scope": "mine"}, "scope: expected private:WORKSPACE"),
        ({"query": "\ud800"}, "query: Input should be a valid string, unable to parse raw data as a unicode"),
    ],
)
def test_wrong_parameters_are_refused_by_name(db: Database, params: object, message: str) -> None:
    with pytest.raises(InvalidParams) as refused, db.read() as conn:
        search(conn, validated(SearchParams, params), allowed_scopes=None, now_ms=NOW_MS)
    assert str(refused.value).startswith(message)
    assert len(str(refused.value)) < 1_000
