import numpy as np
import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.inspection import inspect
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.rebuild import drop_strays, rebuild_blocks
from pikobot.store.vectors.records import NewVector
from pikobot.store.vectors.scan import scan
from pikobot.store.vectors.verify import verify_owners, verify_vectors
from tests.store.rows import execute, read, scope, source, thread, write
from tests.store.stating import state
from tests.store.vectors.embeddings import SECOND_SCOPE, embedded, make_set, put_facts

DIMENSION = 8


@pytest.fixture
def _filled(db: Database) -> None:
    put_facts(db, make_set(db, DIMENSION), embedded(np.random.default_rng(1), 40, DIMENSION))


@pytest.mark.usefixtures("_filled")
def test_what_was_written_has_nothing_wrong(db: Database) -> None:
    assert read(db, verify_vectors) == []


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("DELETE FROM vector_values WHERE vector_id = 3", "without values"),
        ("UPDATE vectors SET owner_id = 900 WHERE id = 3", "describes a vector otherwise"),
        ("UPDATE vectors SET at_ms = 900 WHERE id = 3", "describes a vector otherwise"),
        ("UPDATE vectors SET owner_kind = 'document' WHERE id = 3", "another set, kind or scope"),
        ("UPDATE vectors SET slot = 50 WHERE id = 3", "outside of the slots in use"),
        ("UPDATE vector_blocks SET live = live - 1", "counts 39 vectors and holds 40"),
        ("UPDATE vector_values SET unit = zeroblob(32) WHERE vector_id = 3", "not normalised"),
        ("UPDATE vector_block_data SET data = zeroblob(10)", "has 10 bytes"),
        ("DELETE FROM vector_block_data", "has no data"),
        ("DELETE FROM vectors WHERE id = 3", "holds data in an empty slot"),
    ],
)
@pytest.mark.usefixtures("_filled")
def test_damage_is_found(db: Database, damage: str, finding: str) -> None:
    execute(db, damage)
    assert finding in "\n".join(read(db, verify_vectors))


@pytest.mark.usefixtures("_filled")
def test_every_flipped_byte_of_a_block_that_matters_is_found(db: Database) -> None:
    """Bounds may become looser without doing harm; everything else has to be what it was."""
    (length,) = read(
        db, lambda conn: conn.execute("SELECT length(data) FROM vector_block_data").fetchone()
    ) or (0,)
    codes_at = 64 * (24 + 12)
    assert length == codes_at + 64 * DIMENSION
    for offset in (*range(0, 64 * 24, 23), *range(codes_at, length, 7)):
        _flip(db, offset)
        assert read(db, verify_vectors) != [], offset
        _flip(db, offset)
    assert read(db, verify_vectors) == []


def _flip(db: Database, offset: int) -> None:
    def flip(tx: Connection) -> None:
        with tx.blob_open("main", "vector_block_data", "data", 1, True) as blob:
            blob.seek(offset)
            byte = blob.read(1)[0]
            blob.seek(offset)
            blob.write(bytes([byte ^ 0x40]))

    write(db, flip)


def test_vectors_without_their_owner_or_in_another_scope_are_found_and_dropped(db: Database) -> None:
    set_id = make_set(db, 2)
    chat = thread(db)
    said, moved = source(db, chat, "我喜欢茶。"), source(db, chat, "I like tea.")
    known = state(db, "The owner likes tea.", said).fact_id
    new = [
        NewVector(Owner(kind, owner_id), scope(db, of), 0, [1, number])
        for number, (kind, owner_id, of) in enumerate(
            (
                (OwnerKind.SOURCE, said, None),
                (OwnerKind.SOURCE, moved, SECOND_SCOPE),
                (OwnerKind.SOURCE, moved + 1, None),
                (OwnerKind.FACT, known, None),
                (OwnerKind.FACT, known + 1, None),
            )
        )
    ]
    write(db, put_vectors, set_id, new)
    assert read(db, verify_vectors) == []
    assert read(db, verify_owners) == [
        "1 vector of a source that does not exist; run `pikobot reindex`",
        "1 vector in another scope than the source; run `pikobot reindex`",
        "1 vector of a fact that does not exist; run `pikobot reindex`",
    ]
    assert read(db, verify_owners) == read(db, inspect)

    def repair(tx: Connection) -> int:
        dropped = drop_strays(tx, set_id)
        rebuild_blocks(tx, set_id)
        return dropped

    assert write(db, repair) == 3
    assert read(db, verify_owners) == read(db, verify_vectors) == []
    found = read(db, scan, set_id, [1, 0], k=9) or []
    assert [hit.owner for hit in found] == [Owner(OwnerKind.SOURCE, said), Owner(OwnerKind.FACT, known)]
