"""A message that is edited while it waits for its answer, while it is answered, and afterwards."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pikobot.adapters.chat import Message
from pikobot.agent.runner import Answering
from pikobot.memory.edits import Edited, edit_source
from pikobot.store.connection import Database
from pikobot.store.leases import State
from tests.agent.playing import HANG, PlayedModel, Turn, says
from tests.agent.running import answers, attempts, end_of, rows, running, states
from tests.memory.remembering import StillClock, opened

OLD, NEW = "我住在里斯本吗？ I live in Lisbon", "我住在波尔图吗？ I live in Porto"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path, StillClock()) as database:
        yield database


def edit(db: Database) -> None:
    """Edit the message that has the old text; blocks."""
    [(public_id,)] = rows(db, f"SELECT public_id FROM sources WHERE text = '{OLD}'")
    assert isinstance(edit_source(db, db.path.with_name("erasures.jsonl"), public_id, NEW), Edited)


def seen(model: PlayedModel) -> list[str]:
    """What the model was sent, a text for each request."""
    return ["\n".join(message.content for message in request) for request in model.requests]


async def answered(answering: Answering) -> State:
    return (await end_of(answering)).state


def test_what_waits_is_answered_from_the_new_text(db: Database) -> None:
    model = PlayedModel([HANG, says("Porto.")])

    async def play() -> None:
        async with running(db, model) as runner:
            first = await runner.ask("wait for me", thread_key="t")
            await model.started.wait()
            second = await runner.ask(OLD, thread_key="t")
            await asyncio.to_thread(edit, db)
            await first.stop()
            assert await answered(second) is State.SUCCEEDED

    asyncio.run(play())
    assert "Lisbon" not in seen(model)[-1]
    assert NEW in seen(model)[-1]


def test_an_answer_to_the_old_text_is_never_kept(db: Database) -> None:
    def turn(messages: Sequence[Message], allow_tools: bool) -> Turn:
        edit(db)
        return says("In Lisbon.")

    model = PlayedModel(play=turn)

    async def play() -> None:
        async with running(db, model) as runner:
            assert await answered(await runner.ask(OLD, thread_key="t")) is State.UNKNOWN

    asyncio.run(play())
    assert answers(db) == []
    assert states(db) == [("unknown", "interrupted")]
    assert attempts(db) == [("unknown", None, "interrupted")]
    assert len(model.requests) == 1


def test_later_answers_know_nothing_of_the_old_text(db: Database) -> None:
    model = PlayedModel([says("In Lisbon, 里斯本."), says("In Porto.")])

    async def play() -> None:
        async with running(db, model) as runner:
            assert await answered(await runner.ask(OLD, thread_key="t")) is State.SUCCEEDED
            await asyncio.to_thread(edit, db)
            assert await answered(await runner.ask("在哪里？", thread_key="t")) is State.SUCCEEDED

    asyncio.run(play())
    assert "Lisbon" not in seen(model)[1]
    assert "里斯本" not in seen(model)[1]
    assert NEW in seen(model)[1]
    assert answers(db) == [("In Porto.", False)]
