"""Retention in the background: erases what has expired or is beyond the capacity, when serving begins and from
time to time; then the text indexes are merged, and the database is looked at for the next erasure.

Each sweep goes round by round (`memory.forgetting.retention`), merging step by step, so that nothing else waits long.
A failure shows as ``problem`` and is tried again with the next sweep; nothing expired is read meanwhile.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pikobot.errors import PikobotError
from pikobot.memory.forgetting.forget import prepare
from pikobot.memory.forgetting.retention import sweep
from pikobot.store.connection import Database
from pikobot.store.text.merging import merge_step

# Each sweep that removes something ends with reading every file of the instance.
SWEEP_EVERY_S = 6 * 60 * 60.0

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass
class SweepTotals:
    """What has been removed since the program began."""

    sources: int = 0
    facts: int = 0


class Sweeper:
    """Keeps one instance within its retention while `serve` runs. ``problem``: why the last sweep came to no end."""

    def __init__(self, db: Database, ledger_path: Path, *, max_sources: int) -> None:
        self._db = db
        self._ledger_path = ledger_path
        self._max_sources = max_sources
        self._is_leaving = threading.Event()
        self.totals = SweepTotals()
        self.problem: str | None = None

    async def serve(self, *, until_idle: bool = False) -> None:
        """Sweep until cancelled, or once when ``until_idle``."""
        while True:
            await self.sweep()
            if until_idle:
                return
            await self.prepare()
            await asyncio.sleep(SWEEP_EVERY_S)

    async def sweep(self) -> None:
        """Remove all that may be kept no longer, and merge what the indexes are left in."""
        started_ms = self._db.clock.now_ms()
        before = self.totals.sources
        try:
            while await self._to_its_end(lambda: self._round(started_ms)):
                pass
            while await self._db.perform_async(merge_step):
                pass
        except PikobotError as error:
            self.problem = f"retention: {error}"
            log.info("a sweep came to no end: %s", error)
            return
        self.problem = None
        if self.totals.sources > before:
            log.info("retention removed %d sources", self.totals.sources - before)

    async def prepare(self) -> None:
        """Look at the whole database, so that the first who forgets something need not wait for that."""
        try:
            await self._to_its_end(lambda: prepare(self._db))
        except (PikobotError, OSError) as error:
            log.info("the database was not looked at beforehand: %s", error)

    def _round(self, started_ms: int) -> bool:
        """One round; False when nothing was left."""
        swept = sweep(
            self._db,
            self._ledger_path,
            max_sources=self._max_sources,
            started_ms=started_ms,
            should_stop=self._is_leaving.is_set,
        )
        if swept is not None:
            self.totals.sources += swept.removed.rows.get("sources", 0)
            self.totals.facts += swept.removed.rows.get("facts", 0)
        return swept is not None

    async def _to_its_end(self, work: Callable[[], T]) -> T:
        """Do the work in a thread. Cancelled, a round ends with its batch, proved as ever, and is waited for."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_leaving.set()
            await asyncio.wait({working})
            if not working.cancelled():
                working.exception()  # observed: the cancellation goes on
            raise
