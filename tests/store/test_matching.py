"""Which sources hold words in any form, and which share of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.store.connection import Database
from pikobot.store.erasing.targets import Bounds
from pikobot.store.sources import SourceId
from pikobot.store.text.matching import SHARE_OF_SCATTERED, find_matching, shares_of
from tests.memory.remembering import opened, say


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def shares(db: Database, *words: str, without: tuple[SourceId, ...] = ()) -> dict[str, float]:
    with db.read() as conn:
        found = shares_of(conn, words, Bounds(), without=without)
        texts = {row[0]: str(row[1]) for row in conn.execute("SELECT id, text FROM sources").fetchall()}
    return {texts[source_id]: share for source_id, share in found.items()}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["skiing"], ["Plan: ski week"]),
        (["lend", "marco"], ["Lent Marco 250 euros"]),
        (["lent", "marco"], ["Lent Marco 250 euros"]),
        (["借给张伟"], ["借给张伟两千五"]),
        (["牙医"], []),
    ],
)
def test_a_word_is_found_in_all_its_forms(db: Database, words: list[str], found: list[str]) -> None:
    say(db, "Plan: ski week", "Lent Marco 250 euros", "Marco called", "借给张伟两千五", "去陈医生看牙")
    with db.read() as conn:
        ids = find_matching(conn, words, Bounds())
        texts = [
            conn.execute("SELECT text FROM sources WHERE id = ?", (each,)).fetchall()[0][0] for each in ids
        ]
    assert texts == found


def test_a_rare_word_weighs_more_than_a_common_one(db: Database) -> None:
    say(db, "lent Marco money", "money is short", "money again", "Marco")
    found = shares(db, "marco", "money", "unknown")
    assert found["lent Marco money"] == 1
    assert found["Marco"] > 0.5 > found["money again"] == found["money is short"]


def test_characters_of_a_run_that_stand_apart_count_in_part_where_one_of_them_is_rare(db: Database) -> None:
    say(
        db,
        "牙医改到15日",
        "去陈医生看牙",
        "医院",
        *("医生来了",) * 6,
        *(f"第{number}次谈话" for number in range(10)),
        "谈到电影",
    )
    found = shares(db, "牙医")
    assert found["牙医改到15日"] == 1
    assert found["去陈医生看牙"] == pytest.approx(SHARE_OF_SCATTERED)
    assert 0 < found["医院"] < SHARE_OF_SCATTERED
    assert "谈到电影" not in shares(db, "话谈")


def test_what_counts_for_nothing_is_left_out(db: Database) -> None:
    say(db, "forget my knee pain", "my knee hurts")
    assert shares(db, "knee", "pain")["my knee hurts"] < 0.5
    assert shares(db, "knee", "pain", without=(SourceId(1),)) == {"my knee hurts": 1.0}
    assert shares(db, "nothing", "没有") == {}
