import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pikobot.memory.embedding import query_vectors
from pikobot.memory.embedding.contract import Embedded, EmbeddingFailed, QueryVector
from pikobot.memory.embedding.query_vectors import Asked
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.search import SearchParams, search
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, find_scope, owner_scope
from pikobot.store.vectors.cache import BLOCKS
from tests.memory.conversing import read
from tests.memory.learning import learn
from tests.memory.meaning import Meaning, embed_all, engine, found, profile, questions, texts_of, vector
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, say

UNREACHABLE = (
    "text search only: embedding failed (unreachable): "
    "no connection; check the network and embedding.base_url"
)
GROUP = Scope("shared", "main", "bot", "-100", "7")


def search_once(db: Database, query: str, **params: object) -> list[str]:
    made = engine(Meaning())
    return texts_of(asyncio.run(found(db, questions(db, made), query, **params)))


def embedded(db: Database) -> None:
    asyncio.run(embed_all(db, engine(Meaning())))


@pytest.mark.parametrize("query", ["hound", "Where is my 小犬?", "狗"])
def test_a_statement_is_found_by_what_it_means_in_either_language(db: Database, query: str) -> None:
    say(db, "my puppy sleeps on the sofa", "the automobile is red", "去看了大夫")
    embedded(db)
    assert search_once(db, query)[0] == "my puppy sleeps on the sofa"


def test_words_find_what_vectors_do_not_and_the_other_way_round(db: Database) -> None:
    say(db, "the number of the hotel is 4711", "we bought a vehicle")
    embedded(db)
    assert "the number of the hotel is 4711" in search_once(db, "4711 car")
    assert "we bought a vehicle" in search_once(db, "4711 car")
    assert search_once(db, "car")[0] == "we bought a vehicle"


def test_filters_hold_for_what_is_found_by_meaning(db: Database) -> None:
    say(db, "a dog in private", at_ms=NOW_MS - 3 * DAY_MS)
    say(db, "a puppy in the group", scope=GROUP)
    say(db, "a hound that is gone", expires_at_ms=NOW_MS + 1)
    embedded(db)
    clock = db.clock
    assert isinstance(clock, StillClock)
    clock.now = NOW_MS + 2
    assert set(search_once(db, "小犬")) == {"a dog in private", "a puppy in the group"}
    assert search_once(db, "小犬", scope=str(GROUP)) == ["a puppy in the group"]
    assert search_once(db, "小犬", **{"from": "2024-02-29"}) == ["a puppy in the group"]
    assert search_once(db, "小犬", types=["fact"]) == []


def test_who_may_read_one_scope_finds_nothing_of_another(db: Database) -> None:
    say(db, "a puppy in the group", scope=GROUP)
    say(db, "my automobile")
    embedded(db)
    made = engine(Meaning())
    with db.read() as conn:
        own = find_scope(conn, owner_scope())
        assert own is not None
        asked = asyncio.run(questions(db, made).ask("狗"))
        page = search(
            conn, SearchParams(query="狗"), allowed_scopes=[own], now_ms=NOW_MS, query_vector=asked.vector
        )
    assert texts_of(page) == ["my automobile"]


def test_facts_are_found_by_meaning_with_their_filters_and_shown_once_with_their_source(db: Database) -> None:
    dog, car = say(db, "we have a puppy called Rex", "the vehicle is in the garage")
    learn(db, "The owner has a dog named Rex", dog, tags=("pets",), kind="fact")
    learn(db, "The owner keeps a car in the garage", car, tags=("home",), kind="plan")
    embedded(db)
    page = asyncio.run(found(db, questions(db, engine(Meaning())), "小犬"))
    assert next((record.type, record.text, record.source.quote) for record in page.records) == (
        "fact",
        "The owner has a dog named Rex",
        "we have a puppy called Rex",
    )
    assert "we have a puppy called Rex" not in texts_of(page)
    assert search_once(db, "小犬", tags=["home"]) == ["The owner keeps a car in the garage"]
    assert search_once(db, "小犬", kind="plan") == ["The owner keeps a car in the garage"]


def test_nothing_is_embedded_yet_so_words_search_alone_and_the_result_says_so(db: Database) -> None:
    say(db, "my puppy sleeps", "a dog")
    page = asyncio.run(found(db, questions(db, engine(Meaning())), "dog"))
    assert (texts_of(page), page.degraded) == (["a dog"], "nothing is embedded yet: text search only")


def test_a_set_that_misses_much_is_not_asked(db: Database) -> None:
    say(db, "a dog")
    embedded(db)
    say(db, *(f"puppy number {number}" for number in range(150)))
    embedder = Meaning()
    page = asyncio.run(found(db, questions(db, engine(embedder)), "dog"))
    assert texts_of(page) == ["a dog"]
    assert page.degraded == "1 text is embedded and more wait: text search only"
    assert embedder.asked == []
    embedded(db)
    assert len(texts_of(asyncio.run(found(db, questions(db, engine(Meaning())), "dog")))) == 10


def test_a_failing_embedder_costs_the_vectors_and_is_not_asked_again_at_once(db: Database) -> None:
    say(db, "my puppy sleeps", "a dog")
    embedded(db)
    meaning = Meaning(failure=EmbeddingFailed("no connection", code="unreachable"))
    queries = questions(db, engine(meaning))

    async def twice() -> None:
        for query in ("dog", "dogs"):
            page = await found(db, queries, query)
            assert texts_of(page) == ["a dog"]
            assert page.degraded == UNREACHABLE

    asyncio.run(twice())
    assert meaning.asked == ["dog"]
    assert queries.problem(profile()) == UNREACHABLE
    clock = db.clock
    assert isinstance(clock, StillClock)
    clock.now += 60_000
    meaning.failure = None
    page = asyncio.run(found(db, queries, "dog"))
    assert len(texts_of(page)) == 2
    assert page.degraded is None
    assert questions(db, engine(meaning)).problem(profile()) is None


class Loading(Meaning):
    """Answers after a few turns of the event loop, as a model does that is loaded first."""

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        for _ in range(3):
            await asyncio.sleep(0)
        return await super().embed_queries(texts)


@pytest.mark.parametrize(("price", "reason"), [(None, None), ("0", "timed_out")])
def test_a_local_model_is_waited_for_while_it_loads_and_a_host_is_not(
    db: Database, monkeypatch: pytest.MonkeyPatch, price: str | None, reason: str | None
) -> None:
    say(db, "a dog")
    embedded(db)
    monkeypatch.setattr(query_vectors, "ANSWER_TIMEOUT_S", 0)
    asked = asyncio.run(questions(db, engine(Loading(), price=price)).ask("dog"))
    assert (asked.vector is None) == (reason is not None)
    assert (reason or "") in (asked.degraded or "")


def test_questions_are_kept_in_memory_but_those_of_ephemeral_requests(db: Database) -> None:
    say(db, "a dog")
    embedded(db)
    meaning = Meaning()
    queries = questions(db, engine(meaning))

    async def ask() -> list[Asked]:
        return [
            await queries.ask("my secret", is_ephemeral=True),
            await queries.ask("my secret", is_ephemeral=True),
            await queries.ask("dog"),
            await queries.ask("dog"),
        ]

    assert all(asked.vector is not None for asked in asyncio.run(ask()))
    assert meaning.asked == ["my secret", "my secret", "dog"]
    assert read(db, "SELECT count(*) FROM attempts") == [(0,)]


def test_a_question_to_a_provider_is_accounted_for(db: Database) -> None:
    say(db, "a dog")
    made = engine(Meaning(), price="0.02")
    asyncio.run(embed_all(db, made))
    asyncio.run(questions(db, made).ask("dog"))
    assert read(
        db, "SELECT purpose, state, workspace, cost_microusd, input_tokens FROM attempts ORDER BY id"
    ) == [("embed", "succeeded", "main", 1, len("owner: a dog")), ("embed-query", "succeeded", "main", 1, 3)]


def test_without_a_price_no_question_leaves(db: Database) -> None:
    say(db, "a dog")
    embedded(db)
    meaning = Meaning()
    made = engine(meaning, price="0.02")
    unpriced = type(made)(made.profile, meaning, is_local=False, price=None, price_remedy="set a price")
    page = asyncio.run(found(db, questions(db, unpriced), "dog"))
    assert (page.degraded, meaning.asked) == ("text search only: set a price", [])


def test_vectors_of_another_profile_are_never_compared(db: Database) -> None:
    say(db, "my puppy sleeps", "a dog")
    embedded(db)
    other = engine(Meaning(), "meaning-2")
    page = asyncio.run(found(db, questions(db, other), "dog"))
    assert texts_of(page) == ["a dog"]
    assert page.degraded is not None
    assert "meaning-1" in page.degraded
    with db.read() as conn:
        mixed = QueryVector(other.profile, vector("dog"))
        page = search(conn, SearchParams(query="dog"), allowed_scopes=None, now_ms=NOW_MS, query_vector=mixed)
    assert texts_of(page) == ["a dog"]


def test_pages_by_meaning_neither_repeat_nor_lose_while_more_is_said(db: Database) -> None:
    said = [f"my puppy number {number}" for number in range(30)]
    say(db, *said)
    embedded(db)
    made = engine(Meaning())

    async def pages() -> list[str]:
        queries = questions(db, made)
        page = await found(db, queries, "小犬", limit=7)
        texts = texts_of(page)
        while page.cursor is not None:
            await asyncio.to_thread(say, db, "another hound")
            await embed_all(db, made)
            page = await found(db, queries, "小犬", limit=7, cursor=page.cursor)
            texts += texts_of(page)
        return texts

    texts = [text for text in asyncio.run(pages()) if text != "another hound"]
    assert sorted(texts) == sorted(said)


def test_equal_vectors_come_in_the_same_order_every_time(db: Database) -> None:
    say(db, *["my puppy sleeps"] * 20)
    embedded(db)
    made = engine(Meaning())
    ids = [
        [record.id for record in asyncio.run(found(db, questions(db, made), "狗", limit=20)).records]
        for _ in range(3)
    ]
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == 20


def test_what_was_erased_is_not_found_by_meaning_nor_kept_in_memory(db: Database, tmp_path: Path) -> None:
    gone, _ = say(db, "my puppy sleeps on the sofa", "a hound in the yard")
    embedded(db)
    assert len(search_once(db, "小犬")) == 2
    assert BLOCKS.held_bytes > 0
    forget(db, tmp_path / "erasures.jsonl", [gone])
    assert BLOCKS.held_bytes == 0
    assert search_once(db, "小犬") == ["a hound in the yard"]


def test_a_cancelled_search_stops_its_scan(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    say(db, "a dog")
    embedded(db)
    started, stopped = threading.Event(), threading.Event()

    class Endless:
        def __init__(self, *args: object, should_stop: Callable[[], bool], **kwargs: object) -> None:
            self.should_stop = should_stop

        def finish_ids(self) -> None:
            started.set()
            while not self.should_stop():
                pass
            stopped.set()

    monkeypatch.setattr("pikobot.store.similarity.Scan", Endless)

    async def cancel() -> None:
        task = asyncio.create_task(found(db, questions(db, engine(Meaning())), "dog"))
        assert await asyncio.to_thread(started.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert stopped.is_set()
