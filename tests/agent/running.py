"""Runs in a real database: said things, claims, and a runner that serves while a block runs."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, ParamSpec

from pikobot.adapters.prices import Prices
from pikobot.agent import events, runs
from pikobot.agent.accounting import Tariff
from pikobot.agent.context import Room
from pikobot.agent.executor import Brain
from pikobot.agent.runner import Answering, Runner
from pikobot.agent.runs import Accepted, Claimed, Limits, Request
from pikobot.store.connection import Database
from pikobot.store.scopes import owner_scope
from pikobot.store.threads import ThreadId
from tests.agent.playing import PlayedModel

P = ParamSpec("P")

ROOM = Room(input_tokens=100_000, output_tokens=1_000)
LIMITS = Limits(run_microusd=1_000_000, workspace_month_microusd=5_000_000)
PRICES = Prices.per_million(1, 0.5, 2)
LEASE_MS = 60_000


def brain(model: PlayedModel, **changes: Any) -> Brain:
    tariff: dict[str, Any] = {
        "model": model.name,
        "prices": PRICES,
        "price_remedy": "set chat.price_input",
        "limits": LIMITS,
        "max_output_tokens": 1_000,
    }
    tariff.update({key: changes.pop(key) for key in list(changes) if key in tariff})
    return Brain(
        **{"model": model, "tariff": Tariff(**tariff), "room": ROOM, "run_timeout_s": 30.0, **changes}
    )


def accept(db: Database, text: str, thread: str | None = "t1", **more: Any) -> Accepted:
    return db.perform(runs.accept, Request(text=text, scope=owner_scope(), thread_key=thread, **more))


def claim(db: Database, *, room: Room | None = ROOM, thread_id: ThreadId | None = None) -> Claimed:
    claimed = db.perform(runs.claim_next, thread_id=thread_id, model="m", room=room, lease_ms=LEASE_MS)
    assert isinstance(claimed, Claimed), claimed
    return claimed


def rows(db: Database, sql: str) -> list[tuple[Any, ...]]:
    with db.read() as conn:
        return conn.execute(sql).fetchall()


def states(db: Database) -> list[tuple[str, str | None]]:
    return rows(db, "SELECT state, error_code FROM runs ORDER BY id")


def attempts(db: Database) -> list[tuple[Any, ...]]:
    return rows(db, "SELECT state, cost_microusd, error_code FROM attempts ORDER BY id")


def answers(db: Database) -> list[tuple[str, bool]]:
    found = rows(db, "SELECT text, is_partial FROM sources WHERE role = 'assistant' ORDER BY id")
    return [(text, bool(is_partial)) for text, is_partial in found]


def in_event_loop(scene: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine."""

    @functools.wraps(scene)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(scene(*args, **kwargs))

    return run


@asynccontextmanager
async def running(
    db: Database,
    model: PlayedModel | None,
    *,
    serves_all: bool = True,
    message_days: int = 0,
    learns: bool = False,
    **changes: Any,
) -> AsyncIterator[Runner]:
    """A runner that serves; leaving ends it as the end of the program does."""
    runner = Runner(
        db,
        None if model is None else brain(model, **changes),
        owner_scope(),
        message_days=message_days,
        serves_all=serves_all,
        learns=learns,
        ledger_path=db.path.with_name("erasures.jsonl"),
    )
    worker = asyncio.create_task(runner.serve())
    try:
        yield runner
    finally:
        worker.cancel()
        with suppress(asyncio.CancelledError):
            await worker
        await runner.aclose()


async def everything(answering: Answering) -> list[events.Event]:
    async with asyncio.timeout(30):
        return [event async for event in answering.events()]


async def end_of(answering: Answering) -> events.RunEnded:
    last = (await everything(answering))[-1]
    assert isinstance(last, events.RunEnded)
    return last
