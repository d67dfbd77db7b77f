"""What every command refuses alike, with what helps and nothing changed: a lost database, open credentials."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner, Result

from pikobot import identity
from pikobot.cli.app import app
from pikobot.config_file import default_config_text
from pikobot.errors import ExitCode
from pikobot.instance import Instance, create_instance
from pikobot.store.connection import Database, connect
from tests.backup.instances import (
    CLOCK,
    KEPT,
    SAID,
    back_up,
    forget_text,
    lose_all,
    make_instance,
    opened,
    picture,
    texts,
)
from tests.memory.conversing import read

RECORD = '{"thread":"t","role":"user","text":"我住在波尔图"}\n'
COMMANDS: dict[str, list[str]] = {
    "run": ["run", "-m", "Where did I move?"],
    "ephemeral": ["run", "--ephemeral", "-m", "我搬到哪里了？"],
    "headless": ["run", "--headless"],
    "work": ["work", "--drain"],
    "rpc": ["rpc", "memory.search", '{"query":"波尔图"}'],
    "batch": ["rpc", "--batch", "-"],
    "import": ["import", "jsonl", "-"],
    "backup": ["backup", "DEST"],
    "verify": ["verify"],
    "reindex": ["reindex"],
    "doctor": ["doctor"],
    "init": ["init", "--set", "chat.provider=none"],
}


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "我的 piko")


def call(instance: Instance, arguments: list[str]) -> Result:
    words = [str(instance.root.parent / "made.backup") if word == "DEST" else word for word in arguments]
    return CliRunner().invoke(app, [*words, "--instance", str(instance.root)], input=RECORD)


def removed(instance: Instance) -> None:
    instance.database_path.unlink()


def removed_with_its_ledger(instance: Instance) -> None:
    instance.database_path.unlink()
    instance.ledger_path.unlink()


def removed_with_its_mark(instance: Instance) -> None:
    instance.database_path.unlink()
    instance.root.joinpath(identity.NAME).unlink()


def emptied(instance: Instance) -> None:
    instance.database_path.write_bytes(b"")


def emptied_with_its_ledger(instance: Instance) -> None:
    instance.database_path.write_bytes(b"")
    instance.ledger_path.write_bytes(b"")


def only_the_log_is_left(instance: Instance) -> None:
    connection = connect(instance.database_path)
    connection.execute("UPDATE settings SET value = value")
    log = Path(f"{instance.database_path}-wal")
    kept = log.read_bytes()
    connection.close()
    lose_all(instance)
    log.write_bytes(kept)


def only_a_copy_is_left(instance: Instance) -> None:
    instance.database_path.rename(f"{instance.database_path}.before-0009")
    instance.ledger_path.unlink()
    instance.root.joinpath(identity.NAME).unlink()


def dangling_link(instance: Instance) -> None:
    instance.database_path.unlink()
    instance.database_path.symlink_to(instance.root.parent / "unmounted" / "pikobot.sqlite3")


def a_directory(instance: Instance) -> None:
    instance.database_path.unlink()
    instance.database_path.mkdir(mode=0o700)


def somebody_elses(instance: Instance) -> None:
    instance.database_path.unlink()
    connection = apsw.Connection(str(instance.database_path))
    connection.execute("CREATE TABLE settings (theme)")
    connection.close()


def an_empty_one(instance: Instance) -> None:
    instance.database_path.unlink()
    Database(instance.database_path, CLOCK).close()


def of_another_instance(instance: Instance) -> None:
    other = make_instance(instance.root.parent / "other")
    instance.database_path.write_bytes(other.database_path.read_bytes())
    instance.ledger_path.write_bytes(other.ledger_path.read_bytes())


def cut_off(instance: Instance) -> None:
    instance.database_path.write_bytes(instance.database_path.read_bytes()[:60])


def zeros(instance: Instance) -> None:
    instance.database_path.write_bytes(bytes(instance.database_path.stat().st_size))


LOST = (
    removed,
    removed_with_its_ledger,
    removed_with_its_mark,
    emptied,
    emptied_with_its_ledger,
    only_the_log_is_left,
    only_a_copy_is_left,
    dangling_link,
    a_directory,
)
REPLACED = (somebody_elses, an_empty_one, of_another_instance, cut_off, zeros)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", LOST)
def test_without_its_database_nothing_is_done(
    instance: Instance, damage: Callable[[Instance], None], command: str
) -> None:
    damage(instance)
    before = picture(instance.root)
    done = call(instance, COMMANDS[command])
    assert done.exit_code == ExitCode.DAMAGED, done.output
    assert f"`pikobot restore BACKUP --instance '{instance.root}'` (RECOVERY.md)" in done.output
    assert str(instance.database_path) in done.output
    assert picture(instance.root) == before
    assert not (instance.root.parent / "made.backup").exists()


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "init"])
@pytest.mark.parametrize("damage", REPLACED)
def test_with_something_else_in_its_place_nothing_is_done(
    instance: Instance, damage: Callable[[Instance], None], command: str
) -> None:
    damage(instance)
    before = picture(instance.root)
    done = call(instance, COMMANDS[command])
    assert done.exit_code == ExitCode.DAMAGED, done.output
    assert picture(instance.root) == before
    assert not (instance.root.parent / "made.backup").exists()


def test_the_others_checks_are_made_all_the_same(instance: Instance) -> None:
    removed_with_its_ledger(instance)
    document = json.loads(call(instance, ["verify", "--json"]).stdout)
    assert {one["check"]: one["state"] for one in document["findings"]} == {
        "permissions": "ok",
        "settings": "ok",
        "database": "damaged",
        "left files": "ok",
    }
    document = json.loads(call(instance, ["doctor", "--json"]).stdout)
    states = {one["name"]: one["state"] for one in document["findings"]}
    assert (states["instance"], states["settings"], states["database"]) == ("ok", "ok", "failed")


def test_a_backup_brings_it_back_with_what_was_forgotten_still_gone(instance: Instance) -> None:
    """As RECOVERY.md has it."""
    backup = back_up(instance, instance.root.parent / "b")
    forget_text(instance, SAID)
    removed(instance)
    assert call(instance, ["restore", str(backup)]).exit_code == ExitCode.DONE
    assert texts(instance) == [KEPT, "Noted."]
    removed_with_its_ledger(instance)
    assert call(instance, ["restore", str(backup)]).exit_code == ExitCode.DONE
    assert KEPT in texts(instance)


def test_a_copy_that_is_put_back_serves_again(instance: Instance) -> None:
    kept = instance.database_path.read_bytes()
    removed(instance)
    assert call(instance, ["run", "-m", "hello"]).exit_code == ExitCode.DAMAGED
    instance.database_path.write_bytes(kept)
    assert call(instance, ["rpc", "status"]).exit_code == ExitCode.DONE


def test_the_copy_that_a_migration_had_made_is_the_database_when_it_is_renamed(instance: Instance) -> None:
    """As RECOVERY.md has it."""
    only_a_copy_is_left(instance)
    instance.database_path.with_name("pikobot.sqlite3.before-0009").rename(instance.database_path)
    assert call(instance, ["verify"]).stdout.count("damaged") == 1  # the ledger is still to be written again
    assert KEPT in texts(instance)
    assert call(instance, ["verify"]).exit_code == ExitCode.DONE


def test_the_backup_of_another_instance_does_not_take_its_place(instance: Instance) -> None:
    backup = back_up(make_instance(instance.root.parent / "other"), instance.root.parent / "b")
    removed_with_its_ledger(instance)
    done = call(instance, ["restore", str(backup)])
    assert (done.exit_code, "is another instance" in done.output) == (ExitCode.USAGE, True)
    a_directory_of_that_name = instance.database_path
    a_directory_of_that_name.mkdir()
    assert "is a directory: move it away" in call(instance, ["restore", str(backup)]).output


def test_a_directory_that_never_had_a_database_gets_one(tmp_path: Path) -> None:
    written = Instance(tmp_path / "by hand")
    written.root.mkdir(mode=0o700)
    written.config_path.write_text(default_config_text())
    made = create_instance(tmp_path / "made", default_config_text())
    cut = create_instance(tmp_path / "killed at its first start", default_config_text())
    cut.database_path.touch(mode=0o600)
    for instance in (written, made, cut):
        assert call(instance, ["verify"]).exit_code == ExitCode.DONE
        assert call(instance, ["run", "-m", "我住在波尔图"]).stdout == "已记下。\n"
        assert identity.recorded_id(instance.database_path) == _id_in(instance)


def _id_in(instance: Instance) -> str:
    with opened(instance) as db:
        [(found,)] = read(db, "SELECT value FROM settings WHERE key = 'instance_id'")
    return str(found)


def test_lost_marks_are_written_again_from_the_database(instance: Instance) -> None:
    forget_text(instance, SAID)
    ledger, mark = instance.ledger_path.read_bytes(), instance.root / identity.NAME
    instance.ledger_path.unlink()
    mark.unlink()
    assert call(instance, ["rpc", "status"]).exit_code == ExitCode.DONE
    assert (instance.ledger_path.read_bytes(), mark.read_text()) == (ledger, f"{_id_in(instance)}\n")
    mark.write_text("half a li")
    assert call(instance, ["rpc", "status"]).exit_code == ExitCode.DONE
    assert mark.read_text() == f"{_id_in(instance)}\n"


def test_a_database_that_cannot_be_read_is_named_with_the_command_that_mends_it(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    for command in ("run", "rpc", "import", "backup", "verify", "doctor"):
        done = call(instance, COMMANDS[command])
        assert done.exit_code == ExitCode.FAILED
        assert f"`chmod 600 '{instance.database_path}'`" in done.output


def test_a_whole_directory_can_be_copied_and_moved(instance: Instance, tmp_path: Path) -> None:
    shutil.copytree(instance.root, tmp_path / "copy")
    assert call(Instance(tmp_path / "copy"), ["verify"]).exit_code == ExitCode.DONE
    assert call(Instance(tmp_path / "copy"), ["rpc", "status"]).exit_code == ExitCode.DONE


@pytest.mark.parametrize("command", COMMANDS)
def test_credentials_that_others_can_read_are_refused_by_every_command(
    instance: Instance, command: str
) -> None:
    instance.credentials_path.chmod(0o640)
    before = picture(instance.root)
    done = call(instance, COMMANDS[command])
    reporting = {"verify": ExitCode.FAILED, "doctor": ExitCode.FAILED}
    assert done.exit_code == reporting.get(command, ExitCode.USAGE)
    assert f"run `chmod 600 '{instance.credentials_path}'`" in done.output
    assert picture(instance.root) == before
    assert not (instance.root.parent / "made.backup").exists()
