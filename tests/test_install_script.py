"""scripts/install with a pip that does as it is told: what is asked for once is not asked for again."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTHON = """#!/usr/bin/env bash
[ "$1" = -m ] || exit 0
echo "${@: -1}" >>"$(dirname "$0")/asked"
case "${@: -1}" in *missing*) echo "no such wheel" >&2; exit 1 ;; esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "install", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text("as released")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def install(checkout: Path, *arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [checkout / "scripts" / "install", *arguments], capture_output=True, text=True, cwd="/"
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def asked(checkout: Path) -> list[str]:
    """What pip was asked for since the last look."""
    log = checkout / ".venv" / "bin" / "asked"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def test_what_is_installed_is_not_installed_again_until_the_project_changes(checkout: Path) -> None:
    assert install(checkout, "test", "--optional", "e5")[0] == 0
    assert asked(checkout) == [".", ".[test]", ".[e5]"]
    assert install(checkout, "test", "--optional", "e5") == (0, [])
    assert asked(checkout) == []
    (checkout / "constraints.txt").write_text("as released later")
    assert install(checkout, "--optional", "e5")[0] == 0
    assert asked(checkout) == [".", ".[e5]"]


def test_an_optional_extra_that_fails_is_said_in_one_line_and_tried_once(checkout: Path) -> None:
    code, lines = install(checkout, "--optional", "missing", "e5")
    assert (code, asked(checkout)) == (0, [".", ".[missing]", ".[e5]"])
    assert [line for line in lines if not line.startswith("installing ")] == [
        "the extra missing can't be installed here and is left out; `scripts/install missing` says why"
    ]
    assert install(checkout, "--optional", "missing", "e5") == (0, [])
    assert asked(checkout) == []


def test_an_extra_that_is_needed_and_fails_stops_and_is_tried_again(checkout: Path) -> None:
    assert install(checkout, "--optional", "missing")[0] == 0
    for _ in range(2):
        code, lines = install(checkout, "missing")
        assert (code, lines[-1]) == (1, "no such wheel")
    assert asked(checkout) == [".", ".[missing]", ".[missing]", ".[missing]"]
