import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from pikobot.config_file import default_config_text
from pikobot.errors import ConfigError, PikobotError, UsageError
from pikobot.instance import (
    MAX_ROOT_BYTES,
    Instance,
    create_instance,
    default_instance_dir,
    instance_root,
    is_instance,
    open_instance,
)

ROOTS = ["plain", "with space", "我的助手", "deep/er/ü"]


def tree(root: Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in sorted(root.rglob("*"))
    }


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()
    }


def make(root: Path) -> Instance:
    return create_instance(root, default_config_text())


@pytest.mark.parametrize("name", ROOTS)
def test_a_new_instance_is_private_and_opens(tmp_path: Path, name: str) -> None:
    instance = make(tmp_path / name)
    assert stat.S_IMODE(instance.root.stat().st_mode) == 0o700
    assert tree(instance.root) == {
        "config.toml": 0o600,
        "credentials.toml": 0o600,
        "run": 0o700,
        "skills": 0o700,
    }
    assert open_instance(tmp_path / name) == instance
    assert instance.load_credentials(instance.load_config(), {}).operator_token is not None


def test_a_wide_umask_widens_nothing(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        instance = make(tmp_path / "i")
    finally:
        os.umask(before)
    assert tree(instance.root) == {
        "config.toml": 0o600,
        "credentials.toml": 0o600,
        "run": 0o700,
        "skills": 0o700,
    }


def test_making_it_again_changes_nothing_and_adds_what_is_missing(tmp_path: Path) -> None:
    instance = make(tmp_path / "i")
    before = contents(instance.root)
    create_instance(instance.root, "[chat]\n")
    assert contents(instance.root) == before
    instance.credentials_path.unlink()
    make(instance.root)
    assert set(contents(instance.root)) == set(before)


def test_an_instance_that_lost_its_settings_is_still_one(tmp_path: Path) -> None:
    instance = make(tmp_path / "i")
    instance.database_path.touch()
    instance.config_path.unlink()
    assert open_instance(instance.root) == instance
    with pytest.raises(ConfigError, match="is missing"):
        instance.load_config()
    make(instance.root)
    assert instance.load_config() is not None


@pytest.mark.parametrize("done", [[], ["run"], ["run", "skills"], ["run", "skills", ".credentials.toml.x1"]])
def test_a_creation_that_was_cut_short_is_completed(tmp_path: Path, done: list[str]) -> None:
    root = tmp_path / "i"
    root.mkdir()
    for name in done:
        (root / name).touch() if name.startswith(".") else (root / name).mkdir()
    assert not is_instance(root)
    assert open_instance(make(root).root)


def test_an_empty_directory_becomes_private(tmp_path: Path) -> None:
    root = tmp_path / "i"
    root.mkdir(mode=0o755)
    make(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_directory_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match="holds other files and no pikobot instance"):
        make(tmp_path)
    assert os.listdir(tmp_path) == ["notes.txt"]
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_file_or_a_dangling_link_in_the_way_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    for path in (file, link):
        with pytest.raises(UsageError, match="is not a directory"):
            make(path)
    with pytest.raises(PikobotError, match="a part of the path is a file"):
        make(file / "below")
    assert file.read_text() == "mine"


def test_a_link_to_a_directory_is_the_instance_there(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    instance = make(tmp_path / "link")
    assert instance.root == tmp_path / "link"
    assert is_instance(tmp_path / "real")


def test_opening_nothing_names_the_command_that_makes_it(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "not here"):
        with pytest.raises(UsageError) as caught:
            open_instance(root)
        assert f"`pikobot init {Instance(root).option}`" in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o777])
def test_an_instance_open_to_others_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    root = make(tmp_path / "我 的").root
    root.chmod(mode)
    for action in (open_instance, make):
        with pytest.raises(ConfigError, match=f"run `chmod 700 '{root}'`"):
            action(root)
    assert stat.S_IMODE(root.stat().st_mode) == mode


def test_an_instance_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(tmp_path / "i").root
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        open_instance(root)


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EROFS, "read-only"), (errno.EACCES, "permission denied"), (errno.ENOSPC, "disk is full")],
)
def test_a_system_that_refuses_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", fail)
    with pytest.raises(PikobotError, match=remedy):
        make(tmp_path / "i")


def test_a_name_that_is_too_long_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PikobotError, match="too long"):
        make(tmp_path / ("长" * 100))


@pytest.mark.parametrize("step", ["directory/" * 30, "目录/" * 50], ids=["English", "Chinese"])
def test_a_path_that_sqlite_cannot_open_is_refused_before_anything_is_made(tmp_path: Path, step: str) -> None:
    fits = str(tmp_path / step)
    fits += "d" * (MAX_ROOT_BYTES - len(fits.encode()))
    assert instance_root(fits) == Path(fits)
    with pytest.raises(UsageError, match=r"has 451 bytes, .* 450 at most: choose a shorter one"):
        instance_root(fits + "d")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_parent_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PikobotError, match="permission denied"):
        make(tmp_path / "i")


def test_the_environment_names_the_default_and_empty_is_unset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_instance_dir({"PIKOBOT_INSTANCE": "~/助手"}) == tmp_path / "助手"
    assert default_instance_dir({"PIKOBOT_INSTANCE": ""}) == default_instance_dir({})
    assert default_instance_dir({}).name == "pikobot"
    assert default_instance_dir({}).is_relative_to(tmp_path)


def test_a_given_path_is_made_absolute_and_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    environ = {"PIKOBOT_INSTANCE": "/elsewhere"}
    assert instance_root("a b", environ) == tmp_path / "a b"
    assert instance_root(Path("."), environ) == tmp_path
    assert instance_root("~/x", environ) == tmp_path / "home" / "x"
    assert instance_root(None, environ) == Path("/elsewhere")


@pytest.mark.parametrize("given", ["", " ", "a\0b", "a\udc80", "~nobody-of-this-name/x"])
def test_a_path_that_cannot_be_is_refused(given: str) -> None:
    with pytest.raises(UsageError):
        instance_root(given, {})


def test_the_option_can_be_pasted_into_a_shell() -> None:
    assert Instance(Path("/a b/我")).option == "--instance '/a b/我'"
    assert Instance(Path("/plain")).option == "--instance /plain"
