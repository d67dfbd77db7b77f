import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.agent import sweeper as sweeping
from pikobot.agent.sweeper import Sweeper
from pikobot.errors import PikobotError
from pikobot.memory.forgetting import retention as keeping
from pikobot.store.connection import Database
from pikobot.store.text.merging import merge_step
from tests.memory.conversing import read
from tests.memory.remembering import NOW_MS, opened, say

TEXTS = "SELECT text FROM sources ORDER BY id"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


@pytest.fixture
def sweeper(db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweeper:
    """Of batches of ten, and rounds of two batches."""
    monkeypatch.setattr(keeping, "BATCH_SOURCES", 10)
    monkeypatch.setattr(keeping, "BATCHES_A_ROUND", 2)
    return Sweeper(db, tmp_path / "erasures.jsonl", max_sources=3)


def test_until_idle_it_removes_all_that_may_be_kept_no_longer_and_counts_it(
    db: Database, sweeper: Sweeper
) -> None:
    say(db, *[f"第{n}条" for n in range(45)], expires_at_ms=NOW_MS)
    say(db, "a", "b", "c", "d")
    asyncio.run(sweeper.serve(until_idle=True))
    assert read(db, TEXTS) == [("b",), ("c",), ("d",)]
    assert (sweeper.totals.sources, sweeper.totals.facts, sweeper.problem) == (46, 0, None)


def test_it_sweeps_again_from_time_to_time(
    db: Database, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "SWEEP_EVERY_S", 0.001)

    async def serve() -> None:
        working = asyncio.create_task(sweeper.serve())
        for text in ("one", "二"):
            await asyncio.to_thread(say, db, text, expires_at_ms=NOW_MS)
            async with asyncio.timeout(30):
                while await asyncio.to_thread(read, db, TEXTS):  # noqa: ASYNC110 — a row is what tells
                    await asyncio.sleep(0.001)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    asyncio.run(serve())
    assert sweeper.totals.sources == 2
    assert sweeper.problem is None


def test_the_text_indexes_are_merged_after_a_sweep(db: Database, sweeper: Sweeper) -> None:
    for n in range(9):
        say(db, f"第{n}条")
    asyncio.run(sweeper.serve(until_idle=True))
    assert not db.perform(merge_step)
    assert read(db, "SELECT count(DISTINCT id >> 37) FROM sources_text_data WHERE id > 10") == [(1,)]


def test_while_it_serves_the_database_is_looked_at_before_anybody_forgets(
    db: Database, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared: list[Database] = []

    def prepare(database: Database) -> None:
        prepared.append(database)
        raise PikobotError("the disk is full")

    async def serve() -> None:
        working = asyncio.create_task(sweeper.serve())
        async with asyncio.timeout(30):
            while not prepared:  # noqa: ASYNC110 — a list is what tells
                await asyncio.sleep(0.001)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working

    monkeypatch.setattr(sweeping, "prepare", prepare)
    asyncio.run(sweeper.serve(until_idle=True))
    assert prepared == []
    asyncio.run(serve())
    assert (prepared, sweeper.problem) == ([db], None)


def test_a_failure_shows_and_the_next_sweep_tries_again(
    db: Database, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*unused: object, **named: object) -> None:
        raise PikobotError("the disk is full")

    say(db, "我住在波尔图", expires_at_ms=NOW_MS)
    with monkeypatch.context() as patch:
        patch.setattr(keeping, "remove_closure", full)
        asyncio.run(sweeper.serve(until_idle=True))
    assert sweeper.problem == "retention: the disk is full"
    assert len(read(db, TEXTS)) == 1
    asyncio.run(sweeper.serve(until_idle=True))
    assert sweeper.problem is None
    assert read(db, TEXTS) == []


@pytest.mark.parametrize("turns", [1, 3, 10, 50])
def test_stopped_at_any_time_it_has_removed_whole_batches(db: Database, sweeper: Sweeper, turns: int) -> None:
    say(db, *[f"第{n}条" for n in range(60)], expires_at_ms=NOW_MS)

    async def stop_early() -> None:
        working = asyncio.create_task(sweeper.serve(until_idle=True))
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        assert working.done()

    asyncio.run(stop_early())
    left = len(read(db, TEXTS))
    assert left % 10 == 0
    asyncio.run(Sweeper(db, db.path.with_name("erasures.jsonl"), max_sources=0).serve(until_idle=True))
    assert read(db, TEXTS) == []
