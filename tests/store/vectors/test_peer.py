"""The scan against sqlite-vec's exact cosine distance over the same rows."""

import apsw
import numpy as np
import pytest

from pikobot.store.connection import Database
from pikobot.store.vectors.scan import scan
from tests.store.vectors.embeddings import embedded, make_set, put_facts

sqlite_vec = pytest.importorskip("sqlite_vec", reason="sqlite-vec is part of the test extra")


@pytest.mark.parametrize("dimension", [8, 384, 1536])
def test_sqlite_vec_finds_the_same_neighbours_at_the_same_distances(db: Database, dimension: int) -> None:
    set_id = make_set(db, dimension)
    put_facts(db, set_id, embedded(np.random.default_rng(dimension), 1_000, dimension))
    peer = apsw.Connection(":memory:")
    peer.enable_load_extension(True)
    peer.load_extension(sqlite_vec.loadable_path())
    peer.execute("CREATE TABLE peer (id INTEGER PRIMARY KEY, unit BLOB)")
    with db.read() as conn:
        found = conn.execute(
            "SELECT v.owner_id, d.unit FROM vectors AS v JOIN vector_values AS d ON d.vector_id = v.id"
        )
        peer.executemany("INSERT INTO peer VALUES (?, ?)", found)
        for query in embedded(np.random.default_rng(99), 5, dimension):
            ours = scan(conn, set_id, query, k=20) or []
            theirs = peer.execute(
                "SELECT id, vec_distance_cosine(unit, ?) AS distance FROM peer ORDER BY distance LIMIT 20",
                (query.tobytes(),),
            ).fetchall()
            distances = [float(row[1]) for row in theirs]  # type: ignore[arg-type]  # a REAL
            assert np.allclose([1 - hit.score for hit in ours], distances, atol=2e-6)
            # Their float32 may swap what differs in the seventh digit, and nothing else.
            gaps = np.diff(distances) > 1e-5
            if gaps.all():
                assert [hit.owner.id for hit in ours] == [row[0] for row in theirs]
    peer.close()
