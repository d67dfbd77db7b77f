import pytest

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.params import validated
from pikobot.memory.records import SourceText
from pikobot.memory.search import ReadParams, read_source
from pikobot.store.connection import Database
from pikobot.store.scopes import owner_scope
from tests.memory.remembering import NOW_MS, erase, say


def read(db: Database, **params: object) -> SourceText:
    with db.read() as conn:
        return read_source(conn, validated(ReadParams, params), allowed_scopes=None, now_ms=NOW_MS)


def test_a_source_is_read_with_everything_known_about_it(db: Database) -> None:
    [public_id] = say(db, "明天去体检", external_id="n:1", thread="notes", role="participant", speaker="Ana")
    source = read(db, id=public_id).as_json()
    assert isinstance(source["thread"], dict)
    assert str(source["thread"].pop("id")).startswith("thr_")
    assert source == {
        "id": public_id,
        "externalId": "n:1",
        "type": "source",
        "kind": "message",
        "role": "participant",
        "speaker": "Ana",
        "thread": {"key": "notes"},
        "runId": None,
        "scope": "private:main:local:terminal:owner",
        "time": "2024-03-01T13:33:20Z",
        "origin": "said",
        "isPartial": False,
        "expiresAt": None,
        "text": "明天去体检",
        "from": 0,
        "to": 5,
        "totalChars": 5,
    }


def test_a_range_of_characters_is_read_and_at_most_twenty_thousand(db: Database) -> None:
    text = "开" + "x" * 30_000
    [public_id] = say(db, text)
    assert read(db, id=public_id, **{"from": 0, "to": 2}).text == "开x"
    whole = read(db, id=public_id, **{"from": 1})
    assert (whole.text, whole.first_char, whole.total_chars) == ("x" * 20_000, 1, 30_001)
    assert read(db, id=public_id, **{"from": 30_001}).text == ""
    with pytest.raises(InvalidParams, match="from: the source has 30001 characters"):
        read(db, id=public_id, **{"from": 30_002})


def test_an_outside_id_and_its_thread_find_the_source(db: Database) -> None:
    [public_id] = say(db, "a", external_id="m1", thread="t1")
    say(db, "b", external_id="m1", thread="t2")
    found = read(db, externalId="m1", thread="t1")
    assert found.id == public_id
    assert read(db, externalId="m1", thread=found.thread_id) == found
    with pytest.raises(NotFound, match="no source has that externalId"):
        read(db, externalId="m2", thread="t1")


def test_an_outside_id_in_two_scopes_needs_the_scope(db: Database) -> None:
    say(db, "a", external_id="m1")
    [other] = say(db, "b", external_id="m1", scope=owner_scope("work"))
    with pytest.raises(InvalidParams, match="add scope"):
        read(db, externalId="m1", thread="t1")
    assert read(db, externalId="m1", thread="t1", scope=str(owner_scope("work"))).id == other
    with pytest.raises(NotFound):
        read(db, externalId="m1", thread="t1", scope=str(owner_scope("home")))


def test_missing_expired_foreign_and_erased_sources_are_not_found(db: Database) -> None:
    [expired], [erased], [foreign] = say(db, "a", expires_at_ms=NOW_MS), say(db, "b"), say(db, "c")
    erase(db, erased)
    for public_id in ("src_none", expired):
        with pytest.raises(NotFound, match=f"there is no source {public_id}"):
            read(db, id=public_id)
    with pytest.raises(NotFound, match=f"source {erased} was erased"):
        read(db, id=erased)
    with pytest.raises(NotFound, match="there is no source"), db.read() as conn:
        read_source(conn, validated(ReadParams, {"id": foreign}), allowed_scopes=[], now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "id: give either id"),
        ({"id": "a", "thread": "t"}, "id: give either id"),
        ({"externalId": "a"}, "id: give either id"),
        ({"id": "a", "from": -1}, "from: Input should be greater than or equal to 0"),
        ({"id": "a", "from": 3, "to": 2}, "to: is before from"),
        ({"id": "a", "to": 2.0}, "to: Input should be a valid integer"),
        ({"id": ""}, "id: String should have at least 1 character"),
    ],
)
def test_wrong_parameters_are_refused_by_name(params: object, message: str) -> None:
    with pytest.raises(InvalidParams, match=f"^{message}"):
        validated(ReadParams, params)
