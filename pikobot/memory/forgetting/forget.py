"""Forgetting: preview what would go, erase it for good, prove it with a receipt.

    target ─▶ preview (what goes, how much with it, a token)
           ─▶ one commit: closure removed, runs fenced, tombstones and ledger rows written
           ─▶ WAL truncated, erasures.jsonl appended and fsynced, every file looked through (`proof`) ─▶ receipt
           ─▶ the mark of an unfinished erasure removed, which nobody waits for

    beforehand, in the background ─▶ the whole database looked at, so that an erasure need only look at what changed

A crash after the commit is finished at the next open (`finish_interrupted`): the commit leaves a mark that stays
until the files are clean, and until the disk has the emptied WAL, which the write that removes the mark waits for. One
erasure at a time per process; all of it blocks, so never on the event loop.

What was previewed goes as it was shown or not at all: when something has changed since, nothing is erased and the
outcome says so. Without a preview goes what the target means at the commit.
"""

import hmac
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from pikobot.errors import DamagedData, NotFound, PikobotError
from pikobot.memory.forgetting import ledger
from pikobot.memory.forgetting.byte_scan import NOTHING_READ, Erased, collect
from pikobot.memory.forgetting.ledger import Reconciled
from pikobot.memory.forgetting.preview import ForgetPreview, labels_left, shown_sources, token_of
from pikobot.memory.forgetting.proof import look_ahead, prove, remove_traces
from pikobot.memory.forgetting.receipts import AlreadyErased, Changed, Receipt
from pikobot.memory.forgetting.target import ForgetTarget, Resolved, Scopes, resolve
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import closure, erasures
from pikobot.store.erasing.closure import Removed
from pikobot.store.sources import SourceId
from pikobot.store.threads import ThreadId

_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Finished:
    """What the open of an instance had to finish. ``problem``: why traces are still in the file; tried again."""

    reconciled: Reconciled
    was_interrupted: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class _Order:
    """What is to be erased: a target in the scopes, and with a token only if that is what was shown.

    ``resolved`` is what a literal means, looked for beforehand: reading every text would hold up all writing.
    """

    target: ForgetTarget
    scopes: Scopes
    token: str | None
    resolved: Resolved | None


class _Nothing(Enum):
    """Why a commit has erased nothing."""

    LEFT = "left"
    CHANGED = "changed"


@dataclass(frozen=True)
class Committed:
    """What an erasing commit has removed, what has to be looked for, and the end of the ledger by then."""

    removed: Removed
    erased: Erased
    position: int


def forget(
    db: Database,
    ledger_path: Path,
    what: ForgetPreview | ForgetTarget | Sequence[str],
    scope_ids: Scopes = None,
    *,
    token: str | None = None,
) -> Receipt | AlreadyErased | Changed:
    """Erase what was previewed, a target, or sources by public id, with everything that was made from them.

    A preview is erased in the scopes that it was made with, and like a target with a ``token`` only if what would go
    is still what was shown. Scans the directory of the ledger. Raises what `resolve` raises, and `NotFound` when there
    is nothing to erase and nothing of it was; nothing has changed then.
    """
    if isinstance(what, ForgetPreview):
        target, scope_ids, token = what.target, what.scope_ids, what.token
    else:
        target = what if isinstance(what, ForgetTarget) else ForgetTarget(sources=tuple(what))
    resolved = None
    if target.words:
        with db.read() as conn:
            resolved = resolve(conn, target, scope_ids)
    order = _Order(target, scope_ids, token, resolved)
    nothing: list[_Nothing] = []
    erased_before: list[int] = []

    def commit() -> Committed | None:
        done, already = db.perform(_erase, order)
        erased_before.append(already)
        if isinstance(done, Committed):
            return done
        nothing.append(done)
        return None

    receipt = erase(db, ledger_path, commit)
    if receipt is None:
        return Changed() if nothing == [_Nothing.CHANGED] else _nothing_left(what, *erased_before)
    if not target.words:
        return receipt
    with db.read() as conn:
        return replace(receipt, labels=labels_left(conn, target, scope_ids, (), ()))


def erase(db: Database, ledger_path: Path, commit: Callable[[], Committed | None]) -> Receipt | None:
    """Carry an erasing commit through to its receipt, one at a time; None when ``commit`` has erased nothing.

    What fails after the commit, as on a full disk, stands in the receipt: it is erased, and marked as unfinished.
    """
    with _ONE_AT_A_TIME:
        done = commit()
        if done is None:
            return None
        ids = [tombstone.public_id for tombstone in done.removed.tombstones]
        try:
            proof = prove(db, ledger_path, done.erased, ids)
        except (PikobotError, OSError) as error:
            return Receipt(
                removed=done.removed,
                is_wal_truncated=False,
                is_rewritten=False,
                ledger_position=done.position,
                scan=NOTHING_READ,
                problem=str(error),
            )
        if proof.is_wal_empty and not proof.is_left_in_database:
            db.start(_finish)  # before any later commit; what it fails at, the next open does
        return Receipt(
            removed=done.removed,
            is_wal_truncated=proof.is_wal_empty,
            is_rewritten=proof.is_rewritten,
            ledger_position=done.position,
            scan=proof.report,
        )


def remove_closure(
    tx: Connection,
    closed: Sequence[SourceId],
    *,
    thread_ids: Sequence[ThreadId] = (),
    now_ms: int,
    erased: Erased | None = None,
) -> Committed:
    """Remove a closure with tombstones and the mark of what is unfinished; its contents are added to ``erased``.

    Caller holds write, inside of `erase`.
    """
    erased = collect(closure.contents_of(tx, closed, thread_ids=thread_ids), erased)
    removed = closure.remove(tx, closed, thread_ids=thread_ids, now_ms=now_ms)
    erasures.append(tx, removed.tombstones, at_ms=now_ms)
    erasures.mark_unfinished(tx)
    return Committed(removed, erased, erasures.read_tip(tx).position)


def finish_interrupted(db: Database, ledger_path: Path) -> Finished:
    """Bring an erasure to its end that a crash or a busy reader has cut off. At every open, before any reader.

    Compares the ledgers both ways (`ledger.reconcile`, whose errors it raises), then removes what traces an
    unfinished erasure can have left. A database that can't be cleaned now, and rows that the ledger's file does not
    take, as on a full disk, are no error: it stays marked, and what stands can be read.
    """
    with _ONE_AT_A_TIME:
        try:
            reconciled = ledger.reconcile(db, ledger_path)
        except ledger.NotAppended as error:
            return Finished(Reconciled(), problem=str(error))
        with db.read() as conn:
            if not erasures.is_unfinished(conn):
                return Finished(reconciled)
        try:
            problem = remove_traces(db)
            if problem is None:
                db.perform(_finish)
        except DamagedData:
            raise
        except PikobotError as error:
            problem = str(error)
        return Finished(reconciled, True, problem)


def prepare(db: Database) -> None:
    """Do now what the first erasure of this process would have to wait for. Blocks; raises `PikobotError`."""
    with _ONE_AT_A_TIME:
        look_ahead(db)


def _erase(db: Database, order: _Order) -> tuple[Committed | _Nothing, int]:
    """The one commit, or why there was none; and how many of the ids that were asked for are erased already."""
    now_ms = db.clock.now_ms()
    with db.write("forget", is_durable=False) as tx:  # the truncation of the WAL waits for the disk
        resolved = order.resolved or resolve(tx, order.target, order.scopes)
        closed = closure.closure_of(tx, [*resolved.sources, *resolved.along])
        if not closed and not resolved.threads:
            return _Nothing.LEFT, resolved.already_erased
        if order.token is not None:
            token = token_of(tx, resolved, shown_sources(tx, resolved))
            if not hmac.compare_digest(token.encode(), order.token.encode()):
                return _Nothing.CHANGED, resolved.already_erased
        done = remove_closure(tx, closed, thread_ids=resolved.threads, now_ms=now_ms)
        facts = erasures.append(tx, resolved.facts, at_ms=now_ms)
        if facts:
            tombstones = (*done.removed.tombstones, *resolved.facts)
            done = replace(
                done, removed=replace(done.removed, tombstones=tombstones), position=facts[-1].position
            )
        return done, resolved.already_erased


def _nothing_left(what: ForgetPreview | ForgetTarget | Sequence[str], already_erased: int) -> AlreadyErased:
    shown = what.total + what.already_erased if isinstance(what, ForgetPreview) else 0
    if not shown and not already_erased:
        raise NotFound("nothing that is retained matches; nothing was forgotten")
    return AlreadyErased(max(shown, already_erased))


def _finish(db: Database) -> None:
    with db.write("finish forgetting", is_durable=False) as tx:  # lost, it is done again
        erasures.clear_unfinished(tx)
