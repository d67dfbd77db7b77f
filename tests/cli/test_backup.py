"""`pikobot backup` and `pikobot restore`, as functions and as the installed command."""

import getpass
import sys
from pathlib import Path

import pytest

from pikobot.backup.encryption import Keys
from pikobot.cli import backup as commands
from pikobot.cli.backup import BackupOptions, backup, keys_of, passphrase_in, restore
from pikobot.errors import ConfigError, ExitCode, UsageError
from pikobot.instance import Instance
from pikobot.serving import acquire_serving_lock
from tests.backup.instances import MARKERS, SAID, files_with, forget_text, make_instance, texts
from tests.end_to_end.instances import run


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


def test_a_backup_is_one_line_and_a_restore_another(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert backup(instance.root, str(tmp_path / "b"), BackupOptions()) == ExitCode.DONE
    out, err = capfd.readouterr()
    size = (tmp_path / "b").stat().st_size / 1_000_000
    assert (out, err) == (f"{tmp_path}/b: {size:.1f} MB, 5 members\n", "")
    forget_text(instance, SAID)
    assert restore(instance.root, str(tmp_path / "b"), keys=Keys()) == ExitCode.DONE
    out, err = capfd.readouterr()
    assert out.startswith(f"{instance.root}: replaced by the backup of 20")
    assert out.endswith("; 2 sources, 2 later erasures obeyed\n")
    assert err == ""


def test_a_restore_without_any_other_ledger_says_what_may_come_back(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backup(instance.root, str(tmp_path / "b"), BackupOptions())
    restore(tmp_path / "copy", str(tmp_path / "b"), keys=Keys())
    out, err = capfd.readouterr()
    assert out.splitlines()[-1].startswith(f"{tmp_path}/copy: made from the backup of ")
    assert err.startswith("no other erasure ledger was found: what was forgotten after ")
    restore(tmp_path / "copy2", str(tmp_path / "b"), ledgers=[str(instance.ledger_path)], keys=Keys())
    assert capfd.readouterr().err == ""


def test_what_is_left_out_is_named_on_stderr(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (instance.skills_dir / "link").symlink_to("/etc")
    assert backup(instance.root, str(tmp_path / "b"), BackupOptions()) == ExitCode.DONE
    assert capfd.readouterr().err == "left out: 'skills/link' is no file of its own\n"


def test_on_a_terminal_a_bar_shows_the_progress_on_stderr_alone(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    backup(instance.root, str(tmp_path / "b"), BackupOptions())
    restore(instance.root, str(tmp_path / "b"), keys=Keys())
    out, err = capfd.readouterr()
    assert len(out.splitlines()) == 2
    assert "MB" in err


def test_a_passphrase_is_asked_twice_and_once(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    passphrases = pytest.importorskip("pyrage").passphrase  # its key derivation takes seconds
    monkeypatch.setattr(passphrases, "encrypt", lambda data, secret: secret.encode() + data)
    monkeypatch.setattr(passphrases, "decrypt", lambda data, secret: data.removeprefix(secret.encode()))
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    answers = iter(["电池 horse", "other", "", "电池 horse", "电池 horse", "电池 horse"])
    monkeypatch.setattr(getpass, "getpass", lambda prompt: next(answers))
    asking = BackupOptions(asks_passphrase=True)
    with pytest.raises(UsageError, match="the two passphrases differ"):
        backup(instance.root, str(tmp_path / "b"), asking)
    with pytest.raises(UsageError, match="an empty passphrase protects nothing"):
        backup(instance.root, str(tmp_path / "b"), asking)
    assert backup(instance.root, str(tmp_path / "b"), asking) == ExitCode.DONE
    assert capfd.readouterr().out.endswith("members, encrypted\n")
    assert files_with(tmp_path / "b", *MARKERS) == []
    assert restore(tmp_path / "copy", str(tmp_path / "b"), keys=keys_of((), None)) == ExitCode.DONE
    assert texts(Instance(tmp_path / "copy")) == texts(instance)


def test_a_passphrase_cannot_be_asked_without_a_terminal(
    instance: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(UsageError, match="give --passphrase-file FILE instead"):
        backup(instance.root, str(tmp_path / "b"), BackupOptions(asks_passphrase=True))
    assert keys_of((), None).ask is None


def test_a_passphrase_file_is_private_and_its_first_line_counts(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text("电池 horse\nnot this\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        passphrase_in(str(file))
    file.chmod(0o600)
    assert passphrase_in(str(file)).reveal() == "电池 horse"
    file.write_text("\n")
    with pytest.raises(UsageError, match="holds no passphrase"):
        passphrase_in(str(file))
    with pytest.raises(UsageError, match="no such file"):
        passphrase_in(str(tmp_path / "none"))


def test_names_that_are_none_are_wrong_usage() -> None:
    for name in ("", "a\0b"):
        with pytest.raises(UsageError):
            commands.restore(Path("/nowhere"), name, keys=Keys())


def test_the_command_itself_ends_with_the_codes_that_are_documented(
    instance: Instance, tmp_path: Path
) -> None:
    at = ("--instance", str(instance.root))
    target = str(tmp_path / "b")
    assert run("backup", target, *at).code == ExitCode.DONE
    again = run("backup", target, *at)
    assert (again.code, again.out) == (ExitCode.USAGE, "")
    assert again.err == f"pikobot: {target} is there already: name another file, or replace it with --force\n"
    assert run("backup", target, "--force", *at).code == ExitCode.DONE
    with acquire_serving_lock(instance):
        busy = run("restore", target, *at)
    assert (busy.code, busy.out) == (ExitCode.BUSY, "")
    assert run(*at, "restore", target).code == ExitCode.DONE
    damaged = Path(target).read_bytes()[:-1]
    Path(target).write_bytes(damaged)
    assert run("restore", target, *at).code == ExitCode.DAMAGED
    assert run("restore", str(tmp_path / "none"), *at).code == ExitCode.USAGE


def test_a_restore_that_leaves_something_to_look_at_says_so_and_fails(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    notes = instance.skills_dir / "keys.md"
    notes.write_text(SAID)
    backup(instance.root, str(tmp_path / "b"), BackupOptions())
    notes.unlink()
    forget_text(instance, SAID)
    assert restore(instance.root, str(tmp_path / "b"), keys=Keys()) == ExitCode.FAILED
    out, err = capfd.readouterr()
    assert err.startswith("skills/keys.md holds ")
    assert "2 later erasures obeyed" in out
