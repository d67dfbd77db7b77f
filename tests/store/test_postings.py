"""What is scored from postings is what FTS5 scores itself."""

import random

import apsw
import pytest

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection, Database
from pikobot.store.sources import delete_source, insert_source, revise_source
from pikobot.store.text import postings
from pikobot.store.text.postings import TOKENIZER, ids_in, score
from pikobot.store.text.segmentation import quoted
from tests.store.rows import execute, new_source, read, rows, source, thread, write

WORDS = [*"tea dog dogs river lamp zebra running runs naïve 2024".split(), "茶叶", "服务端", "端", "猫"]
TERMS = [
    *"tea dog dogs river lamp zebra run naive 2024 nowhere".split(),
    "茶叶",
    "服务",
    "务端",
    "端",
    "猫",
    "茶",
]
MANY = 1_000_000


def fill(db: Database, generator: random.Random, count: int) -> list[int]:
    """Sources in two transactions, some of them changed and removed afterwards."""
    inside = thread(db)

    def insert(tx: Connection) -> list[int]:
        return [
            insert_source(
                tx,
                new_source(
                    inside, " ".join(generator.choices(WORDS, k=generator.randint(1, 30))), speaker="Zebra"
                ),
                db.clock,
            )
            for _ in range(count // 2)
        ]

    def change(tx: Connection, ids: list[int]) -> None:
        for source_id in ids[::7]:
            delete_source(tx, source_id)  # type: ignore[arg-type]
        for source_id in ids[1::7]:
            revise_source(tx, source_id, "another tea 茶叶 text", db.clock)  # type: ignore[arg-type]

    ids = [*write(db, insert), *write(db, insert)]
    write(db, change, ids)
    return ids


def best(
    conn: Connection, terms: list[str], counts: list[int], most: int = MANY
) -> list[list[tuple[int, float]]]:
    scores = score(conn, terms, most=most)
    assert scores is not None
    return [scores.best(count) for count in counts]


def scored_by_fts5(conn: Connection, terms: list[str]) -> list[tuple[int, float]]:
    found = conn.execute(
        """
        SELECT rowid, -bm25(sources_text) FROM sources_text WHERE sources_text MATCH ?
        ORDER BY bm25(sources_text), rowid DESC
        """,
        (" OR ".join(map(quoted, terms)),),
    )
    return [(row[0], row[1]) for row in found]


@pytest.mark.parametrize("seed", range(8))
def test_the_best_are_those_of_fts5_however_many_are_asked_for(
    db: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(postings, "MEASURED_FIRST", 0)
    generator = random.Random(seed)
    fill(db, generator, 300)
    for terms in [["端"], *(generator.sample(TERMS, generator.randint(1, len(TERMS))) for _ in range(20))]:
        expected = read(db, scored_by_fts5, terms)
        counts = [*sorted(generator.sample(range(1, 60), 2)), MANY]
        for count, found in zip(counts, read(db, best, terms, counts), strict=True):
            assert [score for _, score in found] == pytest.approx(
                [score for _, score in expected[: len(found)]], rel=1e-12
            )
            scores = dict(expected)
            assert all(scores[source_id] == pytest.approx(value, rel=1e-12) for source_id, value in found)
            assert len(found) >= min(count, len(expected))
            # Of equals all are there, the newest first.
            assert len(found) == len(expected) or found[-1][1] > expected[len(found)][1] * (1 + 1e-12)
            assert found == sorted(found, key=lambda each: (-each[1], -each[0]))


def test_what_is_not_kept_is_not_there(db: Database) -> None:
    ids = fill(db, random.Random(9), 120)

    def kept(conn: Connection, chosen: list[int]) -> tuple[int, list[tuple[int, float]]]:
        scores = score(conn, ["dog", "猫", "lamp"], most=MANY)
        assert scores is not None
        scores.keep(ids_in(" ".join(map(str, chosen))))
        return len(scores), scores.best(MANY)

    everything = read(db, best, ["dog", "猫", "lamp"], [MANY])[0]
    for chosen in (ids[::3], ids, [], [10**6]):
        expected = [each for each in everything if each[0] in chosen]
        assert read(db, kept, chosen) == (len(expected), expected)


def test_only_what_can_be_among_the_best_is_measured(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "MEASURED_FIRST", 0)
    inside = thread(db)
    texts = [*["dog"] * 30, *["dog zebra lamp"] * 5]
    write(db, lambda tx: [insert_source(tx, new_source(inside, text), db.clock) for text in texts])
    measured: list[int] = []
    lengths = postings._lengths
    monkeypatch.setattr(
        postings, "_lengths", lambda conn, ids: [*map(measured.append, ids.tolist())] and lengths(conn, ids)
    )
    found = read(db, best, ["dog", "zebra", "lamp"], [1])[0]
    assert [source_id for source_id, _ in found] == sorted(measured, reverse=True) == [35, 34, 33, 32, 31]


def test_a_term_that_occurs_too_often_is_left_out_and_that_is_said(db: Database) -> None:
    inside = thread(db)
    for text in ("dog dog", "dog lamp", "lamp"):
        source(db, inside, text)

    def asked(conn: Connection, most: int) -> tuple[list[int], bool]:
        scores = score(conn, ["dog", "lamp"], most=most)
        assert scores is not None
        return [source_id for source_id, _ in scores.best(9)], scores.is_complete

    assert read(db, asked, 3) == ([2, 1, 3], True)
    assert read(db, asked, 2) == ([3, 2], False)
    assert read(db, asked, 1) == ([], False)


def test_nothing_is_found_in_nothing(db: Database) -> None:
    assert read(db, best, ["dog"], [5]) == [[]]
    source(db, thread(db), "?", speaker="-")
    assert read(db, best, ["dog"], [5]) == [[]]
    source(db, thread(db), "dog")
    assert read(db, best, ["cat"], [5]) == [[]]


def test_a_word_that_is_several_to_the_index_is_left_to_it(db: Database) -> None:
    word = "dog\u0305cat"  # a combining mark at which the tokenizer parts words
    assert read(db, score, ["dog", word], most=MANY) is None
    assert read(db, best, ["\u0305"], [5]) == [[]]


def test_a_lost_length_is_damage(db: Database) -> None:
    source(db, thread(db), "dog")
    db.perform(lambda db: db.maintenance_connection().config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0))
    execute(db, "DELETE FROM sources_text_docsize")
    with pytest.raises(DamagedData, match="reindex"):
        read(db, best, ["dog"], [5])


def test_the_tokenizer_is_that_of_the_index(db: Database) -> None:
    sql = rows(db, "SELECT sql FROM sqlite_schema WHERE name = 'sources_text'")[0][0]
    name, options = TOKENIZER
    assert f"tokenize = '{' '.join([name, *options])}'" in sql
