"""One database: a writer thread that owns the write connection, and a pool of read connections.

    db.perform(operation, …)              run an operation on the writer thread and wait
    await db.perform_async(operation, …)  the same from a coroutine
    with db.write("what it does") as tx   inside an operation: one BEGIN IMMEDIATE … COMMIT
    with db.read() as conn                a consistent snapshot, any thread; never across an await

Invariants: a transaction is opened on the writer thread only, and never inside another; a coroutine never
holds a connection; cancelling a coroutine does not cancel the commit that it waits for — the coroutine
resumes, cancelled, when the outcome is known. SQLite's own files are the only ones written. A read connection
goes back to the pool without a transaction: a cursor that outlives its snapshot closes the connection. Nothing is
committed to files that were deleted or replaced under it (`open_files`).

WAL with synchronous=FULL: a commit that returned survives power loss. secure_delete and FTS5's secure-delete
overwrite what is deleted; truncating the WAL removes its copy (`truncate_wal`).
"""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from pikobot.clock import Clock
from pikobot.errors import DamagedData, InstanceBusy, PikobotError
from pikobot.files import FILE_MODE, os_failure
from pikobot.store.open_files import OpenFiles
from pikobot.store.text.literal import contains_folded, contains_word_folded
from pikobot.store.vectors.cache import BLOCKS

Connection = apsw.Connection
SqlValue = int | float | str | bytes | None

P = ParamSpec("P")
T = TypeVar("T")

READ_CONNECTIONS = 4
BUSY_TIMEOUT_MS = 10_000
PAGE_SIZE = 16_384
CHECKPOINT_PAGES = 1000  # in the WAL, after which a commit has them copied into the database
# The whole file: a scan of vectors is three times faster than by read calls. SQLite shortens no file under a reader;
# somebody else who does ends the process at once with SIGBUS (sqlite.org/mmap.html), and what is committed stands.
READ_MMAP_BYTES = 1 << 40
MAX_INTEGER = 2**63 - 1  # of SQLite


class MisuseError(RuntimeError):
    """The caller broke a rule of this room: a bug, not an outcome."""


class Database:
    """An open database file. Opening migrates nothing: see `store.schema`."""

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
        self._state = threading.Lock()
        self._closed = False
        self._readers_closed = False
        self._wal_pages = 0
        self.around_checkpoint: Callable[[Database], AbstractContextManager[object]] = lambda _: nullcontext()
        """Entered on the writer thread whenever this process has pages copied from the WAL into the database."""
        create_private_file(path)
        self._writer = connect(path)
        self.files = OpenFiles(path)
        self._writer.set_wal_hook(self._note_wal_pages)  # in the place of SQLite's own automatic checkpoint
        self._thread = threading.Thread(target=self._write_loop, name="pikobot-write", daemon=True)
        self._thread.start()

    # Operations ------------------------------------------------------------------------------------

    def perform(
        self, operation: Callable[Concatenate["Database", P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run ``operation(db, …)`` on the writer thread and return what it returns. Not from the event loop."""
        return self._submit(operation, args, kwargs).result()

    def start(
        self, operation: Callable[Concatenate["Database", P], T], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Run ``operation(db, …)`` on the writer thread and go on meanwhile; its result has to be asked for."""
        return self._submit(operation, args, kwargs)

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

        with self._state:
            if self._closed:
                raise MisuseError("the database is closed")
            future = self._read_pool.submit(read)
        return await _settled(future)

    @contextmanager
    def write(self, purpose: str, *, is_durable: bool = True) -> Iterator[Connection]:
        """One write transaction, named; commits when the block ends, rolls back when it raises.

        A commit that is not durable does not wait for the disk: it survives the end of the process, and power loss
        once a later commit or a truncation of the WAL has waited. Raises `MisuseError` off the writer thread or inside
        another transaction, `InstanceBusy` when another process writes for longer than 10 seconds, and what
        `OpenFiles.check` raises.
        """
        if threading.get_ident() != self._writer_ident:
            raise MisuseError(f"'{purpose}' writes outside the writer thread: use perform()")
        if self._transaction is not None:
            raise MisuseError(f"'{purpose}' begins inside '{self._transaction}'")
        self._transaction = purpose
        try:
            with translated_errors(purpose, is_undone=True):
                self._writer.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                self._writer.execute("BEGIN IMMEDIATE")
                try:
                    yield self._writer
                    self.files.check()
                    self._writer.execute("COMMIT")
                except BaseException:
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                    raise
        finally:
            self._transaction = None
        self._checkpoint_if_due()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read-only snapshot, taken at the first statement. Blocks while all read connections are in use."""
        conn = self._readers.get()
        try:
            if self._readers_closed:
                raise MisuseError("the database is closed")
            if conn is None:
                self.files.check()  # a connection would make the file again
                conn = _connect_reader(self.path)
            with translated_errors("read"):
                conn.execute("BEGIN")
                try:
                    yield conn
                finally:
                    if conn.in_transaction:
                        conn.execute("ROLLBACK")
        finally:
            self._readers.put(self._reusable(conn))

    def _reusable(self, conn: Connection | None) -> Connection | None:
        """The connection if it can serve another snapshot; else it is closed, and None stands for a new one."""
        if conn is None or not (self._readers_closed or conn.txn_state() != apsw.SQLITE_TXN_NONE):
            return conn
        conn.close(True)
        return None

    def truncate_wal(self) -> bool:
        """Copy the WAL into the database and empty it, and drop the blocks of vectors that are kept in memory.

        On the writer thread, outside transactions. Waits up to the busy timeout for readers; False when one of them
        still keeps the WAL.
        """
        conn = self.maintenance_connection()
        with translated_errors("truncate the write-ahead log"), self.around_checkpoint(self):
            rows = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        BLOCKS.clear()
        return not rows[0][0]

    def _note_wal_pages(self, _: Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint_if_due(self) -> None:
        """Keep the WAL short. The commit stands whatever comes of it, and the next one tries again."""
        if self._wal_pages >= CHECKPOINT_PAGES:
            self._wal_pages = 0
            with suppress(apsw.Error, PikobotError, OSError), self.around_checkpoint(self):
                self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def maintenance_connection(self) -> Connection:
        """The write connection, for statements that manage their own transactions (copies, checkpoints)."""
        if threading.get_ident() != self._writer_ident:
            raise MisuseError("maintenance outside the writer thread: use perform()")
        if self._transaction is not None:
            raise MisuseError(f"maintenance inside '{self._transaction}'")
        return self._writer

    def close(self) -> None:
        """Finish what is queued, checkpoint, close every connection. Idempotent."""
        if threading.get_ident() == self._writer_ident:
            raise MisuseError("an operation closes its database")
        with self._state:
            if self._closed:
                return
            self._closed = True
            self._jobs.put(None)
        self._thread.join()  # first: what is queued may read
        self._read_pool.shutdown(wait=True)
        self._readers_closed = True
        for _ in range(self._readers.qsize()):
            self._readers.put(self._reusable(self._readers.get()))
        with suppress(PikobotError):
            if self.files.has_foreign_companions():  # their names would be removed
                self._writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._writer.close()

    # The writer thread -----------------------------------------------------------------------------

    def _submit(
        self,
        operation: Callable[Concatenate["Database", P], T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[T]:
        if threading.get_ident() == self._writer_ident:
            raise MisuseError("an operation submits another one: call it directly")
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(operation(self, *args, **kwargs))
            except BaseException as error:  # noqa: BLE001 — delivered to the waiting caller
                future.set_exception(error)

        with self._state:
            if self._closed:
                raise MisuseError("the database is closed")
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
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))
    except OSError as error:
        raise os_failure("open the database", path, error) from error


def connect(path: Path) -> Connection:
    """A connection with every setting that the promises of this room need.

    Raises `DamagedData` for a file that is no database, `PikobotError` where SQLite can't keep a WAL.
    """
    with translated_errors("open the database"):
        conn = apsw.Connection(str(path))
        try:
            _set_up(conn, path)
        except BaseException:
            conn.close()
            raise
        return conn


def _connect_reader(path: Path) -> Connection:
    conn = connect(path)
    conn.execute("PRAGMA query_only = ON")
    conn.execute(f"PRAGMA mmap_size = {READ_MMAP_BYTES}").fetchall()
    return conn


def _set_up(conn: Connection, path: Path) -> None:
    conn.set_busy_timeout(BUSY_TIMEOUT_MS)
    conn.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    conn.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    if conn.execute("PRAGMA journal_mode = WAL").fetchall() != [("wal",)]:
        raise PikobotError(f"{path} is on a file system without shared memory: put it on a local disk")
    for pragma in (
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "temp_store = MEMORY",
        "trusted_schema = OFF",
    ):
        conn.execute(f"PRAGMA {pragma}").fetchall()
    # Reads the text index over sources word by word; in a file that has none it is an error to ask.
    conn.execute("CREATE VIRTUAL TABLE temp.sources_words USING fts5vocab (main, sources_text, instance)")
    conn.create_scalar_function("contains_folded", _contains_folded, 2, deterministic=True)
    conn.create_scalar_function("contains_word_folded", _contains_word_folded, 2, deterministic=True)


def _contains_folded(*values: SqlValue) -> SqlValue:
    text, folded_needle = values
    return contains_folded(str(text), str(folded_needle))


def _contains_word_folded(*values: SqlValue) -> SqlValue:
    text, folded_needle = values
    return contains_word_folded(str(text), str(folded_needle))


@contextmanager
def translated_errors(purpose: str, *, is_undone: bool = False) -> Iterator[None]:
    """Turn SQLite's failures into ours; anything else passes. ``is_undone``: a failure has changed nothing."""
    try:
        yield
    except apsw.BusyError as error:
        raise InstanceBusy(f"another process is writing to the database ({purpose}); try again") from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise DamagedData(
            f"the database is damaged ({purpose}: {error}); copy the instance directory, then see RECOVERY.md"
        ) from error
    except apsw.FullError as error:
        outcome = "nothing was changed, free some space" if is_undone else "free some space"
        raise PikobotError(f"the disk is full ({purpose}); {outcome}") from error
    except apsw.IOError as error:
        if (
            getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
        ):  # what connections share has no room
            raise PikobotError(f"the disk is full ({purpose}); free some space") from error
        raise PikobotError(f"the database can't be read or written ({purpose}): {error}") from error
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError) as error:
        raise PikobotError(f"the database can't be read or written ({purpose}): {error}") from error
