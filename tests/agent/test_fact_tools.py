import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.chat import CallFailure, Message
from pikobot.agent import events, runs
from pikobot.agent.fact_tools import MAX_READ_CHARS
from pikobot.agent.runs import Claimed
from pikobot.agent.tool import RunFenced, ToolScope
from pikobot.agent.tools import call_tool, tools_for
from pikobot.store.connection import Database
from pikobot.store.facts import cited_facts
from pikobot.store.leases import State
from pikobot.store.scopes import Scope
from tests.agent.playing import PlayedModel, call, fails, says
from tests.agent.running import accept, claim, end_of, rows, running
from tests.memory.conversing import read
from tests.memory.learning import fact, learn
from tests.memory.remembering import MINUTE_MS, NOW_MS, StillClock, opened, say

EN = {"quote": "remember that I’m vegetarian", "kind": "preference"}
ZH = {"quote": "请记住我住在波尔图", "attribute": "home_city", "value": "波尔图"}
EN_REQUEST, ZH_REQUEST = "Please remember that I’m vegetarian 🥕, ok?", "你好！请记住我住在波尔图。"


def scope_of(db: Database, claimed: Claimed) -> ToolScope:
    return ToolScope(
        db, claimed.thread.scope_id, claimed.lease, claimed.run.id, claimed.request.id, may_assert=True
    )


def asked(db: Database, text: str, thread: str = "t1") -> tuple[Claimed, ToolScope]:
    accept(db, text, thread)
    claimed = claim(db)
    return claimed, scope_of(db, claimed)


def use(scope: ToolScope, name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    message, is_error = asyncio.run(call_tool(call(name, json.dumps(arguments)), scope))
    return json.loads(message.content), is_error


def error(scope: ToolScope, name: str, arguments: dict[str, Any]) -> str:
    found, is_error = use(scope, name, arguments)
    assert (list(found), is_error) == (["error"], True)
    return str(found["error"])


def facts(db: Database) -> list[tuple[Any, ...]]:
    return rows(db, "SELECT text, basis, superseded_by_id FROM facts ORDER BY id")


def read_facts(db: Database, claimed: Claimed) -> dict[str, bool]:
    with db.read() as conn:
        found = cited_facts(conn, claimed.run.id)
        return {read(db, "SELECT public_id FROM facts WHERE id = ?", key)[0][0]: found[key] for key in found}


@pytest.mark.parametrize(
    ("request_text", "arguments"), [(EN_REQUEST, EN), (ZH_REQUEST, ZH)], ids=["en", "zh"]
)
def test_what_the_owner_asks_to_remember_is_stored_with_the_owners_words(
    tmp_path: Path, request_text: str, arguments: dict[str, Any]
) -> None:
    with opened(tmp_path) as db:
        claimed, scope = asked(db, request_text)
        stored, is_error = use(scope, "memory_assert", arguments)
        kept = fact(db, stored["id"])
        assert not is_error
        assert stored == {
            "id": kept.fact.public_id,
            "status": "current",
            "text": arguments["quote"],
            "replaced": [],
            "wasKnown": False,
        }
        assert (kept.fact.basis, kept.fact.subject) == ("explicit", "owner")
        assert [(each.id, each.role, each.quote) for each in kept.evidence] == [
            (claimed.request.public_id, "user", arguments["quote"])
        ]
        assert read_facts(db, claimed) == {stored["id"]: False}


@pytest.mark.parametrize(
    "quote",
    ["remember that I'm vegetarian", "Remember that I’m vegetarian", "I am vegetarian", "🥕 and more"],
)
@pytest.mark.parametrize("name", ["memory_assert", "memory_correct"])
def test_a_quote_that_is_not_in_the_current_message_stores_nothing(
    tmp_path: Path, name: str, quote: str
) -> None:
    with opened(tmp_path) as db:
        old = learn(db, "eats meat", *say(db, "I eat meat, remember that I'm vegetarian", thread="t0"))
        _, scope = asked(db, EN_REQUEST)
        more = {"id": old} if name == "memory_correct" else {}
        assert "not in the owner's current message" in error(scope, name, {**EN, **more, "quote": quote})
        assert facts(db) == [("eats meat", "inferred", None)]


def test_a_message_said_before_is_not_the_current_one(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, EN_REQUEST)
        db.perform(runs.finish, claim(db), State.SUCCEEDED, None)
        _, scope = asked(db, "And what now?")
        assert "copy it from there exactly" in error(scope, "memory_assert", EN)


def test_only_the_owners_own_message_in_private_has_the_tools_that_store(tmp_path: Path) -> None:
    names = {"memory_assert", "memory_correct"}
    with opened(tmp_path) as db:
        claimed, scope = asked(db, EN_REQUEST)
        ephemeral = ToolScope(db, claimed.thread.scope_id, None, None, None, may_assert=True)
        assert names <= {tool.name for tool in tools_for(scope)}
        for other in (ephemeral, replace(scope, may_assert=False), replace(scope, request_id=None)):
            assert not names & {tool.name for tool in tools_for(other)}
            assert "there is no tool 'memory_assert'" in error(other, "memory_assert", EN)
        assert facts(db) == []


def test_a_group_has_no_tools_that_store(tmp_path: Path) -> None:
    group = Scope("shared", "main", "bot", "-5", "0")

    async def scene(db: Database) -> list[str]:
        model = PlayedModel([says("", call("memory_assert", json.dumps(EN))), says("No.")])
        async with running(db, model) as runner:
            runner._owner = group
            await end_of(await runner.ask(EN_REQUEST, thread_key="g"))
        return [json.loads(message.content)["error"] for message in model.requests[1][-1:]]

    with opened(tmp_path) as db:
        [answer] = asyncio.run(scene(db))
        assert "there is no tool 'memory_assert'" in answer
        assert facts(db) == []


def test_a_correction_replaces_the_fact_and_keeps_it_as_history(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        old = learn(
            db,
            "住在里斯本",
            *say(db, "我住在里斯本", thread="t0"),
            attribute="home_city",
            value="里斯本",
            tags=("home",),
        )
        claimed, scope = asked(db, "不对，我住在波尔图。")
        arguments = {"id": old, "quote": "我住在波尔图", "value": "波尔图"}
        corrected, is_error = use(scope, "memory_correct", arguments)
        assert (is_error, corrected["replaced"], corrected["status"]) == (False, [old], "current")
        kept = fact(db, corrected["id"])
        assert (kept.fact.attribute, kept.fact.tags) == ("home_city", ("home",))
        assert [each.text for each in kept.replaced] == ["住在里斯本"]
        assert read_facts(db, claimed) == {old: True, corrected["id"]: False}
        assert use(scope, "memory_search", {"query": "住在"})[0]["results"][0]["id"] == corrected["id"]
        history = use(scope, "memory_search", {"query": "住在里斯本", "history": True})[0]["results"]
        assert old in [each["id"] for each in history]


def test_a_call_made_again_after_a_crash_stores_nothing_twice(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        old = learn(db, "lives in Lisbon", *say(db, "I live in Lisbon", thread="t0"))
        text = "No, I live in Porto. And remember that I’m vegetarian"
        _, scope = asked(db, text)
        correction = {"id": old, "quote": "No, I live in Porto"}
        first = [use(scope, "memory_assert", EN), use(scope, "memory_correct", correction)]
        before = facts(db)
        db.perform(runs.recover)
        again = claim(db)
        second = [
            use(scope_of(db, again), "memory_assert", EN),
            use(scope_of(db, again), "memory_correct", correction),
        ]
        assert [is_error for _, is_error in second] == [False, False]
        assert [found for found, _ in second] == [{**found, "wasKnown": True} for found, _ in first]
        assert facts(db) == before
        other = {**correction, "quote": "I live in Porto"}
        assert "is history already" in error(scope_of(db, again), "memory_correct", other)


def test_what_a_lost_run_wants_to_store_is_not_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        old = learn(db, "eats meat", *say(db, "I eat meat", thread="t0"))
        claimed, scope = asked(db, EN_REQUEST)
        db.perform(runs.finish, claimed, State.CANCELLED, None)
        for name, arguments in (("memory_assert", EN), ("memory_correct", {**EN, "id": old})):
            with pytest.raises(RunFenced):
                use(scope, name, arguments)
        assert facts(db) == [("eats meat", "inferred", None)]


def test_what_was_stored_stays_when_the_answer_fails(tmp_path: Path) -> None:
    async def scene(db: Database) -> events.RunEnded:
        model = PlayedModel(
            [says("", call("memory_assert", json.dumps(EN))), fails(CallFailure.SERVER_ERROR)]
        )
        async with running(db, model) as runner:
            return await end_of(await runner.ask(EN_REQUEST, thread_key="a"))

    with opened(tmp_path) as db:
        assert asyncio.run(scene(db)).state is State.UNKNOWN
        assert facts(db) == [(EN["quote"], "explicit", None)]
        assert rows(db, "SELECT count(*) FROM run_facts") == [(0,)]


def test_the_model_corrects_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    async def scene(db: Database, old: str) -> PlayedModel:
        correction = {"id": old, "quote": "I live in Porto"}
        model = PlayedModel(
            [
                says("", call("memory_search", '{"query": "Lisbon"}')),
                says("", call("memory_correct", json.dumps(correction))),
                says("Noted: Porto."),
            ]
        )
        async with running(db, model) as runner:
            assert (await end_of(await runner.ask("No, I live in Porto"))).text == "Noted: Porto."
        return model

    with opened(tmp_path) as db:
        old = learn(db, "lives in Lisbon", *say(db, "I live in Lisbon", thread="t0"))
        model = asyncio.run(scene(db, old))
        assert isinstance(model.requests[2][-1], Message)
        assert facts(db) == [
            ("lives in Lisbon", "inferred", 2),
            ("I live in Porto", "explicit", None),
        ]
        assert rows(db, "SELECT fact_id, is_given FROM run_facts ORDER BY 1") == [(1, 0), (2, 0)]


def test_reading_a_fact_shows_and_cites_everything_that_it_rests_on(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        [question] = say(db, "Do you live in Porto?", role="assistant", speaker="pikobot", thread="t0")
        [reply] = say(db, "Yes, since May", thread="t0", at_ms=NOW_MS + MINUTE_MS)
        clock.now = NOW_MS + 2 * MINUTE_MS
        learned = learn(db, "The owner has lived in Porto since May", reply, depends_on=(question,))
        claimed, scope = asked(db, "Why Porto?", "t5")
        found, is_error = use(scope, "memory_read", {"id": learned})
        assert not is_error
        assert (found["text"], found["basis"], found["status"]) == (
            "The owner has lived in Porto since May",
            "inferred",
            "stored",
        )
        [evidence], [context] = found["evidence"], found["context"]
        assert (evidence["id"], evidence["role"], evidence["speaker"], evidence["quote"]) == (
            reply,
            "user",
            "owner",
            "Yes, since May",
        )
        assert (context["id"], context["role"], context["quote"]) == (
            question,
            "assistant",
            "Do you live in Porto?",
        )
        assert evidence["time"] == "2024-03-01T13:34:20Z"
        sql = "SELECT s.public_id FROM run_sources AS r JOIN sources AS s ON s.id = r.source_id ORDER BY s.id"
        assert [row[0] for row in rows(db, sql)] == [question, reply, claimed.request.public_id]
        assert read_facts(db, claimed) == {learned: False}


def test_a_search_cites_the_facts_that_it_gives_and_what_they_rest_on(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [said] = say(db, "I moved to Porto", thread="t0")
        learned = learn(db, "The owner moved to Porto", said)
        claimed, scope = asked(db, "Where?")
        found, _ = use(scope, "memory_search", {"query": "Porto"})
        assert [each["id"] for each in found["results"] if each["type"] == "fact"] == [learned]
        assert read_facts(db, claimed) == {learned: False}
        sql = "SELECT s.public_id FROM run_sources AS r JOIN sources AS s ON s.id = r.source_id ORDER BY s.id"
        assert [row[0] for row in rows(db, sql)] == [said, claimed.request.public_id]


def test_a_fact_of_another_scope_can_be_neither_read_nor_corrected(tmp_path: Path) -> None:
    ana = Scope("private", "main", "bot", "chat", "ana")
    with opened(tmp_path) as db:
        secret = learn(db, "Ana keeps a key", *say(db, "I keep a key", scope=ana, thread="t9"))
        _, scope = asked(db, EN_REQUEST)
        for name, arguments in (("memory_read", {"id": secret}), ("memory_correct", {**EN, "id": secret})):
            found = error(scope, name, arguments)
            assert "there is no fact" in found
            assert "key" not in found


def test_a_fact_with_very_much_evidence_is_shortened_until_it_fits(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        sources = say(db, *(f"波尔图 {number} " + "很长" * 900 for number in range(40)), thread="t0")
        learned = [
            learn(db, "lives in Porto", each, attribute="home_city", value="Porto") for each in sources
        ]
        _, scope = asked(db, "Where?")
        found, is_error = use(scope, "memory_read", {"id": learned[0]})
        assert (is_error, found["isShortened"], len(found["evidence"])) == (False, True, 10)
        assert len(json.dumps(found, ensure_ascii=False)) <= MAX_READ_CHARS


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"quote": " "}, "quote: is empty"),
        ({"text": "The owner eats meat"}, "text: Extra inputs are not permitted"),
        ({"value": "meat"}, "value: it is not in the quote"),
        ({"attribute": "Home City"}, "attribute: expected a snake_case key"),
        ({"tags": ["Not A Tag"]}, "tags.0: "),
        ({"tags": [f"t{number}" for number in range(9)]}, "tags: "),
        ({"kind": "order"}, "kind: "),
        ({"eventTime": "soon"}, "eventTime: "),
        ({"scope": "private:main"}, "scope: Extra inputs are not permitted"),
        ({"basis": "inferred"}, "basis: Extra inputs are not permitted"),
        ({"quote": None}, "quote: "),
    ],
)
def test_a_bad_assertion_is_answered_with_what_to_mend(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with opened(tmp_path) as db:
        _, scope = asked(db, EN_REQUEST)
        assert named in error(scope, "memory_assert", EN | changes)
        assert facts(db) == []


@pytest.mark.parametrize("subject", ["owner", "The owner", "user", "I", "me", "我", "用户"])
def test_the_owner_is_meant_however_a_model_calls_them(tmp_path: Path, subject: str) -> None:
    with opened(tmp_path) as db:
        _, scope = asked(db, "记住：我对花生过敏。Remember that I'm allergic to peanuts")
        arguments = {"quote": "I'm allergic to peanuts", "subject": subject}
        assert fact(db, use(scope, "memory_assert", arguments)[0]["id"]).fact.subject == "owner"


def test_the_owner_can_have_something_about_others_remembered(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        _, scope = asked(db, "记住：安娜对花生过敏")
        arguments = {
            "quote": "安娜对花生过敏",
            "subject": "安娜",
            "entities": ["花生"],
        }
        kept = fact(db, use(scope, "memory_assert", arguments)[0]["id"]).fact
        assert (kept.subject, sorted(kept.entities)) == ("安娜", sorted(["安娜", "花生"]))
        assert use(scope, "memory_search", {"query": "过敏", "entity": "安娜"})[0]["results"][0]["id"] == (
            kept.public_id
        )
