import errno
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pikobot.config_file import default_config_text
from pikobot.errors import InstanceBusy, PikobotError
from pikobot.instance import Instance, create_instance
from pikobot.serving import (
    InstanceLock,
    ServedBy,
    acquire_serving_lock,
    acquire_visitor_lock,
    remove_socket,
    socket_address,
)

REPOSITORY = Path(__file__).parents[1]

# Takes the lock, says so, and holds it until a line arrives; the argument "spawn" leaves a grandchild behind.
HOLDER = """
import subprocess, sys
from pathlib import Path
from pikobot import serving
from pikobot.instance import Instance
lock = getattr(serving, sys.argv[2])(Instance(Path(sys.argv[1])))
child = None
if "spawn" in sys.argv:
    child = subprocess.Popen(["sleep", "60"], close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print(child.pid if child else 0, flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture(params=["i", "我的 助手"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Instance:
    return create_instance(tmp_path / request.param, default_config_text())


@dataclass(frozen=True)
class Holder:
    process: subprocess.Popen[str]
    child_pid: int

    def release(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "released\n"

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def holding(instance: Instance, function: str, *arguments: str) -> Iterator[Holder]:
    command = [sys.executable, "-c", HOLDER, str(instance.root), function, *arguments]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield Holder(process, child_pid=int(process.stdout.readline()))
        finally:
            process.kill()


def test_a_second_server_is_told_who_serves_and_what_to_do(instance: Instance) -> None:
    with holding(instance, "acquire_serving_lock") as first:
        with pytest.raises(InstanceBusy) as caught:
            acquire_serving_lock(instance)
        message = str(caught.value)
        assert f"{instance.root} is served by process {first.process.pid} since 20" in message
        assert f"`pikobot rpc METHOD {instance.option}`" in message
        assert f"`kill {first.process.pid}`" in message


def test_a_visitor_learns_who_serves(instance: Instance) -> None:
    with holding(instance, "acquire_serving_lock") as first:
        served_by = acquire_visitor_lock(instance)
        assert isinstance(served_by, ServedBy)
        assert served_by.pid == first.process.pid


def test_a_killed_server_leaves_the_instance_free(instance: Instance) -> None:
    with holding(instance, "acquire_serving_lock") as first:
        first.kill()
        assert json.loads(instance.lock_path.read_text())["pid"] == first.process.pid
        with acquire_serving_lock(instance):
            assert json.loads(instance.lock_path.read_text())["pid"] == os.getpid()


def test_a_released_lock_is_free_and_names_nobody(instance: Instance) -> None:
    with holding(instance, "acquire_serving_lock") as first:
        first.release()
        assert instance.lock_path.read_text() == ""
        with acquire_serving_lock(instance):
            pass


def test_a_child_of_the_server_does_not_keep_the_lock(instance: Instance) -> None:
    with holding(instance, "acquire_serving_lock", "spawn") as first:
        try:
            first.kill()
            os.kill(first.child_pid, 0)
            acquire_serving_lock(instance).release()
        finally:
            os.kill(first.child_pid, signal.SIGKILL)


def test_visitors_share(instance: Instance) -> None:
    with holding(instance, "acquire_visitor_lock"):
        lock = acquire_visitor_lock(instance)
        assert isinstance(lock, InstanceLock)
        assert not lock.is_serving
        lock.release()


def test_a_visitor_after_a_crashed_server_is_not_taken_for_it(instance: Instance) -> None:
    instance.lock_path.write_text('{"pid": 1, "startedAtMs": 1}\n')
    with (
        holding(instance, "acquire_visitor_lock"),
        pytest.raises(InstanceBusy, match="in use by another command"),
    ):
        acquire_serving_lock(instance, visitor_wait_s=0)


def test_a_server_waits_for_a_visitor_to_finish(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    with holding(instance, "acquire_visitor_lock") as visitor:
        waits: list[float] = []

        def sleep(seconds: float) -> None:
            waits.append(seconds)
            visitor.release()

        monkeypatch.setattr(time, "sleep", sleep)
        with acquire_serving_lock(instance, visitor_wait_s=600) as lock:
            assert lock.is_serving
        assert len(waits) == 1


def open_descriptors() -> list[int]:
    found = []
    for descriptor in range(256):
        with suppress(OSError):
            os.fstat(descriptor)
            found.append(descriptor)
    return found


@pytest.mark.parametrize("acquire", [acquire_serving_lock, acquire_visitor_lock])
def test_a_child_that_is_just_being_started_does_not_keep_a_released_lock(
    instance: Instance, acquire: Callable[[Instance], InstanceLock]
) -> None:
    lock = acquire(instance)
    at = instance.lock_path.stat()
    copies = [os.dup(each) for each in open_descriptors() if os.path.samestat(os.fstat(each), at)]
    try:
        lock.release()
        acquire_serving_lock(instance).release()
    finally:
        for copy in copies:
            os.close(copy)
    assert copies


def test_locks_exclude_each_other_inside_a_process_too(instance: Instance) -> None:
    with acquire_serving_lock(instance) as lock:
        with pytest.raises(InstanceBusy):
            acquire_serving_lock(instance)
        assert acquire_visitor_lock(instance) == ServedBy(
            pid=os.getpid(), started_at_ms=json.loads(instance.lock_path.read_text())["startedAtMs"]
        )
        lock.release()
        lock.release()
        acquire_serving_lock(instance).release()


@pytest.mark.parametrize("stale", ["", "garbage", "[1]", '{"pid": null}', "\udcff"])
def test_whatever_is_in_the_lock_file_only_names(instance: Instance, stale: str) -> None:
    with acquire_serving_lock(instance):
        instance.lock_path.write_bytes(stale.encode(errors="surrogateescape"))
        assert acquire_visitor_lock(instance) == ServedBy(pid=None, started_at_ms=None)
        with pytest.raises(InstanceBusy, match=r"served by another process: .* or stop it and try again"):
            acquire_serving_lock(instance)
    acquire_serving_lock(instance).release()


def test_a_lost_run_directory_is_made_again(instance: Instance) -> None:
    instance.run_dir.rmdir()
    with acquire_serving_lock(instance):
        assert stat.S_IMODE(instance.run_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE(instance.lock_path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOLCK, "put the instance on a local disk"), (errno.EIO, "cannot lock")],
)
def test_a_file_system_without_locks_is_reported(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(PikobotError, match=remedy):
        acquire_serving_lock(instance)


def test_a_read_only_instance_is_reported(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(PikobotError, match="read-only"):
        acquire_visitor_lock(instance)


# The socket


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        with socket_address(path) as address:
            server.bind(address)
        server.listen()
        yield


def can_connect(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, socket_address(path) as address:
        return client.connect_ex(address) == 0


@pytest.mark.parametrize("name", ["i", "长" * 60])
def test_client_and_server_meet_at_a_short_and_at_a_long_path(tmp_path: Path, name: str) -> None:
    instance = create_instance(tmp_path / "d" / name, default_config_text())
    before = os.getcwd()
    for _ in range(2):  # the second time a socket is left over, as after a crash
        remove_socket(instance)
        with listening(instance.socket_path):
            assert can_connect(instance.socket_path)
        assert not can_connect(instance.socket_path)
    assert os.listdir(instance.run_dir) == ["rpc.sock"]
    remove_socket(instance)
    remove_socket(instance)
    assert os.listdir(instance.run_dir) == []
    assert os.getcwd() == before


def test_a_directory_that_is_gone_is_no_server_and_leaves_the_current_one(tmp_path: Path) -> None:
    before = os.getcwd()
    with pytest.raises(FileNotFoundError), socket_address(tmp_path / ("长" * 60) / "rpc.sock"):
        pass
    assert os.getcwd() == before


@pytest.mark.parametrize(
    "make", [lambda path: path.write_text("mine"), lambda path: path.symlink_to("/dev/null")]
)
def test_what_is_in_place_of_the_socket_is_left_alone(
    instance: Instance, make: Callable[[Path], object]
) -> None:
    make(instance.socket_path)
    with pytest.raises(PikobotError, match="is not a socket: move it away"):
        remove_socket(instance)
    assert os.listdir(instance.run_dir) == ["rpc.sock"]
