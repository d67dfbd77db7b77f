import numpy as np
import pytest

from pikobot.errors import DamagedData
from pikobot.store.connection import Database
from pikobot.store.vectors import means
from pikobot.store.vectors.means import make_mean
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import load_set
from pikobot.store.vectors.rebuild import rebuild_blocks, refresh_block
from pikobot.store.vectors.removal import delete_vectors
from pikobot.store.vectors.scan import scan
from pikobot.store.vectors.verify import verify_vectors
from tests.store.rows import execute, read, rows, scope, write
from tests.store.vectors.embeddings import SECOND_SCOPE, embedded, facts, make_set, put_facts, ranking

DIMENSION = 32


def test_rebuilding_packs_what_deletions_left_and_changes_no_answer(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    vectors = embedded(np.random.default_rng(1), 900, DIMENSION)
    for begin in range(0, 900, 90):
        of = scope(db, SECOND_SCOPE) if begin % 180 else scope(db)
        write(db, put_vectors, set_id, facts(vectors[begin : begin + 90], of, begin + 1))
    write(db, delete_vectors, set_id, [Owner(OwnerKind.FACT, i) for i in range(1, 900, 3)])
    before = read(db, scan, set_id, vectors[1], k=50)
    assert write(db, rebuild_blocks, set_id) == 600
    assert read(db, scan, set_id, vectors[1], k=50) == before == read(db, ranking, set_id, vectors[1], 50)
    assert rows(db, "SELECT sum(used), sum(live), count(DISTINCT mean_id) FROM vector_blocks") == [
        (600, 600, 1)
    ]
    assert rows(db, "SELECT count(*) FROM vector_means") == [(1,)]
    assert read(db, verify_vectors) == []


def test_rebuilding_repairs_blocks_that_were_damaged(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    vectors = embedded(np.random.default_rng(2), 300, DIMENSION)
    put_facts(db, set_id, vectors)
    execute(db, "UPDATE vector_block_data SET data = zeroblob(length(data))")
    assert read(db, verify_vectors) != []
    write(db, rebuild_blocks, set_id)
    assert read(db, verify_vectors) == []
    assert read(db, scan, set_id, vectors[1], k=5) == read(db, ranking, set_id, vectors[1], 5)


def test_a_damaged_vector_stops_the_rebuilding_and_nothing_changes(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    put_facts(db, set_id, embedded(np.random.default_rng(3), 10, DIMENSION))
    execute(db, "UPDATE vector_values SET unit = x'00000000' WHERE vector_id = 4")
    before = rows(db, "SELECT * FROM vectors")
    with pytest.raises(DamagedData):
        write(db, rebuild_blocks, set_id)
    assert rows(db, "SELECT * FROM vectors") == before


def test_few_vectors_have_no_mean_because_it_would_give_them_away(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    put_facts(db, set_id, embedded(np.random.default_rng(4), 1_000, DIMENSION))
    write(db, rebuild_blocks, set_id)
    assert rows(db, "SELECT vectors FROM vector_means") == [(1_000,)]
    write(db, delete_vectors, set_id, [Owner(OwnerKind.FACT, i) for i in range(1, 900)])
    write(db, rebuild_blocks, set_id)
    assert rows(db, "SELECT vectors FROM vector_means") == []
    assert read(db, verify_vectors) == []


def test_an_empty_set_can_be_rebuilt(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    assert write(db, rebuild_blocks, set_id) == 0
    put_facts(db, set_id, embedded(np.random.default_rng(5), 3, DIMENSION))
    write(db, delete_vectors, set_id, [Owner(OwnerKind.FACT, i) for i in (1, 2, 3)])
    assert write(db, rebuild_blocks, set_id) == 0
    assert rows(db, "SELECT count(*) FROM vector_blocks") == [(0,)]


def test_blocks_move_to_a_new_mean_one_by_one(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    vectors = embedded(np.random.default_rng(6), 1_500, DIMENSION)
    for begin in (0, 50, 300):
        write(db, put_vectors, set_id, facts(vectors[begin : begin + 250], scope(db), begin + 1))
    write(db, delete_vectors, set_id, [Owner(OwnerKind.FACT, i) for i in (5, 60, 301)])
    expected = read(db, scan, set_id, vectors[7], k=30)
    write(db, lambda tx: make_mean(tx, load_set(tx, set_id)))
    steps = 0
    while write(db, refresh_block, set_id):
        steps += 1
        assert read(db, scan, set_id, vectors[7], k=30) == expected
        assert read(db, verify_vectors) == []
    assert steps == len(rows(db, "SELECT id FROM vector_blocks"))
    assert rows(db, "SELECT count(*) FROM vector_means") == [(1,)]


def test_a_growing_set_gets_a_mean_by_itself(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(means, "SAMPLE", 100)
    set_id = make_set(db, 768)
    vectors = embedded(np.random.default_rng(7), 3_000, 768)
    for begin in range(0, 3_000, 300):
        write(db, put_vectors, set_id, facts(vectors[begin : begin + 300], scope(db), begin + 1))
    assert rows(db, "SELECT count(*) > 0 FROM vector_blocks WHERE mean_id IS NOT NULL") == [(1,)]
    assert read(db, scan, set_id, vectors[7], k=9) == read(db, ranking, set_id, vectors[7], 9)
    assert read(db, verify_vectors) == []
