import io
import json
import sys
from pathlib import Path

import pytest

from pikobot.cli.import_ import import_
from pikobot.cli.init import Dialog, init
from pikobot.cli.rpc import rpc
from pikobot.config_file import set_values
from pikobot.errors import ExitCode, InstanceBusy, UsageError
from pikobot.instance import Instance
from pikobot.serving import acquire_serving_lock, acquire_visitor_lock
from tests.channels.operator.serving import make_instance

LINES = [
    '{"thread":"旅行","id":"1","role":"user","speaker":"me","text":"我三月搬到了波尔图","time":"2024-03-02T09:30:00+08:00"}',
    '{"thread":"trip","id":"2","role":"assistant","text":"How is Porto?"}',
]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "i")


def written(directory: Path, *lines: str) -> str:
    file = directory / "chat.jsonl"
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(file)


def test_a_file_goes_in_once_and_is_found(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, *LINES)
    assert import_("jsonl", file, instance.root) == ExitCode.DONE
    assert import_("jsonl", file, instance.root) == ExitCode.DONE
    assert capfd.readouterr() == ("2 added\n0 added, 2 already there\n", "")
    rpc(instance.root, "source.read", '{"externalId":"1","thread":"旅行"}')
    source = json.loads(capfd.readouterr().out)
    assert (source["text"], source["time"]) == ("我三月搬到了波尔图", "2024-03-02T09:30:00+08:00")


def test_what_is_beyond_the_capacity_goes_in_and_is_announced(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = instance.config_path.read_text()
    instance.config_path.write_text(set_values(settings, [("retention.max_sources", "1")]))
    assert import_("jsonl", written(tmp_path, *LINES), instance.root) == ExitCode.DONE
    assert capfd.readouterr() == (
        "2 added\n",
        "1 message beyond retention.max_sources: the oldest will be removed\n",
    )


def test_bad_and_changed_lines_are_named_and_the_rest_goes_in(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import_("jsonl", written(tmp_path, LINES[0]), instance.root)
    capfd.readouterr()
    changed = LINES[0].replace("波尔图", "里斯本")
    file = written(tmp_path, changed, "oops", LINES[1], *["[]"] * 30)
    assert import_("jsonl", file, instance.root) == ExitCode.FAILED
    out, err = capfd.readouterr()
    assert out == "1 added, 1 changed (kept the first), 31 bad\n"
    assert err.splitlines() == [
        "line 1: changed since it was imported: kept the first",
        "line 2: the line is not valid JSON at column 1: Expecting value",
        "lines 4-33: the line must be an object",
    ]


def test_the_number_of_every_bad_line_is_written_whatever_their_number(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    groups = [line for number in range(80) for line in (f'{{"坏{number}":1}}', LINES[number % 2], "[]")]
    assert import_("jsonl", written(tmp_path, *groups, *["x", "[]"] * 500), instance.root) == ExitCode.FAILED
    out, err = capfd.readouterr()
    assert out == "2 added, 78 already there, 1160 bad\n"
    assert err.startswith("line 1: 坏0: unknown key; known are thread, role")
    assert _numbers_in(err) == [n for n in range(1, 1241) if n > 240 or n % 3 != 2]
    assert len(err.splitlines()) == 50 + 6
    assert err.endswith("lines: 225-226, 228-229, 231-232, 234-235, 237-238, 240-1240\n")


def _numbers_in(listed: str) -> list[int]:
    """Every line number that the listing names."""
    named: list[int] = []
    for line in listed.splitlines():
        numbers = line.rpartition("lines: ")[2] if line.startswith("also") else line.split()[1].rstrip(":")
        for each in numbers.split(", "):
            first, _, last = each.partition("-")
            named += range(int(first), int(last or first) + 1)
    return named


def test_stdin_is_a_file_too(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert import_("jsonl", "-", instance.root) == ExitCode.DONE
    assert capfd.readouterr().out == "2 added\n"


def test_on_a_terminal_a_bar_shows_the_progress_on_stderr_alone(
    instance: Instance,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert import_("jsonl", written(tmp_path, *LINES), instance.root) == ExitCode.DONE
    out, err = capfd.readouterr()
    assert out == "2 added\n"
    assert "bytes" in err


def test_retention_applies_to_what_is_imported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    instance = make_instance(tmp_path / "i")
    init(instance.root, ["retention.message_days=30"], dialog=Dialog(say=lambda line: None))
    assert import_("jsonl", written(tmp_path, *LINES), instance.root) == ExitCode.DONE
    assert capfd.readouterr().out == "1 added, 1 older than retention.message_days (left out)\n"


@pytest.mark.parametrize(
    ("format_name", "file", "message"),
    [
        ("csv", "x", "'csv' is not an import format; known are jsonl"),
        ("jsonl", "/nowhere/x.jsonl", "/nowhere/x.jsonl: no such file"),
        ("jsonl", "/", "/ is a directory"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_locked(
    instance: Instance, format_name: str, file: str, message: str
) -> None:
    with acquire_serving_lock(instance), pytest.raises(UsageError, match=f"^{message}"):
        import_(format_name, file, instance.root)


def test_an_instance_that_is_served_is_busy(instance: Instance, tmp_path: Path) -> None:
    file = written(tmp_path, *LINES)
    with acquire_serving_lock(instance), pytest.raises(InstanceBusy) as busy:
        import_("jsonl", file, instance.root)
    assert busy.value.exit_code == ExitCode.BUSY


def test_a_new_instance_is_made_for_a_file_that_is_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "new"
    with pytest.raises(UsageError, match="no such file"):
        import_("jsonl", str(tmp_path / "none"), root)
    assert not root.exists()
    assert import_("jsonl", written(tmp_path, *LINES), root) == ExitCode.DONE
    out, err = capfd.readouterr()
    assert out == "2 added\n"
    assert err.startswith(f"made a new instance at {root}; ")
    assert import_("jsonl", written(tmp_path, *LINES), root) == ExitCode.DONE
    assert capfd.readouterr() == ("0 added, 2 already there\n", "")


def test_the_lock_is_given_back_when_the_stream_fails(instance: Instance, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        import_("jsonl", str(tmp_path / "none"), instance.root)
    lock = acquire_visitor_lock(instance)
    assert hasattr(lock, "release")
    lock.release()
