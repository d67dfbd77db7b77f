"""In a large index the way depends on what is eligible; what is found does not."""

import random
from typing import Any

import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import Scope
from pikobot.store.sources import insert_source
from pikobot.store.text import index as text_index
from pikobot.store.text.index import search_text
from tests.clock import MINUTE_MS, NOW_MS
from tests.store.rows import GROUP, new_source, plan, read, rows, scope, thread, write

RARE = Scope("shared", "main", "bot", "-300", "1")
COUNT = 1_200
WORDS = "tea dog river 茶叶 服务端 lamp".split()


@pytest.fixture(autouse=True)
def _filled(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two scopes take turns; a rare one has ten sources in a row and one far away."""
    monkeypatch.setattr(text_index, "SPARE_MATCHES", 10)
    threads = [thread(db, "a"), thread(db, "b", GROUP), thread(db, "c", RARE)]
    generator = random.Random(1)

    def insert(tx: Connection) -> None:
        for at in range(COUNT):
            where = threads[2] if 700 <= at < 710 or at == 1_000 else threads[at % 5 == 0]
            text = " ".join(generator.sample(WORDS, 3))
            insert_source(tx, new_source(where, text, said_at_ms=NOW_MS + at * MINUTE_MS), db.clock)

    write(db, insert)


def _count_as_small(monkeypatch: pytest.MonkeyPatch, most_rows: int) -> None:
    monkeypatch.setattr(text_index, "SMALL_INDEX_ROWS", most_rows)
    monkeypatch.setattr(text_index, "UNSAMPLED_ROWS", most_rows)


FOUND: dict[str, dict[str, Any]] = {
    "all": {},
    "one of two that take turns": {"of": GROUP},
    "a rare scope": {"of": RARE},
    "a rare scope and time": {"of": RARE, "from_ms": NOW_MS + 705 * MINUTE_MS},
    "a short time": {"from_ms": NOW_MS + 50 * MINUTE_MS, "to_ms": NOW_MS + 60 * MINUTE_MS},
    "a long time": {"to_ms": NOW_MS + 900 * MINUTE_MS},
}
NOTHING_FOUND: dict[str, dict[str, Any]] = {
    "a time without a source": {"from_ms": NOW_MS - 2 * MINUTE_MS, "to_ms": NOW_MS - MINUTE_MS},
    "a scope without a source": {"of": Scope("shared", "main", "bot", "-400", "1")},
    "a role": {"roles": ["assistant"]},
}


@pytest.mark.parametrize("filters", [*FOUND.values(), *NOTHING_FOUND.values()], ids=[*FOUND, *NOTHING_FOUND])
@pytest.mark.parametrize("query", ["tea", "dog and river", "茶叶 lamp"])
def test_a_large_index_finds_what_a_small_one_finds(
    db: Database, monkeypatch: pytest.MonkeyPatch, filters: dict[str, Any], query: str
) -> None:
    options = {name: value for name, value in filters.items() if name != "of"}
    options["scope_ids"] = [scope(db, filters["of"])] if "of" in filters else None
    found = []
    for small in (COUNT, 0):
        _count_as_small(monkeypatch, small)
        found.append(read(db, search_text, query=query, now_ms=NOW_MS, limit=30, **options))
    assert found[0] == found[1]
    assert bool(found[0]) == (filters in FOUND.values())


@pytest.mark.parametrize("most_rows", [0, COUNT])
def test_who_may_read_every_scope_finds_what_the_operator_finds(
    db: Database, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    _count_as_small(monkeypatch, most_rows)
    every = [scope(db, of) for of in (None, GROUP, RARE)]
    asked: dict[str, Any] = {"query": "dog river", "now_ms": NOW_MS, "limit": 50}
    of_all = read(db, search_text, scope_ids=None, **asked)
    assert read(db, search_text, scope_ids=[*every, 99], **asked) == of_all
    assert read(db, search_text, scope_ids=every[:1], **asked) != of_all


@pytest.mark.parametrize("query", ["dog\u0305cat tea", "tea dog", "river 茶"])
def test_a_large_index_is_ranked_alike_by_its_postings_and_by_fts5(
    db: Database, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    _count_as_small(monkeypatch, 0)
    options: dict[str, Any] = {"query": query, "now_ms": NOW_MS, "limit": 400, "scope_ids": None}
    by_postings = read(db, search_text, **options)
    monkeypatch.setattr(text_index, "_best_scored", lambda *_: None)
    by_fts5 = read(db, search_text, **options)
    assert [hit.source_id for hit in by_postings] == [hit.source_id for hit in by_fts5]
    assert [hit.score for hit in by_postings] == pytest.approx([hit.score for hit in by_fts5], rel=1e-12)


@pytest.mark.parametrize("most", [0, 100])
def test_a_scope_is_found_alike_whether_its_ids_are_listed_or_each_match_is_looked_at(
    db: Database, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    options: dict[str, Any] = {
        "query": "dog 茶叶",
        "now_ms": NOW_MS,
        "limit": 150,
        "scope_ids": [scope(db, GROUP)],
    }
    _count_as_small(monkeypatch, COUNT)
    expected = read(db, search_text, **options)
    _count_as_small(monkeypatch, 0)
    monkeypatch.setattr(text_index, "LISTED_FOR_EACH", most)
    kept: list[bool] = []
    keep = text_index._keep_eligible

    def keeping(*given: Any) -> bool:
        kept.append(keep(*given))
        return kept[-1]

    monkeypatch.setattr(text_index, "_keep_eligible", keeping)
    assert read(db, search_text, **options) == expected
    assert kept == [most > 0]


def test_the_bounds_of_what_is_rare_are_read_from_an_index(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _count_as_small(monkeypatch, 0)
    scope_id = scope(db, RARE)
    steps = plan(db, search_text, query="tea", now_ms=NOW_MS, limit=5, scope_ids=[scope_id])
    assert any("SEARCH sources USING COVERING INDEX sources_by_scope_time" in step for step in steps)
    assert rows(db, "SELECT count(*) FROM sources WHERE scope_id = ?", scope_id) == [(11,)]
