"""Forgetting a source takes its vectors and those of its facts out of every set and every file."""

from pathlib import Path

import numpy as np

from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.closure import closure_of, contents_of, remove
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import create_set
from pikobot.store.vectors.records import NewVector
from pikobot.store.vectors.scan import scan
from pikobot.store.vectors.verify import verify_vectors
from tests.store.rows import read, rows, source, thread, write
from tests.store.vectors.embeddings import embedded, make_set, profile

DIMENSION = 64


def test_a_forgotten_source_leaves_no_vector_in_any_set_or_file(db: Database, path: Path) -> None:
    chat = thread(db)
    gone, kept = source(db, chat, "我的门锁密码是四七一一。"), source(db, chat, "Good morning.")
    sets = [
        make_set(db, DIMENSION),
        write(db, lambda tx: create_set(tx, profile(DIMENSION, "newer"), now_ms=0)).id,
    ]
    for number, set_id in enumerate(sets):
        vectors = embedded(np.random.default_rng(number), 2, DIMENSION)
        new = [
            NewVector(Owner(OwnerKind.SOURCE, owner_id), chat.scope_id, 0, vector)
            for owner_id, vector in zip((gone, kept), vectors, strict=True)
        ]
        write(db, put_vectors, set_id, new)
    units = [
        unit
        for (unit,) in rows(
            db,
            """
            SELECT d.unit FROM vectors AS v JOIN vector_values AS d ON d.vector_id = v.id
            WHERE v.owner_id = ?
            """,
            gone,
        )
    ]

    def forget(tx: Connection) -> tuple[list[str | bytes], int]:
        closed = closure_of(tx, [gone])
        contents = list(contents_of(tx, closed))
        return contents, remove(tx, closed, now_ms=0).rows["vectors"]

    contents, count = write(db, forget)

    assert count == len(units) == 2
    assert set(units) <= set(contents)
    assert db.perform(lambda database: database.truncate_wal())
    assert not any(unit[:32] in path.read_bytes() for unit in units)
    for set_id in sets:
        hits = read(db, scan, set_id, np.ones(DIMENSION), k=9) or []
        assert [hit.owner.id for hit in hits] == [kept]
    assert read(db, verify_vectors) == []
