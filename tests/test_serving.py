import errno
import fcntl
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    prepare_socket_path,
    remove_socket,
    resolve_socket_path,
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


@pytest.fixture
def short_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as directory:
        monkeypatch.setattr(tempfile, "tempdir", directory)
        yield Path(directory)


@contextmanager
def listening(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield


def can_connect(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@pytest.fixture(params=["i", "长" * 60])
def short_or_long(request: pytest.FixtureRequest, short_temporary_directory: Path) -> Instance:
    return create_instance(short_temporary_directory / "d" / request.param, default_config_text())


def test_client_and_server_meet_at_a_short_and_at_a_long_path(
    short_or_long: Instance, short_temporary_directory: Path
) -> None:
    for _ in range(2):  # the second time a socket is left over, as after a crash
        path = prepare_socket_path(short_or_long)
        with listening(path):
            assert can_connect(resolve_socket_path(short_or_long))
        assert not can_connect(resolve_socket_path(short_or_long))
    remove_socket(short_or_long)
    remove_socket(short_or_long)
    assert os.listdir(short_or_long.run_dir) == []
    assert os.listdir(short_temporary_directory) == ["d"]


def test_the_directory_of_a_long_paths_socket_is_private(short_temporary_directory: Path) -> None:
    instance = create_instance(short_temporary_directory / ("长" * 60), default_config_text())
    path = prepare_socket_path(instance)
    assert path.parent.parent == short_temporary_directory
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.parent.chmod(0o755)
    with pytest.raises(PikobotError, match="gone or not ours"):
        resolve_socket_path(instance)
    path.parent.rmdir()
    with pytest.raises(PikobotError, match="gone or not ours"):
        resolve_socket_path(instance)
    assert prepare_socket_path(instance) != path


def test_a_client_without_a_server_gets_the_plain_path(instance: Instance) -> None:
    assert resolve_socket_path(instance) == instance.socket_path


def test_a_file_in_place_of_the_socket_is_left_alone(instance: Instance) -> None:
    instance.socket_path.write_text("mine")
    with pytest.raises(PikobotError, match="is not a socket"):
        prepare_socket_path(instance)
    assert instance.socket_path.read_text() == "mine"


def test_a_link_to_elsewhere_is_removed_but_not_its_target(instance: Instance, tmp_path: Path) -> None:
    elsewhere = tmp_path / "pikobot-mine"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "file").write_text("mine")
    instance.socket_path.symlink_to(elsewhere / "rpc.sock")
    remove_socket(instance)
    assert (elsewhere / "file").read_text() == "mine"
    assert not os.path.lexists(instance.socket_path)


def test_paths_that_are_all_too_long_are_reported(
    short_temporary_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_directory = short_temporary_directory / ("长" * 60)
    instance = create_instance(long_directory, default_config_text())
    monkeypatch.setattr(tempfile, "tempdir", str(long_directory / "skills"))
    with pytest.raises(PikobotError, match="set TMPDIR to a short path"):
        prepare_socket_path(instance)
    assert os.listdir(long_directory / "skills") == []
