"""Retention: what may be kept no longer is erased as if it had been forgotten, in the background.

    expired, then beyond `retention.max_sources` ─▶ batches, one commit each: closure removed, runs and jobs fenced,
        tombstones and ledger rows written ─▶ after some batches every file is read for what has gone ─▶ next round

The ledger keeps it out as well: an old backup or an old copy of the database brings nothing back, and neither does a
second import. A sweep that was cut off goes on at the next one; what traces it has left the next open removes
(`forget.finish_interrupted`). Nothing that has expired is read by anybody, swept or not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pikobot.clock import iso_time
from pikobot.memory.forgetting import ledger
from pikobot.memory.forgetting.byte_scan import Erased
from pikobot.memory.forgetting.forget import Committed, erase, remove_closure
from pikobot.store import retention
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.closure import Removed, closure_of
from pikobot.store.retention import SweepRecord
from pikobot.store.sources import SourceId

BATCH_SOURCES = 100
BATCHES_A_ROUND = 20


@dataclass(frozen=True)
class Swept:
    """What a round of a sweep has removed; ``is_clean``: no byte of it was found afterwards."""

    removed: Removed
    is_clean: bool


def obey_message_days(db: Database, days: int) -> None:
    """Let all rows obey `retention.message_days`; at every open, before any reader. Quick unless it has changed."""
    with db.read() as conn:
        if retention.adopted_message_days(conn) == days:
            return
    db.perform(_adopt, days)


def sweep(
    db: Database,
    ledger_path: Path,
    *,
    max_sources: int,
    started_ms: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Swept | None:
    """One round of the sweep that began at that time, proved like forgetting; None when nothing is left to remove.

    Blocks for some batches and the reading of all files. ``should_stop`` ends a round early.
    """
    erased = Erased()

    def commit() -> Committed | None:
        done: Committed | None = None
        for _ in range(BATCHES_A_ROUND):
            batch = db.perform(_erase_batch, max_sources, started_ms, erased)
            if batch is None:
                break
            db.perform(ledger.append_missing, ledger_path)
            done = batch if done is None else replace(batch, removed=done.removed.plus(batch.removed))
            if should_stop():
                break
        return done

    receipt = erase(db, ledger_path, commit)
    if receipt is None:
        return None
    db.perform(_record, SweepRecord(started_ms, is_clean=receipt.is_clean))
    return Swept(receipt.removed, receipt.is_clean)


def retention_state(
    conn: Connection, *, message_days: int, max_sources: int, now_ms: int
) -> dict[str, object]:
    """What is kept how long, what waits to be removed, and what the last sweep has removed."""
    waiting, since_ms = retention.count_expired(conn, now_ms=now_ms)
    last = retention.read_sweep(conn)
    return {
        "messageDays": message_days,
        "maxSources": max_sources,
        "expiredWaiting": waiting,
        "waitingSince": None if since_ms is None else iso_time(since_ms),
        "beyondCapacity": _beyond(conn, max_sources),
        "lastSweep": None
        if last is None
        else {
            "at": iso_time(last.started_at_ms),
            "expired": last.expired,
            "overCapacity": last.over_capacity,
            "facts": last.facts,
            "clean": last.is_clean,
        },
    }


def count_beyond(db: Database, max_sources: int) -> int:
    """How many messages are beyond the capacity of their workspaces."""
    with db.read() as conn:
        return _beyond(conn, max_sources)


def _beyond(conn: Connection, max_sources: int) -> int:
    return sum(retention.messages_beyond(conn, max_sources).values())


def _adopt(db: Database, days: int) -> None:
    with db.write("adopt retention.message_days") as tx:
        retention.adopt_message_days(tx, days)


def _erase_batch(db: Database, max_sources: int, started_ms: int, erased: Erased) -> Committed | None:
    now_ms = db.clock.now_ms()
    with db.write("remove what may be kept no longer") as tx:
        closed = closure_of(tx, retention.expired_sources(tx, now_ms=now_ms, limit=BATCH_SOURCES))
        is_expired = bool(closed)
        closed = closed or _beyond_capacity(tx, max_sources)
        if not closed:
            return None
        done = remove_closure(tx, closed, now_ms=now_ms, erased=erased)
        part = SweepRecord(
            started_ms,
            expired=len(closed) if is_expired else 0,
            over_capacity=0 if is_expired else len(closed),
            facts=done.removed.rows.get("facts", 0),
        )
        retention.record_sweep(tx, part)
        return done


def _beyond_capacity(tx: Connection, max_sources: int) -> list[SourceId]:
    """The next closure that has to go, of the first workspace that can give any; no larger than need be."""
    for workspace, excess in retention.messages_beyond(tx, max_sources).items():
        for spares_facts in (True, False):
            oldest = retention.dispensable_sources(
                tx, workspace, spares_facts=spares_facts, limit=min(excess, BATCH_SOURCES)
            )
            closed = _closure_within(tx, oldest, excess)
            if closed:
                return closed
    return []


def _closure_within(tx: Connection, oldest: Sequence[SourceId], excess: int) -> list[SourceId]:
    """Of as many as take not much more than the excess along, and no explicit fact; empty when there are none."""
    count = len(oldest)
    while count > 1:
        closed = closure_of(tx, oldest[:count])
        if len(closed) <= excess and not retention.hold_explicit_facts(tx, closed):
            return closed
        count //= 2
    for source_id in oldest:
        closed = closure_of(tx, [source_id])
        if not retention.hold_explicit_facts(tx, closed):
            return closed
    return []


def _record(db: Database, part: SweepRecord) -> None:
    with db.write("record a sweep") as tx:
        retention.record_sweep(tx, part)
