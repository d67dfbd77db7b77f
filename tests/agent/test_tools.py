import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pikobot.agent import runs
from pikobot.agent.runs import Claimed
from pikobot.agent.tool import RunFenced, ToolScope
from pikobot.agent.tools import MAX_RESULT_CHARS, TOOLS, call_tool, cite, tools_for
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.runs import cited_sources
from pikobot.store.scopes import Scope, find_scope, owner_scope
from pikobot.store.sources import load_sources
from tests.agent.playing import call
from tests.agent.running import accept, claim
from tests.memory.remembering import erase, opened, say


def scope_of(db: Database, claimed: Claimed | None = None) -> ToolScope:
    if claimed is not None:
        return ToolScope(db, claimed.thread.scope_id, claimed.lease, claimed.run.id, claimed.request.id)
    with db.read() as conn:
        return ToolScope(db, find_scope(conn, owner_scope()), None, None, None)


def use(scope: ToolScope, name: str, arguments: str | dict[str, Any] = "{}") -> tuple[dict[str, Any], bool]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    message, is_error = asyncio.run(call_tool(call(name, text, "c1"), scope))
    assert (message.role, message.tool_call_id) == ("tool", "c1")
    return json.loads(message.content), is_error


def cited(db: Database, claimed: Claimed) -> list[str]:
    with db.read() as conn:
        sources = load_sources(conn, cited_sources(conn, claimed.run.id), now_ms=0)
        return [source.public_id for source in sources.values()]


def test_what_a_search_returns_is_cited_and_the_request_itself_is_not_found(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [moved] = say(db, "I moved to Porto", thread="t0")
        accept(db, "Where is Porto?")
        claimed = claim(db)
        request = cited(db, claimed)
        found, is_error = use(scope_of(db, claimed), "memory_search", {"query": "Porto"})
        assert ([result["id"] for result in found["results"]], is_error) == ([moved], False)
        assert set(cited(db, claimed)) == {moved, *request}


def test_a_search_without_a_result_is_data_without_a_sentence_that_a_model_could_repeat(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as db:
        accept(db, "我搬到哪里了？")
        found, is_error = use(scope_of(db, claim(db)), "memory_search", {"query": "波尔图"})
        assert (found, is_error) == ({"results": [], "cursor": None, "wordsOnly": False}, False)


def test_each_tool_reads_the_scope_of_the_execution_whatever_the_arguments_say(tmp_path: Path) -> None:
    other = Scope("private", "main", "bot", "chat", "ana")
    with opened(tmp_path) as db:
        [secret] = say(db, "Ana keeps the key in Porto", scope=other, thread="t9")
        accept(db, "Where is the key?")
        scope = scope_of(db, claim(db))
        assert use(scope, "memory_search", {"query": "Porto"})[0]["results"] == []
        assert use(scope, "memory_search", {"query": "Porto", "scope": str(other)})[0]["results"] == []
        assert use(scope, "query_chat_history", {"query": "Porto"})[0]["results"] == []
        for name, arguments in (
            ("source_read", {"id": secret}),
            ("query_chat_history", {"threadId": "thr_1"}),
        ):
            found, is_error = use(scope, name, arguments)
            assert (is_error, list(found), "Ana" in str(found)) == (True, ["error"], False)


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        (
            "memory_search",
            "{query: Porto",
            "the argument object of memory_search is not valid JSON at column 2",
        ),
        ("memory_search", "[1]", "fix the arguments of memory_search: arguments: "),
        ("memory_search", "{}", "fix the arguments of memory_search: query: Field required"),
        ("memory_search", '{"query":"a","limit":"ten"}', "limit: "),
        ("memory_search", '{"query":"a","quarry":1}', "quarry: Extra inputs are not permitted"),
        ("memory_search", '{"query":"a","query":"b"}', "twice"),
        ("memory_search", '{"query":"\\ud800"}', "surrogate"),
        ("query_chat_history", '{"limit":21}', "limit: Input should be less than or equal to 20"),
        ("query_chat_history", '{"before":"soon"}', "before: expected ISO 8601"),
        ("source_read", '{"id":"src_none"}', "there is no source src_none"),
        ("rm", "{}", "there is no tool 'rm'; the tools are memory_search, memory_read, source_read, "),
    ],
)
def test_a_bad_call_is_answered_with_what_to_mend(
    tmp_path: Path, name: str, arguments: str, error: str
) -> None:
    with opened(tmp_path) as db:
        accept(db, "hello")
        found, is_error = use(scope_of(db, claim(db)), name, arguments)
        assert (list(found), is_error) == (["error"], True)
        assert error in found["error"]


@pytest.mark.parametrize(
    ("name", "arguments", "remedy"),
    [
        ("source_read", {"id": "src_none"}, "look for it with memory_search"),
        ("memory_search", {"query": " "}, "say what to look for"),
        ("memory_read", {"id": "fact_none"}, "look with memory_search, and read sources with source_read"),
    ],
)
def test_what_is_not_there_is_looked_for_with_a_tool_that_the_model_has(
    tmp_path: Path, name: str, arguments: dict[str, Any], remedy: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "I moved to Porto")
        found, is_error = use(scope_of(db), name, arguments)
        assert is_error
        assert found["error"].endswith(remedy)


def test_no_arguments_at_all_mean_none(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "said")
        accept(db, "hello")
        found, is_error = use(scope_of(db, claim(db)), "query_chat_history", "")
        assert ([result["excerpt"] for result in found["results"]], is_error) == (["said"], False)


def test_a_result_that_is_too_long_says_so_instead_of_being_cut(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, *("\\" * 2_000 + f" Porto {number}" for number in range(50)))
        accept(db, "hello")
        found, _ = use(scope_of(db, claim(db)), "memory_search", {"query": "Porto", "limit": 50})
        assert f"the limit is {MAX_RESULT_CHARS}" in found["error"]


def test_a_lost_run_reads_nothing_more(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "I moved to Porto")
        accept(db, "Where?")
        claimed = claim(db)
        db.perform(runs.finish, claimed, State.CANCELLED, None)
        with pytest.raises(RunFenced):
            use(scope_of(db, claimed), "memory_search", {"query": "Porto"})


def test_what_was_forgotten_between_reading_and_citing_is_not_cited(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        kept, gone = say(db, "one", "two", thread="t0")
        accept(db, "hello")
        claimed = claim(db)
        before = cited(db, claimed)
        erase(db, gone)
        assert db.perform(cite, claimed.lease, claimed.run.id, (kept, gone)) is False
        assert cited(db, claimed) == before
        assert db.perform(cite, claimed.lease, claimed.run.id, (kept,)) is True


def test_an_ephemeral_request_searches_without_citing_and_has_no_history(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [moved] = say(db, "I moved to Porto")
        scope = scope_of(db)
        assert [tool.name for tool in tools_for(scope)] == ["memory_search", "memory_read", "source_read"]
        found, _ = use(scope, "memory_search", {"query": "Porto"})
        assert [result["id"] for result in found["results"]] == [moved]
        assert use(scope, "query_chat_history")[1] is True


def test_before_anything_was_said_nothing_is_found(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        assert use(scope_of(db), "memory_search", {"query": "Porto"})[0]["results"] == []


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: str(tool.name))
def test_a_schema_is_plain_enough_for_any_server(tool: Any) -> None:
    schema = tool.schema().parameters
    assert (schema["type"], schema["additionalProperties"]) == ("object", False)
    assert not {"anyOf", "title", "$ref", "$defs"} & set(json.dumps(schema).replace('"', " ").split())
    assert all("type" in each or "enum" in each for each in schema["properties"].values())
