import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pikobot.agent.indexer import Indexer
from pikobot.memory.embedding import embed
from pikobot.memory.embedding.contract import Embedded, EmbeddingFailed, EmbeddingLimits, Engine
from pikobot.memory.forgetting.forget import forget
from pikobot.store import embedding_jobs
from pikobot.store.attempts import NewAttempt
from pikobot.store.connection import Connection, Database
from pikobot.store.vectors.profiles import active_set, building_set, list_sets
from pikobot.store.vectors.verify import verify_vectors
from tests.memory.conversing import read, write
from tests.memory.learning import learn
from tests.memory.meaning import LIMITS, Meaning, embed_all, engine, found, profile, questions, texts_of
from tests.memory.remembering import NOW_MS, StillClock, opened, say

OWNERS = "SELECT owner_kind, owner_id FROM vectors ORDER BY owner_kind, owner_id"
JOBS = "SELECT state, claims, error_code FROM embedding_jobs ORDER BY id"
ATTEMPTS = "SELECT state, reserved_microusd > 0, cost_microusd FROM attempts ORDER BY id"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def later(db: Database, ms: int) -> None:
    assert isinstance(db.clock, StillClock)
    db.clock.now += ms


def models(db: Database) -> list[tuple[str, str]]:
    with db.read() as conn:
        return [(each.profile.model, each.state.value) for each in list_sets(conn)]


def findings(db: Database) -> list[str]:
    with db.read() as conn:
        return verify_vectors(conn)


def test_sources_and_facts_get_their_vectors_once_each(db: Database) -> None:
    ids = say(db, "my puppy", "去看了大夫", "   ")
    learn(db, "The owner has a dog", ids[0])
    meaning = Meaning()
    asyncio.run(embed_all(db, engine(meaning)))
    asyncio.run(embed_all(db, engine(meaning)))
    assert meaning.sent == [["owner: my puppy", "owner: 去看了大夫"], ["The owner has a dog"]]
    assert read(db, OWNERS) == [("fact", 1), ("source", 1), ("source", 2)]
    assert read(db, JOBS) == []
    assert read(db, ATTEMPTS) == []
    assert findings(db) == []


def test_batches_are_small_and_of_one_workspace(db: Database) -> None:
    say(db, *(f"dog {number}" for number in range(5)))
    meaning = Meaning()
    asyncio.run(embed_all(db, engine(meaning, batch=2)))
    assert [len(batch) for batch in meaning.sent] == [2, 2, 1]


def test_each_call_of_a_provider_is_reserved_and_accounted_for(db: Database) -> None:
    say(db, "my puppy")
    asyncio.run(embed_all(db, engine(Meaning(), price="20")))
    assert read(db, ATTEMPTS) == [("succeeded", 1, 20 * len("owner: my puppy"))]


def test_a_budget_that_is_reached_stops_embedding_and_says_so(db: Database) -> None:
    say(db, "my puppy")
    meaning = Meaning()
    made = engine(meaning, price="20")
    indexer = asyncio.run(embed_all(db, made, EmbeddingLimits(day_microusd=10, workspace_month_microusd=10)))
    assert meaning.sent == []
    assert "budget.background_usd_per_day" in str(indexer.problem)
    assert read(db, JOBS) == [("queued", 0, None)]
    unpriced = replace(made, price=None, price_remedy="set embedding.price")
    assert asyncio.run(embed_all(db, unpriced)).problem == "set embedding.price"
    asyncio.run(embed_all(db, made))
    assert read(db, OWNERS) == [("source", 1)]


def test_a_failing_provider_makes_embedding_rest_longer_each_time_and_loses_nothing(db: Database) -> None:
    say(db, "my puppy")
    meaning = Meaning(failure=EmbeddingFailed("no connection", code="unreachable"))
    indexer = Indexer(db, engine(meaning, price="1"), LIMITS)

    async def work() -> None:
        for wait_ms, calls in ((0, 1), (14_999, 1), (1, 2), (59_999, 2), (1, 3)):
            later(db, wait_ms)
            await indexer.serve(until_idle=True)
            assert len(meaning.sent) == calls
        assert indexer.problem == "embedding failed (unreachable): no connection"
        meaning.failure = None
        later(db, 3_600_000)
        await indexer.serve(until_idle=True)

    asyncio.run(work())
    assert indexer.problem is None
    assert read(db, OWNERS) == [("source", 1)]
    assert [row[0] for row in read(db, ATTEMPTS)] == ["failed"] * 3 + ["succeeded"]


def test_what_may_have_been_charged_is_not_sent_again_until_the_owner_asks(db: Database) -> None:
    say(db, "my puppy")
    failure = EmbeddingFailed("no answer", code="timed_out", may_have_charged=True)
    meaning = Meaning(failure=failure)
    made = engine(meaning, price="1")
    asyncio.run(embed_all(db, made))
    meaning.failure = None
    later(db, 3_600_000)
    asyncio.run(embed_all(db, made))
    assert len(meaning.sent) == 1
    assert read(db, JOBS) == [("unknown", 1, "interrupted")]
    assert [row[0] for row in read(db, ATTEMPTS)] == ["unknown"]
    with db.read() as conn:
        serving = active_set(conn)
        assert serving is not None
        assert embed.progress(conn, serving, now_ms=NOW_MS).batches.unknown == 1
    write(db, embedding_jobs.requeue)
    asyncio.run(embed_all(db, made))
    assert read(db, OWNERS) == [("source", 1)]


def test_a_text_that_can_not_be_embedded_stands_alone_after_three_tries_and_the_others_have_vectors(
    db: Database,
) -> None:
    say(db, "my puppy", "the poison", "a car")
    meaning = Meaning(poison="poison")
    for _ in range(5):
        asyncio.run(embed_all(db, engine(meaning)))
        later(db, 3_600_000)
    assert read(db, OWNERS) == [("source", 1), ("source", 3)]
    assert read(db, JOBS) == [("failed", 3, "refused_request")]
    assert [len(batch) for batch in meaning.sent] == [3, 1, 1, 1, 1]


def test_vectors_that_can_not_be_stored_fail_visibly(db: Database) -> None:
    say(db, "my puppy")

    class Zero(Meaning):
        async def embed_passages(self, texts: Sequence[str]) -> Embedded:
            return Embedded([[0.0] * profile().dimension for _ in texts], 1)

    for _ in range(4):
        asyncio.run(embed_all(db, engine(Zero())))
        later(db, 3_600_000)
    assert read(db, JOBS) == [("failed", 3, "unusable_vector")]


def test_what_is_erased_while_it_is_embedded_gets_no_vector(db: Database, tmp_path: Path) -> None:
    gone, _ = say(db, "my puppy", "a car")

    class Forgetful(Meaning):
        async def embed_passages(self, texts: Sequence[str]) -> Embedded:
            if len(texts) == 2:
                await asyncio.to_thread(forget, db, tmp_path / "erasures.jsonl", [gone])
            return await super().embed_passages(texts)

    asyncio.run(embed_all(db, engine(Forgetful())))
    assert read(db, OWNERS) == [("source", 2)]
    assert read(db, JOBS) == []


def test_what_changes_while_it_is_embedded_is_embedded_as_it_is_then(db: Database) -> None:
    say(db, "my puppy")

    class Editing(Meaning):
        async def embed_passages(self, texts: Sequence[str]) -> Embedded:
            if not self.sent:
                await asyncio.to_thread(write, db, _edit)
            return await super().embed_passages(texts)

    meaning = Editing()
    asyncio.run(embed_all(db, engine(meaning)))
    assert meaning.sent == [["owner: my puppy"], ["owner: my automobile"]]
    assert texts_of(asyncio.run(found(db, questions(db, engine(Meaning())), "car"))) == ["my automobile"]


def _edit(tx: Connection) -> None:
    tx.execute("UPDATE sources SET text = 'my automobile'")


def test_a_new_profile_is_filled_beside_the_one_that_serves_and_then_takes_its_place(db: Database) -> None:
    say(db, *(f"dog {number}" for number in range(6)))
    old, new = Meaning(), Meaning()
    asyncio.run(embed_all(db, engine(old)))
    made = engine(new, "meaning-2", batch=2)
    indexer = Indexer(db, made, LIMITS)

    async def step_by_step() -> None:
        assert await indexer.embed_next()
        assert models(db) == [("meaning-1", "serving"), ("meaning-2", "building")]
        # The old vectors answer while their embedder can be had.
        page = await found(db, questions(db, made, engine(old)), "狗")
        assert (len(texts_of(page)), page.degraded) == (6, None)
        without = await found(db, questions(db, made), "狗")
        assert "meaning-1" in str(without.degraded)
        # Another process goes on where this one stood.
        await embed_all(db, made)

    asyncio.run(step_by_step())
    assert models(db) == [("meaning-2", "serving")]
    assert [len(batch) for batch in new.sent] == [2, 2, 2]
    assert read(db, "SELECT count(*) FROM embedding_marks") == [(1,)]
    assert findings(db) == []


def test_a_profile_that_is_set_back_keeps_its_vectors(db: Database) -> None:
    say(db, "dog 1", "dog 2", "dog 3")
    meaning = Meaning()
    asyncio.run(embed_all(db, engine(meaning)))
    half = Indexer(db, engine(Meaning(), "meaning-2", batch=1), LIMITS)
    assert asyncio.run(half.embed_next())
    asyncio.run(embed_all(db, engine(meaning)))
    assert models(db) == [("meaning-1", "serving")]
    assert len(meaning.sent) == 1


def test_a_set_whose_batches_failed_does_not_take_the_place_of_a_whole_one(db: Database) -> None:
    say(db, *(f"dog {number}" for number in range(150)))
    asyncio.run(embed_all(db, engine(Meaning())))
    failing = Meaning(failure=EmbeddingFailed("no", code="refused_request", is_about_text=True))
    for _ in range(4):
        asyncio.run(embed_all(db, engine(failing, "meaning-2", batch=150)))
        later(db, 3_600_000)
    with db.read() as conn:
        building = building_set(conn)
    assert building is not None
    assert models(db) == [("meaning-1", "serving"), ("meaning-2", "building")]


def test_stopping_gives_a_batch_back_unless_it_may_have_been_charged(db: Database) -> None:
    say(db, "my puppy")

    called = asyncio.Event()

    class Slow(Meaning):
        async def embed_passages(self, texts: Sequence[str]) -> Embedded:
            called.set()
            await asyncio.Event().wait()
            raise AssertionError

    def stop(made: Engine) -> None:
        async def run() -> None:
            nonlocal called
            called = asyncio.Event()
            task = asyncio.create_task(Indexer(db, made, LIMITS).serve())
            await called.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(run())

    stop(engine(Slow()))
    assert read(db, JOBS) == [("queued", 0, None)]
    stop(engine(Slow(), price="1"))
    assert read(db, JOBS) == [("unknown", 1, "interrupted")]


def test_after_a_crash_local_batches_are_due_and_charged_ones_unknown(db: Database) -> None:
    say(db, "my puppy", "a car")
    made = engine(Meaning(), price="1", batch=1)
    one = db.perform(embed.claim_batch, made.profile, limit=1, lease_ms=60_000)
    two = db.perform(embed.claim_batch, made.profile, limit=1, lease_ms=60_000)
    assert isinstance(one, embed.ClaimedBatch)
    assert isinstance(two, embed.ClaimedBatch)
    new = NewAttempt(run_id=None, workspace="main", purpose="embed", model="m", reserved_microusd=5)
    assert db.perform(embed.begin_call, two.lease, new, LIMITS) is not None
    assert db.perform(embed.recover_batches) == 1
    assert read(db, JOBS) == [("queued", 0, None), ("unknown", 1, "interrupted")]
    assert read(db, ATTEMPTS) == [("unknown", 1, None)]
