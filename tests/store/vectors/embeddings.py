"""Vector sets for the tests, and the ranking that a scan must equal."""

from collections.abc import Callable, Sequence

import numpy as np

from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import Scope, ScopeId
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import Profile, SetId, create_set
from pikobot.store.vectors.quantize import cosines
from pikobot.store.vectors.records import Float32s, NewVector, VectorHit
from tests.store.rows import read, scope, write

Stored = tuple[Owner, int, int, Float32s]  # owner, scope, time, values
SECOND_SCOPE = Scope("shared", "main", "bot", "-200", "9")


def profile(dimension: int, model: str = "synthetic") -> Profile:
    return Profile(provider="test", model=model, dimension=dimension, prefix_rule="none")


def make_set(db: Database, dimension: int) -> SetId:
    return write(db, lambda tx: create_set(tx, profile(dimension), now_ms=0)).id


def facts(vectors: Float32s, scope_id: ScopeId, first_id: int = 1) -> list[NewVector]:
    """One fact a vector, with ascending ids; the time of each is its id."""
    return [
        NewVector(Owner(OwnerKind.FACT, first_id + i), scope_id, first_id + i, vector)
        for i, vector in enumerate(vectors)
    ]


def put_facts(db: Database, set_id: SetId, vectors: Float32s, scope_id: ScopeId | None = None) -> None:
    write(db, put_vectors, set_id, facts(vectors, scope(db) if scope_id is None else scope_id))


def fact_ids(hits: Sequence[VectorHit] | None) -> list[int]:
    assert hits is not None
    return [hit.owner.id for hit in hits]


def stored(conn: Connection, set_id: SetId) -> list[Stored]:
    return [
        (Owner(OwnerKind(kind), owner_id), scope_id, at_ms, np.frombuffer(unit, "<f4"))
        for kind, owner_id, scope_id, at_ms, unit in conn.execute(
            """
            SELECT v.owner_kind, v.owner_id, v.scope_id, v.at_ms, d.unit
            FROM vectors AS v JOIN vector_values AS d ON d.vector_id = v.id WHERE v.set_id = ?
            """,
            (set_id,),
        )
    ]


def ranking(
    conn: Connection,
    set_id: SetId,
    query: Float32s,
    k: int,
    is_eligible: Callable[[Owner, int, int], bool] = lambda *_: True,
) -> list[VectorHit]:
    """The k best of a full comparison in float64."""
    eligible = [item for item in stored(conn, set_id) if is_eligible(*item[:3])]
    if not eligible:
        return []
    scores = cosines(query, np.stack([item[3] for item in eligible]))
    hits = [VectorHit(item[0], float(score)) for item, score in zip(eligible, scores, strict=True)]
    return sorted(hits, key=lambda hit: (-hit.score, hit.owner))[:k]


def embedded(generator: np.random.Generator, count: int, dimension: int) -> Float32s:
    """Vectors shaped like embeddings: a large common part, clusters, noise."""
    shape = np.random.default_rng(dimension)
    common = shape.standard_normal(dimension)
    clusters = 0.4 * shape.standard_normal((20, dimension))
    made = common + clusters[generator.integers(0, 20, count)]
    made += 0.4 * generator.standard_normal((count, dimension))
    return made.astype(np.float32)


def count_vectors_of(db: Database, set_id: SetId) -> int:
    return len(read(db, stored, set_id))
