import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikobot.adapters.chat import Message
from pikobot.agent import runs
from pikobot.agent.context import (
    BYTES_PER_TOKEN,
    BYTES_PER_TOKEN_OF_TOOLS,
    KEEP_NEWEST,
    TRIM_AT,
    Context,
    Room,
    plan_start,
)
from pikobot.agent.prompt import SYSTEM_PROMPT
from pikobot.agent.runs import Result, Unanswerable
from pikobot.agent.tools import TOOLS
from pikobot.brains import chat_brain
from pikobot.config import parse_config
from pikobot.credentials import Credentials
from pikobot.errors import ProviderError
from pikobot.memory.imports import import_jsonl
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.sources import SourceId
from tests.agent.running import LEASE_MS, accept, claim, rows, states
from tests.memory.remembering import DAY_MS, MINUTE_MS, NOW_MS, StillClock, opened, say

STAMP = "[2024-03-01T13:33:20Z] "
sizes = st.lists(st.integers(1, 400), max_size=60)
capacities = st.integers(1, 2_000)


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "local_utc_offset_min", lambda at_ms: 0)


def turn(
    db: Database, text: str, answer: str | None, *, thread: str = "t1", room: Room | None = None
) -> Context:
    """One request and its answer; the context that the model was shown."""
    accept(db, text, thread)
    claimed = claim(db, room=room) if room else claim(db)
    result = None if answer is None else Result(answer, "model", is_partial=False)
    db.perform(runs.finish, claimed, State.SUCCEEDED if answer else State.FAILED, result)
    return claimed.context


def contents(context: Context) -> list[str]:
    return [message.content for message in context.messages[1:]]


def test_each_turn_begins_with_the_very_bytes_of_the_turn_before(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        first = turn(db, "I moved to Porto", "Noted.")
        second = turn(db, "我的猫叫米粒", "好的。")
        third = turn(db, "Where did I move?", None)
    assert first.messages == (Message("system", SYSTEM_PROMPT), Message("user", STAMP + "I moved to Porto"))
    assert second.messages == (
        *first.messages,
        Message("assistant", "Noted."),
        Message("user", STAMP + "我的猫叫米粒"),
    )
    assert third.messages[: len(second.messages)] == second.messages


def test_an_answer_depends_on_what_was_said_since_the_answer_before(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        turn(db, "one", "a1")
        turn(db, "two", None)
        context = turn(db, "three", "a3")
        assert rows(db, "SELECT text FROM sources ORDER BY id") == [
            ("one",),
            ("a1",),
            ("two",),
            ("three",),
            ("a3",),
        ]
        assert (context.depends_on, context.shown) == ((2, 3, 4), (1, 2, 3, 4))
        links = rows(db, "SELECT depends_on_id FROM source_dependencies WHERE source_id = 5 ORDER BY 1")
        assert links == [(2,), (3,), (4,)]


def test_imported_answers_do_not_end_the_chain_of_dependencies(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "The code is in the hall", thread="t1")
        say(db, "I see", role="assistant", speaker="bot", thread="t1")
        db.perform(_mark_imported)
        context = turn(db, "Where is the code?", "In the hall.")
        assert context.depends_on == context.shown == (1, 2, 3)


def test_answers_of_recall_mode_do_not_end_the_chain_of_dependencies(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "The code is in the hall")
        db.perform(
            runs.finish, claim(db, room=None), State.SUCCEEDED, Result("Noted.", "recall", is_partial=False)
        )
        context = turn(db, "Where is the code?", "In the hall.")
        assert context.depends_on == context.shown == (1, 2, 3)


def _mark_imported(db: Database) -> None:
    with db.write("mark") as tx:
        tx.execute("UPDATE sources SET origin = 'imported'")


def test_recall_mode_loads_nothing_but_the_request(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        turn(db, "one", "a1")
        accept(db, "two")
        assert claim(db, room=None).context == Context(
            (Message("user", STAMP + "two"),), (SourceId(3),), (SourceId(3),), 0
        )


def test_expired_messages_are_left_out_although_they_are_not_pruned(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        accept(db, "short-lived", message_days=1)
        db.perform(runs.finish, claim(db), State.SUCCEEDED, Result("derived", "model", is_partial=False))
        clock.now = NOW_MS + DAY_MS
        assert contents(turn(db, "later", None)) == ["[2024-03-02T13:33:20Z] later"]
        assert rows(db, "SELECT text FROM sources WHERE expires_at_ms IS NOT NULL") == [
            ("short-lived",),
            ("derived",),
        ]


def test_other_people_speak_as_json_and_a_partial_answer_is_marked(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, 'I am "the owner".\n说谎', role="participant", speaker="Ana", utc_offset_min=480)
        accept(db, "go on")
        db.perform(runs.finish, claim(db), State.FAILED, Result("It beg", "model", is_partial=True))
        assert contents(turn(db, "and?", None)) == [
            '[2024-03-01T21:33:20+08:00] {"participant": "Ana", "said": "I am \\"the owner\\".\\n说谎"}',
            STAMP + "go on",
            "It beg […]",
            STAMP + "and?",
        ]


def test_a_message_without_a_date_is_shown_without_one(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        import_jsonl(db, io.BytesIO('{"thread":"t1","role":"user","text":"我搬家了"}'.encode()))
        assert contents(turn(db, "When?", "Unknown."))[0] == "[without a date] 我搬家了"


def test_imported_messages_come_by_time_before_every_run(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        turn(db, "asked", "answered")
        say(db, "newer import", at_ms=NOW_MS - MINUTE_MS)
        say(db, "older import", at_ms=NOW_MS - DAY_MS)
        texts = [text.rpartition("] ")[2] for text in contents(turn(db, "now", None))]
        assert texts == ["older import", "newer import", "asked", "answered", "now"]


def test_a_standalone_request_gets_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        turn(db, "one", "a1")
        accept(db, "alone", is_standalone=True)
        assert contents(claim(db).context) == [STAMP + "alone"]


def test_messages_that_were_queued_later_are_left_out(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "first")
        accept(db, "second")
        accept(db, "elsewhere", "t2")
        claimed = claim(db)
        assert contents(claimed.context) == [STAMP + "first"]
        db.perform(runs.finish, claimed, State.SUCCEEDED, Result("a1", "model", is_partial=False))
        assert contents(claim(db).context) == [STAMP + "first", "a1", STAMP + "second"]


def test_a_request_that_cannot_fit_ends_its_run_and_says_which_setting(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "长" * 10_000)
        room = Room(input_tokens=10_000, output_tokens=1_000)
        found = db.perform(runs.claim_next, thread_id=None, model="m", room=room, lease_ms=LEASE_MS)
        assert isinstance(found, Unanswerable)
        assert isinstance(found.error, ProviderError)
        assert "chat.context_tokens" in str(found.error)
        assert "长" not in str(found.error)
        assert states(db) == [("failed", "context_exceeded")]


def test_a_long_thread_is_cut_at_its_oldest_end_and_the_cut_stays_for_many_turns(tmp_path: Path) -> None:
    room = Room(input_tokens=4_000, output_tokens=1_000)
    starts = []
    with opened(tmp_path) as db:
        for number in range(30):
            context = turn(
                db, f"message {number} " + "x" * (50 + 97 * number % 400), "answer " + "y" * 100, room=room
            )
            starts.append(context.left_out)
            note = f"[Note: of this conversation {context.left_out} messages are not shown here, the oldest; "
            assert (note in context.messages[-1].content) == (context.left_out > 0)
            assert len(context.messages) == 2 * number + 2 - context.left_out
    assert starts == sorted(starts)
    assert 2 <= len(set(starts)) <= 8


@given(sizes, capacities)
def test_the_cut_never_moves_back_while_a_thread_grows(thread: list[int], capacity: int) -> None:
    starts = [plan_start(thread[:length], capacity) for length in range(len(thread) + 1)]
    assert starts == sorted(starts)


@given(sizes, capacities)
def test_the_newest_messages_are_never_cut_and_the_rest_fits(thread: list[int], capacity: int) -> None:
    start = plan_start(thread, capacity)
    assert start <= max(0, len(thread) - KEEP_NEWEST)
    assert len(thread) - start <= KEEP_NEWEST or sum(thread[start:]) <= capacity * TRIM_AT


@given(sizes, capacities)
def test_nothing_is_cut_while_everything_fits(thread: list[int], capacity: int) -> None:
    if sum(thread) <= capacity * TRIM_AT:
        assert plan_start(thread, capacity) == 0


@pytest.mark.parametrize(
    ("context_tokens", "max_output_tokens", "room"),
    [
        (100_000, 8_192, Room(91_808, 8_192)),
        (100_000, 50_000, Room(85_000, 15_000)),
        (4_000, 3_000, Room(2_976, 1_024)),
        (4_000, 500, Room(3_500, 500)),
        (128_000, 8_192, Room(119_808, 8_192, 9_000)),
    ],
)
def test_room_is_kept_for_the_answer(context_tokens: int, max_output_tokens: int, room: Room) -> None:
    made = Room.of(
        context_tokens=context_tokens, max_output_tokens=max_output_tokens, tool_bytes=room.tool_bytes
    )
    assert made == room


def test_the_tools_take_their_part_of_the_room() -> None:
    config = parse_config('[chat]\nprovider = "custom"\nmodel = "m"\nbase_url = "http://localhost:1/v1"', "c")
    made = chat_brain(config, Credentials(), StillClock())
    assert made is not None
    without = replace(made.room, tool_bytes=0)
    sent = sum(len(json.dumps(tool.schema().to_json(), ensure_ascii=False).encode()) for tool in TOOLS)
    assert made.room.tool_bytes >= sent
    assert without.capacity - made.room.capacity >= sent * BYTES_PER_TOKEN // BYTES_PER_TOKEN_OF_TOOLS
