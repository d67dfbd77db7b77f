from pikobot.store.connection import Database
from pikobot.store.sources import delete_source
from pikobot.store.text.index import check_text_index
from pikobot.store.text.index_pages import INDEXES
from pikobot.store.text.merging import merge_step
from tests.store import rows

PIECES = "SELECT count(DISTINCT id >> 37) FROM {index}_data WHERE id > 10"
FOUND = 'SELECT rowid FROM sources_text WHERE sources_text MATCH \'"oak" OR "橡树"\' ORDER BY rowid'


def pieces(db: Database) -> list[int]:
    return [rows.rows(db, PIECES.format(index=index))[0][0] for index in INDEXES]


def test_the_pieces_of_the_index_become_few_and_hold_what_they_held(db: Database) -> None:
    thread = rows.thread(db)
    stored = [rows.source(db, thread, f"the oak number {n} 第{n}棵橡树") for n in range(90)]
    rows.write(db, delete_source, stored[7])
    before = rows.rows(db, FOUND)
    assert len(before) == 89
    assert pieces(db)[0] > 2
    while db.perform(merge_step):
        pass
    assert max(pieces(db)) <= 2
    assert rows.rows(db, FOUND) == before
    assert rows.write(db, check_text_index) == []
    assert not db.perform(merge_step)


def test_an_empty_index_has_nothing_to_merge(db: Database) -> None:
    assert not db.perform(merge_step)
    assert pieces(db) == [0, 0]
