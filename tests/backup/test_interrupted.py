"""A backup or a restore is killed before each of its steps, or runs out of disk at each size.

What is left is the old or the new, never a mix, and what was erased is in neither.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from pikobot.backup.encryption import Keys
from pikobot.backup.verify import exit_code, verify_backup, verify_instance
from pikobot.errors import ExitCode
from pikobot.instance import Instance, is_instance, open_instance
from tests.backup.instances import (
    CLOCK,
    KEPT,
    MARKERS,
    SAID,
    back_up,
    files_with,
    forget_text,
    make_instance,
    picture,
    restored,
    say,
    texts,
)

REPOSITORY = Path(__file__).resolve().parents[2]
NEVER = 10**9
UNLIMITED = 1 << 60
SAMPLES = 3
WORKERS = 2
NEW = [KEPT, "Noted."]
OLD = [*NEW, "said after the backup", "Noted."]


@dataclass(frozen=True)
class Place:
    """An instance that has gone on and has forgotten since its backup."""

    template: Path
    directory: Path

    def copy(self, name: str) -> tuple[Instance, Path]:
        """A fresh copy of the instance and its backup."""
        target = self.directory / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.template, target, symlinks=True)
        return Instance(target / "piko"), target / "b"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    directory = tmp_path_factory.mktemp("place")
    template = directory / "template"
    template.mkdir()
    instance = make_instance(template / "piko")
    back_up(instance, template / "b")
    forget_text(instance, SAID)
    say(instance, "said after the backup")
    return Place(template, directory)


def run(
    what: str, instance: Instance, file: Path, *ledgers: Path, last: int = NEVER, limit: int = UNLIMITED
) -> str:
    """How many steps there were, '' when it was killed, or what it failed with."""
    arguments = [str(last), str(limit), str(instance.root.parent), what, str(instance.root), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.backup.child", *arguments, *map(str, ledgers)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 1, -signal.SIGKILL), done.stderr
    return done.stdout.strip() or done.stderr.strip()


def check_restore(place: Place, last: int) -> bool:
    """Whether the instance that is left is the new one."""
    instance, backup = place.copy(f"restore{last}")
    keys = instance.credentials_path.read_bytes()
    run("restore", instance, backup, last=last)
    open_instance(instance.root)
    left = texts(instance)
    assert left in (OLD, NEW), last
    assert files_with(instance.root, *MARKERS) == [], last
    assert ("run.sh" in {path.name for path in instance.skills_dir.rglob("*")}) or left == OLD, last
    assert instance.credentials_path.read_bytes() == keys, last
    assert exit_code(verify_instance(instance, CLOCK)) == ExitCode.DONE, last
    restored(backup, instance.root)
    assert texts(instance) == NEW, last
    shutil.rmtree(instance.root.parent)
    return left == NEW


def check_new(place: Place, last: int) -> bool:
    """Whether there is an instance where none was."""
    old, backup = place.copy(f"new{last}")
    instance = Instance(old.root.with_name("other"))
    run("restore", instance, backup, old.ledger_path, last=last)
    is_new = is_instance(instance.root)
    if is_new:
        open_instance(instance.root)
        assert texts(instance) == NEW, last
    restored(backup, instance.root, old.ledger_path)
    assert texts(instance) == NEW, last
    assert files_with(instance.root, *MARKERS) == [], last
    assert exit_code(verify_instance(instance, CLOCK)) == ExitCode.DONE, last
    shutil.rmtree(old.root.parent)
    return is_new


def check_backup(place: Place, last: int) -> bool:
    """Whether there is a backup."""
    instance, _ = place.copy(f"backup{last}")
    target = instance.root.with_name("disk") / "b2"
    target.parent.mkdir()
    run("backup", instance, target, last=last)
    is_there = target.exists()
    if is_there:
        assert [finding.state for finding in verify_backup(target, Keys())] == ["ok"], last
        target.unlink()
    assert texts(instance) == OLD, last
    assert exit_code(verify_instance(instance, CLOCK)) == ExitCode.DONE, last
    back_up(instance, target)
    assert os.listdir(target.parent) == ["b2"], last
    shutil.rmtree(instance.root.parent)
    return is_there


KINDS = {"restore": check_restore, "new": check_new, "backup": check_backup}


def steps_of(place: Place, kind: str) -> int:
    instance, backup = place.copy("counted")
    if kind == "backup":
        return int(run("backup", instance, backup.with_name("b2")))
    target = instance if kind == "restore" else Instance(instance.root.with_name("other"))
    return int(run("restore", target, backup, instance.ledger_path))


def ends(place: Place, kind: str, steps: Iterable[int]) -> list[bool]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(lambda last: KINDS[kind](place, last), steps))


@pytest.mark.parametrize("kind", list(KINDS))
def test_killed_at_some_of_its_steps_it_leaves_the_old_or_the_new(place: Place, kind: str) -> None:
    steps = steps_of(place, kind)
    samples = sorted({*range(0, steps, -(-steps // SAMPLES)), steps - 3, steps})
    found = ends(place, kind, samples)
    assert (found[0], found[-1]) == (False, True)
    assert found == sorted(found)


@pytest.mark.crash
@pytest.mark.parametrize("kind", list(KINDS))
def test_killed_at_any_of_its_steps_it_leaves_the_old_or_the_new(place: Place, kind: str) -> None:
    found = ends(place, kind, range(steps_of(place, kind) + 1))
    assert (found[0], found[-1]) == (False, True)
    assert found == sorted(found)


# A full disk --------------------------------------------------------------------------------------------------


def without_empty_log(pictured: dict[str, str]) -> dict[str, str]:
    """SQLite leaves its own files behind when it can't open a database: an empty log, and the index of that."""
    empty = hashlib.sha256(b"").hexdigest()
    return {
        name: seen
        for name, seen in pictured.items()
        if not name.endswith("-shm") and not (name.endswith("-wal") and seen.endswith(empty))
    }


def check_full(place: Place, what: str, limit: int) -> bool:
    """Whether it failed; then everything is as it was, to the byte."""
    instance, backup = place.copy(f"{what}{limit}")
    file = backup if what == "restore" else backup.with_name("b2")
    before = picture(instance.root.parent)
    said = run(what, instance, file, limit=limit)
    if said.isdigit():
        shutil.rmtree(instance.root.parent)
        return False
    assert "the disk is full" in said or "File too large" in said or "disk I/O error" in said, (limit, said)
    assert without_empty_log(picture(instance.root.parent)) == before, (limit, said)
    assert texts(instance) == OLD
    shutil.rmtree(instance.root.parent)
    return True


def limits_up_to(place: Place, step: int) -> list[int]:
    size = (place.template / "b").stat().st_size
    return [*range(0, size + step, step), UNLIMITED]


@pytest.mark.parametrize("what", ["backup", "restore"])
def test_a_full_disk_leaves_everything_as_it_was(place: Place, what: str) -> None:
    failed = [check_full(place, what, limit) for limit in (0, 100_000, UNLIMITED)]
    assert failed == [True, True, False]


@pytest.mark.crash
@pytest.mark.parametrize("what", ["backup", "restore"])
def test_a_full_disk_at_any_size_leaves_everything_as_it_was(place: Place, what: str) -> None:
    with ThreadPoolExecutor(WORKERS) as pool:
        failed = list(pool.map(lambda limit: check_full(place, what, limit), limits_up_to(place, 65_536)))
    assert failed == sorted(failed, reverse=True)
    assert (failed[0], failed[-1]) == (True, False)
