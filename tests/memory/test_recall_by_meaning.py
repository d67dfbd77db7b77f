"""Recall mode with vectors: what no word finds is found by meaning, said to be that, and only when it is near."""

import asyncio
from collections.abc import Sequence

import pytest

from pikobot.agent.indexer import MAX_CAUGHT_UP, Indexer
from pikobot.memory.embedding.query_vectors import QueryEmbedder
from pikobot.memory.recall.answers import MemoryAnswer, answer_from_memory
from pikobot.memory.recall.nearness import usual_nearness
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, find_scope, owner_scope
from tests.memory.conversing import read
from tests.memory.meaning import LIMITS, Meaning, embed_all, engine, profile, questions
from tests.memory.remembering import NOW_MS, say

NEAREST = {
    "en": "No statement answers that in these words; in meaning these are the nearest:",
    "zh": "没有原话用这些词回答，意思最接近的是：",
}


def answer(db: Database, question: str, scope: Scope | None = None) -> MemoryAnswer:
    asked = asyncio.run(questions(db, engine(Meaning())).ask(question))
    with db.read() as conn:
        return answer_from_memory(
            conn,
            question,
            scope_id=find_scope(conn, scope or owner_scope()),
            request_id=None,
            now_ms=NOW_MS,
            meaning=asked.vector,
        )


def quoted(found: MemoryAnswer) -> Sequence[str]:
    return [line.partition("“")[2].rstrip("”") for line in found.text.splitlines()[1:]]


def embedded(db: Database, *texts: str) -> None:
    say(db, *texts)
    asyncio.run(embed_all(db, engine(Meaning())))


@pytest.mark.parametrize(("question", "language"), [("Where is the hound?", "en"), ("小犬在哪里？", "zh")])
def test_what_no_word_finds_is_quoted_as_the_nearest_in_meaning(
    db: Database, question: str, language: str
) -> None:
    embedded(db, "my puppy sleeps on the sofa", "去看了大夫", "the automobile is red")
    found = answer(db, question)
    assert found.text.splitlines()[0] == NEAREST[language]
    assert quoted(found) == ["my puppy sleeps on the sofa"]
    assert len(found.source_ids) == 1


def test_words_come_first(db: Database) -> None:
    embedded(db, "my puppy sleeps on the sofa", "the hound is a kind of animal")
    found = answer(db, "Where is the hound?")
    assert found.text.splitlines()[0] == "This is what was said:"
    assert quoted(found) == ["the hound is a kind of animal"]


def test_what_is_near_in_meaning_comes_before_what_speaks_of_somebody_else(db: Database) -> None:
    embedded(db, "my puppy sleeps on the sofa", "My sister has a hound")
    found = answer(db, "Where is my hound?")
    assert found.text.splitlines()[0] == NEAREST["en"]
    assert [text for text in quoted(found) if text] == [
        "my puppy sleeps on the sofa",
        "My sister has a hound",
    ]


def test_nothing_is_quoted_that_is_not_near(db: Database) -> None:
    embedded(db, "my puppy sleeps on the sofa", "the automobile is red")
    assert "I found no statement" in answer(db, "When did I see a physician?").text
    assert "没有找到" in answer(db, "旅行去了哪里？").text


def test_neither_answers_nor_questions_nor_other_scopes_are_quoted(db: Database) -> None:
    group = Scope("shared", "main", "bot", "-100", "7")
    say(db, "The dog is fine.", role="assistant")
    say(db, "a dog of the group", scope=group)
    embedded(db, "How is my dog?", "the automobile is red")
    assert "I found no statement" in answer(db, "Where is the hound?").text
    assert quoted(answer(db, "Where is the hound?", group)) == ["a dog of the group"]


def test_a_few_are_quoted_each_once(db: Database) -> None:
    embedded(
        db,
        *["a dog barks"] * 3,
        *(f"dog number {number}" for number in range(8)),
        *(f"note {number}" for number in range(20)),
    )
    shown = quoted(answer(db, "Where is the hound?"))
    assert len(shown) == len(set(shown)) == 3


@pytest.mark.parametrize("question", ["Where do I live?", "我住在哪里？"])
def test_nothing_is_quoted_that_is_no_nearer_than_everything_else(db: Database, question: str) -> None:
    embedded(db, "My passport number is X1234567", "护照号码是X1234567", *(f"note {n}" for n in range(30)))
    assert answer(db, question).source_ids == ()


def test_among_very_many_the_usual_nearness_is_that_of_the_whole_set(db: Database) -> None:
    embedded(db, "my puppy sleeps on the sofa", *(f"note {number}" for number in range(600)))
    assert quoted(answer(db, "Where is the hound?")) == ["my puppy sleeps on the sofa"]
    assert answer(db, "Where do I live?").source_ids == ()


def test_what_is_usual_is_presumed_of_few_and_measured_of_many() -> None:
    assert [round(usual_nearness(scores), 2) for scores in ([], [0.9], [0.9] + [0.1] * 95)] == [
        0.25,
        0.25,
        0.11,
    ]


def catching_up(db: Database, meaning: Meaning, *, price: str | None = None) -> QueryEmbedder:
    made = engine(meaning, price=price)
    catch_up = Indexer(db, made, LIMITS).catch_up
    return QueryEmbedder(db, lambda asked: made if asked == profile() else "no", LIMITS, catch_up=catch_up)


def vectors(db: Database) -> int:
    return int(read(db, "SELECT count(*) FROM vectors")[0][0])


def test_a_local_model_embeds_the_little_that_waits_before_a_question(db: Database) -> None:
    meaning = Meaning()
    queries = catching_up(db, meaning)
    for number, text in enumerate(("my puppy", "the automobile"), 1):
        say(db, text)
        assert asyncio.run(queries.ask(f"hound {number}")).vector is not None
        assert vectors(db) == number
    assert meaning.sent == [["owner: my puppy"], ["owner: the automobile"]]


def test_much_that_waits_is_left_to_the_background(db: Database) -> None:
    say(db, *(f"dog number {number}" for number in range(MAX_CAUGHT_UP + 1)))
    asked = asyncio.run(catching_up(db, Meaning()).ask("hound"))
    assert (asked.degraded, vectors(db)) == ("nothing is embedded yet: text search only", 0)


def test_a_hosted_model_is_paid_for_in_the_background_only(db: Database) -> None:
    say(db, "my puppy")
    meaning = Meaning()
    asked = asyncio.run(catching_up(db, meaning, price="1").ask("hound"))
    assert asked.degraded == "nothing is embedded yet: text search only"
    assert (meaning.sent, meaning.asked) == ([], [])


def test_while_vectors_of_another_model_serve_nothing_is_caught_up(db: Database) -> None:
    say(db, "my puppy")
    asyncio.run(embed_all(db, engine(Meaning(), "meaning-0")))
    say(db, "my dog")
    meaning = Meaning()
    asyncio.run(catching_up(db, meaning).ask("hound"))
    assert meaning.sent == []
