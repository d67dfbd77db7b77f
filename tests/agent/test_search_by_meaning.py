"""The model's search finds by meaning, and a served instance embeds what it holds."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pikobot.agent import indexer
from pikobot.agent.tool import ToolScope
from pikobot.agent.tools import call_tool
from pikobot.channels.operator.client import connect_operator
from pikobot.channels.operator.methods import call_async
from pikobot.cli.doctor import examine
from pikobot.clock import SystemClock
from pikobot.config_file import update_config_file
from pikobot.instance import Instance
from pikobot.memory.reindexing import reindex
from pikobot.store.connection import Database
from pikobot.store.scopes import find_scope, owner_scope
from pikobot.supervisor import Service, serving
from tests.agent.playing import call
from tests.channels.operator.serving import make_instance
from tests.memory.conversing import read, write
from tests.memory.meaning import Meaning, embed_all, engine, questions
from tests.memory.remembering import opened, say


def use(scope: ToolScope, query: str) -> list[str]:
    message, is_error = asyncio.run(
        call_tool(call("memory_search", json.dumps({"query": query}), "c1"), scope)
    )
    assert not is_error
    return [result["text"] for result in json.loads(message.content)["results"]]


def ephemeral(db: Database) -> ToolScope:
    with db.read() as conn:
        return ToolScope(db, find_scope(conn, owner_scope()), None, None, None)


def test_the_models_search_finds_by_meaning_and_keeps_nothing_of_an_ephemeral_question(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as db:
        say(db, "my puppy sleeps", "the automobile is red")
        asyncio.run(embed_all(db, engine(Meaning())))
        meaning = Meaning()
        queries = questions(db, engine(meaning))
        scope = replace(ephemeral(db), queries=queries)
        assert use(scope, "狗")[0] == "my puppy sleeps"
        assert use(scope, "狗")[0] == "my puppy sleeps"
        assert meaning.asked == ["狗", "狗"]
        assert use(replace(scope, queries=None), "狗") == []


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """Wants embeddings, and has an embedder that knows a few subjects."""
    instance = make_instance(tmp_path / "i", "my puppy sleeps", "今天去看了大夫")
    update_config_file(instance.config_path, [("embedding.provider", "e5")])
    monkeypatch.setattr("pikobot.memory.embedding.engines.make_engine", lambda *_: engine(Meaning()))
    return instance


def first(answer: Any) -> tuple[str, object]:
    return answer["results"][0]["text"], answer["degraded"]


def test_work_embeds_until_idle_and_both_ways_of_asking_find_by_meaning(instance: Instance) -> None:
    async def drain() -> dict[str, Any]:
        async with serving(instance, serves_all=True, until_idle=True) as service:
            await service.worker
            asked = {"query": "hound"}
            assert first(await call_async(service.operator, "memory.search", asked)) == (
                "my puppy sleeps",
                None,
            )
            return await call_async(service.operator, "status", {})

    with connect_operator(instance, SystemClock()) as operator:
        status: Any = operator.call("status", {})
        assert status["degraded"][-1] == "nothing is embedded yet: text search only"
    status = asyncio.run(drain())
    profile = {"provider": "test", "model": "meaning-1", "dimension": 6, "prefixRule": "none"}
    assert status["embedding"] == {
        "provider": "e5",
        "profile": profile,
        "serving": {
            "profile": profile,
            "vectors": 2,
            "waiting": 0,
            "failed": 0,
            "unknown": 0,
            "errorCode": None,
        },
        "building": None,
        "problem": None,
    }
    with connect_operator(instance, SystemClock()) as operator:
        assert first(operator.call("memory.search", {"query": "physician"})) == ("今天去看了大夫", None)


def test_what_is_remembered_and_edited_over_rpc_is_embedded_at_once(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "IDLE_CHECK_S", 3600.0)

    async def embedded(service: Service, vectors: int) -> None:
        """All is, and nothing is looked for any more."""
        while True:
            status: Any = await call_async(service.operator, "status", {})
            serving_set = status["embedding"]["serving"]
            if serving_set is not None and (serving_set["vectors"], serving_set["waiting"]) == (vectors, 0):
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)

    async def serve() -> None:
        async with asyncio.timeout(60), serving(instance, serves_all=True) as service:
            await embedded(service, 2)
            remembered: dict[str, object] = {"text": "The car is an automobile of 1969"}
            await call_async(service.operator, "memory.remember", remembered)
            await embedded(service, 4)  # the statement and the fact
            listed: Any = await call_async(service.operator, "memory.list", {"types": ["source"]})
            [said] = [one["id"] for one in listed["results"] if one["text"] == "今天去看了大夫"]
            await call_async(service.operator, "source.edit", {"id": said, "text": "今天休息"})
            await embedded(service, 4)

    asyncio.run(serve())


def test_where_nobody_serves_a_question_embeds_what_was_said_before_it(instance: Instance) -> None:
    with connect_operator(instance, SystemClock()) as operator:
        assert first(operator.call("memory.search", {"query": "hound"})) == ("my puppy sleeps", None)
        status: Any = operator.call("status", {})
        assert (status["embedding"]["serving"]["vectors"], status["embedding"]["problem"]) == (2, None)


def test_doctor_tells_what_embeds_and_what_waits(instance: Instance) -> None:
    findings = {finding.name: finding for finding in examine(instance.root)[0]}
    found = findings["embeddings"]
    assert found.state == "degraded"
    assert found.detail == "meaning-1 (e5, 6 numbers); nothing is embedded yet: text search only"
    assert found.fix == f"pikobot work --drain {instance.option}"


def test_reindexing_finds_what_has_no_vector(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "my puppy sleeps", "the automobile is red")
        asyncio.run(embed_all(db, engine(Meaning())))
        write(db, lambda tx: tx.execute("UPDATE embedding_marks SET up_to_id = 99"))
        say(db, "a hound")
        asyncio.run(embed_all(db, engine(Meaning())))
        assert read(db, "SELECT count(*) FROM vectors") == [(2,)]
        assert reindex(db).vectors == 2
        asyncio.run(embed_all(db, engine(Meaning())))
        assert read(db, "SELECT count(*) FROM vectors") == [(3,)]
