from collections.abc import Sequence
from pathlib import Path

import pytest

from pikobot.errors import PikobotError
from pikobot.memory.forgetting import proof
from pikobot.memory.forgetting.byte_scan import Find
from pikobot.memory.forgetting.forget import Finished, finish_interrupted, forget, prepare
from pikobot.memory.forgetting.ledger import Reconciled
from pikobot.store.connection import Database
from pikobot.store.erasing import erasures, outside
from pikobot.store.erasing.pages import Looked, Pages, RawFile, look
from tests.memory.conversing import read, write
from tests.memory.planting import ENGLISH, on_disk, receipt_of
from tests.memory.remembering import opened, say


def said_with_remains(root: Path, remains: bytes, *others: str) -> str:
    """Say the mark and what else; leave these bytes outside of rows, ``{id}`` as the id of what was said."""
    with opened(root) as db:
        [name, *_] = say(db, f"the code is {ENGLISH}", *others)
        db.perform(Database.truncate_wal)
    with (root / "pikobot.sqlite3").open("r+b") as file:
        unused = file.read(16_384).index(bytes(100)) + 50
        file.seek(unused)
        file.write(remains.replace(b"{id}", name.encode()))
    return name


def test_a_copy_that_sqlite_left_outside_of_rows_is_overwritten(tmp_path: Path, path: Path) -> None:
    name = said_with_remains(tmp_path, b"Zanzibarite", "good morning")
    with opened(tmp_path) as db:
        receipt = receipt_of(forget(db, path, [name]))
        assert (receipt.is_rewritten, receipt.is_clean) == (False, True)
        assert b"anzibarite" not in on_disk(db).lower()
        assert read(db, "SELECT text FROM sources") == [("good morning",)]
        assert read(db, "PRAGMA integrity_check") == [("ok",)]


def test_what_somebody_else_has_said_too_is_not_overwritten(tmp_path: Path, path: Path) -> None:
    said_with_remains(tmp_path, b"the morning news", "the morning news")
    with opened(tmp_path) as db:
        [other] = say(db, "good morning, what is new?")
        assert receipt_of(forget(db, path, [other])).is_clean
        assert on_disk(db).count(b"the morning news") == 2  # the row, and the remains
        [(last,)] = read(db, "SELECT public_id FROM sources WHERE text = 'the morning news'")
        assert receipt_of(forget(db, path, [last])).is_clean
        assert b"the morning news" not in on_disk(db)


def test_an_erased_id_that_stands_outside_of_rows_is_overwritten_as_well(tmp_path: Path, path: Path) -> None:
    name = said_with_remains(tmp_path, b"something with {id}")
    with opened(tmp_path) as db:
        assert receipt_of(forget(db, path, [name])).is_clean
        assert b"something with" not in on_disk(db)


def test_what_is_too_short_to_be_any_of_it_is_not_looked_at(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = said_with_remains(tmp_path, b"abcd")
    monkeypatch.setattr(proof, "MAX_COMPARED", -1)
    with opened(tmp_path) as db:
        assert receipt_of(forget(db, path, [name])).is_clean
        assert b"abcd" in on_disk(db)


def test_where_overwriting_does_not_help_the_database_is_rewritten(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = said_with_remains(tmp_path, b"Zanzibarite")
    monkeypatch.setattr(proof, "overwrite_remains", lambda db, pages: frozenset())
    with opened(tmp_path) as db:
        receipt = receipt_of(forget(db, path, [name]))
        assert (receipt.is_rewritten, receipt.is_clean) == (True, True)
        assert b"anzibarite" not in on_disk(db).lower()


def test_much_that_stands_outside_of_rows_is_overwritten_without_being_searched(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = said_with_remains(tmp_path, b"something else")
    monkeypatch.setattr(proof, "MAX_COMPARED", 5)
    with opened(tmp_path) as db:
        receipt = receipt_of(forget(db, path, [name]))
        assert (receipt.is_rewritten, receipt.is_clean) == (False, True)
        assert b"something else" not in on_disk(db)


def test_a_database_that_cannot_be_rewritten_is_told_and_tried_again(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(db: Database) -> None:
        raise PikobotError("the disk is full")

    name = said_with_remains(tmp_path, b"Zanzibarite")
    with opened(tmp_path) as db:
        with monkeypatch.context() as patch:
            patch.setattr(proof, "overwrite_remains", lambda db, pages: frozenset())
            patch.setattr(proof, "rewrite", full)
            receipt = receipt_of(forget(db, path, [name]))
            assert (receipt.is_rewritten, receipt.scan.finds) == (False, (Find("pikobot.sqlite3", 1),))
            assert finish_interrupted(db, path) == Finished(Reconciled(), True, "the disk is full")
        assert finish_interrupted(db, path) == Finished(Reconciled(), True)
        assert b"anzibarite" not in on_disk(db).lower()


def test_prepared_beforehand_an_erasure_looks_only_at_what_was_written_since(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = said_with_remains(tmp_path, b"Zanzibarite")
    looks: list[int | None] = []

    def looking(raw: RawFile, pages: Pages, numbers: Sequence[int] | None = None, **named: int) -> Looked:
        looks.append(None if numbers is None else len(numbers))
        return look(raw, pages, numbers, **named)

    with opened(tmp_path) as db:
        prepare(db)
        assert on_disk(db).lower().count(b"anzibarite") == 1  # the row
        monkeypatch.setattr(outside, "look", looking)
        monkeypatch.setattr(proof, "MAX_LOOKED_AHEAD_BYTES", 0)
        prepare(db)
        assert looks == []
        receipt = receipt_of(forget(db, path, [name]))
        assert (receipt.is_clean, receipt.is_rewritten) == (True, False)
        assert None not in looks
        assert b"anzibarite" not in on_disk(db).lower()


def test_a_forgotten_copy_in_another_file_is_named(db: Database, path: Path) -> None:
    [name] = say(db, f"the code is {ENGLISH}")
    (path.parent / "notes.txt").write_text(ENGLISH)
    receipt = receipt_of(forget(db, path, [name]))
    assert (receipt.is_clean, receipt.is_rewritten) == (False, False)
    assert receipt.render_lines()[0].startswith("Erased from memory, but not proved to be gone")
    assert receipt.render_lines("zh")[0].startswith("已从记忆中删除，但尚不能证明已全部消失")
    assert receipt.render_lines("zh")[-1] == "notes.txt 中仍有 1 小段：请删除或修改该文件"
    assert not write(db, erasures.is_unfinished)
