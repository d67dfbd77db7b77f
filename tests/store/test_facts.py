from itertools import pairwise

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pikobot.store.connection import Database
from pikobot.store.fact_index import check_fact_index
from pikobot.store.facts import (
    Evidence,
    FactId,
    cite_facts,
    cited_facts,
    delete_facts,
    facts_resting_on,
    find_fact,
    load_facts,
    quote_at,
    same_statement,
    set_tags,
    store_fact,
    supersede_facts,
)
from tests.clock import DAY_MS, NOW_MS
from tests.store import rows
from tests.store.stating import TABLES, counts, fact, found, new_fact, state


def test_a_fact_is_stored_with_all_that_it_rests_on(db: Database) -> None:
    thread = rows.thread(db)
    asked = rows.source(db, thread, "你住在波尔图吗？", role="assistant", speaker="pikobot", origin="model")
    said = rows.source(db, thread, "对，五月开始 🏠", said_at_ms=NOW_MS - DAY_MS)
    stored = state(
        db,
        "The owner lives in Porto since May",
        said,
        attribute="home_city",
        value="Porto",
        context=(asked, said),
        entities=("Porto", "波尔图", " PORTO "),
        tags=("home", "city"),
        event_time="2023-05-01",
    )
    assert (stored.is_new, stored.is_repeated) == (True, False)
    kept = fact(db, stored.fact_id)
    assert kept is not None
    assert (kept.text, kept.subject, kept.attribute, kept.value, kept.kind, kept.basis, kept.status) == (
        "The owner lives in Porto since May",
        "owner",
        "home_city",
        "Porto",
        "fact",
        "inferred",
        "stored",
    )
    assert (kept.tags, kept.entities) == (("city", "home"), ("Porto", "波尔图"))
    source = rows.loaded(db, said)
    assert source is not None
    assert kept.evidence == (Evidence(source, 0, len("对，五月开始 🏠".encode())),)
    assert kept.evidence[0].quote == "对，五月开始 🏠"
    assert [other.id for other in kept.context] == [asked]
    assert kept.said_at_ms == NOW_MS - DAY_MS
    assert rows.read(db, find_fact, kept.public_id, now_ms=NOW_MS) == kept


@pytest.mark.parametrize(
    ("first", "after", "quote"),
    [(0, 3, "我"), (3, 9, "在波"), (1, 3, None), (0, 4, None), (0, 0, None), (-1, 3, None), (0, 99, None)],
)
def test_a_quote_is_a_range_of_whole_characters(first: int, after: int, quote: str | None) -> None:
    assert quote_at("我在波尔图", first, after) == quote


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"value": "Porto"}, {"value": "  PORTO "}, True),
        ({"value": "ＰＯＲＴＯ"}, {"value": "Porto"}, True),
        ({"value": "Porto"}, {"value": "Lisbon"}, False),
        ({"value": "Porto", "subject": "Ana"}, {"value": "Porto", "subject": "ana"}, True),
        ({"value": "Porto", "subject": "Ana"}, {"value": "Porto"}, False),
        ({"value": "Porto"}, {"value": "Porto", "kind": "event", "event_time": "2024-01-01"}, False),
        ({"value": "波尔图"}, {"value": "波尔图 "}, True),
    ],
)
def test_the_same_statement_is_recognised_by_what_it_says(
    db: Database, one: dict[str, str], other: dict[str, str], is_same: bool
) -> None:
    thread = rows.thread(db)
    said, again = rows.source(db, thread, "I live there"), rows.source(db, thread, "I do live there")
    first = state(db, "lives there", said, attribute="home_city", **one)
    second = state(db, "has a home there", again, attribute="home_city", **other)
    assert second.is_repeated is is_same
    kept = fact(db, first.fact_id)
    assert kept is not None
    expected = [first.fact_id, second.fact_id] if is_same else [first.fact_id]
    assert rows.read(db, same_statement, kept) == expected


def test_without_a_value_the_folded_text_decides(db: Database) -> None:
    thread = rows.thread(db)
    sources = [rows.source(db, thread, f"said {number}") for number in range(3)]
    stored = [
        state(db, text, source)
        for text, source in zip(["Likes  tea", "likes TEA", "likes green tea"], sources, strict=True)
    ]
    assert [each.is_repeated for each in stored] == [False, True, False]


def test_the_same_statement_from_the_same_source_is_stored_once(db: Database) -> None:
    said = rows.source(db, rows.thread(db), "I live in Porto")
    first = state(db, "lives in Porto", said)
    before = counts(db)
    again = state(db, "lives in Porto", said)
    assert (again.fact_id, again.is_new, again.is_repeated) == (first.fact_id, False, True)
    assert counts(db) == before
    assert state(db, "lives in Porto", said, basis="explicit").is_new


def test_a_fact_known_in_other_words_is_the_same_statement(db: Database) -> None:
    thread = rows.thread(db)
    said, again = rows.source(db, thread, "I hate mornings"), rows.source(db, thread, "我不喜欢早起")
    first = state(db, "hates mornings", said)
    second = state(db, "不喜欢早起", again, same_as=first.fact_id)
    assert second.is_repeated
    assert found(db, "早起") == [second.fact_id]
    stranger = state(db, "is a stranger", again, subject="Ana", same_as=first.fact_id)
    assert not stranger.is_repeated


def test_what_was_corrected_later_than_it_was_said_is_history_at_once(db: Database) -> None:
    thread = rows.thread(db)

    def said(text: str, day: int, **changes: str) -> FactId:
        source = rows.source(db, thread, text, said_at_ms=NOW_MS + day * DAY_MS)
        return state(db, text, source, attribute="home_city", **changes).fact_id

    lisbon = said("I live in Lisbon", 0, value="Lisbon")
    porto = said("No, in Porto", 5, value="Porto", basis="explicit")
    rows.write(db, supersede_facts, [lisbon], porto)
    old, new = said("Lisbon is my home", 3, value="lisbon"), said("I am back in Lisbon", 9, value="Lisbon")
    kept = [fact(db, each) for each in (lisbon, old, new, porto)]
    assert [each and each.status for each in kept] == ["superseded", "superseded", "stored", "current"]
    assert kept[1] is not None
    assert kept[1].superseded_by_id == porto


@pytest.mark.parametrize("place", ["evidence", "context"])
def test_a_fact_is_not_readable_when_one_of_its_sources_has_expired(db: Database, place: str) -> None:
    thread = rows.thread(db)
    said = rows.source(db, thread, "Yes, since May")
    expiring = rows.source(db, thread, "Do you live in Porto?", expires_at_ms=NOW_MS + 1)
    if place == "evidence":
        stored = state(db, "lives in Porto", said, expiring)
    else:
        stored = state(db, "lives in Porto", said, context=(expiring,))
    assert fact(db, stored.fact_id) is not None
    assert fact(db, stored.fact_id, now_ms=NOW_MS + 1) is None
    assert found(db, "Porto") == [stored.fact_id]
    assert found(db, "Porto", now_ms=NOW_MS + 1) == []


def test_a_fact_is_not_readable_when_its_source_says_something_else_now(db: Database) -> None:
    said = rows.source(db, rows.thread(db), "I live in Porto")
    stored = state(db, "lives in Porto", said)
    rows.execute(db, "UPDATE sources SET content_hash = zeroblob(32) WHERE id = ?", said)
    assert fact(db, stored.fact_id) is None
    assert found(db, "Porto") == []


def test_deleting_facts_leaves_nothing_of_them(db: Database) -> None:
    thread = rows.thread(db)
    run = rows.run(db, thread.id)
    said = rows.source(db, thread, "Ana, whom I call 安娜, moved to 波尔图")
    stored = state(
        db, "Ana moved to Porto", said, subject="Ana", attribute="nickname", value="安娜", tags=("friends",)
    )
    public_id = rows.rows(db, "SELECT public_id FROM facts")[0][0]
    rows.write(db, cite_facts, run.id, [public_id, "fact_unknown"])
    assert rows.read(db, cited_facts, run.id) == {stored.fact_id: False}
    assert counts(db)["entity_aliases"] == 1
    assert rows.read(db, facts_resting_on, [said]) == [stored.fact_id]
    removed = rows.write(db, delete_facts, [stored.fact_id])
    assert removed == {
        "run_facts": 1,
        "fact_tags": 1,
        "entity_aliases": 1,
        "fact_entities": 1,
        "fact_context": 0,
        "fact_evidence": 1,
        "facts": 1,
        "entities": 1,
    }
    assert counts(db) == dict.fromkeys(TABLES, 0)
    assert rows.write(db, check_fact_index) == []


def test_an_entity_stays_while_another_fact_is_about_it(db: Database) -> None:
    thread = rows.thread(db)
    one = state(db, "Ana swims", rows.source(db, thread, "Ana swims"), subject="Ana", entities=("Porto",))
    state(db, "Ana sings", rows.source(db, thread, "Ana sings"), subject="Ana")
    rows.write(db, delete_facts, [one.fact_id])
    assert rows.rows(db, "SELECT name FROM entities") == [("Ana",)]


def test_a_replaced_fact_follows_the_next_successor_and_stands_again_without_one(db: Database) -> None:
    thread = rows.thread(db)
    ids = [
        state(db, f"city {n}", rows.source(db, thread, f"city {n}"), basis="explicit").fact_id
        for n in range(4)
    ]
    for old, new in pairwise(ids):
        rows.write(db, supersede_facts, [old], new)
    rows.write(db, delete_facts, [ids[1], ids[2]])
    first = fact(db, ids[0])
    assert first is not None
    assert first.superseded_by_id == ids[3]
    rows.write(db, delete_facts, [ids[3]])
    first = fact(db, ids[0])
    assert first is not None
    assert first.status == "current"


def test_history_is_never_superseded_twice_nor_by_itself(db: Database) -> None:
    thread = rows.thread(db)
    ids = [state(db, f"x{n}", rows.source(db, thread, f"x{n}")).fact_id for n in range(3)]
    assert rows.write(db, supersede_facts, [ids[0], ids[1]], ids[1]) == 1
    assert rows.write(db, supersede_facts, [ids[0]], ids[2]) == 0


def test_relabelling_touches_the_tags_alone(db: Database) -> None:
    said = rows.source(db, rows.thread(db), "I swim")
    stored = state(db, "swims", said, tags=("sport", "water"))
    before = fact(db, stored.fact_id)
    rows.write(db, set_tags, [stored.fact_id], ["sea", "sport", "sea"])
    after = fact(db, stored.fact_id)
    assert before is not None
    assert after is not None
    assert after.tags == ("sea", "sport")
    assert before.__dict__ | {"tags": ()} == after.__dict__ | {"tags": ()}


def test_a_failing_transaction_leaves_no_part_of_a_fact(db: Database) -> None:
    said = rows.source(db, rows.thread(db), "I swim")
    new = new_fact(db, "swims", said, tags=("not a tag",), entities=("Sea",))
    with pytest.raises(apsw.ConstraintError, match="CHECK constraint failed"):
        rows.write(db, store_fact, new, db.clock)
    assert counts(db) == dict.fromkeys(TABLES, 0)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_deleting_any_facts_gives_every_other_the_successor_that_the_chain_says(
    db: Database, data: st.DataObject
) -> None:
    """The oracle walks the chain in Python."""
    thread = rows.thread(db)
    count = data.draw(st.integers(2, 6))
    ids = [
        state(db, f"v{n}", rows.source(db, thread, f"v{n}"), basis="explicit").fact_id for n in range(count)
    ]
    successor: dict[FactId, FactId] = {}
    for position, fact_id in enumerate(ids[:-1]):
        later = data.draw(st.none() | st.sampled_from(ids[position + 1 :]))
        if later is not None:
            rows.write(db, supersede_facts, [fact_id], later)
            successor[fact_id] = later
    gone = data.draw(st.sets(st.sampled_from(ids)))
    rows.write(db, delete_facts, data.draw(st.permutations(sorted(gone))))

    def expected(fact_id: FactId) -> FactId | None:
        current = successor.get(fact_id)
        while current in gone:
            current = successor.get(current)
        return current

    kept = rows.read(db, load_facts, [fact_id for fact_id in ids if fact_id not in gone], now_ms=NOW_MS)
    assert {each: loaded.superseded_by_id for each, loaded in kept.items()} == {
        each: expected(each) for each in ids if each not in gone
    }
    assert rows.write(db, check_fact_index) == []
    rows.write(db, delete_facts, list(kept))
