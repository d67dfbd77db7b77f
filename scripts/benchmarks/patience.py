"""How a scan on a thread leaves the event loop alone, and how soon it stops when nobody waits for it any more."""

import asyncio
import threading
import time
from dataclasses import dataclass
from statistics import median

from pikobot.store.connection import Database
from pikobot.store.vectors.profiles import SetId
from pikobot.store.vectors.records import Float32s
from pikobot.store.vectors.scan import scan

K = 20
SCANS = 60
STOPPED = 30
TICK_S = 0.001


@dataclass(frozen=True)
class Patience:
    """Milliseconds: how late each tick of the loop came, idle and during scans, and what stopping took."""

    idle_ms: list[float]
    late_ms: list[float]
    stop_ms: list[float]

    def __str__(self) -> str:
        late, idle, stop = (sorted(values) for values in (self.late_ms, self.idle_ms, self.stop_ms))
        return (
            f"{median(late):.2f} ms (idle {median(idle):.2f}) | {late[-1]:.2f} ms (idle {idle[-1]:.2f}) | "
            f"{median(stop):.2f} ms | {stop[-1]:.2f} ms"
        )


def measure_patience(db: Database, set_id: SetId, queries: Float32s) -> Patience:
    return asyncio.run(_measure(db, set_id, queries))


async def _measure(db: Database, set_id: SetId, queries: Float32s) -> Patience:
    scanning = asyncio.create_task(_scan(db, set_id, queries))
    late = await _lateness(scanning)
    idle = await _lateness(asyncio.create_task(asyncio.sleep(1)))
    return Patience(
        idle, late, [await _time_to_stop(db, set_id, query) for query in _cycle(queries, STOPPED)]
    )


async def _scan(db: Database, set_id: SetId, queries: Float32s) -> None:
    for query in _cycle(queries, SCANS):
        assert await db.read_async(scan, set_id, query, k=K)


async def _lateness(until: "asyncio.Task[None]") -> list[float]:
    late = []
    while not until.done():
        started = time.perf_counter()
        await asyncio.sleep(TICK_S)
        late.append((time.perf_counter() - started - TICK_S) * 1000)
    await until
    return late


async def _time_to_stop(db: Database, set_id: SetId, query: Float32s) -> float:
    """From saying stop a millisecond after the beginning to the thread being free again."""
    stop = threading.Event()
    scanning = asyncio.create_task(db.read_async(scan, set_id, query, k=K, should_stop=stop.is_set))
    await asyncio.sleep(TICK_S)
    started = time.perf_counter()
    stop.set()
    await scanning
    return (time.perf_counter() - started) * 1000


def _cycle(queries: Float32s, count: int) -> list[Float32s]:
    return [queries[number % len(queries)] for number in range(count)]
