import pytest

from pikobot.errors import InvalidParams
from pikobot.memory.params import validated
from pikobot.memory.records import Page
from pikobot.memory.search import ListParams, list_memory
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope
from tests.memory.conversing import exchange, write
from tests.memory.remembering import DAY_MS, NOW_MS, erase, say

GROUP = Scope("shared", "main", "bot", "-5", "0")


def listed(db: Database, **params: object) -> Page:
    with db.read() as conn:
        return list_memory(conn, validated(ListParams, params), allowed_scopes=None, now_ms=NOW_MS)


def texts(page: Page) -> list[str]:
    return [record.text for record in page.records]


def test_the_newest_of_all_scopes_comes_first_and_equals_in_reverse_order_of_storing(db: Database) -> None:
    say(db, "一", "三")
    say(db, "two", scope=GROUP, at_ms=NOW_MS)
    say(db, "old", at_ms=NOW_MS - DAY_MS, expires_at_ms=NOW_MS)
    page = listed(db)
    assert texts(page) == ["三", "two", "一"]
    assert page.cursor is None
    assert "score" not in page.records[0].as_json()


def test_pages_hold_while_memory_grows_and_shrinks(db: Database) -> None:
    say(db, *map(str, range(6)))
    say(db, *map(str, range(6, 9)), scope=GROUP)
    everything = texts(listed(db))
    first = listed(db, limit=4)
    say(db, "newer", at_ms=NOW_MS + DAY_MS)
    erase(db, first.records[-1].id)
    rest = listed(db, limit=50, cursor=first.cursor)
    assert texts(first) + texts(rest) == everything


def test_filters_choose_scope_and_days(db: Database) -> None:
    say(db, "a", at_ms=NOW_MS - 2 * DAY_MS)
    say(db, "b", scope=GROUP)
    say(db, "c", at_ms=NOW_MS + 2 * DAY_MS)
    assert texts(listed(db, scope=str(GROUP))) == ["b"]
    assert texts(listed(db, scope="shared:main:bot:-9:0")) == []
    assert texts(listed(db, **{"from": "2024-03-01", "to": "2024-03-01"})) == ["b"]
    assert texts(listed(db, types=["fact"])) == []
    assert texts(listed(db, types=["source", "fact"])) == ["c", "b", "a"]


def test_answers_of_recall_mode_are_no_memory_and_answers_of_a_model_are(db: Database) -> None:
    exchange(db, "Where did I move?", "You moved to Porto.")
    answered = exchange(db, "我搬到哪里了？", "找到这些原话：我搬到波尔图了")
    write(db, lambda tx: tx.execute("UPDATE sources SET origin = 'recall' WHERE id = ?", (answered.answer,)))
    assert texts(listed(db)) == ["我搬到哪里了？", "You moved to Porto.", "Where did I move?"]


def test_a_long_text_is_shown_from_its_beginning(db: Database) -> None:
    say(db, "开始" + "x" * 5_000)
    [record] = listed(db).records
    assert record.text == "开始" + "x" * 1_998
    assert record.is_truncated


def test_a_cursor_of_other_filters_is_refused(db: Database) -> None:
    say(db, *"abc")
    cursor = listed(db, limit=1).cursor
    with pytest.raises(InvalidParams, match=r"^cursor: "):
        listed(db, limit=1, cursor=cursor, scope=str(GROUP))
