import os
import stat
from pathlib import Path

import pytest

from pikobot.errors import PikobotError
from pikobot.workspace import abandoned, workspace
from tests.clock import FakeClock


def test_a_workspace_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with workspace(tmp_path, "b", FakeClock()) as place:
        (place / "file").write_text("x")
        assert place == tmp_path / ".b._0001.partial"
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert os.listdir(tmp_path) == []


def test_it_is_gone_after_a_failure_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), workspace(tmp_path, "b", FakeClock()):
        raise KeyError
    assert os.listdir(tmp_path) == []


def test_what_nobody_holds_was_left_by_a_crash_and_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".b._0009.partial"
    (left / "deep").mkdir(parents=True)
    (tmp_path / ".bb._0009.partial").mkdir()
    (tmp_path / ".b.txt").write_text("mine")
    clock = FakeClock()
    assert abandoned(tmp_path, "b") == [left]
    with workspace(tmp_path, "b", clock) as first:
        assert abandoned(tmp_path, "b") == []
        with workspace(tmp_path, "b", clock) as second:
            assert sorted(os.listdir(tmp_path)) == sorted(
                [".b.txt", ".bb._0009.partial", first.name, second.name]
            )


def test_where_none_can_be_made_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(PikobotError, match="cannot make"), workspace(tmp_path / "none", "b", FakeClock()):
        pass
