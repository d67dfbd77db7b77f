"""A process that is killed in the middle of a change leaves the vectors as before it or as after it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.prepare import open_database
from pikobot.store.vectors.profiles import create_set
from pikobot.store.vectors.scan import scan
from pikobot.store.vectors.verify import verify_vectors
from tests.clock import FakeClock
from tests.store.rows import read, rows, write
from tests.store.vectors.crashing import DIMENSION, change
from tests.store.vectors.embeddings import embedded, make_set, profile, put_facts

ROOT = Path(__file__).parents[3]
STEPS_TRIED = 10


@pytest.mark.crash
@pytest.mark.parametrize("what", ["put", "delete", "rebuild", "drop"])
def test_a_killed_change_is_made_or_not_made(tmp_path: Path, what: str) -> None:
    before = tmp_path / "before.sqlite3"
    _prepare(before)
    after = _copy(before, tmp_path / "after.sqlite3")
    _open_and(after, lambda db: write(db, change, what))
    allowed = [_contents(before), _contents(after)]
    assert allowed[0] != allowed[1]
    counted = _run(_copy(before, tmp_path / "counted.sqlite3"), what, 0)
    steps = int(counted.stdout)
    for step in {*np.linspace(1, steps, STEPS_TRIED, dtype=int).tolist(), steps - 1, steps}:
        victim = _copy(before, tmp_path / f"{step}.sqlite3")
        assert _run(victim, what, step).returncode == -signal.SIGKILL
        assert _contents(victim) in allowed, step


def _prepare(path: Path) -> None:
    def fill(db: Database) -> None:
        generator = np.random.default_rng(1)
        put_facts(db, make_set(db, DIMENSION), embedded(generator, 300, DIMENSION))
        building = write(db, lambda tx: create_set(tx, profile(DIMENSION, "newer"), now_ms=0)).id
        for first in (1, 51):
            put_facts(db, building, embedded(generator, 40 + first, DIMENSION))

    _open_and(path, fill)


def _open_and(path: Path, work: object) -> None:
    db = open_database(path, FakeClock())
    try:
        assert callable(work)
        work(db)
    finally:
        db.close()


def _contents(path: Path) -> list[object]:
    """What can be asked of the vectors; nothing may be wrong with them."""
    found: list[object] = []

    def look(db: Database) -> None:
        assert read(db, verify_vectors) == []
        tables = ("vectors", "vector_values", "vector_blocks", "vector_means", "vector_sets")
        found.extend(rows(db, f"SELECT * FROM {table} ORDER BY 1") for table in tables)
        found.append(read(db, _answers))

    _open_and(path, look)
    return found


def _answers(conn: Connection) -> object:
    (set_id,) = conn.execute("SELECT min(id) FROM vector_sets").fetchone() or (0,)
    return scan(conn, set_id, np.ones(DIMENSION), k=400)  # type: ignore[arg-type]  # an id


def _copy(source: Path, target: Path) -> Path:
    return Path(shutil.copy(source, target))


def _run(path: Path, what: str, last: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.store.vectors.crashing", str(path), what, str(last)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
