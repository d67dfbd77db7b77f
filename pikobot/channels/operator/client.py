"""Calling the operator's methods from a command: over the socket, or on the database when nobody serves.

`connect_operator` decides by the instance's lock. Both ways answer with the same results and raise the same
errors, because both run the same methods.
"""

import asyncio
import contextlib
import itertools
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from pikobot.channels.operator import protocol
from pikobot.channels.operator.methods import OperatorContext, call, create_context
from pikobot.clock import Clock
from pikobot.credentials import Secret
from pikobot.errors import InstanceBusy, NotAllowed, PikobotError
from pikobot.instance import Instance
from pikobot.memory.forgetting.retention import obey_message_days
from pikobot.memory.opening import open_memory, refuse_another
from pikobot.serving import (
    InstanceLock,
    ServedBy,
    acquire_serving_lock,
    acquire_visitor_lock,
    socket_address,
)
from pikobot.store.prepare import is_prepared

ANSWER_TIMEOUT_S = 120.0
# A process takes its lock before it listens; others (an import, a backup) hold the lock and never listen.
CONNECT_WAIT_S = 2.0
RETRY_S = 0.05
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Operator(Protocol):
    """Something that answers the operator's methods."""

    def call(self, method: str, params: object) -> protocol.Json: ...


class DirectOperator:
    """Runs the methods in this process; what has to be awaited in an event loop that it keeps until it is closed."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._runner = asyncio.Runner()

    def call(self, method: str, params: object) -> protocol.Json:
        return call(self._context, method, params, self._runner.run)

    def close(self) -> None:
        try:
            self._runner.run(self._context.close())
        finally:
            self._runner.close()


class SocketOperator:
    """Asks the process that serves the instance; connects again when the connection has ended meanwhile."""

    def __init__(self, path: Path, token: Secret, *, answer_timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._path = path
        self._token = token
        self._answer_timeout_s = answer_timeout_s
        self._ids = itertools.count(1)
        self._socket: socket.socket | None = None

    def connect(self) -> None:
        """Raises `FileNotFoundError` or `ConnectionRefusedError` when nobody listens."""
        self.close()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(self._answer_timeout_s)
        try:
            with socket_address(self._path) as address:
                connection.connect(address)
        except BaseException:
            connection.close()
            raise
        self._socket = connection

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def call(self, method: str, params: object) -> protocol.Json:
        """One request and its answer; after any doubt about the connection the next call opens another."""
        request_id = next(self._ids)
        request = protocol.encode_call(protocol.Call(request_id, method, params), self._token)
        try:
            line = self._exchange(request)
            return protocol.read_answer(line, request_id)
        except TimeoutError:
            self.close()
            raise PikobotError(
                f"the process that serves the instance gave no answer in {self._answer_timeout_s:.0f} s; try again"
            ) from None
        except OSError:
            self.close()
            raise PikobotError(
                "the process that serves the instance ended before it answered; run the command again"
            ) from None
        except protocol.CLOSING_ERRORS:
            self.close()
            raise

    def _exchange(self, request: bytes) -> bytes:
        connection = self._socket
        if connection is None or _has_ended(connection):
            self.connect()
            connection = self._socket
        if connection is None:
            raise ConnectionError
        connection.sendall(request)
        return _read_line(connection)


def _has_ended(connection: socket.socket) -> bool:
    """Between calls nothing is under way, so whatever can be read is the end of the stream."""
    return bool(select.select([connection], [], [], 0)[0])


def _read_line(connection: socket.socket) -> bytes:
    parts = []
    size = 0
    while True:
        part = connection.recv(64 * 1024)
        size += len(part)
        if not part or size > MAX_ANSWER_BYTES:
            raise ConnectionError
        parts.append(part)
        if part.endswith(b"\n"):
            return b"".join(parts)


@contextlib.contextmanager
def connect_operator(instance: Instance, clock: Clock) -> Iterator[Operator]:
    """The operator of an instance for as long as the block runs.

    Raises `InstanceBusy` when a process holds the instance without listening, `NotAllowed` without a token,
    and what opening the database raises.
    """
    config = instance.load_config()
    credentials = instance.load_credentials(config)
    reached = _reach(instance, credentials.operator_token)
    if isinstance(reached, SocketOperator):
        with contextlib.closing(reached):
            yield reached
        return
    with _ready_lock(instance, reached, clock) as lock:
        is_checked = not lock.is_serving  # the visitor's lock was kept since
        db = open_memory(instance.database_path, instance.ledger_path, clock, is_checked=is_checked)
        with contextlib.closing(db):
            obey_message_days(db, config.retention.message_days)
            context = create_context(db, instance, config, credentials, is_served=False, catches_up=True)
            with contextlib.closing(DirectOperator(context)) as operator:
                yield operator


def _reach(instance: Instance, token: Secret | None) -> InstanceLock | SocketOperator:
    """The lock when nobody serves, else a connection to who does."""
    deadline = time.monotonic() + CONNECT_WAIT_S
    while True:
        lock = acquire_visitor_lock(instance)
        if isinstance(lock, InstanceLock):
            return lock
        if token is None:
            raise NotAllowed(
                f"{instance.credentials_path} has no operator_token, and {lock} serves the instance"
            )
        operator = SocketOperator(instance.socket_path, token)
        try:
            operator.connect()
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() >= deadline:
                raise _not_listening(instance, lock) from None
            time.sleep(RETRY_S)
        except OSError as error:
            raise PikobotError(f"the socket of {instance.root} can't be reached: {error.strerror}") from error
        else:
            return operator


def _not_listening(instance: Instance, holder: ServedBy) -> InstanceBusy:
    return InstanceBusy(
        f"the instance {instance.root} is in use by {holder}, which answers no requests (an import or a "
        "backup does not): try again when it has ended"
    )


def _ready_lock(instance: Instance, lock: InstanceLock, clock: Clock) -> InstanceLock:
    """The visitor's lock if the database is ready to be read; to make or migrate it takes the serving lock."""
    try:
        refuse_another(instance.database_path, instance.ledger_path)
        if is_prepared(instance.database_path):
            return lock
    except BaseException:
        lock.release()
        raise
    lock.release()
    return acquire_serving_lock(instance, clock)
