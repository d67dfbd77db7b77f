"""Instances and backups on a file system that takes no writes: a disc, a snapshot, a mount for reading."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pikobot.cli.maintenance import verify
from pikobot.errors import ExitCode, InstanceBusy
from pikobot.instance import Instance
from pikobot.serving import InstanceLock, ServedBy, acquire_serving_lock, acquire_visitor_lock
from tests.backup.instances import SAID, back_up, forget_text, make_instance, opened, picture
from tests.end_to_end.instances import Outcome
from tests.memory.conversing import exchange
from tests.servers.openai_server import REPOSITORY

COPY_IT = "copy it to a disk that can be written (`cp -a "


def read_only(directory: Path, *commands: tuple[str, ...]) -> list[Outcome]:
    """Run commands in a mount namespace where the directory takes no writes."""
    quoted = shlex.quote(str(directory))
    mount = f"mount --bind {quoted} {quoted} && mount -o remount,bind,ro {quoted}"
    outcomes = []
    for command in commands:
        words = [sys.executable, "-m", "pikobot", *command]
        done = subprocess.run(
            ["unshare", "-rm", "sh", "-c", f'{mount} && exec "$@"', "sh", *words],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        outcomes.append(Outcome(done.returncode, done.stdout, done.stderr))
    return outcomes


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    mounted = subprocess.run(
        ["unshare", "-rm", "sh", "-c", "mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp"],
        capture_output=True,
        check=False,
    )
    return mounted.returncode == 0


needs_mount = pytest.mark.skipif(not can_mount(), reason="no namespace of its own can be mounted in")


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "media" / "piko")


def take(instance: Instance) -> InstanceLock | ServedBy:
    """The lock of a short command, given back at once."""
    lock = acquire_visitor_lock(instance)
    if isinstance(lock, InstanceLock):
        lock.release()
    return lock


@needs_mount
def test_what_only_reads_works_and_the_rest_says_what_to_do(instance: Instance, tmp_path: Path) -> None:
    backup = back_up(instance, instance.root.parent / "b")
    forget_text(instance, SAID)
    take(instance)
    before = picture(instance.root)
    option = ("--instance", str(instance.root))
    of_backup, of_instance, *others = read_only(
        instance.root.parent,
        ("verify", str(backup), *option),
        ("verify", *option),
        ("backup", str(tmp_path / "b2"), *option),
        ("rpc", "status", *option),
        ("doctor", *option),
        ("run", "-m", "hello", *option),
    )
    assert (of_backup.code, of_backup.err) == (of_instance.code, of_instance.err) == (ExitCode.DONE, "")
    assert "erasures, in file and database" in of_instance.out
    for done in others:
        assert done.code == ExitCode.FAILED
        assert f"is on a read-only file system: {COPY_IT}{instance.root} COPY`) and use the copy" in (
            done.out + done.err
        )
    assert picture(instance.root) == before
    assert not (tmp_path / "b2").exists()


@needs_mount
def test_a_log_that_was_not_emptied_is_not_left_out_in_silence(instance: Instance, tmp_path: Path) -> None:
    take(instance)
    copy = tmp_path / "copies" / "piko"
    with acquire_serving_lock(instance), opened(instance) as db:
        exchange(db, "I like tea", "Noted.")
        shutil.copytree(instance.root, copy, ignore=shutil.ignore_patterns("*-shm"))
    assert (copy / "pikobot.sqlite3-wal").stat().st_size > 0
    [done] = read_only(copy.parent, ("verify", "--instance", str(copy)))
    assert done.code == ExitCode.FAILED
    assert done.err == ""
    [line] = [line for line in done.out.splitlines() if "  database: " in line]
    assert f"the file system is read-only: {COPY_IT}" in line


def without_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in ("identity", "serving", "backup.verify"):
        monkeypatch.setattr(f"pikobot.{room}.is_read_only", lambda path: True)


def test_the_lock_holds_without_writing_as_well(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    take(instance)
    with acquire_serving_lock(instance), monkeypatch.context() as patch:
        without_writing(patch)
        assert isinstance(take(instance), ServedBy)
        with pytest.raises(InstanceBusy, match=r"served by process .* under another path"):
            verify(instance.root)
    without_writing(monkeypatch)
    with acquire_serving_lock(instance):
        assert isinstance(take(instance), ServedBy)
    assert verify(instance.root) == ExitCode.DONE


def test_without_a_lock_file_nothing_is_read_and_the_rest_is_checked(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(instance.run_dir)
    without_writing(monkeypatch)
    assert verify(instance.root) == ExitCode.FAILED
    lines = {line[9:].partition(":")[0]: line for line in capfd.readouterr().out.splitlines()}
    assert list(lines) == ["permissions", "settings", "database", "ledger", "left files"]
    assert "lock is missing" in lines["database"]
    assert lines["database"].count(COPY_IT) == 1
    assert not instance.run_dir.exists()
