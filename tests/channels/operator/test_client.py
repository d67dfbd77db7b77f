import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.channels.operator import client
from pikobot.channels.operator.client import DirectOperator, SocketOperator, connect_operator
from pikobot.clock import SystemClock
from pikobot.credentials import Secret
from pikobot.errors import (
    InstanceBusy,
    InvalidParams,
    NotAllowed,
    NotFound,
    PikobotError,
    SchemaTooNew,
    UnknownMethod,
)
from pikobot.instance import Instance
from pikobot.memory import opening
from pikobot.serving import InstanceLock, acquire_serving_lock, acquire_visitor_lock
from pikobot.store.connection import Database
from pikobot.store.prepare import instance_in
from tests.channels.operator.serving import operator_token, served

QUESTIONS: list[tuple[str, dict[str, object]]] = [
    ("memory.search", {"query": "服务"}),
    ("memory.list", {}),
    ("threads.list", {}),
    ("runs.list", {}),
    ("memory.search", {"quary": "x"}),
    ("source.read", {"id": "src_none"}),
    ("nothing", {}),
]


def outcomes(instance: Instance) -> list[object]:
    found: list[object] = []
    with connect_operator(instance, SystemClock()) as operator:
        for method, params in QUESTIONS:
            try:
                found.append(operator.call(method, params))
            except PikobotError as error:
                found.append((type(error), str(error)))
    return found


@contextlib.contextmanager
def scripted(path: Path, *replies: bytes | None) -> Iterator[None]:
    """A server that gives each connection one reply, or (None) lets it go as soon as it connects."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        for reply in replies:
            connection, _ = listener.accept()
            with connection:
                if reply is not None:
                    connection.recv(65_536)
                    connection.sendall(reply)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        thread.join(20)
        listener.close()


def test_the_same_answers_and_errors_come_with_and_without_a_server(instance: Instance) -> None:
    direct = outcomes(instance)
    with served(instance):
        assert outcomes(instance) == direct
    assert [outcome[0] for outcome in direct[4:] if isinstance(outcome, tuple)] == [
        InvalidParams,
        NotFound,
        UnknownMethod,
    ]


def test_whoever_asks_is_chosen_by_the_lock(instance: Instance) -> None:
    with connect_operator(instance, SystemClock()) as operator:
        assert isinstance(operator, DirectOperator)
        assert operator.call("status", {})["served"] is False
    with served(instance), connect_operator(instance, SystemClock()) as operator:
        assert isinstance(operator, SocketOperator)
        assert operator.call("status", {})["served"] is True


def test_two_commands_read_at_the_same_time(instance: Instance) -> None:
    with (
        connect_operator(instance, SystemClock()) as one,
        connect_operator(instance, SystemClock()) as other,
    ):
        assert one.call("memory.list", {}) == other.call("memory.list", {})


def test_a_wrong_token_is_refused(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(instance):
        monkeypatch.setenv("PIKOBOT_OPERATOR_TOKEN", "wrong")
        with connect_operator(instance, SystemClock()) as operator:
            for _ in range(2):  # the server closes, and the next call connects again
                with pytest.raises(NotAllowed, match="the operator token is wrong or missing"):
                    operator.call("status", {})


def test_without_a_token_nothing_is_sent(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIKOBOT_OPERATOR_TOKEN", raising=False)
    with served(instance):
        instance.credentials_path.write_text("")
        with (
            pytest.raises(NotAllowed, match="has no operator_token, and process"),
            connect_operator(instance, SystemClock()),
        ):
            pass


def test_an_instance_that_is_held_without_a_socket_is_busy(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "CONNECT_WAIT_S", 0.0)
    busy = pytest.raises(InstanceBusy, match=f"is in use by process {os.getpid()} since .*try again")
    with acquire_serving_lock(instance), busy, connect_operator(instance, SystemClock()):
        pass


def test_a_server_that_is_just_starting_is_waited_for(instance: Instance) -> None:
    lock = acquire_serving_lock(instance)
    release = threading.Timer(0.2, lock.release)
    release.start()
    with connect_operator(instance, SystemClock()) as operator:
        assert operator.call("status", {})["served"] is False
    release.join()


def test_a_missing_database_is_an_empty_instance(instance: Instance) -> None:
    for path in instance.root.glob("pikobot.sqlite3*"):
        path.unlink()
    with connect_operator(instance, SystemClock()) as operator:
        assert operator.call("memory.list", {}) == {
            "results": [],
            "degraded": None,
            "cursor": None,
            "extraction": {"queued": 0, "failed": 0, "unknown": 0},
        }
    assert instance.database_path.stat().st_mode & 0o777 == 0o600


def test_whether_the_database_is_its_own_is_looked_at_once_for_each_lock(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []

    def look(path: Path) -> str | None:
        looked.append(path)
        return instance_in(path)

    outcomes(instance)  # the mark is written, without which there is nothing to compare
    monkeypatch.setattr(opening, "instance_in", look)
    outcomes(instance)
    assert len(looked) == 1
    monkeypatch.setattr(client, "is_prepared", lambda path: False)
    outcomes(
        instance
    )  # the visitor's lock was given back for the one to migrate with: somebody may have come between
    assert len(looked) == 3


def test_a_newer_database_is_refused_and_the_lock_given_back(instance: Instance) -> None:
    def migrate_further(db: Database) -> None:
        with db.write("migrate") as tx:
            tx.execute("INSERT INTO migrations VALUES (9999, 'future', 'x', 0)")

    with contextlib.closing(Database(instance.database_path, SystemClock())) as db:
        db.perform(migrate_further)
    with pytest.raises(SchemaTooNew, match="use a newer pikobot"), connect_operator(instance, SystemClock()):
        pass
    lock = acquire_visitor_lock(instance)
    assert isinstance(lock, InstanceLock)
    lock.release()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"", "ended before it answered"),
        (b'{"jsonrpc":"2.0"', "ended before it answered"),
        (b"[]\n", "answered with something else"),
        (b'{"jsonrpc":"2.0","id":99,"result":{}}\n', "answered another request"),
        (b'{"jsonrpc":"2.0","id":1}\n', "answered another request"),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"odd"}}\n', "^odd$"),
        (b"oops\n", "the answer is not valid JSON"),
    ],
)
def test_an_answer_that_is_none_is_an_error(tmp_path: Path, reply: bytes, message: str) -> None:
    path = tmp_path / "s"
    operator = SocketOperator(path, Secret("t"))
    with scripted(path, reply), contextlib.closing(operator), pytest.raises(PikobotError, match=message):
        operator.call("status", {})


def test_a_connection_that_ended_between_calls_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with scripted(path, None, b'{"jsonrpc":"2.0","id":1,"result":{"a":1}}\n'):
        operator = SocketOperator(path, Secret("t"))
        operator.connect()
        while not client._has_ended(operator._socket):  # type: ignore[arg-type]  # connected above
            time.sleep(0.001)
        assert operator.call("status", {}) == {"a": 1}
        operator.close()


def test_a_server_that_hangs_is_given_up(instance: Instance, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        operator = SocketOperator(tmp_path / "s", operator_token(instance), answer_timeout_s=0.05)
        with pytest.raises(PikobotError, match="gave no answer in"):
            operator.call("status", {})
        assert operator._socket is None
