"""One database: a writer thread that owns the write connection, and a pool of read connections.

    db.perform(operation, …)              run an operation on the writer thread and wait
    await db.perform_async(operation, …)  the same from a coroutine
    with db.write("what it does") as tx   inside an operation: one BEGIN IMMEDIATE … COMMIT
    with db.read() as conn                a consistent snapshot, any thread; never across an await

Invariants: a transaction is opened on the writer thread only, and never inside another; a coroutine never
holds a connection; cancelling a coroutine does not cancel the commit that it waits for — the coroutine
resumes, cancelled, when the outcome is known. SQLite's own files are the only ones written.

WAL with synchronous=FULL: a commit that returned survives power loss. secure_delete and FTS5's secure-delete
overwrite what is deleted; truncating the WAL removes its copy (`truncate_wal`).
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from pikobot.clock import Clock
from pikobot.errors import DamagedData, InstanceBusy, PikobotError
from pikobot.store.literal import contains_folded

Connection = apsw.Connection
SqlValue = int | float | str | bytes | None

P = ParamSpec("P")
T = TypeVar("T")

READ_CONNECTIONS = 4
BUSY_TIMEOUT_MS = 10_000
PAGE_SIZE = 16_384
MAX_INTEGER = 2**63 - 1  # of SQLite


class MisuseError(RuntimeError):
    """The caller broke a rule of this room: a bug, not an outcome."""


class Database:
    """An open database file. Opening migrates nothing: see `store.migrations`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self._transaction: str | None = None
        self._readers: queue.LifoQueue[Connection | None] = queue.LifoQueue()
        for _ in range(READ_CONNECTIONS):
            self._readers.put(None)
        self._writer_ident = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._read_pool = ThreadPoolExecutor(READ_CONNECTIONS, thread_name_prefix="pikobot-read")
        self._closed = False
        create_private_file(path)
        self._writer = connect(path)
        self._thread = threading.Thread(target=self._write_loop, name="pikobot-write", daemon=True)
        self._thread.start()

    # Operations ------------------------------------------------------------------------------------

    def perform(
        self, operation: Callable[Concatenate["Database", P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``operation(db, …)`` on the writer thread and return what it returns. Not from the event loop."""
        return self._submit(operation, args, kwargs).result()

    async def perform_async(
        self, operation: Callable[Concatenate["Database", P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``operation(db, …)`` on the writer thread; a cancellation is delivered after the outcome."""
        return await _settled(self._submit(operation, args, kwargs))

    async def read_async(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``query(conn, …)`` on a reading thread, in one snapshot."""

        def read() -> T:
            with self.read() as conn:
                return query(conn, *args, **kwargs)

        return await _settled(self._read_pool.submit(read))

    @contextmanager
    def write(self, purpose: str) -> Iterator[Connection]:
        """One write transaction, named; commits when the block ends, rolls back when it raises.

        Raises `MisuseError` off the writer thread or inside another transaction, `InstanceBusy` when another
        process writes for longer than 10 seconds.
        """
        if threading.get_ident() != self._writer_ident:
            raise MisuseError(f"'{purpose}' writes outside the writer thread: use perform()")
        if self._transaction is not None:
            raise MisuseError(f"'{purpose}' begins inside '{self._transaction}'")
        self._transaction = purpose
        try:
            with translated_errors(purpose):
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self._writer
                    self._writer.execute("COMMIT")
                except BaseException:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
        finally:
            self._transaction = None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only snapshot of the database. Blocks while all read connections are in use."""
        conn = self._readers.get()
        try:
            if conn is None:
                conn = connect(self.path)
                conn.execute("PRAGMA query_only = ON")
            with translated_errors("read"):
                conn.execute("BEGIN")
                try:
                    yield conn
                finally:
                    if conn.in_transaction:
                        conn.execute("ROLLBACK")
        finally:
            self._readers.put(conn)

    def truncate_wal(self) -> bool:
        """Copy the WAL into the database and empty it; on the writer thread, outside transactions.

        Waits up to the busy timeout for readers; False when one of them still keeps the WAL.
        """
        return not self.maintenance_connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]

    def maintenance_connection(self) -> Connection:
        """The write connection, for statements that manage their own transactions (copies, checkpoints)."""
        if threading.get_ident() != self._writer_ident:
            raise MisuseError("maintenance outside the writer thread: use perform()")
        if self._transaction is not None:
            raise MisuseError(f"maintenance inside '{self._transaction}'")
        return self._writer

    def close(self) -> None:
        """Finish what is queued, checkpoint, close every connection. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._read_pool.shutdown(wait=True)
        while not self._readers.empty():
            reader = self._readers.get()
            if reader is not None:
                reader.close()
        self._jobs.put(None)
        self._thread.join()
        self._writer.close()

    # The writer thread -----------------------------------------------------------------------------

    def _submit(
        self,
        operation: Callable[Concatenate["Database", P], T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[T]:
        if self._closed:
            raise MisuseError("the database is closed")
        if threading.get_ident() == self._writer_ident:
            raise MisuseError("an operation submits another one: call it directly")
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(operation(self, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001 — delivered to the waiting caller
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def _write_loop(self) -> None:
        self._writer_ident = threading.get_ident()
        while (job := self._jobs.get()) is not None:
            job()


async def _settled(future: Future[T]) -> T:
    """Await a thread's future to its end even when cancelled meanwhile; then the cancellation goes on."""
    wrapped = asyncio.wrap_future(future)
    cancelled: asyncio.CancelledError | None = None
    while not wrapped.done():
        try:
            await asyncio.wait({wrapped})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        wrapped.exception()  # observed: the cancellation is what the caller gets
        raise cancelled
    return wrapped.result()


def create_private_file(path: Path) -> None:
    """Make sure that the file exists, readable and writable by its owner alone when it is new."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def connect(path: Path) -> Connection:
    """A connection with every setting that the promises of this room need."""
    with translated_errors("open the database"):
        conn = apsw.Connection(str(path))
        conn.set_busy_timeout(BUSY_TIMEOUT_MS)
        conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        for pragma in (
            f"page_size = {PAGE_SIZE}",
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
            "temp_store = MEMORY",
            "trusted_schema = OFF",
        ):
            conn.execute(f"PRAGMA {pragma}").fetchall()
        conn.create_scalar_function("contains_folded", _contains_folded, 2, deterministic=True)
        return conn


def _contains_folded(*values: SqlValue) -> SqlValue:
    text, folded_needle = values
    return contains_folded(str(text), str(folded_needle))


@contextmanager
def translated_errors(purpose: str) -> Iterator[None]:
    """Turn SQLite's failures into ours; anything else passes."""
    try:
        yield
    except apsw.BusyError as error:
        raise InstanceBusy(f"another process is writing to the database ({purpose}); try again") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise DamagedData(
            f"the database is damaged ({purpose}: {error}); copy the instance directory, then see RECOVERY.md"
        ) from error
    except apsw.FullError as error:
        raise PikobotError(f"the disk is full ({purpose}); nothing was changed, free some space") from error
    except (apsw.IOError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
        raise PikobotError(f"the database can't be read or written ({purpose}): {error}") from error
