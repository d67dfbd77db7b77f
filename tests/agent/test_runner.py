import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.chat import CallFailure, Completion, Message
from pikobot.agent import events, runs
from pikobot.agent.runner import Runner
from pikobot.agent.runs import Limits
from pikobot.errors import BudgetExceeded, InvalidParams, PikobotError
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.scopes import owner_scope
from tests.agent.playing import HANG, PlayedModel, call, fails, says
from tests.agent.running import (
    accept,
    answers,
    attempts,
    brain,
    claim,
    end_of,
    everything,
    rows,
    running,
    states,
)
from tests.memory.remembering import opened, say


def play(tmp_path: Path, scene: Callable[[Database], Coroutine[Any, Any, None]]) -> None:
    with opened(tmp_path) as db:
        asyncio.run(scene(db))


def test_an_answer_streams_is_retained_and_ends(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, PlayedModel([says("To Porto.")])) as runner:
            happened = await everything(await runner.ask("Where did I move?"))
        text = "".join(event.text for event in happened if isinstance(event, events.TextDelta))
        assert (text, happened[-1]) == ("To Porto.", events.RunEnded(State.SUCCEEDED, "To Porto."))
        assert (answers(db), states(db)) == ([("To Porto.", False)], [("succeeded", None)])

    play(tmp_path, scene)


def test_a_tool_reads_memory_and_the_answer_depends_on_what_it_read(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(
            db, PlayedModel([says("", call("memory_search", '{"query":"Porto"}')), says("Yes.")])
        ) as runner:
            assert (await end_of(await runner.ask("Porto?"))).state is State.SUCCEEDED
        sql = """
            SELECT t.text FROM source_dependencies AS d JOIN sources AS t ON t.id = d.depends_on_id
            JOIN sources AS a ON a.id = d.source_id WHERE a.role = 'assistant' ORDER BY t.id
        """
        assert rows(db, sql) == [("I moved to Porto",), ("Porto?",)]

    with opened(tmp_path) as db:
        say(db, "I moved to Porto", "My cat is called Miso")
        asyncio.run(scene(db))


def test_one_thread_answers_in_order_while_others_go_on(tmp_path: Path) -> None:
    model = PlayedModel()
    ended: list[str] = []
    slow_may_end = asyncio.Event

    async def scene(db: Database) -> None:
        gate = slow_may_end()

        async def gated(tool_call: Any) -> None:
            await gate.wait()

        def turn(messages: Any, allow_tools: bool) -> Completion:
            return says(f"re: {messages[-1].content.rpartition('] ')[2]}")

        model.play = turn
        stream = model.stream

        async def slow_stream(messages: Any, tools: Any, **options: Any) -> Any:
            if messages[-1].content.endswith("slow"):
                await gated(None)
            async for item in stream(messages, tools, **options):
                yield item

        model.stream = slow_stream  # type: ignore[method-assign]  # the scene decides when the slow one goes on

        async def follow(name: str, answering: Any) -> None:
            assert (await end_of(answering)).text == f"re: {name}"
            ended.append(name)

        async with running(db, model) as runner, asyncio.timeout(30):
            slow = asyncio.create_task(follow("slow", await runner.ask("slow", thread_key="a")))
            second = asyncio.create_task(follow("second", await runner.ask("second", thread_key="a")))
            await follow("other", await runner.ask("other", thread_key="b"))
            assert ended == ["other"]
            gate.set()
            await asyncio.gather(slow, second)
        assert ended == ["other", "slow", "second"]

    play(tmp_path, scene)


def test_a_stopped_answer_is_not_kept_and_the_next_one_goes_on(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        model = PlayedModel([HANG, says("next")])
        async with running(db, model) as runner:
            first = await runner.ask("one", thread_key="a")
            second = await runner.ask("two", thread_key="a")
            await model.started.wait()
            for _ in range(3):
                await first.stop()
            assert await end_of(first) == events.RunEnded(State.CANCELLED, "")
            assert (await end_of(second)).text == "next"
            await first.stop()
        assert states(db) == [("cancelled", "stopped"), ("succeeded", None)]
        assert answers(db) == [("next", False)]
        assert model.requests[1][1].content.endswith("one")
        assert [state for state, *_ in attempts(db)] == ["unknown", "succeeded"]

    play(tmp_path, scene)


def test_a_waiting_run_is_cancelled_without_a_call(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        model = PlayedModel([HANG])
        async with running(db, model) as runner:
            first = await runner.ask("one", thread_key="a")
            second = await runner.ask("two", thread_key="a")
            await model.started.wait()
            await second.stop()
            assert await end_of(second) == events.RunEnded(State.CANCELLED, "")
            assert await runner.stop_thread(first.thread_id) == 1
            assert (await end_of(first)).state is State.CANCELLED
            assert await runner.stop_thread(first.thread_id) == 0
            assert await runner.stop_thread("thr_none") == 0
        assert len(model.requests) == 1

    play(tmp_path, scene)


async def _moments(count: int) -> None:
    """Let the event loop turn, then let the other threads work."""
    for number in range(count):
        await asyncio.sleep(0 if number < 20 else 0.0005)


def test_stopping_at_any_moment_ends_with_what_was_committed(tmp_path: Path) -> None:
    async def stop_after(db: Database, moments: int) -> State:
        async with running(db, PlayedModel([says("done"), says("next")])) as runner:
            answering = await runner.ask("one", thread_key=f"t{moments}")
            await _moments(moments)
            await asyncio.gather(answering.stop(), answering.stop())
            ended = await end_of(answering)
            assert (await end_of(await runner.ask("two", thread_key=f"t{moments}"))).state is State.SUCCEEDED
        assert ended.text == ("done" if ended.state is State.SUCCEEDED else "")
        found = rows(
            db,
            f"""
            SELECT r.state, s.text FROM runs AS r LEFT JOIN sources AS s ON s.run_id = r.id AND s.role = 'assistant'
            WHERE r.public_id = '{answering.run_id}'
            """,
        )
        assert found == [(ended.state, "done" if ended.state is State.SUCCEEDED else None)]
        return ended.state

    async def scene(db: Database) -> None:
        ends = {await stop_after(db, moments) for moments in range(40)}
        assert State.CANCELLED in ends <= {State.CANCELLED, State.SUCCEEDED}

    play(tmp_path, scene)


def test_leaving_at_any_moment_leaves_no_lease_behind(tmp_path: Path) -> None:
    async def leave_after(db: Database, moments: int) -> None:
        async with running(db, PlayedModel([says("done")]), serves_all=False) as runner:
            await runner.ask("one")
            await _moments(moments)
        [(state, claims)] = rows(db, "SELECT state, claims FROM runs ORDER BY id DESC LIMIT 1")
        assert (state, claims) in [("queued", 0), ("unknown", 1), ("succeeded", 1)]
        assert "started" not in [state for state, *_ in attempts(db)]

    async def scene(db: Database) -> None:
        for moments in range(40):
            await leave_after(db, moments)

    play(tmp_path, scene)


def test_a_truncated_answer_is_kept_as_partial_and_marked_in_the_next_turn(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        model = PlayedModel([fails(CallFailure.TRUNCATED, after="I think th"), says("Sorry.")])
        async with running(db, model) as runner:
            ended = await end_of(await runner.ask("one", thread_key="a"))
            assert (ended.state, ended.text, ended.is_partial) == (State.UNKNOWN, "I think th", True)
            assert isinstance(ended.error, PikobotError)
            await end_of(await runner.ask("two", thread_key="a"))
        assert answers(db) == [("I think th", True), ("Sorry.", False)]
        assert Message("assistant", "I think th […]") in model.requests[1]

    play(tmp_path, scene)


def test_a_whole_answer_that_takes_too_long_ends_unknown(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, PlayedModel([HANG]), run_timeout_s=0.05) as runner:
            ended = await end_of(await runner.ask("one"))
        assert (ended.state, ended.text, ended.is_partial) == (State.UNKNOWN, "half", True)
        assert "chat.run_timeout_s = 0.05" in str(ended.error)
        assert (states(db), attempts(db)) == ([("unknown", "deadline")], [("unknown", None, "interrupted")])

    play(tmp_path, scene)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"limits": Limits(run_microusd=1, workspace_month_microusd=10**9)}, "budget.run_usd"),
        (
            {"limits": Limits(run_microusd=10**9, workspace_month_microusd=1)},
            "budget.workspace_usd_per_month",
        ),
        ({"prices": None}, "set chat.price_input"),
    ],
)
@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_a_budget_refuses_before_the_provider_hears_of_it(
    tmp_path: Path, changes: dict[str, Any], reason: str, is_ephemeral: bool
) -> None:
    async def scene(db: Database) -> None:
        model = PlayedModel([says("never")])
        async with running(db, model, **changes) as runner:
            ended = await end_of(await (runner.ask_ephemeral if is_ephemeral else runner.ask)("one"))
        assert (ended.state, ended.text) == (State.FAILED, "")
        assert isinstance(ended.error, BudgetExceeded)
        assert reason in str(ended.error)
        assert (model.requests, attempts(db)) == ([], [])
        assert states(db) == ([] if is_ephemeral else [("failed", "budget_exceeded")])

    play(tmp_path, scene)


def test_an_empty_answer_is_a_failure(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, PlayedModel([says(" \n")])) as runner:
            ended = await end_of(await runner.ask("one"))
        assert ended.state is State.FAILED
        assert "empty answer" in str(ended.error)

    play(tmp_path, scene)


def test_a_run_that_was_taken_over_keeps_nothing(tmp_path: Path) -> None:
    def take_over(db: Database) -> None:
        with db.write("take over") as tx:
            tx.execute("UPDATE runs SET state = 'failed', lease_token = NULL, lease_expires_at_ms = NULL")

    async def scene(db: Database) -> None:
        def turn(messages: Any, allow_tools: bool) -> Completion:
            db.perform(take_over)
            return says("late", call("memory_search", '{"query":"x"}'))

        async with running(db, PlayedModel(play=turn)) as runner:
            assert await end_of(await runner.ask("one")) == events.RunEnded(State.FAILED, "")
        assert answers(db) == []
        assert rows(db, "SELECT count(*) FROM run_transcript") == [(0,)]

    play(tmp_path, scene)


def test_what_lost_a_source_is_answered_again_or_can_be_stopped(tmp_path: Path) -> None:
    def requeue(db: Database) -> None:
        with db.write("forget something") as tx:
            tx.execute("UPDATE runs SET state = 'queued', lease_token = NULL, lease_expires_at_ms = NULL")

    async def scene(db: Database) -> None:
        def turn(messages: Any, allow_tools: bool) -> Completion:
            if len(model.requests) == 1:
                db.perform(requeue)
            return says(f"answer {len(model.requests)}")

        model = PlayedModel(play=turn)
        async with running(db, model) as runner:
            happened = await everything(await runner.ask("one"))
        assert happened[-1] == events.RunEnded(State.SUCCEEDED, "answer 2")
        assert [type(event) for event in happened].count(events.Notice) == 1
        assert answers(db) == [("answer 2", False)]

    play(tmp_path, scene)


def test_a_failure_that_nobody_foresaw_ends_the_run_and_tells_the_place_alone(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        def turn(messages: Any, allow_tools: bool) -> Completion:
            raise ZeroDivisionError("what the owner said")

        async with running(db, PlayedModel(play=turn)) as runner:
            for ask in (runner.ask, runner.ask_ephemeral):
                ended = await end_of(await ask("one"))
                assert ended.state in (State.UNKNOWN, State.FAILED)
                assert "ZeroDivisionError at test_runner.py" in str(ended.error)
                assert "owner said" not in str(ended.error)
        assert states(db) == [("unknown", "internal")]
        assert [state for state, *_ in attempts(db)] == ["unknown", "unknown"]

    play(tmp_path, scene)


def test_an_ephemeral_request_leaves_its_account_and_nothing_else(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        model = PlayedModel([says("secret answer"), HANG])
        async with running(db, model) as runner:
            assert await end_of(await runner.ask_ephemeral("secret")) == events.RunEnded(
                State.SUCCEEDED, "secret answer"
            )
            model.started.clear()
            answering = await runner.ask_ephemeral("secret")
            await model.started.wait()
            await answering.stop()
            assert await end_of(answering) == events.RunEnded(State.CANCELLED, "")
            assert (
                await end_of(await runner.ask_ephemeral("again"))
            ).state is State.FAILED  # no turn is left
        assert [rows(db, f"SELECT count(*) FROM {table}") for table in ("sources", "runs", "threads")] == [
            [(0,)]
        ] * 3
        assert [state for state, *_ in attempts(db)] == ["succeeded", "unknown", "unknown"]

    play(tmp_path, scene)


def test_text_that_cannot_be_stored_is_refused_before_anything_is(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, None) as runner:
            for text in ("a\0b", "caf\udce9"):
                for ask in (runner.ask, runner.ask_ephemeral):
                    with pytest.raises(InvalidParams):
                        await ask(text)
            with pytest.raises(InvalidParams):
                await runner.ask("fine", thread_key="caf\udce9")
        assert states(db) == []

    play(tmp_path, scene)


def test_recall_mode_answers_and_depends_on_what_it_quotes(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, None) as runner:
            assert (runner.mode, runner.model) == ("recall", None)
            assert (await end_of(await runner.ask("我搬到波尔图了", thread_key="a"))).text == "已记下。"
            assert (
                "“我搬到波尔图了”" in (await end_of(await runner.ask("我搬到哪里了？", thread_key="a"))).text
            )
        assert rows(db, "SELECT source_id, depends_on_id FROM source_dependencies ORDER BY 1, 2") == [
            (2, 1),
            (4, 1),
            (4, 3),
        ]

    play(tmp_path, scene)


def test_what_a_crash_left_is_answered_on_the_next_start_and_only_once(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        await db.perform_async(runs.recover)
        model = PlayedModel([says("one"), says("two")])
        runner = Runner(db, brain(model), owner_scope(), message_days=0, serves_all=True)
        async with asyncio.timeout(30):
            await runner.serve(until_idle=True)
        assert answers(db) == [("one", False), ("two", False)]
        assert await runner.is_idle()

    with opened(tmp_path) as db:
        accept(db, "claimed", "a")
        accept(db, "queued", "b")
        claim(db)
        asyncio.run(scene(db))


def test_a_single_question_works_only_on_its_own_thread(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, PlayedModel([says("mine")]), serves_all=False) as runner:
            assert (await end_of(await runner.ask("mine", thread_key="a"))).text == "mine"
        assert states(db) == [("queued", None), ("succeeded", None)]

    with opened(tmp_path) as db:
        accept(db, "left", "b")
        asyncio.run(scene(db))


def test_what_cannot_be_answered_tells_its_follower(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        async with running(db, PlayedModel([])) as runner:
            ended = await end_of(await runner.ask("长" * 200_000))
        assert ended.state is State.FAILED
        assert "chat.context_tokens" in str(ended.error)

    play(tmp_path, scene)


def test_a_database_that_fails_ends_the_worker_with_its_failure(tmp_path: Path) -> None:
    async def scene(db: Database) -> None:
        def drop(db: Database) -> None:
            with db.write("break") as tx:
                tx.execute("DROP TABLE run_transcript")

        await db.perform_async(drop)
        runner = Runner(db, None, owner_scope(), message_days=0, serves_all=True)
        await runner.ask("one")
        with suppress(asyncio.CancelledError), pytest.raises(BaseExceptionGroup):
            await runner.serve(until_idle=True)

    play(tmp_path, scene)
