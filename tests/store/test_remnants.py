from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.store.connection import Database
from pikobot.store.erasing.remnants import held_by_rows, index_holds
from tests.memory.conversing import attach, exchange
from tests.memory.remembering import opened, say


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def test_the_index_knows_what_survives_in_english_and_chinese(db: Database) -> None:
    say(db, "The Old Oak fell; 老橡树倒了 on celebrations")
    with db.read() as conn:
        known = ["old oak", "OAK fell", "老橡树", "橡树倒", "celebration", "fell; 老橡", "树"]
        unknown = ["oak old", "oak celebrations", "橡老树", "elephant", '"', "", "OR", "*"]
        assert [index_holds(conn, words) for words in known] == [True] * len(known)
        assert [index_holds(conn, words) for words in unknown] == [False] * len(unknown)


def test_rows_and_the_schema_are_asked_for_the_rest(db: Database) -> None:
    one = exchange(db, "look", transcript=["transcribed"], is_leased=True)
    attach(db, one.request, b"\0\1attached\2", "named.txt")
    wanted = frozenset({b"transcribed", b"attached", b"named", b"AUTOINCREMENT", b"nowhere"})
    with db.read() as conn:
        held = held_by_rows(conn, wanted, lambda values: frozenset(part for part in wanted if part in values))
    assert held == wanted - {b"nowhere"}
