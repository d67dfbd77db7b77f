from typing import Any

import pytest

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.assertions import Asserted, Assertion, CurrentMessage, Statement, correct, remember
from pikobot.store import leases
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.scopes import Scope, owner_scope
from tests.memory.conversing import exchange, write
from tests.memory.learning import fact, learn, source
from tests.memory.remembering import NOW_MS, say

GROUP = Scope("shared", "main", "bot", "-5", "0")
OWN = Statement(owner_scope())


def stated(db: Database, text: str, said: CurrentMessage | Statement = OWN, **fields: Any) -> Asserted:
    asserted = db.perform(remember, Assertion(text=text, **fields), said)
    assert asserted is not None
    return asserted


def corrected(
    db: Database, public_id: str, text: str, said: CurrentMessage | None = None, **fields: Any
) -> Asserted:
    asserted = db.perform(correct, public_id, Assertion(text=text, **fields), said)
    assert asserted is not None
    return asserted


def test_a_statement_is_its_own_source(db: Database) -> None:
    kept = stated(
        db, "我对花生过敏 🥜", kind="fact", tags=("health",), attribute="allergy", value="花生"
    ).fact
    assert (kept.basis, kept.status, kept.subject, kept.tags) == ("explicit", "current", "owner", ("health",))
    [evidence] = kept.evidence
    assert evidence.quote == "我对花生过敏 🥜"
    assert (evidence.source.role, evidence.source.origin, evidence.source.speaker) == (
        "user",
        "said",
        "owner",
    )
    assert (evidence.source.said_at_ms, evidence.source.expires_at_ms) == (NOW_MS, None)
    with db.read() as conn:
        assert conn.execute("SELECT key FROM threads").fetchall() == [("operator",)]


def test_a_request_is_quoted_byte_for_byte(db: Database) -> None:
    asked = exchange(db, "你好，please remember: I’m vegetarian", is_leased=True)
    message = CurrentMessage(asked.lease, asked.request)
    kept = stated(db, "I’m vegetarian", message, kind="preference").fact
    assert (kept.text, kept.evidence[0].quote) == ("I’m vegetarian", "I’m vegetarian")
    assert kept.evidence[0].source.id == asked.request
    again = stated(db, "I’m vegetarian", message, kind="preference")
    assert (again.fact.id, again.is_repeated) == (kept.id, True)


@pytest.mark.parametrize(
    "text",
    ["I'm vegetarian", "i’m vegetarian", "I’m  vegetarian", "I’m vegan", "is vegetarian", "主人吃素"],
)
def test_words_that_are_not_in_the_message_are_refused(db: Database, text: str) -> None:
    asked = exchange(db, "remember: I’m vegetarian. 请记住我吃素", is_leased=True)
    old = learn(db, "eats meat", *say(db, "I eat meat"))
    message = CurrentMessage(asked.lease, asked.request)
    with pytest.raises(InvalidParams, match=r"^quote: it is not in the owner's current message"):
        stated(db, text, message)
    with pytest.raises(InvalidParams, match=r"^quote: it is not in the owner's current message"):
        corrected(db, old, text, message)
    assert fact(db, old).fact.status == "stored"


@pytest.mark.parametrize(
    ("text", "fields", "key"),
    [
        ("I’m vegetarian", {"attribute": "home_city", "value": "Moscow"}, "value"),
        ("I’m vegetarian", {"subject": "Ana"}, "subject"),
        ("I’m vegetarian", {"entities": ("vegetarian", "Ana")}, "entities"),
        ("我住在波尔图", {"attribute": "home_city", "value": "里斯本"}, "value"),
        ("我住在波尔图", {"subject": "安娜"}, "subject"),
    ],
)
def test_names_and_values_have_to_be_in_the_quoted_words(
    db: Database, text: str, fields: dict[str, Any], key: str
) -> None:
    said = "Ana 安娜 lives in Moscow. I’m vegetarian. 我住在波尔图，不在里斯本"
    asked = exchange(db, said, is_leased=True)
    old = learn(db, "eats meat", *say(db, "I eat meat"))
    message = CurrentMessage(asked.lease, asked.request)
    with pytest.raises(InvalidParams, match=f"^{key}: it is not in the quote"):
        stated(db, text, message, **fields)
    with pytest.raises(InvalidParams, match=f"^{key}: it is not in the quote"):
        corrected(db, old, text, message, **fields)
    assert fact(db, old).fact.status == "stored"
    assert stated(db, said, message, **fields).fact.text == said


def test_names_and_values_are_compared_without_case_and_width(db: Database) -> None:
    asked = exchange(db, "remember: ana lives in Ｐorto", is_leased=True)
    message = CurrentMessage(asked.lease, asked.request)
    fields = {"subject": "Ana", "attribute": "home_city", "value": "Porto"}
    assert stated(db, "ana lives in Ｐorto", message, **fields).fact.value == "Porto"
    named = stated(db, "remember: ana", message, subject="assistant").fact
    assert named.subject == "assistant"


def test_an_answer_is_no_request(db: Database) -> None:
    asked = exchange(db, "what am I?", "a vegetarian")
    assert asked.answer is not None
    with pytest.raises(NotFound, match="the message that asked for it is gone"):
        stated(db, "vegetarian", CurrentMessage(None, asked.answer))


def test_a_lost_run_stores_nothing(db: Database) -> None:
    asked = exchange(db, "remember: I swim", is_leased=True)
    assert asked.lease is not None
    old = learn(db, "likes water", *say(db, "I like water"))
    write(db, leases.finish, asked.lease, State.CANCELLED, now_ms=NOW_MS)
    message = CurrentMessage(asked.lease, asked.request)
    assert db.perform(remember, Assertion(text="I swim"), message) is None
    assert db.perform(correct, old, Assertion(text="I swim"), message) is None
    with db.read() as conn:
        assert conn.execute("SELECT count(*) FROM facts").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "  "}, "text: is empty"),
        ({"text": "x" * 4_001}, "text has 4001 characters"),
        ({"text": "a\0b"}, "text has a NUL character"),
        ({"subject": " "}, "subject: is empty"),
        ({"attribute": "Home City"}, "attribute: expected a snake_case key"),
        ({"tags": ("A",)}, "tags: at most 8"),
        ({"tags": tuple(f"t{n}" for n in range(9))}, "tags: at most 8"),
        ({"entities": tuple(f"t{n}" for n in range(33))}, "entities: at most 32"),
        ({"event_time": "soon"}, "eventTime: expected ISO 8601"),
        ({"valid_until": "2024-13-01"}, "validUntil: expected ISO 8601"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(db: Database, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        stated(db, **({"text": "swims"} | fields))
    assert str(refused.value).startswith(message)
    with db.read() as conn:
        assert conn.execute("SELECT count(*) FROM sources").fetchall() == [(0,)]


def test_a_group_has_no_owner_but_others(db: Database) -> None:
    with pytest.raises(InvalidParams, match=r"^subject: what is said in a group"):
        stated(db, "swims", Statement(GROUP))
    assert stated(db, "Ana swims", Statement(GROUP), subject="Ana").fact.entities == ("Ana",)


def test_an_assertion_stands_beside_what_it_contradicts(db: Database) -> None:
    inferred = learn(
        db, "lives in Lisbon", *say(db, "I live in Lisbon"), attribute="home_city", value="Lisbon"
    )
    explicit = stated(db, "lives in Porto", attribute="home_city", value="Porto").fact.public_id
    assert [each.public_id for each in fact(db, inferred).conflicts] == [explicit]
    assert [each.public_id for each in fact(db, explicit).conflicts] == [inferred]
    assert fact(db, inferred).fact.status == "stored"


def test_a_correction_replaces_every_fact_that_says_the_same_and_keeps_the_lineage(db: Database) -> None:
    home = {"attribute": "home_city", "value": "Lisbon"}
    first = learn(db, "lives in Lisbon", *say(db, "I live in Lisbon"), tags=("home",), **home)
    second = learn(db, "住在里斯本", *say(db, "我住在里斯本"), **home)
    asked = exchange(db, "No, I moved to Porto", is_leased=True)
    message = CurrentMessage(asked.lease, asked.request)
    done = corrected(db, first, "I moved to Porto", message, value="Porto")
    assert done.replaced == (first, second)
    assert (done.fact.attribute, done.fact.value, done.fact.tags, done.fact.status) == (
        "home_city",
        "Porto",
        ("home",),
        "current",
    )
    read = fact(db, done.fact.public_id)
    assert [(each.text, each.status) for each in read.replaced] == [("住在里斯本", "superseded")]
    assert read.conflicts == ()
    replaced_by = fact(db, first).replaced_by
    assert replaced_by is not None
    assert replaced_by.public_id == done.fact.public_id
    with pytest.raises(InvalidParams, match="is history already; correct the fact that replaced it"):
        corrected(db, first, "lives in Braga")


def test_a_correction_back_and_forth_never_makes_a_circle(db: Database) -> None:
    asked = exchange(db, "Porto, no Lisbon, no Porto", is_leased=True)
    message = CurrentMessage(asked.lease, asked.request)
    porto = stated(db, "Porto", message, attribute="home_city", value="Porto").fact
    lisbon = corrected(db, porto.public_id, "Lisbon", message, value="Lisbon").fact
    again = corrected(db, lisbon.public_id, "Porto", message, value="Porto").fact
    assert again.id != porto.id
    read = fact(db, again.public_id)
    assert (read.fact.status, read.conflicts) == ("current", ())
    assert [each.public_id for each in read.replaced] == [lisbon.public_id, porto.public_id]


def test_a_fact_of_another_scope_is_not_corrected_from_a_chat(db: Database) -> None:
    other = stated(db, "Ana swims", Statement(GROUP), subject="Ana").fact.public_id
    asked = exchange(db, "Ana sings", is_leased=True)
    with pytest.raises(NotFound, match="there is no fact"):
        corrected(db, other, "Ana sings", CurrentMessage(asked.lease, asked.request))
    assert corrected(db, other, "Ana sings").fact.subject == "Ana"


def test_a_statement_with_the_same_words_again_is_more_evidence(db: Database) -> None:
    first = stated(db, "swims")
    again = stated(db, "Swims ")
    assert (first.is_repeated, again.is_repeated) == (False, True)
    assert [each.quote for each in fact(db, first.fact.public_id).evidence] == ["swims", "Swims "]
    assert source(db, again.fact.evidence[0].source.public_id).text == "Swims "
