from pathlib import Path
from typing import Any

import pytest

from pikobot.agent import runs
from pikobot.agent.runs import Request
from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.history import MAX_EXCERPT_CHARS, HistoryParams, HistoryReader, query_history
from pikobot.store.connection import Database
from pikobot.store.runs import RunId
from pikobot.store.scopes import Scope, ScopeId, find_scope, owner_scope
from tests.memory.remembering import DAY_MS, MINUTE_MS, NOW_MS, erase, opened, say

OTHER = Scope("private", "main", "bot", "chat", "ana")


def ask(
    db: Database,
    *,
    run_id: RunId | None = None,
    now_ms: int = NOW_MS,
    scope: Scope | None = None,
    **params: Any,
) -> dict[str, Any]:
    with db.read() as conn:
        scope_id = find_scope(conn, scope or owner_scope())
        reader = HistoryReader(scope_id or ScopeId(0), run_id, now_ms)
        return query_history(conn, HistoryParams.model_validate(params), reader).as_json


def excerpts(page: dict[str, Any]) -> list[str]:
    return [result["excerpt"] for result in page["results"]]


def thread_id(db: Database, key: str) -> str:
    with db.read() as conn:
        return str(conn.execute("SELECT public_id FROM threads WHERE key = ?", (key,)).fetchall()[0][0])


def test_a_result_says_who_said_what_when_and_where(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [source_id] = say(db, "修改youer服务端", utc_offset_min=480, external_id="m-1")
        say(db, "something else")
        expected = {
            "sourceId": source_id,
            "threadId": thread_id(db, "t1"),
            "role": "user",
            "speaker": "owner",
            "date": "2024-03-01T21:33:20+08:00",
            "excerpt": "修改youer服务端",
            "messageId": "m-1",
        }
        for query in ("youer", "YOUER", "服务", "端", "改"):
            assert ask(db, query=query) == {"results": [expected], "nextCursor": None}


def test_the_literal_is_found_as_it_is_written_whatever_its_case(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "100% of it", "10 of it", "Straße 5", "a_b", "axb")
        assert excerpts(ask(db, query="0% OF")) == ["100% of it"]
        assert excerpts(ask(db, query="STRASSE")) == ["Straße 5"]
        assert excerpts(ask(db, query="a_b")) == ["a_b"]
        assert excerpts(ask(db, query="absent")) == []


def test_without_a_query_the_newest_messages_come_first(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "one", "two", "three")
        assert excerpts(ask(db, now_ms=NOW_MS + DAY_MS)) == ["three", "two", "one"]


def test_pages_go_through_equal_times_without_loss_or_repetition(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        for number in range(25):
            say(db, f"message {number}", at_ms=NOW_MS + (number // 10) * MINUTE_MS)
        found: list[str] = []
        page = ask(db, query="MESSAGE", limit=4)
        while page["nextCursor"] is not None:
            found += excerpts(page)
            page = ask(db, query="MESSAGE", limit=4, cursor=page["nextCursor"])
        found += excerpts(page)
        assert found == [f"message {number}" for number in reversed(range(25))]


def test_the_default_page_has_ten_messages(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, *(f"message {number}" for number in range(30)))
        assert (len(ask(db)["results"]), len(ask(db, limit=20)["results"])) == (10, 20)


def test_a_cursor_for_other_filters_or_at_an_erased_message_asks_for_a_fresh_search(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "apple one", "apple two", "apple three")
        page = ask(db, query="apple", limit=1)
        for query, before in (("pear", None), ("apple", "2030-01-01")):
            with pytest.raises(InvalidParams, match="search again without it"):
                ask(db, cursor=page["nextCursor"], query=query, before=before)
        erase(db, page["results"][0]["sourceId"])
        with pytest.raises(InvalidParams, match="search again without it"):
            ask(db, query="apple", limit=1, cursor=page["nextCursor"])


def test_a_long_message_is_cut_around_the_match(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "a" * 5_000 + "针" + "b" * 5_000)
        [excerpt] = excerpts(ask(db, query="针"))
        assert len(excerpt) == MAX_EXCERPT_CHARS
        assert "a针b" in excerpt


def test_a_moment_bounds_what_was_said_before_it(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "early", at_ms=NOW_MS - DAY_MS)
        say(db, "late")
        assert excerpts(ask(db, before="2024-03-01T13:33:20Z")) == ["early"]
        with pytest.raises(InvalidParams, match="before: expected ISO 8601"):
            ask(db, before="yesterday")


def test_one_thread_can_be_asked_but_no_one_elses(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "here", thread="t1")
        say(db, "there", thread="t2")
        say(db, "private", thread="t3", scope=OTHER)
        assert excerpts(ask(db, threadId=thread_id(db, "t2"))) == ["there"]
        assert sorted(excerpts(ask(db))) == ["here", "there"]
        assert excerpts(ask(db, scope=OTHER)) == ["private"]
        for foreign in (thread_id(db, "t3"), "thr_none"):
            with pytest.raises(NotFound, match="no conversation"):
                ask(db, threadId=foreign)


def test_expired_messages_are_not_found(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "gone", expires_at_ms=NOW_MS)
        say(db, "kept", expires_at_ms=NOW_MS + 1)
        assert excerpts(ask(db)) == ["kept"]


def test_the_request_of_the_run_itself_is_left_out_and_imports_are_not(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "imported")
        accepted = [
            db.perform(runs.accept, Request(text=text, scope=owner_scope(), thread_key="t1"))
            for text in ("earlier", "this request")
        ]
        assert excerpts(ask(db, run_id=accepted[1].run.id)) == ["earlier", "imported"]
        assert excerpts(ask(db)) == ["this request", "earlier", "imported"]
