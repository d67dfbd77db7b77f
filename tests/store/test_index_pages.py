import random

import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.sources import SourceId, delete_sources, insert_source, revise_source
from pikobot.store.text.index import check_text_index
from pikobot.store.text.index_pages import INDEXES, count_traces, settle, tokens_of
from pikobot.store.text.segmentation import segment
from pikobot.store.threads import Thread
from tests.store import rows

LETTERS = "abcdeé"
CHARACTERS = "汉字密码张三李四银行"


def word(chance: random.Random) -> str:
    return "".join(chance.choices(LETTERS, k=chance.choice((2, 7, 12))))


def text(chance: random.Random, *, words: int) -> str:
    """Words that begin alike, some of which many texts have, and runs of Chinese."""
    runs = ("".join(chance.choices(CHARACTERS, k=chance.randrange(1, 6))) for _ in range(words // 3))
    return " ".join((*(word(chance) for _ in range(words)), *runs, *("common 一般" * (words // 8)).split()))


def write_small_leaves(tx: Connection) -> None:
    for index in INDEXES:
        tx.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('pgsz', 64)")


def merge_a_part(tx: Connection, pages: int) -> None:
    tx.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('usermerge', 2)")
    tx.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('merge', ?)", (pages,))
    settle(tx, "sources_text")


def let_fts5_merge(tx: Connection, pieces: int) -> None:
    tx.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('automerge', ?)", (pieces,))


def left_in(conn: Connection, survivors: set[str]) -> set[bytes]:
    """What the index holds beside the tokens of the survivors: other tokens, and separators that begin none."""
    tokens = {token for each in survivors for token in tokens_of(conn, segment(each))}
    held = {row[0].encode() for row in conn.execute("SELECT term FROM temp.sources_words GROUP BY term")}
    separators = {bytes(row[0])[1:] for row in conn.execute("SELECT term FROM sources_text_idx")}
    begun = {b"", *(token[:end] for token in tokens for end in range(1, len(token) + 1))}
    return (held ^ tokens) | (separators - begun)


def erased_bytes(conn: Connection, erased: set[str], survivors: set[str]) -> set[bytes]:
    """Erased words in any row of the index, in use or not, where no survivor has them within a word."""
    raw = b"\0".join(bytes(row[0]) for row in conn.execute("SELECT block FROM sources_text_data"))
    raw += b"\0".join(bytes(row[0]) for row in conn.execute("SELECT term FROM sources_text_idx"))
    standing = "\n".join(survivors)
    words = {each for of in erased for each in of.split() if len(each) == 12 and each not in standing}
    return {each.encode() for each in words if each.encode() in raw}


def assert_clean(db: Database, erased: set[str], survivors: set[str]) -> None:
    with db.read() as conn:
        assert left_in(conn, survivors) == set()
        assert erased_bytes(conn, erased, survivors) == set()
        assert count_traces(conn, "sources_text") == 0
    assert rows.write(db, check_text_index) == []


class Stored:
    """Random texts in the index, and those that are gone."""

    def __init__(self, db: Database, chance: random.Random) -> None:
        self._db, self._chance = db, chance
        self._thread: Thread = rows.thread(db)
        self.standing: dict[SourceId, str] = {}
        self.gone: set[str] = set()

    def add(self, count: int, words: int) -> None:
        def insert(tx: Connection) -> None:
            for _ in range(count):
                added = text(self._chance, words=words)
                source = rows.new_source(self._thread, added, speaker="owner")
                self.standing[insert_source(tx, source, self._db.clock)] = added

        rows.write(self._db, insert)

    def forget(self, count: int) -> None:
        chosen = self._chance.sample(sorted(self.standing), min(count, len(self.standing)))
        rows.write(self._db, delete_sources, chosen)
        self.gone |= {self.standing.pop(each) for each in chosen}

    def revise(self) -> None:
        chosen = self._chance.choice(sorted(self.standing))
        revised = text(self._chance, words=8)
        rows.write(self._db, revise_source, chosen, revised, self._db.clock)
        self.gone.add(self.standing[chosen])
        self.standing[chosen] = revised

    @property
    def words(self) -> set[str]:
        return {*self.standing.values(), *({"owner"} if self.standing else ())}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_was_merged_nothing_of_an_erased_text_is_in_any_row_of_the_index(
    db: Database, seed: int
) -> None:
    chance = random.Random(seed)
    rows.write(db, write_small_leaves)
    if seed % 3 == 2:
        rows.write(db, let_fts5_merge, 2)
    stored = Stored(db, chance)
    for _ in range(12):
        stored.add(chance.choice((1, 1, 5, 40)), chance.choice((3, 20, 150)))
        if chance.random() < 0.5:
            rows.write(db, merge_a_part, chance.randrange(1, 60))
        if chance.random() < 0.2:
            stored.revise()
        stored.forget(chance.choice((0, 1, 3, 60)))
        if stored.gone:
            rows.write(db, settle, "sources_text")  # of what FTS5 has merged by itself
            assert_clean(db, stored.gone, stored.words)
    stored.forget(len(stored.standing))
    assert_clean(db, stored.gone, set())


def test_a_giant_text_leaves_nothing(db: Database) -> None:
    rows.source(db, rows.thread(db), "other thing")
    giant = rows.source(db, rows.thread(db), "giantword " + "é汉 " * 60_000)
    assert_clean(db, set(), {"other thing", "owner", "giantword é汉"})
    rows.write(db, delete_sources, [giant])
    assert_clean(db, {"giantword"}, {"other thing", "owner"})


def test_many_that_are_erased_from_an_index_of_one_level_leave_no_marks(db: Database) -> None:
    rows.write(db, write_small_leaves)
    stored = Stored(db, random.Random(1))
    for _ in range(3):
        stored.add(60, 12)
        stored.forget(59)
        assert_clean(db, stored.gone, stored.words)


def test_every_text_index_is_one_that_is_looked_after(db: Database) -> None:
    made = rows.rows(
        db, "SELECT name, sql FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name"
    )
    assert [name for name, _ in made] == sorted(INDEXES)
    assert not [name for name, sql in made if "prefix" in sql or "contentless_delete" in sql]
    for index in INDEXES:
        config = dict(rows.rows(db, f"SELECT k, v FROM {index}_config"))
        assert (config["secure-delete"], config["automerge"], config["crisismerge"]) == (1, 0, 4)
