import json
import os
import stat
import tarfile
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from pikobot import __version__
from pikobot.backup import archive
from pikobot.backup.archive import create_backup
from pikobot.backup.encryption import Keys
from pikobot.backup.verify import verify_backup
from pikobot.errors import ConfigError, DamagedData, ExitCode, InstanceBusy, PikobotError, UsageError
from pikobot.instance import Instance
from pikobot.serving import acquire_serving_lock, acquire_visitor_lock
from pikobot.store.schema import known_migrations
from tests.backup.instances import (
    CLOCK,
    MARKERS,
    SAID,
    back_up,
    files_with,
    forget_text,
    lose_all,
    make_instance,
    opened,
    say,
)
from tests.channels.operator.serving import operator_token, served
from tests.memory.conversing import exchange


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "disk"
    directory.mkdir()
    return directory


def rows_in(backup: Path, directory: Path, sql: str) -> list[tuple[Any, ...]]:
    with tarfile.open(backup) as tar:
        tar.extract("pikobot.sqlite3", directory, filter="data")
    connection = apsw.Connection(str(directory / "pikobot.sqlite3"))
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_a_backup_is_a_private_tar_of_everything_but_the_secrets(instance: Instance, place: Path) -> None:
    backup = back_up(instance, place / "piko.backup")
    assert os.listdir(place) == ["piko.backup"]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with tarfile.open(backup, encoding="utf-8") as tar:
        files = {info.name: (info.mode, tar.extractfile(info).read()) for info in tar}  # type: ignore[union-attr]
    manifest = json.loads(files["manifest.json"][1])
    assert {name: mode for name, (mode, _) in files.items()} == {
        "manifest.sha256": 0o600,
        "manifest.json": 0o600,
        "pikobot.sqlite3": 0o600,
        "erasures.jsonl": 0o600,
        "config.toml": 0o600,
        "skills/旅行/SKILL.md": 0o600,
        "skills/旅行/run.sh": 0o700,
    }
    assert files["config.toml"][1] == instance.config_path.read_bytes()
    assert files["erasures.jsonl"][1] == instance.ledger_path.read_bytes()
    assert {key: manifest[key] for key in ("format", "pikobot", "schemaVersion", "instance")} == {
        "format": 1,
        "pikobot": __version__,
        "schemaVersion": known_migrations()[-1].version,
        "instance": json.loads(files["erasures.jsonl"][1].splitlines()[0])["instance"],
    }
    assert [(one["name"], one["size"]) for one in manifest["members"]] == [
        (name, len(content)) for name, (_, content) in list(files.items())[2:]
    ]
    assert files_with(backup, operator_token(instance).reveal()) == []
    assert files_with(backup, *MARKERS) == ["piko.backup"]


def test_what_was_forgotten_before_is_not_in_it(instance: Instance, place: Path) -> None:
    forget_text(instance, SAID)
    assert files_with(back_up(instance, place / "b"), *MARKERS) == []


def test_a_snapshot_is_of_one_moment_while_another_process_serves_and_writes(
    instance: Instance, place: Path, tmp_path: Path
) -> None:
    """Pairs are written in one transaction each: a snapshot has both or none."""
    with acquire_serving_lock(instance), opened(instance) as db:
        stop = threading.Event()

        def write_pairs() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                exchange(db, f"left {number}", f"right {number}", thread="pairs")

        writer = threading.Thread(target=write_pairs)
        writer.start()
        try:
            backups = [back_up(instance, place / f"{number}") for number in range(4)]
        finally:
            stop.set()
            writer.join()
    counts = []
    for backup in backups:
        sql = "SELECT sum(text LIKE 'left %'), sum(text LIKE 'right %') FROM sources"
        [(left, right)] = rows_in(backup, tmp_path, sql)
        assert left == right
        assert rows_in(backup, tmp_path, "PRAGMA integrity_check") == [("ok",)]
        counts.append(left)
    assert counts == sorted(counts)


def test_an_instance_that_is_served_keeps_its_locks_and_its_log(instance: Instance, place: Path) -> None:
    with served(instance):
        back_up(instance, place / "b")
        with pytest.raises(InstanceBusy):
            acquire_serving_lock(instance)
    assert verify_backup(place / "b", Keys())[0].state == "ok"


def test_the_lock_is_free_afterwards(instance: Instance, place: Path) -> None:
    back_up(instance, place / "b")
    lock = acquire_visitor_lock(instance)
    assert hasattr(lock, "release")
    lock.release()


def test_an_instance_that_was_never_started_can_be_backed_up(instance: Instance, place: Path) -> None:
    lose_all(instance)
    assert verify_backup(back_up(instance, place / "b"), Keys())[0].state == "ok"


def test_a_destination_is_not_overwritten_unless_told_so(instance: Instance, place: Path) -> None:
    target = place / "b"
    target.write_text("mine")
    with pytest.raises(UsageError, match=r"is there already: name another file, or replace it with --force$"):
        back_up(instance, target)
    assert target.read_text() == "mine"
    create_backup(instance, target, clock=CLOCK, overwrite=True)
    assert verify_backup(target, Keys())[0].state == "ok"


def test_a_link_is_followed_and_stays_one(instance: Instance, place: Path) -> None:
    (place / "link").symlink_to(place / "real")
    back_up(instance, place / "link")
    assert sorted(os.listdir(place)) == ["link", "real"]
    assert (place / "link").is_symlink()


@pytest.mark.parametrize("name", ["piko/b", "piko/skills/b", "piko"])
def test_a_destination_inside_the_instance_is_refused(instance: Instance, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is inside the instance"):
        back_up(instance, tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "piko")
    with pytest.raises(UsageError, match="is inside the instance"):
        back_up(instance, tmp_path / name.replace("piko", "link", 1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("disk", "is a directory: name a file in it"),
        ("nowhere/b", "is not a directory that can be used: No such file or directory"),
        ("file/b", "is not a directory: choose another place"),
    ],
)
def test_a_destination_that_can_be_no_file_is_refused(
    instance: Instance, place: Path, tmp_path: Path, name: str, message: str
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match=message):
        back_up(instance, tmp_path / name)
    assert os.listdir(place) == []


def test_links_among_the_skills_are_left_out_and_named(instance: Instance, place: Path) -> None:
    (instance.skills_dir / "secret").symlink_to(instance.credentials_path)
    (instance.skills_dir / "all").symlink_to("/")
    os.mkfifo(instance.skills_dir / "pipe")
    report = create_backup(instance, place / "b", clock=CLOCK)
    assert sorted(report.left_out) == ["skills/all", "skills/pipe", "skills/secret"]
    assert verify_backup(place / "b", Keys())[0].state == "ok"


def test_a_skill_with_a_name_that_is_no_text_is_left_out_and_named(instance: Instance, place: Path) -> None:
    Path(os.fsdecode(os.fsencode(instance.skills_dir) + b"/\xff.md")).write_text("x")
    report = create_backup(instance, place / "b", clock=CLOCK)
    assert report.left_out == ("skills/\udcff.md",)


def test_what_a_killed_backup_has_left_is_removed_and_what_another_one_writes_stays(
    instance: Instance, place: Path
) -> None:
    left = place / ".b._x.partial"
    other = place / ".c._x.partial"
    for directory in (left, other):
        directory.mkdir()
        (directory / "archive").write_text("half")
    back_up(instance, place / "b")
    assert sorted(os.listdir(place)) == [".c._x.partial", "b"]


def test_a_file_that_changes_while_it_is_read_ends_the_backup(
    instance: Instance, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = instance.skills_dir / "旅行" / "SKILL.md"
    write = archive._write

    def change_and_write(*args: Any) -> None:
        skill.write_text("# 旅行\nAnother plan\n"[: skill.stat().st_size])
        write(*args)

    monkeypatch.setattr(archive, "_write", change_and_write)
    with pytest.raises(
        PikobotError, match=r"^skills/旅行/SKILL.md has changed while it was read: try again$"
    ):
        back_up(instance, place / "b")
    assert os.listdir(place) == []


def test_a_restore_under_way_is_waited_for(instance: Instance, place: Path) -> None:
    with acquire_serving_lock(instance):
        (instance.root / "restoring").mkdir()
        with pytest.raises(InstanceBusy, match="is being restored"):
            back_up(instance, place / "b")


def test_a_damaged_ledger_or_config_is_told_instead_of_backed_up(instance: Instance, place: Path) -> None:
    say(instance, "x")
    with acquire_serving_lock(instance):  # somebody serves, so nothing is reconciled before
        whole = instance.ledger_path.read_bytes()
        instance.ledger_path.write_bytes(whole + b"{}\n")
        with pytest.raises(DamagedData, match=r"erasures.jsonl line 2 is not a row"):
            back_up(instance, place / "b")
        instance.ledger_path.unlink()
        with pytest.raises(DamagedData, match="is missing"):
            back_up(instance, place / "b")
        instance.config_path.write_text("api_key = 'sk-93841'\n")
        with pytest.raises(ConfigError) as failure:
            back_up(instance, place / "b")
        assert failure.value.exit_code == ExitCode.USAGE
        assert "93841" not in str(failure.value)
    assert os.listdir(place) == []


def test_progress_is_told_in_bytes_and_never_beyond_the_whole(instance: Instance, place: Path) -> None:
    told: list[tuple[str, int, int]] = []
    create_backup(
        instance,
        place / "b",
        clock=CLOCK,
        progress=lambda doing, done, total: told.append((doing, done, total)),
    )
    assert {doing for doing, _, _ in told} >= {"writing"}
    assert all(0 <= done <= total for _, done, total in told)
    writing = [done for doing, done, _ in told if doing == "writing"]
    assert writing == sorted(writing)
