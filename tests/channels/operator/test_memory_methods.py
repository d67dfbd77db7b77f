"""The operator's methods over facts, asked of a serving process and of the database itself alike."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pikobot.channels.operator import methods
from pikobot.channels.operator.client import Operator, connect_operator
from pikobot.channels.operator.methods import CAN_CHARGE, Operation, OperatorContext, RetryParams, call_async
from pikobot.clock import SystemClock
from pikobot.errors import InvalidParams, NotFound, PikobotError
from pikobot.instance import Instance
from pikobot.store import extraction_jobs, leases
from pikobot.store.connection import Connection, Database
from pikobot.store.extraction_jobs import insert_job
from pikobot.store.leases import State
from pikobot.store.prepare import open_database
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import SourceId
from pikobot.store.threads import ensure_thread
from tests.channels.operator.serving import served
from tests.memory.remembering import NOW_MS, StillClock

GROUP = "shared:main:bot:-5:0"


def with_new_ids(context: OperatorContext) -> OperatorContext:
    """Ids that what was said before does not have."""
    assert isinstance(context.db.clock, StillClock)
    context.db.clock.tokens = 1_000
    return context


@pytest.fixture(params=["served", "direct"])
def operator(instance: Instance, request: pytest.FixtureRequest) -> Iterator[Operator]:
    with contextlib.ExitStack() as stack:
        if request.param == "served":
            stack.enter_context(served(instance, change_context=with_new_ids))
        yield stack.enter_context(connect_operator(instance, SystemClock()))


def ids(result: Any) -> list[str]:
    return [record["id"] for record in result["results"]]


def test_what_is_remembered_is_found_read_listed_and_tagged(operator: Operator) -> None:
    kept: Any = operator.call(
        "memory.remember",
        {
            "text": "我对花生过敏 (peanuts)",
            "attribute": "allergy",
            "value": "花生",
            "kind": "fact",
            "tags": ["health"],
        },
    )
    assert (kept["basis"], kept["status"], kept["subject"], kept["repeated"]) == (
        "explicit",
        "current",
        "owner",
        False,
    )
    assert [(each["role"], each["quote"]) for each in kept["evidence"]] == [
        ("user", "我对花生过敏 (peanuts)")
    ]
    for query in ("花生", "peanut", "allergy"):
        assert ids(operator.call("memory.search", {"query": query})) == [kept["id"]], query
    assert operator.call("memory.read", {"id": kept["id"]}) == {
        k: v for k, v in kept.items() if k != "repeated"
    }
    assert kept["id"] in ids(operator.call("memory.list", {"types": ["fact"], "tags": ["health"]}))
    assert operator.call("memory.tag", {"id": kept["id"], "tags": ["food", "health"]}) == {
        "id": kept["id"],
        "tags": ["food", "health"],
    }
    assert operator.call("memory.tags", {}) == {
        "tags": [{"tag": "food", "count": 1}, {"tag": "health", "count": 1}],
        "truncated": False,
    }
    assert operator.call("memory.tags", {"scope": "private:none:local:terminal:owner"})["tags"] == []
    status: Any = operator.call("status", {})
    assert status["counts"]["facts"] == 1
    again: Any = operator.call(
        "memory.remember", {"text": "peanuts!", "attribute": "allergy", "value": "花生"}
    )
    assert again["repeated"] is True
    assert len(again["evidence"]) == 2
    assert len(ids(operator.call("memory.list", {"types": ["fact"]}))) == 1


def test_a_scope_of_its_own_keeps_its_facts(operator: Operator) -> None:
    kept: Any = operator.call("memory.remember", {"text": "Ana swims", "subject": "Ana", "scope": GROUP})
    assert (kept["scope"], kept["entities"]) == (GROUP, ["Ana"])
    assert ids(operator.call("memory.search", {"query": "swims", "scope": GROUP})) == [kept["id"]]
    assert ids(operator.call("memory.search", {"query": "swims", "entity": "ana"})) == [kept["id"]]


@pytest.mark.parametrize(
    ("method", "params", "error", "message"),
    [
        ("memory.remember", {}, InvalidParams, "text: Field required"),
        ("memory.remember", {"text": " "}, InvalidParams, "text: is empty"),
        (
            "memory.remember",
            {"text": "x", "tags": ["A"]},
            InvalidParams,
            "tags.0: String should match pattern",
        ),
        ("memory.remember", {"text": "x", "kind": "rumour"}, InvalidParams, "kind: Input should be"),
        ("memory.remember", {"text": "x", "scope": "mine"}, InvalidParams, "scope: expected private:"),
        ("memory.remember", {"text": "x", "scope": GROUP}, InvalidParams, "subject: what is said in a group"),
        ("memory.remember", {"text": "x", "basis": "explicit"}, InvalidParams, "basis: unknown key"),
        ("memory.read", {"id": "fact_none"}, NotFound, "there is no fact fact_none"),
        ("memory.tag", {"id": "fact_none", "tags": []}, NotFound, "there is no fact fact_none"),
        ("memory.tag", {"id": "fact_none"}, InvalidParams, "tags: Field required"),
        ("memory.tags", {"limit": 0}, InvalidParams, "limit: Input should be greater"),
        ("memory.retry", {}, InvalidParams, "jobId: give either jobId, or all: true"),
        (
            "memory.retry",
            {"jobId": "a", "all": True},
            InvalidParams,
            "jobId: give either jobId, or all: true",
        ),
        ("memory.retry", {"jobId": "job_none"}, NotFound, "there is no extraction job 'job_none'"),
    ],
)
def test_a_refusal_names_what_is_wrong(
    operator: Operator, method: str, params: dict[str, object], error: type[PikobotError], message: str
) -> None:
    with pytest.raises(error) as refused:
        operator.call(method, params)
    assert str(refused.value).startswith(message)


def jobs(db: Database, *states: State) -> list[str]:
    """Jobs over a source that ended in those states; queued ones wait."""

    def make(tx: Connection) -> list[str]:
        thread = ensure_thread(tx, ensure_scope(tx, owner_scope()), "t1", db.clock)
        sources = [SourceId(row[0]) for row in tx.execute("SELECT id FROM sources ORDER BY id LIMIT 1")]
        made = []
        for state in states:
            job = insert_job(
                tx,
                scope_id=thread.scope_id,
                thread_id=thread.id,
                run_id=None,
                source_ids=sources,
                clock=db.clock,
            )
            made.append(extraction_jobs.load_job(tx, job).public_id)
            if state is not State.QUEUED:
                lease = leases.claim(tx, extraction_jobs.TABLE, job, token="t", now_ms=NOW_MS, lease_ms=9)
                assert lease is not None
                leases.finish(tx, lease, state, now_ms=NOW_MS)
        return made

    def operation(db: Database) -> list[str]:
        with db.write("jobs") as tx:
            return make(tx)

    return db.perform(operation)


def test_failed_jobs_are_visible_and_wait_until_they_are_retried(instance: Instance) -> None:
    with contextlib.closing(open_database(instance.database_path, SystemClock())) as db:
        made = jobs(db, State.FAILED, State.UNKNOWN, State.SUCCEEDED, State.QUEUED)
    with connect_operator(instance, SystemClock()) as operator:
        waiting = {"queued": 1, "failed": 1, "unknown": 1}
        assert operator.call("memory.list", {"limit": 1})["extraction"] == waiting
        assert operator.call("status", {})["extraction"] == waiting
        with pytest.raises(InvalidParams, match="the job is succeeded; only failed and unknown ones"):
            operator.call("memory.retry", {"jobId": made[2]})
        assert operator.call("memory.retry", {"jobId": made[0]}) == {"requeued": 1, "note": CAN_CHARGE}
        assert operator.call("memory.retry", {"all": True}) == {"requeued": 1, "note": CAN_CHARGE}
        assert operator.call("memory.retry", {"all": True}) == {"requeued": 0, "note": CAN_CHARGE}
        assert operator.call("status", {})["extraction"] == {"queued": 3, "failed": 0, "unknown": 0}


def test_the_background_is_told_of_each_operation_that_has_ended_and_of_no_question(
    instance: Instance,
) -> None:
    told: list[str] = []

    async def work(context: OperatorContext) -> list[list[str]]:
        seen: list[list[str]] = []
        for method, params in (
            ("memory.search", {"query": "x"}),
            ("memory.list", {}),
            ("memory.remember", {"text": "I like tea"}),
            ("memory.retry", {"all": True}),
        ):
            await call_async(context, method, params)
            seen.append(told.copy())
        with pytest.raises(NotFound):
            await call_async(context, "source.edit", {"id": "src_none", "text": "x"})
        return [*seen, told.copy()]

    clock = StillClock()
    clock.tokens = 1_000
    with contextlib.closing(open_database(instance.database_path, clock)) as db:
        config = instance.load_config()
        credentials = instance.load_credentials(config, {})
        context = methods.create_context(
            db, instance, config, credentials, is_served=True, on_change=lambda: told.append("changed")
        )
        counts = [len(each) for each in asyncio.run(work(context))]
    assert counts == [0, 0, 1, 2, 3]


def test_an_operation_ends_before_its_cancellation_is_delivered(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(context: OperatorContext, params: RetryParams) -> dict[str, Any]:
        begun.set()
        assert go_on.wait(20)
        ended.set()
        return {}

    monkeypatch.setitem(methods.METHODS, "memory.retry", Operation(RetryParams, slow))

    async def cancel(context: OperatorContext) -> None:
        calling = asyncio.create_task(call_async(context, "memory.retry", {"all": True}))
        await asyncio.to_thread(begun.wait, 20)
        calling.cancel()
        await asyncio.sleep(0)
        assert not calling.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert ended.is_set()

    with contextlib.closing(open_database(instance.database_path, StillClock())) as db:
        config = instance.load_config()
        context = methods.create_context(
            db, instance, config, instance.load_credentials(config, {}), is_served=True
        )
        asyncio.run(cancel(context))
