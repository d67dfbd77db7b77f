"""Forgetting: preview what would go, erase it for good, prove it with a receipt.

    target ─▶ preview (what goes, how much with it, a token)
           ─▶ one commit: closure removed, runs fenced, tombstones and ledger rows written
           ─▶ WAL truncated ─▶ erasures.jsonl appended and fsynced
           ─▶ every file read for the erased text; the database rewritten if it still holds some ─▶ receipt

A crash after the commit is finished at the next open (`finish_interrupted`): the commit leaves a mark that
stays until the files are clean. What had to be looked for is lost with the process, so the database is then
rewritten without looking. One erasure at a time per process; all of it blocks, so never on the event loop.

A preview goes stale when something is said meanwhile. Its sources go in any case, with all that depends on
them by then; a thread goes with what was added, a text search takes nothing that was not shown.
"""

import hmac
import json
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from pikobot.clock import iso_time
from pikobot.errors import InvalidParams, NotFound, PikobotError
from pikobot.memory import ledger
from pikobot.memory.byte_scan import Erased, ScanReport, collect, needles_of, scan
from pikobot.memory.ledger import Reconciled
from pikobot.memory.params import Name, Params, storable
from pikobot.memory.receipts import AlreadyErased, Receipt
from pikobot.store import closure, erasures, targets
from pikobot.store.closure import Removed
from pikobot.store.connection import Connection, Database
from pikobot.store.prepare import identity_key
from pikobot.store.remnants import rewrite
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import SourceId
from pikobot.store.threads import Thread, ThreadId, find_thread_by_public_id

MAX_ITEMS = 20
MAX_BEGINNING_CHARS = 80
MAX_SOURCES = 10_000
MAX_QUERY_CHARS = 10_000

_ONE_AT_A_TIME = threading.Lock()

Scopes = Collection[ScopeId] | None
"""The scopes that may be touched directly; None is the operator's: all. What depends on them goes everywhere."""


@dataclass(frozen=True)
class ForgetTarget:
    """What to forget: exactly one of the four. ``text`` is a literal in any case; threads go by public id."""

    sources: tuple[str, ...] = ()
    thread: str | None = None
    text: str | None = None
    last_exchange: str | None = None

    def __post_init__(self) -> None:
        given = [self.sources, self.thread, self.text, self.last_exchange]
        if sum(bool(value) for value in given) != 1:
            raise InvalidParams(
                "name exactly one thing to forget: sources, a thread, a text or a last exchange"
            )
        if self.text is not None and not self.text.strip():
            raise InvalidParams("the text to forget is empty")


class PreviewItem(NamedTuple):
    """One source that would go; ``said`` is the time in the source's own offset."""

    id: str
    role: str
    speaker: str
    said: str
    beginning: str


@dataclass(frozen=True)
class ForgetPreview:
    """What would go: ``direct`` sources that were asked for, ``derived`` ones that were made from them.

    ``items`` are the first twenty, direct ones first. The token stands for a text search (`forget_rpc`).
    """

    target: ForgetTarget
    scope_ids: frozenset[ScopeId] | None
    token: str
    items: tuple[PreviewItem, ...]
    direct: int
    derived: int
    already_erased: int
    source_ids: tuple[str, ...]

    @property
    def total(self) -> int:
        return self.direct + self.derived

    def as_json(self) -> dict[str, object]:
        return {
            "status": "preview",
            "token": self.token,
            "direct": self.direct,
            "derived": self.derived,
            "total": self.total,
            "alreadyErased": self.already_erased,
            "items": [item._asdict() for item in self.items],
        }


@dataclass(frozen=True)
class Finished:
    """What the open of an instance had to finish. ``problem``: why traces are still in the file; tried again."""

    reconciled: Reconciled
    was_interrupted: bool = False
    problem: str | None = None


@dataclass(frozen=True)
class _Resolved:
    sources: list[SourceId]
    threads: list[ThreadId]
    already_erased: int = 0


@dataclass(frozen=True)
class Committed:
    """What an erasing commit has removed, what has to be looked for, and the end of the ledger by then."""

    removed: Removed
    erased: Erased
    position: int


def preview(db: Database, target: ForgetTarget, scope_ids: Scopes = None) -> ForgetPreview:
    """Show what forgetting would take. Changes nothing.

    Raises `NotFound` for an id that never was or is out of the scopes; a text that nothing holds is an empty
    preview, so are ids that are erased already.
    """
    scopes = None if scope_ids is None else frozenset(scope_ids)
    with db.read() as conn:
        newest = targets.find_newest(conn)
        resolved = _resolve(conn, target, scopes, newest)
        closed = closure.closure_of(conn, resolved.sources)
        asked = set(resolved.sources)
        derived = [source_id for source_id in closed if source_id not in asked]
        glances = targets.glance_at(
            conn, [*resolved.sources, *derived][:MAX_ITEMS], max_chars=MAX_BEGINNING_CHARS
        )
        items = tuple(
            PreviewItem(
                glance.public_id,
                glance.role,
                glance.speaker,
                iso_time(glance.said_at_ms, glance.utc_offset_min),
                glance.beginning,
            )
            for glance in glances
        )
        return ForgetPreview(
            target=target,
            scope_ids=scopes,
            token=_token(conn, target, scopes, newest),
            items=items,
            direct=len(asked),
            derived=len(derived),
            already_erased=resolved.already_erased,
            source_ids=targets.public_ids_of(conn, resolved.sources),
        )


def forget(
    db: Database, ledger_path: Path, what: ForgetPreview | Sequence[str], scope_ids: Scopes = None
) -> Receipt | AlreadyErased:
    """Erase a preview, or sources by public id, with everything that was made from them.

    Scans the directory of the ledger. The scopes of a preview are those it was made with. Raises `NotFound`
    for an id that never was or is out of the scopes, and for an empty preview; nothing has changed then.
    """
    if not isinstance(what, ForgetPreview):
        target = ForgetTarget(sources=tuple(what))
        what = preview(db, target, scope_ids)
    receipt = erase(db, ledger_path, lambda: db.perform(_erase, what))
    return _nothing_left(what) if receipt is None else receipt


def erase(db: Database, ledger_path: Path, commit: Callable[[], Committed | None]) -> Receipt | None:
    """Carry an erasing commit through to its receipt, one at a time; None when ``commit`` has erased nothing."""
    with _ONE_AT_A_TIME:
        done = commit()
        if done is None:
            return None
        is_truncated = db.perform(_truncate_wal)
        db.perform(ledger.append_missing, ledger_path)
        is_rewritten, report = _prove(db, ledger_path.parent, done.erased, is_truncated)
        if is_truncated and not _is_left_in_database(db, report):
            db.perform(_finish)
        return Receipt(
            removed=done.removed,
            is_wal_truncated=is_truncated,
            is_rewritten=is_rewritten,
            ledger_position=done.position,
            scan=report,
        )


def remove_closure(
    tx: Connection, closed: Sequence[SourceId], *, thread_ids: Sequence[ThreadId] = (), now_ms: int
) -> Committed:
    """Remove a closure with tombstones and the mark of what is unfinished. Caller holds write, inside of `erase`."""
    erased = collect(closure.contents_of(tx, closed, thread_ids=thread_ids))
    removed = closure.remove(tx, closed, thread_ids=thread_ids, now_ms=now_ms)
    erasures.append(tx, removed.tombstones, at_ms=now_ms)
    erasures.mark_unfinished(tx)
    return Committed(removed, erased, erasures.read_tip(tx).position)


def finish_interrupted(db: Database, ledger_path: Path) -> Finished:
    """Bring an erasure to its end that a crash or a busy reader has cut off. At every open, before any reader.

    Compares the ledgers both ways (`ledger.reconcile`, whose errors it raises), then removes what traces an
    unfinished erasure can have left. A database that can't be rewritten now is not an error: it stays marked.
    """
    with _ONE_AT_A_TIME:
        reconciled = ledger.reconcile(db, ledger_path)
        with db.read() as conn:
            if not erasures.is_unfinished(conn):
                return Finished(reconciled)
        problem = db.perform(_remove_traces)
        return Finished(reconciled, True, problem)


def _resolve(conn: Connection, target: ForgetTarget, scopes: Scopes, newest: str | None) -> _Resolved:
    if target.sources:
        return _resolve_sources(conn, target.sources, scopes)
    if target.text is not None:
        up_to = targets.find_ids(conn, [newest] if newest else [], None)
        if newest is None or newest not in up_to:
            return _Resolved([], [])
        found = targets.find_containing(conn, target.text, scopes, up_to=up_to[newest])
        return _Resolved(found, [])
    public_id = target.thread or target.last_exchange or ""
    thread = _find_thread(conn, public_id, scopes)
    if thread is None:
        return _Resolved([], [], already_erased=1)
    if target.last_exchange is not None:
        return _Resolved(targets.find_last_exchange(conn, thread.id), [])
    return _Resolved(closure.sources_of_thread(conn, thread.id), [thread.id])


def _resolve_sources(conn: Connection, public_ids: Sequence[str], scopes: Scopes) -> _Resolved:
    wanted = list(dict.fromkeys(public_ids))
    found = targets.find_ids(conn, wanted, scopes)
    missing = [public_id for public_id in wanted if public_id not in found]
    for public_id in missing:
        if not erasures.is_erased(conn, public_id):
            raise NotFound(
                f"source {_shown(public_id)} does not exist; `pikobot rpc memory.list` lists sources"
            )
    return _Resolved(list(found.values()), [], len(missing))


def _find_thread(conn: Connection, public_id: str, scopes: Scopes) -> Thread | None:
    """The thread; None when it was erased."""
    thread = find_thread_by_public_id(conn, public_id)
    if thread is not None and (scopes is None or thread.scope_id in scopes):
        return thread
    if thread is None and erasures.is_erased(conn, public_id):
        return None
    raise NotFound(f"thread {_shown(public_id)} does not exist; `pikobot rpc threads.list` lists threads")


def _erase(db: Database, what: ForgetPreview) -> Committed | None:
    """The one commit; None when nothing of the preview is left."""
    now_ms = db.clock.now_ms()
    with db.write("forget") as tx:
        asked = list(targets.find_ids(tx, what.source_ids, what.scope_ids).values())
        threads: list[ThreadId] = []
        if what.target.thread is not None:
            resolved = _resolve(tx, what.target, what.scope_ids, None)
            asked, threads = [*asked, *resolved.sources], resolved.threads
        closed = closure.closure_of(tx, asked)
        if not closed and not threads:
            return None
        return remove_closure(tx, closed, thread_ids=threads, now_ms=now_ms)


def _nothing_left(what: ForgetPreview) -> AlreadyErased:
    erased = what.already_erased + what.direct
    if not erased:
        raise NotFound("nothing that is retained matches; nothing was forgotten")
    return AlreadyErased(erased)


def _truncate_wal(db: Database) -> bool:
    return db.truncate_wal()


def _prove(db: Database, root: Path, erased: Erased, is_truncated: bool) -> tuple[bool, ScanReport]:
    """Look for what was erased; when SQLite has left a copy in the unused part of a page, rewrite and look again."""
    with db.read() as conn:
        needles = needles_of(conn, erased)
    report = scan(root, db, needles)
    if not is_truncated or not _is_left_in_database(db, report):
        return False, report
    problem = db.perform(_rewrite)
    return problem is None, scan(root, db, needles)


def _is_left_in_database(db: Database, report: ScanReport) -> bool:
    names = {db.path.name, f"{db.path.name}-wal"}
    return any(find.file in names for find in report.finds)


def _rewrite(db: Database) -> str | None:
    """Rewrite the database; returns why it could not."""
    try:
        rewrite(db)
    except PikobotError as error:
        return str(error)
    return None if db.truncate_wal() else "a reader keeps the WAL"


def _remove_traces(db: Database) -> str | None:
    problem = _rewrite(db)
    if problem is None:
        _finish(db)
    return problem


def _finish(db: Database) -> None:
    with db.write("finish forgetting") as tx:
        erasures.clear_unfinished(tx)


def _token(conn: Connection, target: ForgetTarget, scopes: Scopes, newest: str | None) -> str:
    """Binds a target to the state in which it was previewed; nobody else can make one."""
    bound = [
        list(target.sources),
        target.thread,
        target.text,
        target.last_exchange,
        None if scopes is None else sorted(scopes),
        newest,
    ]
    mac = hmac.new(identity_key(conn), b"forget\0" + json.dumps(bound).encode(), "sha256")
    return f"{newest or ''}.{mac.hexdigest()}"


def confirmed(db: Database, target: ForgetTarget, token: str, scope_ids: Scopes = None) -> ForgetPreview:
    """The preview that a token stands for, without what was said since.

    Raises `InvalidParams` when the token is of another target or too old to be understood.
    """
    newest = token.rpartition(".")[0] or None
    scopes = None if scope_ids is None else frozenset(scope_ids)
    with db.read() as conn:
        if not hmac.compare_digest(_token(conn, target, scopes, newest).encode(), token.encode()) or (
            newest is not None and not targets.find_ids(conn, [newest], None)
        ):
            raise InvalidParams("token: not of this preview, or out of date; preview again with dryRun")
        resolved = _resolve(conn, target, scopes, newest)
        ids = targets.public_ids_of(conn, resolved.sources)
    return ForgetPreview(target, scopes, token, (), len(ids), 0, resolved.already_erased, ids)


def _shown(public_id: str) -> str:
    return ascii(public_id[:MAX_BEGINNING_CHARS])


class ForgetParams(Params):
    """Parameters of ``memory.forget``: one of sources, thread and query; a query needs the token of its dry run."""

    sources: Annotated[list[Name], Field(min_length=1, max_length=MAX_SOURCES)] | None = None
    thread: Name | None = None
    query: (
        Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS), AfterValidator(storable)] | None
    ) = None
    token: Name | None = None
    dry_run: bool = Field(default=False, alias="dryRun")


def forget_rpc(db: Database, ledger_path: Path, given: ForgetParams) -> dict[str, object]:
    """``memory.forget`` for the operator, who may forget in every scope: a preview, a receipt or "alreadyErased".

    Raises `InvalidParams`, and what `preview` and `forget` raise. Blocks until the erasure is proved.
    """
    target = ForgetTarget(tuple(given.sources or ()), given.thread, given.query)
    if given.dry_run:
        return preview(db, target).as_json()
    if given.query is None:
        return forget(db, ledger_path, preview(db, target)).as_json()
    if given.token is None:
        raise InvalidParams(
            "token: a query is forgotten with the token of its preview; ask with dryRun first"
        )
    return forget(db, ledger_path, confirmed(db, target, given.token)).as_json()
