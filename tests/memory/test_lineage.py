from typing import Any

import pytest

from pikobot.errors import NotFound
from pikobot.memory.assertions import Assertion, Statement, correct, remember
from pikobot.memory.lineage import FactParams, read_fact
from pikobot.memory.tags import TagParams, tag_counts, tag_fact
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.closure import closure_of, remove
from pikobot.store.scopes import owner_scope
from tests.memory.conversing import write
from tests.memory.learning import fact, learn, source
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, say


def forget(db: Database, public_id: str) -> None:
    source_id = source(db, public_id, now_ms=0).id

    def run(tx: Connection) -> None:
        remove(tx, closure_of(tx, [source_id]), now_ms=NOW_MS)

    write(db, run)


def corrected(db: Database) -> tuple[str, str, str, str]:
    """A home that was corrected: the ids of what was said, of the fact, of the correction and of its fact."""
    [said] = say(db, "我住在里斯本", at_ms=NOW_MS - DAY_MS, utc_offset_min=480)
    old = learn(db, "lives in Lisbon", said, attribute="home_city", value="Lisbon", tags=("home",))
    done = db.perform(correct, old, Assertion(text="I live in Porto", value="Porto"))
    assert done is not None
    return said, old, done.fact.evidence[0].source.public_id, done.fact.public_id


def quoted(public_id: str, time: str, quote: str) -> dict[str, object]:
    return {
        "id": public_id,
        "externalId": None,
        "role": "user",
        "speaker": "owner",
        "time": time,
        "quote": quote,
    }


def test_a_fact_is_read_with_quotes_dates_speakers_and_what_it_replaced(db: Database) -> None:
    said, old, correction, new = corrected(db)
    assert fact(db, new).as_json() == {
        "id": new,
        "type": "fact",
        "text": "I live in Porto",
        "subject": "owner",
        "attribute": "home_city",
        "value": "Porto",
        "basis": "explicit",
        "status": "current",
        "kind": "fact",
        "tags": ["home"],
        "entities": [],
        "scope": "private:main:local:terminal:owner",
        "time": "2024-03-01T13:33:20Z",
        "eventTime": None,
        "validUntil": None,
        "storedAt": "2024-03-01T13:33:20Z",
        "evidence": [quoted(correction, "2024-03-01T13:33:20Z", "I live in Porto")],
        "context": [],
        "replaced": [
            {
                "id": old,
                "text": "lives in Lisbon",
                "value": "Lisbon",
                "basis": "inferred",
                "time": "2024-02-29T21:33:20+08:00",
                "source": quoted(said, "2024-02-29T21:33:20+08:00", "我住在里斯本"),
            }
        ],
        "replacedBy": None,
        "conflictsWith": [],
    }


def test_a_replaced_fact_names_what_has_replaced_it(db: Database) -> None:
    said, old, correction, new = corrected(db)
    history = fact(db, old).as_json()
    assert history["status"] == "superseded"
    assert history["replacedBy"] == {
        "id": new,
        "text": "I live in Porto",
        "value": "Porto",
        "basis": "explicit",
        "time": "2024-03-01T13:33:20Z",
        "source": quoted(correction, "2024-03-01T13:33:20Z", "I live in Porto"),
    }
    assert set(fact(db, old).source_ids) == {said, correction}


def test_a_forgotten_correction_lets_the_old_fact_stand_again(db: Database) -> None:
    [said] = say(db, "I live in Lisbon")
    old = learn(db, "lives in Lisbon", said, attribute="home_city", value="Lisbon")
    done = db.perform(correct, old, Assertion(text="I live in Porto", value="Porto"))
    assert done is not None
    forget(db, done.fact.evidence[0].source.public_id)
    read = fact(db, old)
    assert (read.fact.status, read.replaced_by) == ("stored", None)
    with pytest.raises(NotFound, match="it was never there or is forgotten"):
        fact(db, done.fact.public_id)


def test_of_two_statements_one_can_be_forgotten(db: Database) -> None:
    first, second = say(db, "I live in Porto", "我住在Porto")
    home = {"attribute": "home_city", "value": "Porto"}
    one, other = (learn(db, f"Porto {n}", said, **home) for n, said in enumerate((first, second)))
    assert [each.id for each in fact(db, other).evidence] == [second, first]
    forget(db, first)
    assert [each.id for each in fact(db, other).evidence] == [second]
    with pytest.raises(NotFound):
        fact(db, one)


def test_contradictions_are_labelled_on_both_sides_and_explicit_ones_come_first(db: Database) -> None:
    said = say(db, "Lisbon", "Faro", "Faro again", "Porto")
    home: dict[str, Any] = {"attribute": "home_city"}
    lisbon, faro, _, over = (
        learn(db, f"in {text}", each, value=text.split()[0], **home, **changes)
        for text, each, changes in zip(
            ("Lisbon", "Faro", "Faro 2", "Porto"),
            said,
            ({}, {}, {}, {"valid_until": "2024-02-01"}),
            strict=True,
        )
    )
    done = db.perform(remember, Assertion(text="Braga", value="Braga", **home), Statement(owner_scope()))
    assert done is not None
    braga = done.fact.public_id
    assert [each.public_id for each in fact(db, lisbon).conflicts] == [braga, faro]
    assert [each.public_id for each in fact(db, braga).conflicts] == [lisbon, faro]
    assert fact(db, over).conflicts == ()


@pytest.mark.parametrize("kind", ["event", "plan"])
def test_what_happens_more_than_once_is_no_contradiction(db: Database, kind: str) -> None:
    said = say(db, "I was in Porto", "I was in Faro")
    facts = [
        learn(db, f"was in {city}", each, attribute="visited", value=city, kind=kind)
        for city, each in zip(("Porto", "Faro"), said, strict=True)
    ]
    assert fact(db, facts[0]).conflicts == ()


def test_another_scope_or_an_expired_source_is_no_fact(db: Database) -> None:
    [said] = say(db, "I swim", expires_at_ms=NOW_MS + 1)
    public_id = learn(db, "swims", said)
    for scopes, now_ms in (([], NOW_MS), (None, NOW_MS + 1)):
        with db.read() as conn, pytest.raises(NotFound):
            read_fact(conn, FactParams(id=public_id), allowed_scopes=scopes, now_ms=now_ms)


def test_relabelling_reaches_all_that_say_the_same_and_changes_nothing_else(db: Database) -> None:
    said = say(db, "I live in Porto", "我住在Porto")
    home = {"attribute": "home_city", "value": "Porto"}
    one, other = (learn(db, f"Porto {n}", each, tags=(f"t{n}",), **home) for n, each in enumerate(said))
    before = fact(db, other)
    assert isinstance(db.clock, StillClock)
    db.clock.now += DAY_MS
    assert db.perform(tag_fact, TagParams(id=one, tags=["home", "city", "home"])) == {
        "id": one,
        "tags": ["city", "home"],
    }
    after = fact(db, other)
    assert after.fact.tags == ("city", "home")
    assert after.evidence == before.evidence
    assert (after.fact.created_at_ms, after.fact.basis) == (before.fact.created_at_ms, before.fact.basis)
    with pytest.raises(NotFound, match="there is no fact fact_x"):
        db.perform(tag_fact, TagParams(id="fact_x", tags=[]))
    db.perform(tag_fact, TagParams(id=one, tags=[]))
    assert fact(db, one).as_json()["tags"] == []


def test_tag_counts_are_bounded_and_say_so(db: Database) -> None:
    for number, each in enumerate(say(db, *"abc")):
        learn(db, f"fact {number}", each, tags=("all", f"t{number}"))
    with db.read() as conn:
        assert tag_counts(conn, scope_ids=None, now_ms=NOW_MS, limit=2) == {
            "tags": [{"tag": "all", "count": 3}, {"tag": "t0", "count": 1}],
            "truncated": True,
        }
        assert tag_counts(conn, scope_ids=[], now_ms=NOW_MS, limit=2) == {"tags": [], "truncated": False}
