from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.clock import Clock
from pikobot.store.connection import Connection, Database
from pikobot.store.prepare import open_database
from pikobot.store.settings import SEGMENTER, write_setting
from pikobot.store.sources import delete_source, insert_source
from pikobot.store.text import index as text_index
from pikobot.store.text.index import (
    TextHit,
    check_text_index,
    is_index_current,
    rebuild_text_index,
    search_text,
    unindex_source,
)
from pikobot.store.text.ranking import POOL
from pikobot.store.text.segmentation import segment
from tests.clock import MINUTE_MS, NOW_MS, FakeClock
from tests.store.rows import GROUP, execute, new_source, read, source, thread, write


def hits(db: Database, query: str, **options: Any) -> list[TextHit]:
    with db.read() as conn:
        return search_text(
            conn, **({"query": query, "scope_ids": None, "now_ms": NOW_MS, "limit": 10} | options)
        )


def found(db: Database, query: str, **options: Any) -> list[int]:
    return [hit.source_id for hit in hits(db, query, **options)]


def fill(db: Database, texts: Sequence[str], **changes: Any) -> list[int]:
    """Sources in one thread, a minute apart, stored in one transaction."""
    inside = thread(db, "filled")

    def insert(tx: Connection) -> list[int]:
        return [
            insert_source(
                tx, new_source(inside, text, said_at_ms=NOW_MS + at * MINUTE_MS, **changes), db.clock
            )
            for at, text in enumerate(texts)
        ]

    return list(write(db, insert))


@pytest.mark.parametrize("query", ["youer", "服务", "端", "改", "服务端", "修改youer服务端"])
def test_every_part_of_a_mixed_run_finds_its_source(db: Database, query: str) -> None:
    wanted = source(db, thread(db), "修改youer服务端")
    source(db, thread(db), "无关的内容 and something else")
    assert found(db, query) == [wanted]


def test_the_source_with_more_of_the_question_comes_first(db: Database) -> None:
    ids = fill(
        db, ["I like tea", "I moved house", "I moved to Porto in March", "Porto wine", *["filler"] * 20]
    )
    assert found(db, "When did I move to Porto?") == [ids[2], *sorted((ids[1], ids[3]), reverse=True)][:3]


def test_a_chinese_question_finds_its_statement(db: Database) -> None:
    ids = fill(db, ["我喜欢喝茶", "今年三月我搬到了波尔图", "天气不错", *["其他内容"] * 20])
    assert found(db, "我是什么时候搬到波尔图的？") == [ids[1]]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("lose keys", "I lost it"),
        ("When did we buy it?", "We bought it in May"),
        ("written", "I write every day"),
        ("child", "the children sleep"),
        ("tea 茶", "买了绿茶"),
        ("Porto 的 酒", "葡萄酒不错"),
    ],
)
def test_other_forms_and_lone_characters_find_their_source(db: Database, query: str, text: str) -> None:
    ids = fill(db, [text, "something else", "别的内容"])
    assert found(db, query) == [ids[0]]


def test_one_word_finds_what_holds_any_form_of_it_and_no_reply(db: Database) -> None:
    ids = fill(db, ["Did you lose anything?", "Nothing at all", "She lost a glove", "Losing hurts"])
    assert set(found(db, "lost")) == {ids[0], ids[2], ids[3]}


def test_equal_matches_come_newest_first_then_last_stored_first(db: Database) -> None:
    fill(db, ["filler"] * 20)
    stored = [
        source(db, thread(db, key), "blue door", said_at_ms=NOW_MS - age)
        for key, age in (("a", 1), ("b", 0), ("c", 0), ("d", 2))
    ]
    assert found(db, "the door") == [stored[2], stored[1], stored[0], stored[3]]


def test_only_eligible_sources_are_found(db: Database) -> None:
    mine = thread(db)
    theirs = thread(db, "t2", GROUP)
    kept = source(db, mine, "zebra", role="assistant", origin="model", said_at_ms=NOW_MS + 5)
    source(db, theirs, "zebra", said_at_ms=NOW_MS + 5)
    source(db, mine, "zebra", said_at_ms=NOW_MS + 5)
    source(db, mine, "zebra", role="assistant", said_at_ms=NOW_MS + 4)
    source(db, mine, "zebra", role="assistant", said_at_ms=NOW_MS + 6)
    source(db, mine, "zebra", role="assistant", said_at_ms=NOW_MS + 5, expires_at_ms=NOW_MS)
    excluded = source(db, mine, "zebra", role="assistant", said_at_ms=NOW_MS + 5)
    options = {
        "scope_ids": [mine.scope_id],
        "roles": ["assistant"],
        "from_ms": NOW_MS + 5,
        "to_ms": NOW_MS + 6,
        "exclude_ids": [excluded],
    }
    assert found(db, "zebra", **options) == [kept]
    assert found(db, "zebra", **(options | {"scope_ids": []})) == []


def test_a_rare_eligible_source_is_found_behind_many_that_are_not(db: Database) -> None:
    fill(db, ["zebra zebra"] * (POOL + text_index.SPARE_MATCHES + 20))
    theirs = thread(db, "t2", GROUP)
    wanted = source(db, theirs, "a zebra among very many other words that make this text long")
    assert found(db, "zebra", scope_ids=[theirs.scope_id]) == [wanted]


def test_a_common_term_is_left_out_only_while_the_others_find_enough(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(db, [*["common word"] * 30, "common zebra", "zebra crossing"])
    monkeypatch.setattr(text_index, "SMALL_INDEX_ROWS", 0)
    monkeypatch.setattr(text_index, "MAX_POSTINGS", 10)
    assert set(found(db, "common zebra", limit=2)) == set(ids[30:])
    assert len(found(db, "common zebra", limit=20)) == 20
    assert len(found(db, "common", limit=20)) == 20
    assert found(db, "nowhere") == []


def test_a_reply_follows_the_question_that_was_found(db: Database) -> None:
    ids = fill(db, ["Which instrument did you learn?", "The cello, for years!", "Nice.", *["filler"] * 20])
    assert found(db, "learned an instrument") == ids[:2]
    assert found(db, "instrument") == ids[:1]


@pytest.mark.parametrize(
    ("end", "asks"), [("?", True), ("? \n", True), ("？\r\n\t ", True), ("? Tell me.", False), ("", False)]
)
def test_a_question_ends_with_its_mark_whatever_blanks_follow(db: Database, end: str, asks: bool) -> None:
    ids = fill(db, [f"Which instrument did you learn{end}", "The cello, for years!", *["filler"] * 20])
    assert found(db, "learned an instrument") == ids[: 2 if asks else 1]


def test_a_reply_that_may_not_be_read_stays_out(db: Database) -> None:
    ids = fill(db, ["你学过什么乐器？", "大提琴！", *["其他内容"] * 20])
    assert found(db, "学过乐器吗", exclude_ids=ids[1:2]) == ids[:1]


def test_the_speaker_whom_the_question_names_comes_first(db: Database) -> None:
    place = thread(db)
    for text in ["filler"] * 20:
        source(db, thread(db, "other"), text)
    maria = source(db, place, "I adopted a puppy", speaker="Maria", role="participant")
    for _ in range(3):
        source(db, place, "filler again")
    john = source(db, place, "I adopted a puppy", speaker="John", role="participant")
    assert found(db, "Which puppy did Maria adopt?")[:2] == [maria, john]


def test_pages_of_one_ranking_join_to_the_whole(db: Database) -> None:
    texts = [f"zebra {'door ' * (number % 7)}{'?' if number % 3 else ''}" for number in range(300)]
    fill(db, texts)
    whole = found(db, "zebra door", limit=300)
    pages: list[int] = []
    while page := found(db, "zebra door", seen_ids=pages, limit=37):
        pages += page
    assert pages == whole
    assert len(set(whole)) == 300


def test_scores_fall_from_first_to_last(db: Database) -> None:
    fill(db, [f"zebra {'door ' * (number % 7)}{'?' if number % 3 else ''}" for number in range(300)])
    scores = [hit.score for hit in hits(db, "zebra door", limit=300)]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    "query", ["", "🎉", '"', "AND", "NOT x", "a* OR (b", "\0", "端" * 5000, "x " * 5000, "\ud800 zebra"]
)
def test_no_query_breaks_the_search(db: Database, query: str) -> None:
    source(db, thread(db), "zebra")
    hits(db, query)


def test_a_deleted_source_is_found_no_more(db: Database) -> None:
    kept, gone = (source(db, thread(db), text) for text in ("zebra", "zebra 服务端"))
    write(db, delete_source, gone)
    assert (found(db, "zebra"), found(db, "服务")) == ([kept], [])
    assert write(db, check_text_index) == []


def test_rebuilding_gives_the_same_index_and_records_the_segmenter(db: Database) -> None:
    fill(db, ["修改youer服务端", "Running to the café"])
    before = [hits(db, query) for query in ("服务", "cafe", "端")]
    write(db, write_setting, SEGMENTER, "0")
    assert not read(db, is_index_current)
    assert [write(db, rebuild_text_index) for _ in range(2)] == [2, 2]
    assert [hits(db, query) for query in ("服务", "cafe", "端")] == before
    assert write(db, check_text_index) == []


def test_the_check_names_every_finding(db: Database) -> None:
    first, _ = (source(db, thread(db), text) for text in ("zebra", "服务端"))
    write(db, unindex_source, first, "zebra", "owner")
    write(db, write_setting, SEGMENTER, "0")
    execute(db, "INSERT INTO sources_text (rowid, text, speaker) VALUES (77, 'lost', '')")
    assert write(db, check_text_index) == [
        "the text index was made by another segmenter; run `pikobot reindex`",
        "1 source is missing in the text index; run `pikobot reindex`",
        "1 row of the text index without a source; run `pikobot reindex`",
    ]


def terms_of(*texts: str) -> set[bytes]:
    conn = apsw.Connection(":memory:")
    conn.execute(
        "CREATE VIRTUAL TABLE t USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2')"
    )
    conn.execute("CREATE VIRTUAL TABLE terms USING fts5vocab (t, 'row')")
    conn.executemany("INSERT INTO t VALUES (?)", [(segment(text),) for text in texts])
    return {term.encode() for (term,) in conn.execute("SELECT term FROM terms")}


def bytes_of(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(directory.iterdir()))


def test_nothing_of_a_deleted_text_is_left_in_the_files(db: Database, path: Path) -> None:
    markers = [f"xq{chr(97 + n)}vworblings {chr(0x9F00 + 2 * n)}{chr(0x9F01 + 2 * n)}鿀" for n in range(26)]
    speaker = "Qzyxmarkedname"
    filler = [f"ordinary words number{n} 普通的内容{chr(0x4E00 + n)}" for n in range(1_000)]
    fill(db, filler)
    marked = fill(db, markers, speaker=speaker)
    fill(db, filler)
    secrets = {*(text.encode() for text in markers), *terms_of(*markers, speaker)}
    # A leaf of the index leaves out what a term shares with the one before.
    secrets |= {secret[3:] for secret in secrets if len(secret) > 8}
    db.perform(Database.truncate_wal)
    assert sum(secret in bytes_of(path.parent) for secret in secrets) > len(markers)

    def delete(tx: Connection) -> None:
        for source_id in marked:
            delete_source(tx, source_id)  # type: ignore[arg-type]

    write(db, delete)
    assert db.perform(Database.truncate_wal)
    left = bytes_of(path.parent)
    assert {secret for secret in secrets if secret in left} == set()
    assert write(db, check_text_index) == []


WORDS = ("zebra", "服务", "务端", "door", "端")


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join), min_size=1, max_size=12),
    st.sampled_from(WORDS),
)
@settings(max_examples=30, deadline=None)
def test_a_word_finds_exactly_the_sources_that_hold_it(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], word: str
) -> None:
    clock: Clock = FakeClock()
    db = open_database(tmp_path_factory.mktemp("db") / "pikobot.sqlite3", clock)
    try:
        ids = fill(db, [text or "-" for text in texts])
        holding = {source_id for source_id, text in zip(ids, texts, strict=True) if word in text}
        assert set(found(db, word, limit=50)) == holding
    finally:
        db.close()
