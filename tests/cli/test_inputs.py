"""Files that commands are told to read: what is missing is wrong usage, for every command and option alike."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pikobot.cli.app import app
from pikobot.cli.inputs import opened
from pikobot.errors import ExitCode, PikobotError
from pikobot.instance import Instance
from tests.backup.instances import back_up, make_instance, picture

NAMING = {
    "rpc --batch": ["rpc", "--batch", "FILE"],
    "import": ["import", "jsonl", "FILE"],
    "verify": ["verify", "FILE"],
    "verify --identity": ["verify", "BACKUP", "--identity", "FILE"],
    "verify --passphrase-file": ["verify", "BACKUP", "--passphrase-file", "FILE"],
    "restore": ["restore", "FILE"],
    "restore --ledger": ["restore", "BACKUP", "--ledger", "FILE"],
    "restore --identity": ["restore", "BACKUP", "--identity", "FILE"],
    "backup --passphrase-file": ["backup", "NEW", "--passphrase-file", "FILE"],
}


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


def call(instance: Instance, arguments: list[str], file: str) -> Result:
    places = {
        "FILE": file,
        "BACKUP": str(instance.root.parent / "b"),
        "NEW": str(instance.root.parent / "new"),
    }
    words = [places.get(word, word) for word in arguments]
    return CliRunner().invoke(app, [*words, "--instance", str(instance.root)])


@pytest.mark.parametrize("naming", NAMING)
@pytest.mark.parametrize("name", ["没有 这个", "file/below", "a\0b", "", "directory"])
def test_a_file_that_is_none_is_wrong_usage_and_nothing_happens(
    instance: Instance, naming: str, name: str
) -> None:
    back_up(instance, instance.root.parent / "b")
    (instance.root.parent / "file").write_text("x")
    (instance.root.parent / "directory").mkdir()
    before = picture(instance.root)
    file = str(instance.root.parent / name) if name else ""
    done = call(instance, NAMING[naming], file)
    if "--identity" in naming and name != "a\0b" and name:
        assert done.exit_code in (ExitCode.USAGE, ExitCode.DONE)  # a backup that is not encrypted needs none
    else:
        assert done.exit_code == ExitCode.USAGE, (done.exit_code, done.output)
    assert "internal error" not in done.output
    if naming == "rpc --batch":
        assert json.loads(done.stderr)["error"]["code"] == -32002
    assert naming == "restore --identity" or picture(instance.root) == before


def test_a_file_that_fails_while_it_is_read_is_one_sentence(tmp_path: Path) -> None:
    unreadable = Path("/proc/self/mem")
    if not unreadable.exists():
        pytest.skip("there is no such file here")
    with (
        pytest.raises(PikobotError, match=r"^cannot read /proc/self/mem: "),
        opened(str(unreadable)) as stream,
    ):
        stream.readline()
