from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import erasures
from pikobot.store.erasing.erasures import Erasure, Tip, Tombstone
from tests.memory.conversing import read, write
from tests.memory.remembering import opened

FIRST = Tombstone("source", "src_1", b"\x01" * 32)
SECOND = Tombstone("source", "src_2")
THREAD = Tombstone("thread", "thr_1")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def append(db: Database, *tombstones: Tombstone, at_ms: int = 5) -> list[Erasure]:
    return write(db, erasures.append, tombstones, at_ms=at_ms)  # type: ignore[no-any-return]  # what it returns


def rows(db: Database) -> list[Erasure]:
    with db.read() as conn:
        return list(erasures.read_after(conn, 0))


def test_tombstones_form_one_chain_from_the_instance_on(db: Database) -> None:
    added = append(db, FIRST, SECOND) + append(db, THREAD, at_ms=6)
    with db.read() as conn:
        tip = erasures.genesis(erasures.instance_id(conn))
    expected = []
    for tombstone, at_ms in ((FIRST, 5), (SECOND, 5), (THREAD, 6)):
        expected.append(erasures.chained(tip, tombstone, at_ms=at_ms))
        tip = Tip(expected[-1].position, expected[-1].hash)
    assert added == rows(db) == expected
    assert [erasure.position for erasure in expected] == [1, 2, 3]
    assert write(db, erasures.verify_chain) == 3


def test_what_is_erased_gets_no_second_tombstone(db: Database) -> None:
    append(db, FIRST)
    assert [erasure.public_id for erasure in append(db, FIRST, SECOND, SECOND)] == ["src_2"]


def test_erased_ids_and_identities_are_known(db: Database) -> None:
    append(db, FIRST, THREAD)
    with db.read() as conn:
        assert [erasures.is_erased(conn, name) for name in ("src_1", "src_2", "thr_1")] == [True, False, True]
        assert erasures.identity_is_erased(conn, b"\x01" * 32)
        assert not erasures.identity_is_erased(conn, b"\x02" * 32)


def test_two_instances_have_different_chains() -> None:
    one = erasures.chained(erasures.genesis("ins_a"), SECOND, at_ms=5)
    assert not erasures.follows(erasures.genesis("ins_b"), one)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE erasures SET public_id = 'src_9' WHERE position = 2",
        "UPDATE erasures SET erased_at_ms = 9 WHERE position = 2",
        "UPDATE erasures SET identity = NULL WHERE position = 1",
        "UPDATE erasures SET hash = zeroblob(32) WHERE position = 2",
        "DELETE FROM erasures WHERE position = 1",
        "UPDATE settings SET value = 'ins_other' WHERE key = 'instance_id'",
    ],
)
def test_a_changed_chain_is_damaged_data(db: Database, change: str) -> None:
    append(db, FIRST, SECOND, THREAD)
    write(db, lambda tx: tx.execute(change))
    with pytest.raises(DamagedData, match=r"broken at position [123]: restore a backup"):
        write(db, erasures.verify_chain)


def test_copies_are_inserted_as_they_are_and_only_in_order(db: Database, tmp_path: Path) -> None:
    added = append(db, FIRST, SECOND, THREAD)
    write(db, lambda tx: tx.execute("DELETE FROM erasures WHERE position > 1"))

    def insert(tx: Connection, copies: list[Erasure]) -> int:
        return erasures.insert_copies(tx, copies)

    with pytest.raises(DamagedData, match="erasure 3 does not continue"):
        write(db, insert, added[2:])
    assert write(db, insert, added[1:]) == 2
    assert rows(db) == added


def test_the_mark_of_an_unfinished_erasure_survives_until_it_is_cleared(db: Database, tmp_path: Path) -> None:
    write(db, erasures.mark_unfinished)
    db.close()
    with opened(tmp_path) as again:
        with again.read() as conn:
            assert erasures.is_unfinished(conn)
        write(again, erasures.clear_unfinished)
        assert read(again, "SELECT * FROM settings WHERE key = ?", erasures.UNFINISHED) == []
