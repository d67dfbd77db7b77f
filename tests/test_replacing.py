"""An instance is replaced as a whole or not at all, wherever the work was cut off."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pikobot import replacing
from pikobot.errors import InstanceBusy, PikobotError
from pikobot.instance import Instance, create_instance, is_instance, open_instance
from pikobot.serving import acquire_serving_lock, acquire_visitor_lock

OLD = {
    "config.toml": "old",
    "credentials.toml": "old",
    "erasures.jsonl": "old",
    "pikobot.sqlite3": "old",
    "pikobot.sqlite3-wal": "old",
    "pikobot.sqlite3-shm": "old",
    "pikobot.sqlite3.before-0002": "old",
    "skills/one/SKILL.md": "old",
}
NEW = {
    "config.toml": "new",
    "credentials.toml": "old",
    "erasures.jsonl": "new",
    "pikobot.sqlite3": "new",
    "skills/two/SKILL.md": "new",
}


def fill(root: Path, contents: dict[str, str]) -> None:
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)


def found(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.parent.name != "run"
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "piko"
    root.mkdir(mode=0o700)
    (root / "run").mkdir(mode=0o700)
    fill(root, OLD)
    return root


@pytest.fixture
def staged(root: Path) -> Path:
    fill(root / "restoring", NEW | {"credentials.toml": "new"})
    return root


def test_what_is_staged_replaces_everything_but_the_keys(staged: Path) -> None:
    replacing.commit(staged)
    assert replacing.is_waiting(staged)
    replacing.complete(staged)
    assert found(staged) == NEW
    assert not replacing.is_waiting(staged)
    replacing.complete(staged)
    assert found(staged) == NEW


def test_keys_are_made_where_there_are_none(staged: Path) -> None:
    (staged / "credentials.toml").unlink()
    replacing.commit(staged)
    replacing.complete(staged)
    assert found(staged) == NEW | {"credentials.toml": "new"}


def test_a_stage_that_was_not_committed_is_thrown_away(staged: Path) -> None:
    replacing.recover(staged)
    assert found(staged) == OLD


class _Killed(BaseException):
    """As if the process ended here."""


def _counted(call: Callable[..., object], left: list[int]) -> Callable[..., object]:
    def step(*args: object, **kwargs: object) -> object:
        if left[0] <= 0:
            raise _Killed
        left[0] -= 1
        return call(*args, **kwargs)

    return step


def test_whichever_step_is_the_last_the_next_open_finds_the_old_or_the_new(
    staged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each system call that changes or syncs a file fails in turn, and nothing after it happens."""
    template = tmp_path / "template"
    shutil.copytree(staged, template)
    calls = {name: getattr(os, name) for name in ("rename", "replace", "unlink", "rmdir", "fsync")}
    ends = []
    for last in range(1000):
        shutil.rmtree(staged)
        shutil.copytree(template, staged)
        left = [last]
        for name, call in calls.items():
            monkeypatch.setattr(os, name, _counted(call, left))
        try:
            replacing.commit(staged)
            replacing.complete(staged)
            was_killed = False
        except _Killed:
            was_killed = True
        monkeypatch.undo()
        replacing.recover(staged)
        assert found(staged) in (OLD, NEW), last
        ends.append(found(staged) == NEW)
        if not was_killed:
            break
    assert ends == sorted(ends)  # once new, always new
    assert not ends[0]
    assert ends[-1]
    assert len(ends) > 15


def test_every_door_to_an_instance_finishes_what_was_committed(staged: Path) -> None:
    template = staged.with_name("template")
    replacing.commit(staged)
    shutil.copytree(staged, template)

    def again() -> Path:
        shutil.rmtree(staged)
        shutil.copytree(template, staged)
        return staged

    open_instance(again())
    assert found(staged) == NEW
    create_instance(again(), "")
    assert found(staged) == NEW
    acquire_serving_lock(Instance(again())).release()
    assert found(staged) == NEW
    with pytest.raises(InstanceBusy, match="run the command again"):
        acquire_visitor_lock(Instance(again()))
    open_instance(staged)
    lock = acquire_visitor_lock(Instance(staged))
    assert hasattr(lock, "release")
    lock.release()
    assert found(staged) == NEW


def test_an_instance_of_which_only_the_committed_stage_exists_is_one(tmp_path: Path) -> None:
    root = tmp_path / "piko"
    root.mkdir(mode=0o700)
    (root / "run").mkdir()
    fill(root / "restored", NEW)
    assert is_instance(root)
    open_instance(root)
    assert found(root) == NEW


def test_a_stage_of_a_process_at_work_is_left_alone(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = Instance(staged)
    with acquire_serving_lock(instance):
        fill(staged / "restoring", NEW)
        open_instance(staged)
        assert (staged / "restoring").is_dir()
        replacing.commit(staged)
        monkeypatch.setattr(replacing, "WAIT_S", 0.1)
        with pytest.raises(InstanceBusy, match="is being restored"):
            open_instance(staged)
        monkeypatch.setattr(replacing, "WAIT_S", 20)
        finisher = threading.Timer(0.2, replacing.complete, [staged])
        finisher.start()
        open_instance(staged)
        finisher.join()
    assert found(staged) == NEW


def test_a_refusal_of_the_file_system_is_told_and_the_next_try_goes_on(
    staged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replacing.commit(staged)

    def refuse(*args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PikobotError, match=r"cannot finish the restore of .*read-only"):
        open_instance(staged)
    monkeypatch.undo()
    open_instance(staged)
    assert found(staged) == NEW


def test_a_link_in_the_place_of_the_skills_is_replaced_and_not_followed(staged: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    shutil.rmtree(staged / "skills")
    (staged / "skills").symlink_to(outside)
    replacing.commit(staged)
    replacing.complete(staged)
    assert found(staged) == NEW
    assert (outside / "mine").read_text() == "mine"
