"""erasures.jsonl: the erasure ledger outside the database, so that an old copy of it can't undo an erasure.

    {"instance": "ins_…", "version": 1}
    {"position": 1, "entity": "source", "id": "src_…", "identity": "hex"|null, "at": ms, "hash": "hex"}

Append-only, ids only, mode 0600, each row bound to the one before (`store.erasing.erasures`), fsynced before an
erasure is reported as done. `reconcile` runs at every open, before anything can read:

    rows that only the database has   are appended to the file (a crash came between commit and append)
    rows that only the file has       are replayed: an old database was copied back
    a last line that a crash has cut  is removed, and comes back from the database
    anything else that differs        is `DamagedData`: nothing is guessed, nothing changed

A file whose last row is in the database agrees with it, for the hash binds all rows before; a file of up to
1 MiB is read through anyway, a larger one by `check` only. Everything runs on the writer thread, under a lock
on the file.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pikobot.errors import DamagedData, PikobotError
from pikobot.files import FILE_MODE, os_failure, write_private_file
from pikobot.memory.forgetting.byte_scan import Erased, collect
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import closure, erasures
from pikobot.store.erasing.erasures import Entity, Erasure, Tip, Tombstone
from pikobot.text import Count

VERSION = 1
FULL_CHECK_MAX_BYTES = 1 << 20
TAIL_BYTES = 4096


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    instance: str
    version: int


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    position: int = Field(ge=1)
    entity: Entity
    id: str = Field(min_length=1)
    identity: str | None = Field(pattern="^([0-9a-f]{2})+$")
    at: int
    hash: str = Field(pattern="^[0-9a-f]{64}$")

    def erasure(self) -> Erasure:
        identity = None if self.identity is None else bytes.fromhex(self.identity)
        return Erasure(self.position, self.entity, self.id, identity, self.at, bytes.fromhex(self.hash))


class NotAppended(PikobotError):
    """The file lacks rows of the database and takes none; what they say was erased is erased."""


@dataclass(frozen=True)
class Reconciled:
    """What made the two ledgers equal."""

    appended: int = 0
    replayed: int = 0
    is_repaired: bool = False  # a line that a crash had cut was removed


@dataclass(frozen=True)
class Chain:
    """A whole ledger that lies outside of its database, checked."""

    instance: str
    erasures: tuple[Erasure, ...]


def reconcile(db: Database, path: Path) -> Reconciled:
    """Make database and file agree; see above. Idempotent; call it before anything reads or writes.

    Raises `DamagedData` naming the file when the two can't have the same history, `NotAppended` when nothing but the
    rows that the file lacks could not be written, `PikobotError` when the file can't be read or written.
    """
    return db.perform(reconcile_inside, path)


def append_missing(db: Database, path: Path, *, is_synced: bool = True) -> int:
    """Append and fsync what the file lacks; returns how many rows. As an operation on the writer thread.

    Of what is in the file the last row is looked at, whose hash binds all others. Without ``is_synced`` rows are
    appended only: `sync` has to follow.
    """
    return reconcile_inside(db, path, reads_all=False, is_synced=is_synced).appended


def sync(path: Path) -> None:
    """Wait until what was appended is on disk. On any thread."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _failure("write", path, error) from error


def check(conn: Connection, path: Path) -> int:
    """Compare every row of the file with the database and changes nothing; returns how many rows there are.

    Raises `DamagedData` for a missing or cut file, and for any difference.
    """
    erasures.verify_chain(conn)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise DamagedData(f"{path} is missing; the next start of pikobot writes it again") from None
    except OSError as error:
        raise _failure("read", path, error) from error
    if content != _tidy(content):
        raise DamagedData(f"{path} ends in a cut line; the next start of pikobot repairs it")
    if not content:
        raise DamagedData(f"{path} is empty; the next start of pikobot writes it again")
    _compare(conn, path, content)
    count, rows = erasures.read_tip(conn).position, content.count(b"\n") - 1
    if rows != count:
        raise DamagedData(
            f"{path} has {Count(rows):erasure} and the database {count}; the next start of pikobot makes them equal"
        )
    return count


def read_whole_lines(path: Path) -> bytes:
    """The file's content while nobody appends, without a last line that a crash has cut.

    Raises `FileNotFoundError`, else `PikobotError`.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return _tidy(file.read())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _failure("read", path, error) from error


def parse_chain(path: Path, whole: bytes) -> Chain:
    """The ledger that stands in whole lines. Raises `DamagedData` naming the file when its chain is broken."""
    lines = whole.splitlines()
    header = _header_in(path, lines[0] if lines else b"")
    return Chain(header.instance, tuple(erasure for _, erasure in _rows_in(path, lines, header.instance)))


def replay(db: Database, continuing: Sequence[Erasure], elsewhere: Sequence[Erasure] = ()) -> Erased:
    """Erase again what other copies of the ledger say was erased; returns what went. On the writer thread.

    ``continuing`` rows follow the database's own and keep their positions and hashes; those from ``elsewhere``, a
    copy that has gone another way, are appended anew. What depends on them here and nowhere else gets tombstones
    of its own behind them.
    """
    now_ms = db.clock.now_ms()
    with db.write("replay erasures") as tx:
        sources, threads = closure.find_erased(tx, [*continuing, *elsewhere])
        closed = closure.closure_of(tx, sources)
        erased = collect(closure.contents_of(tx, closed, thread_ids=threads))
        removed = closure.remove(tx, closed, thread_ids=threads, now_ms=now_ms)
        erasures.insert_copies(tx, continuing)
        for erasure in elsewhere:
            tombstone = Tombstone(erasure.entity, erasure.public_id, erasure.identity)
            erasures.append(tx, [tombstone], at_ms=erasure.erased_at_ms)
        erasures.append(tx, removed.tombstones, at_ms=now_ms)
        erasures.mark_unfinished(tx)
        return erased


def reconcile_inside(
    db: Database, path: Path, *, reads_all: bool = True, is_synced: bool = True
) -> Reconciled:
    """`reconcile` as an operation on the writer thread, outside transactions. See `append_missing`."""
    conn = db.maintenance_connection()
    if not path.exists():
        return Reconciled(appended=_write_anew(conn, path))
    try:
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            reconciled = _reconcile_open(db, conn, path, descriptor, reads_all)
            if is_synced and (reconciled.is_repaired or os.fstat(descriptor).st_size != size):
                os.fsync(descriptor)
            return reconciled
    except OSError as error:
        raise _failure("update", path, error) from error


def _reconcile_open(
    db: Database, conn: Connection, path: Path, descriptor: int, reads_all: bool
) -> Reconciled:
    size = os.fstat(descriptor).st_size
    if size > FULL_CHECK_MAX_BYTES or not reads_all:
        missing = _behind_last(conn, descriptor, size)
        if missing is not None:
            return Reconciled(appended=_append(path, descriptor, missing))
    content = os.pread(descriptor, size, 0)
    whole = _tidy(content)
    extra = _compare(conn, path, whole) if whole else []
    if extra:
        replay(db, extra)
    if whole != content:
        _replace_tail(descriptor, content, whole)
    rows = erasures.read_after(conn, max(whole.count(b"\n") - 1, 0))
    appended = _append(path, descriptor, rows, header="" if whole else _header(conn))
    return Reconciled(appended, len(extra), is_repaired=whole != content)


def _behind_last(conn: Connection, descriptor: int, size: int) -> Iterator[Erasure] | None:
    """The rows that follow the file's last one if the database has exactly this row there."""
    tail = os.pread(descriptor, TAIL_BYTES, max(size - TAIL_BYTES, 0))
    if not tail.endswith(b"\n"):
        return None
    try:
        last = _Line.model_validate_json(tail.splitlines()[-1]).erasure()
    except ValidationError:
        return None
    rows = erasures.read_after(conn, last.position - 1)
    return rows if next(rows, None) == last else None


def _compare(conn: Connection, path: Path, whole: bytes) -> list[Erasure]:
    """Hold the file against the database; returns the rows that only the file has. Raises `DamagedData`."""
    instance = erasures.instance_id(conn)
    lines = whole.splitlines()
    header = _header_in(path, lines[0])
    if header.instance != instance:
        raise DamagedData(
            f"{path} belongs to another instance ({header.instance}, the database is {instance}): "
            "put back the ledger of this instance, or the database that belongs to the ledger (RECOVERY.md)"
        )
    ours = erasures.read_after(conn, 0)
    extra = []
    for number, erasure in _rows_in(path, lines, instance):
        mine = next(ours, None)
        if mine is not None and mine != erasure:
            raise _damaged(path, number, "differs from the database: the two have gone different ways")
        if mine is None:
            extra.append(erasure)
    return extra


def _rows_in(path: Path, lines: Sequence[bytes], instance: str) -> Iterator[tuple[int, Erasure]]:
    """The rows behind the header with their line numbers, each checked to follow the one before."""
    tip = erasures.genesis(instance)
    for number, line in enumerate(lines[1:], 2):
        try:
            erasure = _Line.model_validate_json(line).erasure()
        except ValidationError:
            raise _damaged(path, number, "is not a row of the ledger") from None
        if not erasures.follows(tip, erasure):
            raise _damaged(path, number, "breaks the chain of hashes")
        yield number, erasure
        tip = Tip(erasure.position, erasure.hash)


def _header_in(path: Path, line: bytes) -> _Header:
    try:
        header = _Header.model_validate_json(line)
    except ValidationError:
        raise _damaged(path, 1, "is not the header of an erasure ledger") from None
    if header.version != VERSION:
        raise DamagedData(
            f"{path} has version {header.version}, this pikobot knows {VERSION}: use a newer pikobot"
        )
    return header


def _write_anew(conn: Connection, path: Path) -> int:
    rows = [_row(erasure) for erasure in erasures.read_after(conn, 0)]
    write_private_file(path, _header(conn) + "".join(rows))
    return len(rows)


def _append(path: Path, descriptor: int, rows: Iterable[Erasure], *, header: str = "") -> int:
    """Write rows behind the end of the file, all of them or none; returns how many."""
    texts = [_row(erasure) for erasure in rows]
    data = (header + "".join(texts)).encode()
    if not data:
        return 0
    end = os.lseek(descriptor, 0, os.SEEK_END)
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        os.ftruncate(descriptor, end)
        raise NotAppended(str(os_failure("write", path, error))) from error
    return len(texts)


def _tidy(content: bytes) -> bytes:
    """The file without a last line that a crash has cut; a whole row that only lacks its line end gets one."""
    end = content.rfind(b"\n") + 1
    tail = content[end:].strip(b"\0")
    with contextlib.suppress(ValidationError):
        _Line.model_validate_json(tail)
        return content[:end] + tail + b"\n"
    return content[:end]


def _replace_tail(descriptor: int, content: bytes, whole: bytes) -> None:
    same = content.rfind(b"\n") + 1
    os.ftruncate(descriptor, same)
    os.pwrite(descriptor, whole[same:], same)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, open for reading and writing, ours alone and private."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.fchmod(descriptor, FILE_MODE)
        yield descriptor
    finally:
        os.close(descriptor)


def _header(conn: Connection) -> str:
    return _json({"instance": erasures.instance_id(conn), "version": VERSION})


def _row(erasure: Erasure) -> str:
    return _json(
        {
            "position": erasure.position,
            "entity": erasure.entity,
            "id": erasure.public_id,
            "identity": None if erasure.identity is None else erasure.identity.hex(),
            "at": erasure.erased_at_ms,
            "hash": erasure.hash.hex(),
        }
    )


def _json(members: dict[str, object]) -> str:
    return json.dumps(members) + "\n"


def _failure(doing: str, path: Path, error: OSError) -> PikobotError:
    if path.is_dir():
        return DamagedData(
            f"{path} is a directory: move it away, and the next start of pikobot writes the file again"
        )
    return os_failure(doing, path, error)


def _damaged(path: Path, line: int, problem: str) -> DamagedData:
    return DamagedData(
        f"{path} line {line} {problem}: copy the instance directory, then put back the erasures.jsonl and the "
        "database that belong together (RECOVERY.md)"
    )
