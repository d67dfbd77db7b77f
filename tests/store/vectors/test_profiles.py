from pathlib import Path

import numpy as np
import pytest

from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection, Database, MisuseError
from pikobot.store.vectors.profiles import (
    Profile,
    SetState,
    VectorSet,
    active_set,
    building_set,
    create_set,
    drop_set,
    list_sets,
    load_set,
    retired_sets,
    serve_set,
)
from pikobot.store.vectors.verify import verify_vectors
from tests.store.rows import read, rows, write
from tests.store.vectors.embeddings import embedded, profile, put_facts


def _create(db: Database, wanted: Profile) -> VectorSet:
    return write(db, create_set, wanted, now_ms=0)


def test_the_first_set_serves_and_the_next_is_built_beside_it(db: Database) -> None:
    assert read(db, active_set) is None
    first, second = _create(db, profile(3)), _create(db, profile(3, "newer"))
    assert read(db, active_set) == first == VectorSet(first.id, SetState.SERVING, profile(3))
    assert read(db, building_set) == second == VectorSet(second.id, SetState.BUILDING, profile(3, "newer"))


def test_a_set_is_found_again_by_its_profile(db: Database) -> None:
    first, second = _create(db, profile(3)), _create(db, profile(3, "newer"))
    assert (_create(db, profile(3)), _create(db, profile(3, "newer"))) == (first, second)


def test_another_wish_retires_the_set_that_was_being_built(db: Database) -> None:
    first, second = _create(db, profile(3)), _create(db, profile(3, "newer"))
    third = _create(db, profile(5, "newest"))
    assert [(found.id, found.state) for found in read(db, list_sets)] == [
        (first.id, SetState.SERVING),
        (second.id, SetState.RETIRED),
        (third.id, SetState.BUILDING),
    ]


def test_switching_retires_the_old_set_and_can_be_repeated(db: Database) -> None:
    first, second = _create(db, profile(3)), _create(db, profile(3, "newer"))
    for _ in range(2):
        write(db, serve_set, second.id)
        assert read(db, active_set) == read(db, load_set, second.id)
        assert [retired.id for retired in read(db, retired_sets)] == [first.id]
    with pytest.raises(MisuseError):
        write(db, serve_set, first.id)


@pytest.mark.parametrize("dimension", [0, -1, 16_385])
def test_a_dimension_out_of_range_is_refused(db: Database, dimension: int) -> None:
    with pytest.raises(InvalidParams, match="dimension"):
        _create(db, profile(dimension))


def test_an_unknown_set_is_an_error(db: Database) -> None:
    first = _create(db, profile(3))
    write(db, lambda tx: tx.execute("UPDATE vector_sets SET state = 'retired'"))
    assert write(db, drop_set, first.id)
    with pytest.raises(LookupError):
        read(db, load_set, first.id)


def test_a_dropped_set_leaves_no_byte_of_its_vectors(db: Database, path: Path) -> None:
    old = _create(db, profile(48))
    put_facts(db, old.id, embedded(np.random.default_rng(1), 600, 48))
    units = [unit for (unit,) in rows(db, "SELECT unit FROM vector_values")]
    codes = [
        data[-48 * 20 :]
        for (data,) in rows(db, "SELECT substr(data, 1, 36 * 64 + 48 * 64) FROM vector_block_data")
    ]
    new = _create(db, profile(48, "newer"))
    put_facts(db, new.id, embedded(np.random.default_rng(2), 100, 48))
    with pytest.raises(MisuseError):
        write(db, drop_set, old.id)
    write(db, serve_set, new.id)
    steps = 1
    while not write(db, drop_set, old.id, max_blocks=1):
        steps += 1
        assert read(db, verify_vectors) == []
    assert steps == len(codes)
    assert db.perform(lambda database: database.truncate_wal())
    content = path.read_bytes()
    assert not any(trace in content for trace in units + [code for code in codes if any(code)])
    assert [found.id for found in read(db, list_sets)] == [new.id]
    assert read(db, verify_vectors) == []


def test_one_set_at_most_serves(db: Database) -> None:
    def two(tx: Connection) -> None:
        for name in ("a", "b"):
            created = create_set(tx, profile(3, name), now_ms=0)
            serve_set(tx, created.id)

    write(db, two)
    assert [found.profile.model for found in read(db, list_sets) if found.state == SetState.SERVING] == ["b"]
