import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.vectors import eligibility as eligibilities
from pikobot.store.vectors.blocks import Block
from pikobot.store.vectors.eligibility import Eligibility, OwnerQuery
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import SetId, create_set
from pikobot.store.vectors.reading import BlockReader, BlockView
from pikobot.store.vectors.records import NewVector
from pikobot.store.vectors.scan import scan
from tests.store.rows import read, scope, write
from tests.store.vectors.embeddings import (
    SECOND_SCOPE,
    embedded,
    fact_ids,
    make_set,
    profile,
    put_facts,
    ranking,
)

DIMENSION = 16
COUNT = 1_500
MULTIPLES = "SELECT DISTINCT owner_id AS id FROM vectors WHERE owner_id % :every = 0"


@pytest.fixture(scope="module")
def filled(shared_db: Database) -> tuple[Database, SetId, tuple[int, int]]:
    """Facts and sources of two scopes, times unrelated to ids."""

    def fill(tx: Connection) -> tuple[SetId, tuple[int, int]]:
        first, second = ensure_scope(tx, owner_scope()), ensure_scope(tx, SECOND_SCOPE)
        set_id = create_set(tx, profile(DIMENSION), now_ms=0).id
        generator = np.random.default_rng(1)
        rows = embedded(generator, COUNT, DIMENSION)
        times = generator.permutation(COUNT)
        kinds = (OwnerKind.FACT, OwnerKind.SOURCE)
        put_vectors(
            tx,
            set_id,
            [
                NewVector(Owner(kinds[i % 2], i + 1), second if i % 3 == 0 else first, int(times[i]), rows[i])
                for i in range(COUNT)
            ],
        )
        return set_id, (first, second)

    return shared_db, *write(shared_db, fill)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    scopes=st.sampled_from([None, (), (0,), (1,), (0, 1)]),
    kinds=st.sampled_from([None, (OwnerKind.FACT,), (OwnerKind.SOURCE, OwnerKind.DOCUMENT), ()]),
    window=st.sampled_from([(None, None), (0, COUNT), (700, 710), (200, None), (None, 3), (900, 900)]),
    only_every=st.sampled_from([None, 1, 2, 7, 500, 10_000]),
    without_every=st.sampled_from([None, 1, 3, 10_000]),
)
def test_what_is_not_eligible_takes_no_part(
    filled: tuple[Database, SetId, tuple[int, int]],
    seed: int,
    scopes: tuple[int, ...] | None,
    kinds: tuple[OwnerKind, ...] | None,
    window: tuple[int | None, int | None],
    only_every: int | None,
    without_every: int | None,
) -> None:
    db, set_id, scope_ids = filled
    allowed = None if scopes is None else [scope_ids[i] for i in scopes]
    eligibility = Eligibility(
        scope_ids=allowed,
        kinds=kinds,
        from_ms=window[0],
        to_ms=window[1],
        only=() if only_every is None else (_multiples(OwnerKind.FACT, only_every),),
        without=() if without_every is None else (_multiples(OwnerKind.SOURCE, without_every),),
    )

    def is_eligible(owner: Owner, scope_id: int, at_ms: int) -> bool:
        return (
            (allowed is None or scope_id in allowed)
            and (kinds is None or owner.kind in kinds)
            and (window[0] is None or at_ms >= window[0])
            and (window[1] is None or at_ms < window[1])
            and not (owner.kind == OwnerKind.FACT and only_every and owner.id % only_every)
            and not (owner.kind == OwnerKind.SOURCE and without_every and owner.id % without_every == 0)
        )

    query = embedded(np.random.default_rng(seed), 1, DIMENSION)[0]
    with db.read() as conn:
        found = scan(conn, set_id, query, k=10, eligibility=eligibility)
        assert found == ranking(conn, set_id, query, 10, is_eligible)


def _multiples(kind: OwnerKind, every: int) -> OwnerQuery:
    return OwnerQuery(kind, MULTIPLES, {"every": every})


def test_blocks_without_an_eligible_slot_are_not_read(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    set_id = make_set(db, DIMENSION)
    rows = embedded(np.random.default_rng(2), 400, DIMENSION)
    put_facts(db, set_id, rows[:200])
    write(db, put_vectors, set_id, [NewVector(Owner(OwnerKind.SOURCE, 1), scope(db), 0, rows[300])])
    other = [NewVector(Owner(OwnerKind.FACT, 900), scope(db, SECOND_SCOPE), 0, rows[301])]
    write(db, put_vectors, set_id, other)
    read_blocks = _count_blocks_read(monkeypatch)
    for eligibility, expected in (
        (Eligibility(), 3),
        (Eligibility(scope_ids=[scope(db, SECOND_SCOPE)]), 1),
        (Eligibility(kinds=[OwnerKind.SOURCE]), 1),
        (Eligibility(from_ms=10**9), 0),
        (Eligibility(scope_ids=[10**6]), 0),
    ):
        read_blocks.clear()
        read(db, scan, set_id, rows[0], k=5, eligibility=eligibility)
        assert len(read_blocks) == expected


def _count_blocks_read(monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks that scans look into from now on, each time from the database."""
    found: list[Block] = []
    original = BlockReader.read

    def noted(self: BlockReader, block: Block) -> BlockView:
        found.append(block)
        return original(self, block)

    monkeypatch.setattr(BlockReader, "cached", lambda *_: None)

    monkeypatch.setattr(BlockReader, "read", noted)
    return found


def test_owners_with_large_ids_are_filtered_too(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligibilities, "MAX_TABLE", 100)
    set_id = make_set(db, 2)
    large = 2**40
    put_facts(db, set_id, np.array([[1, 0], [1, 0.1], [1, 0.2]], np.float32))
    write(db, put_vectors, set_id, [NewVector(Owner(OwnerKind.FACT, large), scope(db), 0, [1, 0.05])])
    only = Eligibility(only=(OwnerQuery(OwnerKind.FACT, "VALUES (2), (:large)", {"large": large}),))
    without = Eligibility(without=(OwnerQuery(OwnerKind.FACT, "VALUES (2), (:large)", {"large": large}),))
    assert fact_ids(read(db, scan, set_id, [1, 0], k=9, eligibility=only)) == [large, 2]
    assert fact_ids(read(db, scan, set_id, [1, 0], k=9, eligibility=without)) == [1, 3]


def test_a_list_of_owners_that_takes_long_can_be_stopped(db: Database) -> None:
    set_id = make_set(db, 2)
    put_facts(db, set_id, np.eye(2, dtype=np.float32))
    endless = "WITH RECURSIVE n (id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n) SELECT id FROM n"
    eligibility = Eligibility(only=(OwnerQuery(OwnerKind.FACT, endless),))
    with db.read() as conn:
        assert scan(conn, set_id, [1, 0], k=1, eligibility=eligibility, should_stop=lambda: True) is None
        assert len(scan(conn, set_id, [1, 0], k=1) or []) == 1
