"""Nothing of what was forgotten stays in the rows of a text index, however FTS5 has merged it before."""

import random
from collections.abc import Iterable
from pathlib import Path
from string import ascii_lowercase

import pytest

from pikobot.memory.forgetting.forget import finish_interrupted, forget
from pikobot.memory.reindexing import reindex
from pikobot.store.connection import Connection, Database
from pikobot.store.text import unindexing
from pikobot.store.text.index_pages import INDEXES, count_traces, read_structure
from tests.memory.conversing import read, write
from tests.memory.planting import on_disk, receipt_of
from tests.memory.remembering import opened, say


def write_small_leaves(tx: Connection) -> None:
    tx.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('pgsz', 64), ('crisismerge', 99)")


def merge_a_part(tx: Connection) -> None:
    """As FTS5 did by itself before schema 7."""
    tx.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('merge', 8)")


def with_prose(db: Database) -> dict[str, str]:
    """Store so much that a merge takes many steps; returns each word with the id of its text."""
    chance = random.Random(4)

    def prose(letters: str, words: int) -> str:
        return " ".join("".join(chance.choices(letters, k=9)) + "7" for _ in range(words))

    write(db, write_small_leaves)
    said: dict[str, str] = {}
    for batch in range(12):
        letters = ascii_lowercase[
            : 26 if batch % 3 else 6
        ]  # a merge reads some pieces to their end before others
        texts = [prose(letters, chance.choice((5, 60))) for _ in range(3)]
        for text, name in zip(texts, say(db, *texts), strict=True):
            said |= dict.fromkeys(text.split(), name)
    return said


def kept_by_a_merge(db: Database, words: Iterable[str]) -> str:
    """Merge until a word stands in rows out of use; returns it."""
    for _ in range(200):
        write(db, merge_a_part)
        with db.read() as conn:
            structure = read_structure(conn, "sources_text")
            in_use = {segment.id for segment in structure.segments.values() if segment.first}
        rows = read(db, "SELECT block, id >> 37 FROM sources_text_data WHERE id > 10")
        data = b"".join(block for block, segment in rows if segment not in in_use)
        kept = [word for word in words if word.encode() in data]
        if kept:
            return kept[0]
    raise AssertionError("no merge has kept a word")


def traces(db: Database) -> int:
    with db.read() as conn:
        return sum(count_traces(conn, index) for index in INDEXES)


@pytest.mark.parametrize("is_old", [False, True])
def test_words_that_an_unfinished_merge_has_read_go_too(db: Database, path: Path, is_old: bool) -> None:
    words = with_prose(db)
    word = kept_by_a_merge(db, words) if is_old else min(words)
    assert bool(traces(db)) == is_old
    receipt = receipt_of(forget(db, path, [words[word]]))
    assert (receipt.is_clean, word.encode() in on_disk(db), traces(db)) == (True, False, 0)


def test_a_giant_text_goes_with_its_words(db: Database, path: Path) -> None:
    say(db, "other thing")
    receipt = receipt_of(forget(db, path, say(db, "giantword " + "é汉 " * 40_000)))
    assert (receipt.is_clean, b"giantword" in on_disk(db)) == (True, False)


def test_what_is_left_in_an_index_is_named_in_the_receipt_and_goes_with_reindexing(
    db: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = with_prose(db)
    word = kept_by_a_merge(db, words)
    monkeypatch.setattr(unindexing, "erase_traces", lambda *_: None)
    receipt = receipt_of(forget(db, path, [words[word]]))
    assert [find.file for find in receipt.scan.finds] == [f"{db.path.name}, sources_text"]
    [find] = receipt.scan.finds
    assert receipt.render_lines()[-1] == (
        f"{find.file} may still hold {find.fragments} rows of it: run `pikobot reindex`"
    )
    assert (receipt.is_clean, word.encode() in on_disk(db), traces(db) > 0) == (False, True, True)
    reindex(db)
    assert (word.encode() in on_disk(db), traces(db)) == (False, 0)


def test_an_older_database_is_cleaned_when_it_is_opened(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as db:
        words = with_prose(db)
        word = kept_by_a_merge(db, words)
        with monkeypatch.context() as without:
            without.setattr(unindexing, "erase_traces", lambda *_: None)
            forget(db, path, [words[word]])
        assert word.encode() in on_disk(db)
        write(
            db, lambda tx: tx.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('automerge', 4)")
        )
        write(db, lambda tx: tx.execute("DELETE FROM migrations WHERE version >= 7"))
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        assert (word.encode() in on_disk(db), traces(db)) == (False, 0)
        assert dict(read(db, "SELECT k, v FROM sources_text_config"))["automerge"] == 0
