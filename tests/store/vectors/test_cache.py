"""What is kept of blocks between scans never shows: changes, snapshots and erasure look as if nothing were kept."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.vectors import reading
from pikobot.store.vectors.blocks import Block, list_blocks
from pikobot.store.vectors.cache import BLOCKS, IDLE_SCANS, BlockCache
from pikobot.store.vectors.means import make_mean
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import SetId, load_set
from pikobot.store.vectors.reading import BlockReader, BlockView
from pikobot.store.vectors.rebuild import rebuild_blocks, refresh_block
from pikobot.store.vectors.records import NewVector
from pikobot.store.vectors.removal import delete_vectors, forget_owners
from pikobot.store.vectors.scan import scan
from tests.store.rows import read, write
from tests.store.vectors.embeddings import embedded, make_set, put_facts, ranking

DIMENSION = 24
VECTORS = embedded(np.random.default_rng(1), 300, DIMENSION)
FIRST = Owner(OwnerKind.FACT, 1)

Change = Callable[[Connection, SetId], object]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    BLOCKS.clear()
    yield
    BLOCKS.clear()


@pytest.fixture
def set_id(db: Database) -> SetId:
    """A set whose blocks are all kept."""
    made = make_set(db, DIMENSION)
    put_facts(db, made, VECTORS)
    read(db, scan, made, VECTORS[0], k=5)
    return made


@pytest.fixture
def fetched(set_id: SetId, monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    """The blocks that are read from the database once the set is kept."""
    found: list[Block] = []
    original = BlockReader.read

    def noted(self: BlockReader, block: Block) -> BlockView:
        found.append(block)
        return original(self, block)

    monkeypatch.setattr(BlockReader, "read", noted)
    return found


def _replace_first(tx: Connection, set_id: SetId) -> None:
    put_vectors(tx, set_id, [NewVector(FIRST, ensure_scope(tx, owner_scope()), 1, VECTORS[7])])


def _refresh(tx: Connection, set_id: SetId) -> None:
    make_mean(tx, load_set(tx, set_id))
    while refresh_block(tx, set_id):
        pass


CHANGES: dict[str, Change] = {
    "replaced": _replace_first,
    "deleted": lambda tx, set_id: delete_vectors(tx, set_id, [FIRST]),
    "forgotten": lambda tx, _: forget_owners(tx, [FIRST]),
    "refreshed": _refresh,
    "rebuilt": rebuild_blocks,
}
each_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


def _block_of_first(db: Database, set_id: SetId) -> Block:
    return read(db, list_blocks, set_id)[0]


def _assert_exact(db: Database, set_id: SetId) -> None:
    for query in VECTORS[:10]:
        assert read(db, scan, set_id, query, k=20) == read(db, ranking, set_id, query, 20)


def test_a_block_is_fetched_once_until_it_changes(db: Database, set_id: SetId, fetched: list[Block]) -> None:
    read(db, scan, set_id, VECTORS[0], k=5)
    assert fetched == []
    write(db, delete_vectors, set_id, [FIRST])
    read(db, scan, set_id, VECTORS[0], k=5)
    read(db, scan, set_id, VECTORS[0], k=5)
    assert fetched == [_block_of_first(db, set_id)]


@each_change
def test_every_change_of_a_block_gives_it_another_revision_and_is_seen(
    db: Database, set_id: SetId, change: Change
) -> None:
    before = _block_of_first(db, set_id)
    write(db, change, set_id)
    after = _block_of_first(db, set_id)
    assert after.revision not in (0, before.revision)
    _assert_exact(db, set_id)


@each_change
def test_a_change_that_was_rolled_back_is_never_seen(db: Database, set_id: SetId, change: Change) -> None:
    before = read(db, list_blocks, set_id)

    def change_look_and_fail(tx: Connection) -> None:
        change(tx, set_id)
        scan(tx, set_id, VECTORS[0], k=5)
        raise LookupError

    with pytest.raises(LookupError):
        write(db, change_look_and_fail)
    assert read(db, list_blocks, set_id) == before
    _assert_exact(db, set_id)


def test_snapshots_of_different_age_are_each_answered_from_their_own_blocks(
    db: Database, set_id: SetId
) -> None:
    query = VECTORS[0]
    with db.read() as old:
        before = ranking(old, set_id, query, 20)
        write(db, forget_owners, [hit.owner for hit in before[:10]])
        with db.read() as new:
            for _ in range(3):
                assert scan(old, set_id, query, k=20) == before
                assert scan(new, set_id, query, k=20) == ranking(new, set_id, query, 20)


def test_nothing_of_a_forgotten_vector_stays_in_memory(db: Database, set_id: SetId) -> None:
    """The next scan replaces what was kept; a truncated WAL drops it without a scan."""
    block = _block_of_first(db, set_id)
    view = BLOCKS.find((str(db.path), block.id), block.revision)
    assert view is not None
    forgotten = view.codes[view.slots["owner_id"] == FIRST.id].tobytes()
    assert len(forgotten) == DIMENSION
    write(db, forget_owners, [FIRST])
    read(db, scan, set_id, VECTORS[0], k=5)
    block = _block_of_first(db, set_id)
    view = BLOCKS.find((str(db.path), block.id), block.revision)
    assert view is not None
    assert forgotten not in view.codes.tobytes()
    assert BLOCKS.held_bytes == sum(_size(each) for each in read(db, list_blocks, set_id))
    assert db.perform(lambda database: database.truncate_wal())
    assert BLOCKS.held_bytes == 0


def _size(block: Block) -> int:
    return block.capacity * (24 + 12) + block.used * DIMENSION


@pytest.mark.parametrize("blocks_that_fit", [0, 1])
def test_what_finds_no_room_is_read_each_time_with_the_same_result(
    db: Database, set_id: SetId, fetched: list[Block], monkeypatch: pytest.MonkeyPatch, blocks_that_fit: int
) -> None:
    blocks = read(db, list_blocks, set_id)
    room = BlockCache(blocks_that_fit * max(map(_size, blocks)))
    monkeypatch.setattr(reading, "BLOCKS", room)
    read(db, scan, set_id, VECTORS[0], k=5)
    fetched.clear()
    read(db, scan, set_id, VECTORS[0], k=5)
    assert len(fetched) == len(blocks) - blocks_that_fit
    _assert_exact(db, set_id)


def _view(size: int) -> BlockView:
    return cast("BlockView", SimpleNamespace(size=size))  # all that the cache asks of a view


def _ask(cache: BlockCache, block_id: int, size: int = 10) -> bool:
    """What a scan does with a block; whether it was kept already."""
    cache.begin_scan()
    if cache.find(("file", block_id), 1) is not None:
        return True
    if cache.make_room(("file", block_id), size):
        cache.keep(("file", block_id), 1, _view(size))
    return False


def test_the_cache_is_bounded_and_keeps_what_scans_ask_for() -> None:
    cache = BlockCache(25)
    for _ in range(3 * IDLE_SCANS):
        for block_id in range(5):
            _ask(cache, block_id)
    assert cache.held_bytes == 20
    assert [_ask(cache, block_id) for block_id in range(5)] == [True, True, False, False, False]


def test_blocks_that_no_scan_asks_for_make_room() -> None:
    cache = BlockCache(20)
    assert [_ask(cache, 1), _ask(cache, 2)] == [False, False]
    assert [_ask(cache, 2) for _ in range(IDLE_SCANS)] == [True] * IDLE_SCANS
    assert [_ask(cache, 3), _ask(cache, 3), _ask(cache, 2)] == [False, True, True]
    assert cache.held_bytes == 20


def test_another_revision_of_a_block_takes_the_place_of_the_one_that_was_kept() -> None:
    cache, key = BlockCache(20), ("file", 1)
    for revision in range(5):
        assert cache.make_room(key, 20)
        cache.keep(key, revision, _view(20))
        assert cache.find(key, revision - 1) is None
        assert cache.find(key, revision) is not None
    assert cache.held_bytes == 20


def test_a_block_larger_than_the_room_is_not_kept() -> None:
    cache = BlockCache(20)
    assert not cache.make_room(("file", 1), 21)
    cache.keep(("file", 1), 1, _view(21))
    assert cache.held_bytes == 0
