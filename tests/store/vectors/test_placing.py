from pathlib import Path

import numpy as np
import pytest

from pikobot.errors import InvalidParams
from pikobot.store.connection import Database, MisuseError
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vector, put_vectors
from pikobot.store.vectors.profiles import count_vectors, create_set
from pikobot.store.vectors.quantize import quantize
from pikobot.store.vectors.rebuild import rebuild_blocks
from pikobot.store.vectors.records import NewVector
from pikobot.store.vectors.removal import delete_vector, delete_vectors, forget_owners
from pikobot.store.vectors.scan import scan
from pikobot.store.vectors.verify import verify_vectors
from tests.store.rows import read, rows, scope, write
from tests.store.vectors.embeddings import (
    SECOND_SCOPE,
    embedded,
    fact_ids,
    facts,
    make_set,
    profile,
    put_facts,
)

DIMENSION = 48
ONE = Owner(OwnerKind.FACT, 1)


def test_a_second_put_replaces_the_vector_also_in_another_scope(db: Database) -> None:
    set_id = make_set(db, 2)
    put_facts(db, set_id, np.eye(2, dtype=np.float32))
    write(db, put_vector, set_id, NewVector(ONE, scope(db, SECOND_SCOPE), 5, [0, -1]))
    assert fact_ids(read(db, scan, set_id, [0, -1], k=9)) == [1, 2]
    assert read(db, count_vectors, set_id) == 2
    assert read(db, verify_vectors) == []


def test_of_one_owner_in_a_batch_the_last_counts(db: Database) -> None:
    set_id = make_set(db, 2)
    batch = [NewVector(ONE, scope(db), 0, [1, 0]), NewVector(ONE, scope(db), 0, [0, 1])]
    write(db, put_vectors, set_id, batch)
    hits = read(db, scan, set_id, [0, 1], k=9)
    assert [hit.score for hit in hits or []] == [1.0]


def test_one_bad_vector_of_a_batch_leaves_nothing_behind(db: Database) -> None:
    set_id = make_set(db, 2)
    put_facts(db, set_id, np.eye(2, dtype=np.float32))
    bad = [NewVector(ONE, scope(db), 0, [0, 1]), NewVector(Owner(OwnerKind.FACT, 3), scope(db), 0, [0, 0])]
    before = _dump(db)
    with pytest.raises(InvalidParams):
        write(db, put_vectors, set_id, bad)
    assert _dump(db) == before


def test_an_owner_without_a_row_id_is_misuse(db: Database) -> None:
    with pytest.raises(MisuseError):
        write(db, put_vector, make_set(db, 2), NewVector(Owner(OwnerKind.FACT, 0), scope(db), 0, [1, 0]))


def test_a_transaction_that_fails_takes_the_vectors_with_it(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    put_facts(db, set_id, embedded(np.random.default_rng(1), 100, DIMENSION))
    before = _dump(db)

    def fail(database: Database) -> None:
        with database.write("a change that fails") as tx:
            put_vectors(tx, set_id, facts(embedded(np.random.default_rng(2), 200, DIMENSION), scope_id, 50))
            delete_vector(tx, set_id, ONE)
            raise LookupError

    scope_id = scope(db)
    with pytest.raises(LookupError):
        db.perform(fail)
    assert _dump(db) == before
    assert read(db, verify_vectors) == []


def test_freed_slots_are_used_before_new_blocks(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    vectors = embedded(np.random.default_rng(3), 64, DIMENSION)
    put_facts(db, set_id, vectors)
    write(db, delete_vectors, set_id, [Owner(OwnerKind.FACT, i) for i in (3, 10, 11, 64)])
    write(db, put_vectors, set_id, facts(vectors[:4], scope(db), 100))
    assert rows(db, "SELECT capacity, used, live FROM vector_blocks") == [(64, 64, 64)]
    assert rows(db, "SELECT slot FROM vectors WHERE owner_id >= 100 ORDER BY owner_id") == [
        (2,),
        (9,),
        (10,),
        (63,),
    ]
    assert read(db, verify_vectors) == []


def test_deleting_says_what_there_was(db: Database) -> None:
    set_id = make_set(db, 2)
    put_facts(db, set_id, np.eye(2, dtype=np.float32))
    assert write(db, delete_vector, set_id, ONE)
    assert not write(db, delete_vector, set_id, ONE)
    assert not write(db, delete_vector, set_id, Owner(OwnerKind.SOURCE, 2))
    assert write(db, delete_vectors, set_id, [ONE, Owner(OwnerKind.FACT, 2), Owner(OwnerKind.FACT, 9)]) == 1


def test_a_forgotten_owner_leaves_every_set(db: Database) -> None:
    serving = make_set(db, 2)
    put_facts(db, serving, np.eye(2, dtype=np.float32))
    building = write(db, lambda tx: create_set(tx, profile(3, "newer"), now_ms=0)).id
    put_facts(db, building, np.eye(3, dtype=np.float32))
    assert write(db, forget_owners, [ONE]) == 2
    assert fact_ids(read(db, scan, serving, [1, 0], k=9)) == [2]
    assert fact_ids(read(db, scan, building, [1, 0, 0], k=9)) == [2, 3]
    assert read(db, verify_vectors) == []


@pytest.mark.parametrize("way", ["deleted", "replaced", "forgotten", "rebuilt"])
def test_after_a_deletion_no_file_holds_the_bytes_of_the_vector(db: Database, path: Path, way: str) -> None:
    set_id = make_set(db, DIMENSION)
    vectors = embedded(np.random.default_rng(4), 700, DIMENSION)
    put_facts(db, set_id, vectors)
    gone = [Owner(OwnerKind.FACT, i) for i in (1, 2, 100, 350, 699, 700)]
    traces = [trace for owner in gone for trace in _traces(db, owner)]
    db.perform(lambda database: database.truncate_wal())
    assert all(_files_hold(path, trace) for trace in traces)
    if way == "replaced":
        fresh = embedded(np.random.default_rng(5), len(gone), DIMENSION)
        new = [NewVector(owner, scope(db), 0, fresh[i]) for i, owner in enumerate(gone)]
        write(db, put_vectors, set_id, new)
    elif way == "forgotten":
        write(db, forget_owners, gone)
    else:
        write(db, delete_vectors, set_id, gone)
    if way == "rebuilt":
        write(db, rebuild_blocks, set_id)
    assert db.perform(lambda database: database.truncate_wal())
    assert not any(_files_hold(path, trace) for trace in traces)
    assert read(db, verify_vectors) == []


def _traces(db: Database, owner: Owner) -> list[bytes]:
    """What a vector looks like in the files: its float32 values and its codes, in halves."""
    ((unit, mean),) = rows(
        db,
        """
        SELECT d.unit, m.mean FROM vectors AS v JOIN vector_values AS d ON d.vector_id = v.id
        JOIN vector_blocks AS b ON b.id = v.block_id LEFT JOIN vector_means AS m ON m.id = b.mean_id
        WHERE v.owner_id = ?
        """,
        owner.id,
    )
    units = np.frombuffer(unit, "<f4")[None, :]
    quantized = quantize(units, None if mean is None else np.frombuffer(mean, "<f4").astype(np.float64))
    codes = quantized.codes.tobytes()
    return [unit[: 2 * DIMENSION], unit[2 * DIMENSION :], codes[: DIMENSION // 2], codes[DIMENSION // 2 :]]


def _files_hold(path: Path, trace: bytes) -> bool:
    return any(trace in file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm"))


def _dump(db: Database) -> list[object]:
    tables = ("vectors", "vector_values", "vector_blocks", "vector_block_data", "vector_means", "vector_sets")
    return [rows(db, f"SELECT * FROM {table} ORDER BY 1") for table in tables]
