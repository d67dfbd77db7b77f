import os
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.errors import DamagedData, InvalidParams
from pikobot.store.connection import Connection, Database
from pikobot.store.vectors import first_pass, kernel
from pikobot.store.vectors import scan as scanning
from pikobot.store.vectors.layout import capacities
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import SetId, create_set, drop_set, retired_sets, serve_set
from pikobot.store.vectors.rebuild import rebuild_blocks
from pikobot.store.vectors.records import Float32s, NewVector
from pikobot.store.vectors.removal import delete_vectors
from pikobot.store.vectors.scan import Scan, scan
from pikobot.store.vectors.verify import verify_vectors
from tests.store.rows import execute, read, scope, write
from tests.store.vectors.embeddings import (
    embedded,
    fact_ids,
    facts,
    make_set,
    profile,
    put_facts,
    ranking,
)

DIMENSION = 24


@pytest.fixture(params=["native", "portable"])
def _kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "portable":
        monkeypatch.setattr(first_pass, "choose_kernel", lambda: kernel.portable_dots)


def _difficult(family: str, generator: np.random.Generator, count: int, dimension: int) -> Float32s:
    rows = embedded(generator, count, dimension)
    match family:
        case "duplicates":
            rows = rows[generator.integers(0, max(count // 10, 1), count)]
        case "near ties":
            rows = np.repeat(rows[:1], count, axis=0)
            column = generator.integers(0, dimension, count)
            rows[np.arange(count), column] = np.nextafter(rows[np.arange(count), column], np.float32(9))
        case "one huge dimension":
            rows[:, 0] = generator.standard_normal(count) * 1e4
        case "one huge common dimension":
            rows[:, 0] = 1e6
        case "tiny":
            rows *= np.float32(1e-36)
        case "huge":
            rows *= np.float32(1e36)
        case "all equal":
            rows[:] = rows[0]
        case "opposite":
            rows[::2] = -rows[0]
        case "one-hot":
            rows = np.eye(dimension, dtype=np.float32)[generator.integers(0, dimension, count)]
    return rows


FAMILIES = (
    "embeddings",
    "duplicates",
    "near ties",
    "one huge dimension",
    "one huge common dimension",
    "tiny",
    "huge",
    "all equal",
    "opposite",
    "one-hot",
)


def _fresh_set(db: Database, dimension: int) -> SetId:
    """A set of its own for an example; what the example before left is dropped."""

    def renew(tx: Connection) -> SetId:
        tx.execute("UPDATE vector_sets SET state = 'retired'")
        for retired in retired_sets(tx):
            drop_set(tx, retired.id, max_blocks=1000)
        return create_set(tx, profile(dimension), now_ms=0).id

    return write(db, renew)


@settings(max_examples=60, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 2**32),
    count=st.integers(0, 700),
    dimension=st.sampled_from([1, 2, 24, 65]),
    k=st.sampled_from([1, 5, 20, 1000]),
    asks_for_stored=st.booleans(),
    is_rebuilt=st.booleans(),
)
def test_a_scan_equals_the_full_comparison_whatever_the_vectors_are(
    shared_db: Database,
    family: str,
    seed: int,
    count: int,
    dimension: int,
    k: int,
    asks_for_stored: bool,
    is_rebuilt: bool,
) -> None:
    db, generator = shared_db, np.random.default_rng(seed)
    set_id = _fresh_set(db, dimension)
    rows = _difficult(family, generator, count + 1, dimension)
    rows[np.abs(rows).max(axis=1) < 1e-37] = 1.0
    put_facts(db, set_id, rows[:count])
    read(db, scan, set_id, rows[count], k=k)  # what is kept of the blocks is out of date from here on
    gone = [Owner(OwnerKind.FACT, int(i) + 1) for i in np.flatnonzero(generator.random(count) < 0.2)]
    write(db, delete_vectors, set_id, gone)
    if is_rebuilt:
        write(db, rebuild_blocks, set_id)
    put_facts(db, set_id, rows[: count // 7])  # some come back, some are replaced
    query = rows[generator.integers(0, count + 1)] if asks_for_stored else rows[count]
    with db.read() as conn:
        assert scan(conn, set_id, query, k=k) == ranking(conn, set_id, query, k)
        assert verify_vectors(conn) == []


@pytest.mark.usefixtures("_kernel")
def test_blocks_of_every_size_are_scanned(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "WORTH_HELP", 1)
    set_id = make_set(db, 384)
    rows = embedded(np.random.default_rng(1), 5_000, 384)
    for begin, end in ((0, 10), (10, 100), (100, 300), (300, 5_000)):
        write(db, put_vectors, set_id, facts(rows[begin:end], scope(db), begin + 1))
    with db.read() as conn:
        made = conn.execute("SELECT DISTINCT capacity FROM vector_blocks ORDER BY capacity").fetchall()
        assert tuple(capacity for (capacity,) in made) == capacities(384)
        assert conn.execute("SELECT count(DISTINCT mean_id) FROM vector_blocks").fetchall() != [(0,)]
        for query in embedded(np.random.default_rng(2), 5, 384):
            assert scan(conn, set_id, query, k=20) == ranking(conn, set_id, query, 20)


@pytest.fixture
def kept_set(db: Database, monkeypatch: pytest.MonkeyPatch) -> SetId:
    """A set of several blocks that are all in memory, and enough for a second thread."""
    monkeypatch.setattr(scanning, "WORTH_HELP", 2)
    set_id = make_set(db, 384)
    for begin, end in ((0, 64), (64, 300), (300, 3_000)):
        vectors = embedded(np.random.default_rng(begin), end - begin, 384)
        write(db, put_vectors, set_id, facts(vectors, scope(db), begin + 1))
    read(db, scan, set_id, np.ones(384), k=5)
    return set_id


def test_a_second_thread_takes_part_while_the_connection_does_something_else(
    db: Database, kept_set: SetId
) -> None:
    with db.read() as conn:
        for query in embedded(np.random.default_rng(7), 5, 384):
            begun = Scan(conn, kept_set, query, k=20, worth_help=2)
            expected = ranking(conn, kept_set, query, 20)
            assert begun.finish() == expected


def test_what_is_found_can_be_had_as_ids_alone(db: Database, kept_set: SetId) -> None:
    query = np.ones(384, np.float32)
    with db.read() as conn:
        ids = Scan(conn, kept_set, query, k=20).finish_ids()
        assert ids == [(hit.owner.id, hit.score) for hit in ranking(conn, kept_set, query, 20)]
        assert Scan(conn, kept_set, query, k=20, should_stop=lambda: True).finish_ids() is None


def test_more_candidates_than_may_wait_are_measured_in_between(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanning, "MEASURED_AT", 20_000)
    set_id = make_set(db, 384)
    rows = np.ones((3_000, 384), np.float32)
    rows[:, 0] = np.arange(3_000) % 7
    put_facts(db, set_id, rows)
    for k in (5, 600):
        with db.read() as conn:
            expected = ranking(conn, set_id, rows[3], k)
            assert scan(conn, set_id, rows[3], k=k) == expected
            begun = Scan(conn, set_id, rows[3], k=k, worth_help=1)
            scanning._HELPER.submit(str).result()  # the second thread has done what it may
            assert begun.finish() == expected


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such policy")
def test_the_second_thread_pushes_nobody_aside_when_it_wakes_up() -> None:
    policies = scanning._HELPER.submit(os.sched_getscheduler, 0).result(), os.sched_getscheduler(0)
    assert policies == (os.SCHED_BATCH, os.SCHED_OTHER)


def test_a_scan_does_not_wait_for_a_second_thread_that_is_busy(db: Database, kept_set: SetId) -> None:
    is_free = threading.Event()
    busy = scanning._HELPER.submit(is_free.wait)
    try:
        with db.read() as conn:
            query = np.ones(384, np.float32)
            assert scan(conn, kept_set, query, k=20) == ranking(conn, kept_set, query, 20)
        assert not busy.done()
    finally:
        is_free.set()


def test_a_scan_does_not_wait_for_a_second_thread_that_sleeps_with_a_block_in_hand(
    db: Database, kept_set: SetId, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_one, may_go_on = threading.Event(), threading.Event()
    original = first_pass.FirstPass.products

    def slow(self: first_pass.FirstPass, *args: Any) -> first_pass.Products:
        if threading.current_thread() is not threading.main_thread():
            has_one.set()
            may_go_on.wait()
        return original(self, *args)

    monkeypatch.setattr(first_pass.FirstPass, "products", slow)
    query = np.ones(384, np.float32)
    with db.read() as conn:
        begun = Scan(conn, kept_set, query, k=20, worth_help=2)
        assert has_one.wait(60)
        try:
            assert begun.finish() == ranking(conn, kept_set, query, 20)
        finally:
            may_go_on.set()
    assert scanning._HELPER.submit(len, "").result() == 0  # what it did meanwhile went nowhere


def test_what_the_second_thread_finishes_when_nothing_else_is_left_counts(
    db: Database, kept_set: SetId, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_first_done, is_second_done = threading.Event(), threading.Event()
    products, measure = first_pass.FirstPass.products, Scan._measure

    def slow(self: first_pass.FirstPass, *args: Any) -> first_pass.Products:
        made = products(self, *args)
        if threading.current_thread() is not threading.main_thread():
            assert is_first_done.wait(60)
        return made

    def late(self: Scan) -> None:
        is_first_done.set()
        assert is_second_done.wait(60)
        measure(self)

    monkeypatch.setattr(first_pass.FirstPass, "products", slow)
    monkeypatch.setattr(Scan, "_measure", late)
    with db.read() as conn:
        for query in embedded(np.random.default_rng(8), 5, 384):
            begun = Scan(conn, kept_set, query, k=20, worth_help=2)
            scanning._HELPER.submit(is_second_done.set)  # comes after the scan's own
            assert begun.finish() == ranking(conn, kept_set, query, 20)
            is_first_done.clear()
            is_second_done.clear()


def test_a_scan_of_blocks_in_memory_stops_on_both_threads(db: Database, kept_set: SetId) -> None:
    stop = threading.Event()
    with db.read() as conn:
        begun = Scan(conn, kept_set, np.ones(384), k=20, should_stop=stop.is_set, worth_help=2)
        stop.set()
        assert begun.finish() is None
        assert len(scan(conn, kept_set, np.ones(384), k=20) or []) == 20


def test_what_fails_on_the_second_thread_is_not_lost(
    db: Database, kept_set: SetId, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise LookupError

    with db.read() as conn:
        monkeypatch.setattr(first_pass.FirstPass, "products", fail)
        begun = Scan(conn, kept_set, np.ones(384), k=20, worth_help=2)
        scanning._HELPER.submit(str).result()  # the second thread has done what it was asked for
        with pytest.raises(LookupError):
            begun.finish()


def test_the_length_of_the_query_does_not_matter(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    rows = embedded(np.random.default_rng(3), 300, DIMENSION)
    put_facts(db, set_id, rows)
    with db.read() as conn:
        found = [
            fact_ids(scan(conn, set_id, rows[7] * np.float32(factor), k=5)) for factor in (1e-36, 1, 1e36)
        ]
    assert found[0] == found[1] == found[2]
    assert found[0][0] == 8


def test_equal_scores_are_ordered_by_kind_and_id_wherever_they_lie(db: Database) -> None:
    set_id = make_set(db, 2)
    owners = [Owner(kind, number) for number in (3, 1, 2) for kind in (OwnerKind.SOURCE, OwnerKind.FACT)]
    for owner in owners:
        write(db, put_vectors, set_id, [NewVector(owner, scope(db), 0, [1, 1])])
    hits = read(db, scan, set_id, [1, 1], k=4)
    assert [hit.owner for hit in hits or []] == sorted(owners)[:4]


def test_an_empty_set_has_no_hits(db: Database) -> None:
    assert read(db, scan, make_set(db, DIMENSION), np.ones(DIMENSION), k=3) == []


@pytest.mark.parametrize("query", [[0, 0], [float("nan"), 1], [float("inf"), 1], [1, 2, 3], [1e-43, 0]])
def test_a_query_without_a_direction_or_of_another_dimension_is_refused(
    db: Database, query: list[float]
) -> None:
    with pytest.raises(InvalidParams):
        read(db, scan, make_set(db, 2), query, k=3)


@pytest.mark.parametrize("k", [0, -1, 10_001])
def test_a_k_out_of_range_is_refused(db: Database, k: int) -> None:
    with pytest.raises(InvalidParams, match="k must be"):
        read(db, scan, make_set(db, 2), [1, 0], k=k)


def test_sets_are_never_mixed(db: Database) -> None:
    old = make_set(db, 4)
    put_facts(db, old, np.eye(4, dtype=np.float32))
    new = write(db, lambda tx: create_set(tx, profile(2, "newer"), now_ms=0)).id
    put_facts(db, new, np.array([[1, 1], [1, 0]], np.float32))
    write(db, serve_set, new)
    assert fact_ids(read(db, scan, new, [1, 0], k=9)) == [2, 1]
    assert fact_ids(read(db, scan, old, [0, 0, 1, 0], k=1)) == [3]


def test_a_scan_that_is_stopped_returns_nothing_and_leaves_the_connection_usable(db: Database) -> None:
    set_id = make_set(db, 384)
    put_facts(db, set_id, embedded(np.random.default_rng(4), 6_000, 384))
    asked = 0

    def stop_at_the_second() -> bool:
        nonlocal asked
        asked += 1
        return asked == 2

    query = np.ones(384)
    with db.read() as conn:
        assert scan(conn, set_id, query, k=5, should_stop=stop_at_the_second) is None
        assert asked == 2
        assert len(scan(conn, set_id, query, k=5) or []) == 5
    assert db.perform(lambda database: database.truncate_wal())


def test_a_scan_sees_the_snapshot_that_it_began_in(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    rows = embedded(np.random.default_rng(5), 400, DIMENSION)
    put_facts(db, set_id, rows)
    with db.read() as conn:
        before = scan(conn, set_id, rows[0], k=400)
        write(db, delete_vectors, set_id, [Owner(OwnerKind.FACT, i) for i in range(1, 201)])
        write(db, rebuild_blocks, set_id)
        assert scan(conn, set_id, rows[0], k=400) == before
    assert len(read(db, scan, set_id, rows[0], k=400) or []) == 200


def test_scans_on_several_threads_agree(db: Database) -> None:
    set_id = make_set(db, DIMENSION)
    rows = embedded(np.random.default_rng(6), 2_000, DIMENSION)
    put_facts(db, set_id, rows)
    expected = read(db, ranking, set_id, rows[1], 10)
    found: list[object] = []

    def search() -> None:
        found.extend(read(db, scan, set_id, rows[1], k=10) for _ in range(5))

    threads = [threading.Thread(target=search) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 15


def test_a_slot_that_contradicts_its_row_is_damage_and_not_a_hit(db: Database) -> None:
    set_id = make_set(db, 2)
    put_facts(db, set_id, np.eye(2, dtype=np.float32))
    execute(db, "UPDATE vectors SET owner_id = 77 WHERE owner_id = 1")
    with pytest.raises(DamagedData, match="reindex"):
        read(db, scan, set_id, [1, 0], k=1)


def test_a_vector_without_values_is_damage(db: Database) -> None:
    set_id = make_set(db, 2)
    put_facts(db, set_id, np.eye(2, dtype=np.float32))
    execute(db, "DELETE FROM vector_values")
    with pytest.raises(DamagedData, match="reindex"):
        read(db, scan, set_id, [1, 0], k=1)
