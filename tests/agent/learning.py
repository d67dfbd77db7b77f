"""Extraction jobs in a real database, worked off with a model that a function plays."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pikobot.agent.learner import Learner
from pikobot.memory.extract import LearningLimits, queue_sources
from pikobot.store.connection import Database
from pikobot.store.sources import find_source
from tests.agent.playing import PlayedModel, Turn, says
from tests.agent.running import brain, rows
from tests.memory.learning import fact
from tests.servers.openai_steps import extraction_answer

WIDE = LearningLimits(day_microusd=10**9, workspace_month_microusd=10**9, calls_per_hour=10**6)
DEADLINE_S = 120


def queue(db: Database, *public_ids: str) -> int:
    """Queue the sources for extraction; returns how many jobs."""

    def operation(db: Database) -> int:
        with db.write("queue") as tx:
            found = [find_source(tx, public_id, now_ms=0) for public_id in public_ids]
            assert None not in found
            return queue_sources(
                tx, [each for each in found if each is not None], run_id=None, clock=db.clock
            )

    return db.perform(operation)


def learner(
    db: Database,
    model: PlayedModel,
    limits: LearningLimits = WIDE,
    on_learned: Callable[[], None] = lambda: None,
    **changes: Any,
) -> Learner:
    return Learner(db, brain(model, **changes), limits, on_learned)


def learn(db: Database, model: PlayedModel, limits: LearningLimits = WIDE, **changes: Any) -> Learner:
    """Work until nothing can be done now."""
    made = learner(db, model, limits, **changes)

    async def work() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await made.serve(until_idle=True)

    asyncio.run(work())
    assert made.unavailable is None
    return made


def extracting(*elements: dict[str, Any]) -> PlayedModel:
    """Answers every batch with these elements, by the ids of its messages."""

    def play(messages: Sequence[Any], allow_tools: bool) -> Turn:
        return says(extraction_answer(list(elements), "\n".join(message.content for message in messages)))

    return PlayedModel(play=play)


def element(text: str, *quotes: tuple[str, str], **changes: Any) -> dict[str, Any]:
    """An element about the owner; quotes are pairs such as ("owner:last", "I moved")."""
    evidence = [{"source_id": source, "quote": quote} for source, quote in quotes]
    return {"text": text, "subject": "owner", "kind": "fact", "evidence": evidence, **changes}


def jobs(db: Database) -> list[tuple[Any, ...]]:
    return rows(
        db, "SELECT state, outcome, error_code, stored_facts, claims FROM extraction_jobs ORDER BY id"
    )


def attempt_states(db: Database) -> list[str]:
    return [row[0] for row in rows(db, "SELECT state FROM attempts ORDER BY id")]


def fact_texts(db: Database) -> list[str]:
    return [row[0] for row in rows(db, "SELECT text FROM facts ORDER BY id")]


def rejections(db: Database) -> dict[str, int]:
    return dict(
        rows(db, "SELECT reason, sum(count) FROM extraction_rejections GROUP BY reason ORDER BY reason")
    )


async def stopped_after(made: Learner, moments: int) -> None:
    """Work, and stop as the end of the program does, after the event loop has turned so many times."""
    working = asyncio.create_task(made.serve(until_idle=True))
    for number in range(moments):
        if working.done():
            break
        await asyncio.sleep(0 if number < 20 else 0.0005)
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working


def prompt_of(model: PlayedModel, number: int = 0) -> str:
    return model.requests[number][-1].content


def section(prompt: str, title: str) -> str:
    return prompt.partition(f"## {title}\n")[2].partition("\n\n")[0]


def stored(db: Database) -> list[tuple[Any, ...]]:
    """Text, subject, kind, event time, and the evidence as (role, speaker, quote); context as texts."""
    found = []
    for (public_id,) in rows(db, "SELECT public_id FROM facts ORDER BY id"):
        text = fact(db, public_id)
        said = [(each.role, each.speaker, each.quote) for each in text.evidence]
        needed = [each.quote for each in text.context]
        kept = text.fact
        assert (kept.basis, kept.status) == ("inferred", "stored")
        found.append((kept.text, kept.subject, kept.kind, kept.event_time, said, needed))
    return found
