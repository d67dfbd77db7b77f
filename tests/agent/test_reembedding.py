"""Embedding anew is cut off by kill -9 anywhere: the old vectors serve on, or the new ones do, and all is sound."""

import asyncio
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pikobot.clock import SystemClock
from pikobot.memory.embedding import embed
from pikobot.memory.forgetting.forget import forget
from pikobot.store import embedding_jobs
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from pikobot.store.vectors.profiles import active_set, list_sets
from pikobot.store.vectors.verify import verify_vectors
from tests.memory.conversing import read, write
from tests.memory.meaning import Meaning, embed_all, engine, found, questions, texts_of
from tests.memory.remembering import say

SAID = ("my puppy", "a red car", "去看了医生", "the trip", "一只小犬")
STEPS = 8  # in the default suite; all of them when crashes are asked for
NEW = "meaning-2"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A database with its vectors, and how many steps it takes to embed it anew."""
    path = tmp_path_factory.mktemp("prepared") / "pikobot.sqlite3"
    db = open_database(path, SystemClock())
    say(db, *SAID)
    asyncio.run(embed_all(db, engine(Meaning())))
    db.close()
    copy = path.with_name("copy.sqlite3")
    shutil.copy(path, copy)
    return path, int(reembed(copy, 0).stdout)


def reembed(path: Path, last: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.agent.reembedding", str(path), str(last)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def check(path: Path) -> None:
    db = open_database(path, SystemClock())
    try:
        with db.read() as conn:
            assert verify_vectors(conn) == []
            serving = active_set(conn)
        assert serving is not None
        assert counts(db)[serving.id] == len(SAID)
        made = engine(Meaning(), serving.profile.model)
        page = asyncio.run(found(db, questions(db, made), "hound"))
        assert set(texts_of(page)[:2]) == {"my puppy", "一只小犬"}
        assert page.degraded is None
        finish(db)
    finally:
        db.close()


def finish(db: Database) -> None:
    """What the next start does, and the owner's word for what may have been charged."""
    lost = db.perform(embed.recover_batches)
    asyncio.run(embed_all(db, engine(Meaning(), NEW, price="1", batch=2)))
    if lost:
        write(db, embedding_jobs.requeue)
        asyncio.run(embed_all(db, engine(Meaning(), NEW, price="1", batch=2)))
    with db.read() as conn:
        assert [each.profile.model for each in list_sets(conn)] == [NEW]
        assert verify_vectors(conn) == []
    assert list(counts(db).values()) == [len(SAID)]
    assert read(db, "SELECT count(*) FROM embedding_jobs") == [(0,)]
    assert read(db, "SELECT count(*) FROM attempts WHERE state = 'started'") == [(0,)]


def counts(db: Database) -> dict[int, int]:
    return dict(read(db, "SELECT set_id, count(*) FROM vectors GROUP BY set_id"))


def crash(prepared: Path, directory: Path, step: int) -> Path:
    path = directory / f"at-{step}.sqlite3"
    shutil.copy(prepared, path)
    assert reembed(path, step).returncode == -signal.SIGKILL
    return path


def test_a_kill_anywhere_leaves_one_whole_set_and_the_next_start_goes_on(
    prepared: tuple[Path, int], tmp_path: Path
) -> None:
    path, steps = prepared
    assert steps > 3 * STEPS
    for number in range(STEPS):
        check(crash(path, tmp_path, 2 + number * (steps - 2) // STEPS))


@pytest.mark.crash
def test_a_kill_at_every_step_leaves_one_whole_set(prepared: tuple[Path, int], tmp_path: Path) -> None:
    path, steps = prepared
    for step in range(1, steps + 1):
        check(crash(path, tmp_path, step))


def test_a_vector_of_an_erased_source_is_in_no_file_even_while_it_is_embedded_anew(
    prepared: tuple[Path, int], tmp_path: Path
) -> None:
    path, steps = prepared
    half = crash(path, tmp_path, steps // 2)
    db = open_database(half, SystemClock())
    try:
        erased = "SELECT d.unit FROM vectors AS v JOIN vector_values AS d ON d.vector_id = v.id WHERE v.owner_id = 1"
        units = [row[0] for row in read(db, erased)]
        assert len(units) == 2
        [(public_id,)] = read(db, "SELECT public_id FROM sources WHERE id = 1")
        forget(db, tmp_path / "erasures.jsonl", [public_id])
        assert read(db, "SELECT count(*) FROM embedding_job_owners WHERE owner_id = 1") == [(0,)]
        held = b"".join(file.read_bytes() for file in tmp_path.glob("at-*"))
        assert not any(unit in held or unit[:16] in held for unit in units)
        asyncio.run(embed_all(db, engine(Meaning(), NEW)))
        assert read(db, "SELECT count(*) FROM vectors WHERE owner_id = 1") == [(0,)]
    finally:
        db.close()
