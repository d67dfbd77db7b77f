"""The tool that reviews another Mem0 release."""

import importlib.metadata
import json
import shutil
import zipfile
from pathlib import Path

import pytest

from pikobot.adapters.mem0 import patching
from scripts import review_mem0_upgrade

MAIN = "mem0/memory/main.py"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A copy of the reviewed files of the installed release."""
    installed = importlib.metadata.distribution("mem0ai")
    for path in patching.read_manifest(patching.patches_directory()).files:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(installed.locate_file(path)), tmp_path / path)
    return tmp_path


def edit(release: Path, path: str, old: str, new: str) -> None:
    file = release / path
    text = file.read_bytes().decode()
    assert old in text
    file.write_bytes(text.replace(old, new, 1).encode())


def reviewed(release: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = review_mem0_upgrade.main([str(release)])
    return code, capsys.readouterr().out


def test_the_pinned_release_has_no_open_points(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reviewed(release, capsys) == (0, "23 reviewed files, 0 open points\n")


def test_a_wheel_is_read_without_being_installed(
    release: Path, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    wheel = tmp_path_factory.mktemp("wheel") / "mem0ai-2.3.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in patching.read_manifest(patching.patches_directory()).files:
            archive.write(release / path, path)
    assert reviewed(wheel, capsys) == (0, "23 reviewed files, 0 open points\n")


def test_hunks_that_only_moved_still_apply_and_the_diff_is_shown(
    release: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(release, MAIN, "import asyncio\n", "import abc\nimport asyncio\n")
    code, out = reviewed(release, capsys)
    assert code == 0
    assert f"--- a/{MAIN}\n" in out
    assert "+import abc\n" in out


def test_a_hunk_whose_lines_changed_is_named(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(release, MAIN, "response = remove_code_blocks(response)", "response = clean(response)")
    code, out = reviewed(release, capsys)
    assert code == 1
    assert f"! {MAIN}: hunk 13 (line 971) no longer applies\n" in out
    assert "+            response = clean(response)\n" in out


def test_a_new_import_and_a_change_of_an_unpatched_file_are_named(
    release: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(release, MAIN, "import asyncio\n", "import asyncio\nfrom mem0.memory.beacon import call_home\n")
    edit(release, "mem0/utils/scoring.py", "import math\n", "import cmath\n")
    code, out = reviewed(release, capsys)
    assert code == 1
    assert f"! {MAIN}: imports mem0.memory.beacon, which is not reviewed\n" in out
    assert "! mem0/utils/scoring.py: changed, and is used unpatched; read the diff above\n" in out


def test_a_missing_file_is_named(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (release / "mem0/configs/enums.py").unlink()
    code, out = reviewed(release, capsys)
    assert code == 1
    assert "! mem0/configs/enums.py: is gone\n" in out


@pytest.mark.parametrize("name", ["nothing-here", "broken.whl"])
def test_what_is_no_release_is_an_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.whl").write_text("no archive")
    assert review_mem0_upgrade.main([str(tmp_path / name)]) == 1
    assert capsys.readouterr().err.startswith("error: ")


def test_recording_writes_a_patch_that_makes_the_edited_files(release: Path, tmp_path: Path) -> None:
    directory = tmp_path / "patches"
    directory.mkdir()
    source = patching.patches_directory()
    (directory / patching.MANIFEST_NAME).write_bytes((source / patching.MANIFEST_NAME).read_bytes())
    upstream = (release / MAIN).read_bytes().decode()
    edit(release, MAIN, "setup_config()\nlogger", "logger")
    review_mem0_upgrade.record(release, directory)
    manifest = patching.read_manifest(directory)
    patch = patching.read_patch(directory, manifest.patch)
    assert list(patch) == [MAIN]
    result = patching.apply_hunks(upstream, patch[MAIN], MAIN)
    assert result == (release / MAIN).read_bytes().decode()
    assert patching.sha256(result.encode()) == manifest.files[MAIN].loaded
    assert (
        "patched"
        not in json.loads((directory / patching.MANIFEST_NAME).read_text())["files"]["mem0/__init__.py"]
    )


def test_what_ships_is_what_recording_the_patched_files_gives(release: Path, tmp_path: Path) -> None:
    source = patching.patches_directory()
    directory = tmp_path / "patches"
    directory.mkdir()
    manifest = patching.read_manifest(source)
    (directory / patching.MANIFEST_NAME).write_bytes((source / patching.MANIFEST_NAME).read_bytes())
    for path, hunks in patching.read_patch(source, manifest.patch).items():
        patched = patching.apply_hunks((release / path).read_bytes().decode(), hunks, path)
        (release / path).write_bytes(patched.encode())
    review_mem0_upgrade.record(release, directory)
    for name in (patching.MANIFEST_NAME, manifest.patch):
        assert (directory / name).read_bytes() == (source / name).read_bytes()
