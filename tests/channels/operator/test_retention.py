"""Retention as the operator sees it: nothing expired is handed out by any method, and status and doctor tell."""

import asyncio
import contextlib
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from pikobot.channels.operator.client import Operator, connect_operator
from pikobot.channels.operator.methods import METHODS
from pikobot.cli.doctor import examine
from pikobot.clock import SystemClock
from pikobot.config_file import set_values
from pikobot.errors import PikobotError
from pikobot.instance import Instance
from pikobot.memory.imports import import_jsonl
from pikobot.store.prepare import open_database
from pikobot.supervisor import serving
from tests.memory.conversing import exchange, read
from tests.memory.learning import learn
from tests.memory.remembering import StillClock

SAID = "My dentist is Dr. Okonkwo 牙医在高升桥"
RECORD = {"thread": "teeth", "role": "user", "text": SAID, "id": "x", "time": "2024-03-01T13:33:20Z"}
LEARNED = "The owner's dentist is Okonkwo 高升桥"


@pytest.fixture
def ids(instance: Instance) -> dict[str, str]:
    """Of what was said and learned long ago, before messages were to be kept for thirty days."""
    clock = StillClock()
    clock.tokens = 100
    with contextlib.closing(open_database(instance.database_path, clock)) as db:
        import_jsonl(db, io.BytesIO(json.dumps(RECORD).encode()))
        source = read(db, "SELECT public_id FROM sources WHERE external_id = 'x'")[0][0]
        fact = learn(db, LEARNED, source, tags=("dentist",), entities=("Okonkwo",))
        exchange(db, f"{SAID}?", f"Yes: {SAID}", thread="teeth")
    set_days(instance, 30)
    return {"source": source, "fact": fact}


def set_days(instance: Instance, days: int) -> None:
    text = instance.config_path.read_text()
    instance.config_path.write_text(set_values(text, [("retention.message_days", str(days))]))


@contextlib.contextmanager
def operating(instance: Instance) -> Iterator[Operator]:
    with connect_operator(instance, SystemClock()) as operator:
        yield operator


def calls(ids: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Every method that reads, asked for what is there."""
    return [
        ("memory.search", {"query": "Okonkwo dentist"}),
        ("memory.search", {"query": "高升桥", "history": True}),
        ("memory.search", {"query": "Okonkwo", "types": ["fact"], "tags": ["dentist"], "entity": "Okonkwo"}),
        ("memory.list", {}),
        ("memory.list", {"types": ["fact"]}),
        ("memory.read", {"id": ids["fact"]}),
        ("memory.tags", {}),
        ("source.read", {"id": ids["source"]}),
        ("source.read", {"externalId": "x", "thread": "teeth"}),
        ("threads.list", {}),
        ("runs.list", {}),
        ("status", {}),
    ]


def answered(operator: Operator, method: str, params: dict[str, Any]) -> str:
    try:
        return json.dumps(operator.call(method, params), ensure_ascii=False)
    except PikobotError as error:
        return str(error)


def retention_state(operator: Operator) -> dict[str, Any]:
    status: Any = operator.call("status", {})
    return dict(status["retention"])


def test_no_method_hands_out_what_has_expired_before_it_is_swept(
    instance: Instance, ids: dict[str, str]
) -> None:
    asked = calls(ids)
    writing = {"memory.tag", "memory.remember", "memory.retry", "memory.forget", "source.edit"}
    assert {method for method, _ in asked} | writing >= set(METHODS)
    with operating(instance) as operator:
        for method, params in asked:
            document = answered(operator, method, params)
            assert "Okonkwo" not in document, (method, document)
            assert "高升桥" not in document, (method, document)
            assert "dentist" not in document, (method, document)
        assert retention_state(operator)["expiredWaiting"] == 3
    set_days(instance, 0)
    with operating(instance) as operator:
        shown = [method for method, params in asked if "Okonkwo" in answered(operator, method, params)]
    assert set(shown) == {"memory.search", "memory.list", "memory.read", "source.read", "threads.list"}


def retention_of(instance: Instance) -> list[tuple[str, str]]:
    findings, _ = examine(instance.root)
    return [(finding.state, finding.detail) for finding in findings if finding.name == "retention"]


async def drain(instance: Instance) -> None:
    async with serving(instance, serves_all=True, until_idle=True) as service:
        await service.worker


def test_draining_the_work_removes_it_and_status_and_doctor_tell(
    instance: Instance, ids: dict[str, str]
) -> None:
    assert retention_of(instance) == [("degraded", "3 messages are to be removed")]
    asyncio.run(drain(instance))
    with operating(instance) as operator:
        state = retention_state(operator)
        at = state["lastSweep"].pop("at")
    assert state == {
        "messageDays": 30,
        "maxSources": 0,
        "expiredWaiting": 0,
        "waitingSince": None,
        "beyondCapacity": 0,
        "lastSweep": {"expired": 3, "overCapacity": 0, "facts": 1, "clean": True},
    }
    assert retention_of(instance) == [
        (
            "ok",
            f"removed 3 expired sources and 0 beyond retention.max_sources at {at}, "
            "0 messages are to be removed",
        )
    ]
    for file in instance.root.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"Okonkwo" not in content, file
            assert "高升桥".encode() not in content, file


def test_what_is_found_after_its_removal_is_told_by_doctor(instance: Instance, ids: dict[str, str]) -> None:
    (instance.root / "notes.txt").write_text(SAID)
    asyncio.run(drain(instance))
    with operating(instance) as operator:
        assert retention_state(operator)["lastSweep"]["clean"] is False
    [(state, detail)] = retention_of(instance)
    assert (state, "was still found afterwards" in detail) == ("degraded", True)


def test_an_instance_that_keeps_all_says_nothing_of_retention(instance: Instance) -> None:
    asyncio.run(drain(instance))
    assert retention_of(instance) == []
