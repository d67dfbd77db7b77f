"""`pikobot doctor`: every check that can be made is made, whatever the others found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pikobot.cli.doctor import Finding, doctor, examine
from pikobot.config_file import update_config_file
from pikobot.errors import ExitCode
from pikobot.instance import Instance
from pikobot.serving import acquire_serving_lock
from tests.backup.instances import make_instance, picture

FIRST = ["instance", "settings", "credentials"]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


def found(instance: Instance) -> tuple[dict[str, Finding], ExitCode]:
    findings, code = examine(instance.root)
    return {finding.name: finding for finding in findings}, code


def open_to_others(instance: Instance) -> None:
    instance.credentials_path.chmod(0o644)


def with_an_unknown_secret(instance: Instance) -> None:
    instance.credentials_path.write_text('chat_key = "x"\n')


def with_an_unknown_setting(instance: Instance) -> None:
    instance.config_path.write_text("[chat]\nmodle = 1\n")


def with_both(instance: Instance) -> None:
    with_an_unknown_secret(instance)
    with_an_unknown_setting(instance)


def with_a_directory_open_to_others(instance: Instance) -> None:
    instance.root.chmod(0o755)


def test_a_sound_instance_is_examined_to_the_end(instance: Instance) -> None:
    findings, code = found(instance)
    assert list(findings) == [*FIRST, "chat model", "database", "embeddings", "disk"]
    assert code == ExitCode.DONE


@pytest.mark.parametrize(
    ("spoil", "failed", "names"),
    [
        (open_to_others, ["credentials"], [*FIRST, "database", "disk"]),
        (with_an_unknown_secret, ["credentials"], [*FIRST, "database", "disk"]),
        (with_an_unknown_setting, ["settings"], [*FIRST, "database", "disk"]),
        (with_both, ["settings", "credentials"], [*FIRST, "database", "disk"]),
        (
            with_a_directory_open_to_others,
            ["instance"],
            [*FIRST, "chat model", "database", "embeddings", "disk"],
        ),
    ],
)
def test_what_is_wrong_keeps_no_other_check_from_being_made(
    instance: Instance, spoil: Callable[[Instance], None], failed: list[str], names: list[str]
) -> None:
    spoil(instance)
    before = picture(instance.root)
    findings, code = found(instance)
    assert list(findings) == names
    assert [name for name, finding in findings.items() if finding.state == "failed"] == failed
    assert (code, picture(instance.root)) == (ExitCode.FAILED, before)


@pytest.mark.parametrize("spoil", [with_an_unknown_secret, with_an_unknown_setting])
def test_a_damaged_database_is_found_behind_a_broken_setting_or_credential(
    instance: Instance, spoil: Callable[[Instance], None]
) -> None:
    spoil(instance)
    instance.database_path.write_text("nothing like a database " * 100)
    findings, code = found(instance)
    assert (findings["database"].state, code) == ("failed", ExitCode.DAMAGED)
    instance.database_path.unlink()
    findings, code = found(instance)
    assert "and this instance had one" in findings["database"].detail
    assert code == ExitCode.DAMAGED


def test_who_serves_it_is_said_though_he_cannot_be_asked(instance: Instance) -> None:
    with_an_unknown_secret(instance)
    with acquire_serving_lock(instance):
        findings, code = found(instance)
    assert findings["database"].detail.startswith("served by process ")
    assert code == ExitCode.FAILED


def test_whatever_has_failed_ends_with_1(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIKOBOT_CHAT_API_KEY", "sk-0123456789")
    changes = [("chat.provider", "custom"), ("chat.base_url", "https://example.org/v1"), ("chat.model", "m")]
    update_config_file(instance.config_path, changes)
    assert doctor(instance.root, as_json=False) == ExitCode.FAILED
    assert "failed    chat model: " in capfd.readouterr().out


def test_where_there_is_no_instance_nothing_else_is_looked_at(tmp_path: Path) -> None:
    findings, code = examine(tmp_path / "none")
    assert [finding.name for finding in findings] == ["instance"]
    assert code == ExitCode.FAILED
