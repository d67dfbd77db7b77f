"""Forgetting in conversation: only the owner's next message carries it out, with a model and without one."""

from pathlib import Path
from typing import Any

import pytest

from pikobot.agent.events import RunEnded
from pikobot.agent.runner import Runner
from pikobot.config_file import default_config_text
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.proposals import CONFIRM_WITHIN_MS
from pikobot.memory.forgetting.wording import (
    kept_text,
    nothing_text,
    nothing_waits_text,
    unclear_text,
    unheeded_text,
)
from pikobot.memory.language.questions import language_of
from pikobot.store.connection import Database
from pikobot.store.leases import State
from tests.agent.playing import PlayedModel, call, says
from tests.agent.running import end_of, in_event_loop, rows, running
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, opened, say

PORTO = "I moved to Porto"
OF_MODEL = "please delete Porto"  # what the program does not read itself
ASKED = {"en": "please forget that I moved to Porto", "zh": "请忘记我搬到波尔图的事"}


def played(query: str = "Porto") -> PlayedModel:
    """Proposes when it is asked to forget, and answers anything else."""

    def play(messages: Any, allow_tools: bool) -> Any:
        if messages[-1].role == "user" and "delete" in messages[-1].content:
            return says("", call("source_forget", f'{{"query": "{query}"}}'))
        return says("Fine.")

    return PlayedModel(play=play)


async def tell(runner: Runner, text: str, thread: str = "t") -> RunEnded:
    return await end_of(await runner.ask(text, thread_key=thread))


def texts(db: Database) -> list[str]:
    return [row[0] for row in rows(db, "SELECT text FROM sources ORDER BY id")]


@pytest.mark.parametrize("model", [None, "model"], ids=["recall", "model"])
@in_event_loop
async def test_a_yes_erases_what_was_shown_the_request_and_its_answer(
    tmp_path: Path, model: str | None
) -> None:
    with opened(tmp_path) as db:
        [porto] = say(db, PORTO, thread="old")
        learn(db, "lives in Porto", porto)
        say(db, "My cat is Miso", thread="old")
        async with running(db, played() if model else None) as runner:
            shown = await tell(runner, OF_MODEL if model else ASKED["en"])
            assert (shown.proposes_erasure, shown.has_erased) == (True, False)
            assert "(3 messages, 2 of requests to forget, 1 fact, 1 conversation)" in shown.text
            assert "- 1 March 2024, you: “I moved to Porto”" in shown.text
            assert len(texts(db)) == 4
            done = await tell(runner, "Yes!")
        assert (done.state, done.proposes_erasure, done.has_erased) == (State.SUCCEEDED, False, True)
        assert done.text.startswith("Forgotten:\n\n- 3 messages\n- 1 fact\n")
        assert "none found" in done.text
        assert texts(db) == ["My cat is Miso"]
        assert rows(db, "SELECT * FROM facts") == rows(db, "SELECT * FROM forget_proposals") == []
        assert b"Porto" not in db.path.read_bytes()


@pytest.mark.parametrize(
    ("said", "request_text", "yes", "shown_line"),
    [
        ("我三月搬到了波尔图", "请忘记我搬到波尔图的事", "是", "- 2024年3月1日，你：“我三月搬到了波尔图”"),
        ("我的牙医是陈医生", "忘记我的牙医", "y", "- 2024年3月1日，你：“我的牙医是陈医生”"),
        (
            "I'm moving to Porto",
            "forget that I moved to Porto",
            "yes",
            "- 1 March 2024, you: “I'm moving to Porto”",
        ),
    ],
)
@in_event_loop
async def test_without_a_model_words_are_found_in_any_form(
    tmp_path: Path, said: str, request_text: str, yes: str, shown_line: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said, "今天天气不错 nice weather", thread="old")
        async with running(db, None) as runner:
            assert shown_line in (await tell(runner, request_text)).text
            done = await tell(runner, yes)
        assert done.text.startswith("Forgotten:" if request_text.isascii() else "已忘记：")
        assert texts(db) == ["今天天气不错 nice weather"]


@pytest.mark.parametrize(
    ("request_text", "left"),
    [
        ("please forget everything I said in March 2024", ["said by Ana in March", "in May"]),
        ("把2024年3月的对话都忘掉", ["in May"]),
        ("删除这个对话", ["in March", "said by Ana in March"]),
        ("forget what I just said", ["in March", "said by Ana in March"]),
        ("forget everything", []),
        ("forget Ana", ["in March", "in May"]),
    ],
)
@in_event_loop
async def test_without_a_model_times_conversations_and_people_can_be_named(
    tmp_path: Path, request_text: str, left: list[str]
) -> None:
    with opened(tmp_path, StillClock(NOW_MS + 200 * DAY_MS)) as db:
        say(db, "in March", at_ms=NOW_MS, thread="old")
        say(db, "said by Ana in March", at_ms=NOW_MS, role="participant", speaker="Ana", thread="old")
        say(db, "in May", at_ms=NOW_MS + 70 * DAY_MS, thread="t")
        async with running(db, None) as runner:
            assert (await tell(runner, request_text)).proposes_erasure
            assert (await tell(runner, "yes")).has_erased
        assert texts(db) == left


@pytest.mark.parametrize(
    ("request_text", "gone"),
    [
        ("forget what I said yesterday about Ana", ["Ana called", "见到了Ana"]),
        ("忘掉我昨天说的关于Ana的话", ["Ana called", "见到了Ana"]),
        ("forget our conversations about Ana from yesterday", ["Ana called", "Ana: fine", "见到了Ana"]),
        ("delete Melanie", ["Melanie paints"]),
        ("把Melanie删了", ["Melanie paints"]),
    ],
)
@in_event_loop
async def test_without_a_model_words_of_a_day_and_names_alone_are_shown_first(
    tmp_path: Path, request_text: str, gone: list[str]
) -> None:
    with opened(tmp_path, StillClock(NOW_MS + DAY_MS)) as db:
        say(db, "Ana moved to Lisbon", at_ms=NOW_MS - 2 * DAY_MS, thread="old")
        said = ("Ana called", "yesterday was fine", "见到了Ana", "Melanie paints")
        say(db, *said, at_ms=NOW_MS, thread="old")
        say(db, "Ana: fine", at_ms=NOW_MS, role="participant", speaker="Bob", thread="old")
        before = texts(db)
        async with running(db, None) as runner:
            shown = await tell(runner, request_text)
            listed = [
                line.partition("“")[2].rstrip("”")
                for line in shown.text.splitlines()
                if line.startswith("- ")
            ]
            assert sorted(listed) == sorted(gone)
            assert shown.proposes_erasure
            assert set(before) <= set(texts(db))
            assert (await tell(runner, "yes")).has_erased
        assert texts(db) == [each for each in before if each not in gone]


@in_event_loop
async def test_a_model_is_asked_about_a_name_alone(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "Melanie paints", thread="old")
        model = played("Melanie")
        async with running(db, model) as runner:
            assert (await tell(runner, "delete Melanie")).must_be_seen


@pytest.mark.parametrize("request_text", ["forget my dentist", "忘记我的牙医", "delete this conversation"])
@in_event_loop
async def test_without_a_model_a_request_is_never_noted_as_a_statement(
    tmp_path: Path, request_text: str
) -> None:
    with opened(tmp_path) as db:
        async with running(db, None) as runner:
            ended = await tell(runner, request_text)
            assert not ended.proposes_erasure
            assert ended.text.startswith(("Nothing that is kept matches", "没有找到匹配的内容"))
            assert (await tell(runner, "yes")).text == nothing_waits_text(language_of(request_text))
            assert texts(db) == [request_text, ended.text]


@pytest.mark.parametrize("request_text", ["forget that I moved to Porto", "忘记我搬到波尔图了"])
@in_event_loop
async def test_nothing_is_learned_from_a_request_to_forget_what_is_not_kept(
    tmp_path: Path, request_text: str
) -> None:
    with opened(tmp_path) as db:
        async with running(db, None, learns=True) as runner:
            await tell(runner, request_text)
            assert rows(db, "SELECT count(*) FROM extraction_jobs") == [(0,)]
            await tell(runner, "I moved to Braga")
        assert rows(db, "SELECT count(*) FROM extraction_jobs") == [(1,)]


@pytest.mark.parametrize(
    ("text", "hint"), [("Forget Paris is a good film", "`/forget TEXT`"), ("忘记带伞", "`/忘记 文字`")]
)
@in_event_loop
async def test_without_a_model_what_may_be_a_request_is_noted_with_the_way_to_erase(
    tmp_path: Path, text: str, hint: str
) -> None:
    with opened(tmp_path) as db:
        async with running(db, None) as runner:
            noted, _, told = (await tell(runner, text)).text.partition("\n\n")
        assert noted in ("Noted.", "已记下。")
        assert hint in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("please delete Melanie", nothing_text("en")),
        ("could you delete this from your notes?", unclear_text("en")),
        ("forget it", unclear_text("en")),
        ("请忘记这件事", unclear_text("zh")),
        ("把小红删了", nothing_text("zh")),
    ],
)
@in_event_loop
async def test_without_a_model_an_unclear_request_is_no_statement(
    tmp_path: Path, text: str, told: str
) -> None:
    with opened(tmp_path) as db:
        async with running(db, None, learns=True) as runner:
            assert (await tell(runner, text)).text == told
            assert "/忘记" in told or "/forget" in told
            for question in ("What about Melanie?", "what notes are there?", "小红是谁？"):
                assert text not in (await tell(runner, question)).text
        assert rows(db, "SELECT count(*) FROM extraction_jobs") == [(4 - 1,)]


@pytest.mark.parametrize("request_text", [ASKED["en"], ASKED["zh"], "forget my dentist"])
@in_event_loop
async def test_with_a_model_a_request_that_is_read_is_not_sent(tmp_path: Path, request_text: str) -> None:
    model = PlayedModel(play=lambda messages, allow_tools: says("I can't."))
    with opened(tmp_path) as db:
        say(db, PORTO, "我搬到波尔图了", thread="old")
        async with running(db, model) as runner:
            ended = await tell(runner, request_text)
            ephemeral = await end_of(await runner.ask_ephemeral(request_text))
        assert (ended.state, ended.proposes_erasure) == (State.SUCCEEDED, "dentist" not in request_text)
        assert "/f" in ephemeral.text or "/忘记" in ephemeral.text
        assert model.requests == []


@pytest.mark.parametrize("answer", ["no", "不要"])
@in_event_loop
async def test_a_no_keeps_everything_and_is_not_kept_itself(tmp_path: Path, answer: str) -> None:
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            await tell(runner, ASKED["en"])
            ended = await tell(runner, answer)
            assert (ended.text, ended.has_erased) == (kept_text("zh" if answer == "不要" else "en"), False)
            assert rows(db, "SELECT * FROM forget_proposals") == []
            assert len(texts(db)) == 3
            assert (await tell(runner, "yes")).text == nothing_waits_text("en")
            assert len(texts(db)) == 3


@pytest.mark.parametrize(
    ("between", "thread"),
    [("what is the weather?", "t"), ("yes but keep the first one", "t"), ("是的，但是留下第一条", "t")],
)
@in_event_loop
async def test_any_other_message_keeps_everything(tmp_path: Path, between: str, thread: str) -> None:
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, played()) as runner:
            await tell(runner, OF_MODEL)
            preface = unheeded_text("en" if between.isascii() else "zh")
            assert (await tell(runner, between, thread)).text == f"{preface}\n\nFine."
            assert (await tell(runner, "yes")).text == "Fine."
        assert PORTO in texts(db)
        assert rows(db, "SELECT count(*) FROM erasures") == [(0,)]


@in_event_loop
async def test_a_yes_in_another_conversation_or_too_late_confirms_nothing(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        say(db, PORTO, thread="old")
        async with running(db, played()) as runner:
            await tell(runner, OF_MODEL)
            assert (await tell(runner, "yes", "other")).text == "Fine."
            assert (await end_of(await runner.ask("yes", is_standalone=True))).text == nothing_waits_text(
                "en"
            )
            clock.now += CONFIRM_WITHIN_MS + 1
            assert (await tell(runner, "yes")).text == nothing_waits_text("en")
            assert (await tell(runner, "是")).text == nothing_waits_text("zh")
        assert PORTO in texts(db)
        assert texts(db).count("yes") == 1  # the one to the other conversation, whose model may have asked


@pytest.mark.parametrize("model", [None, "model"], ids=["recall", "model"])
@pytest.mark.parametrize("answer", ["yes", "no", "是", "不要"])
@in_event_loop
async def test_a_bare_yes_after_a_request_that_found_nothing_says_that_nothing_waits(
    tmp_path: Path, answer: str, model: str | None
) -> None:
    with opened(tmp_path) as db:
        async with running(db, played() if model else None) as runner:
            await tell(runner, "forget my dentist")
            ended = await tell(runner, answer)
        assert ended.text == nothing_waits_text("en" if answer.isascii() else "zh")
        assert (ended.state, ended.proposes_erasure, answer in texts(db)) == (State.SUCCEEDED, False, False)


@in_event_loop
async def test_a_model_cannot_confirm_what_it_has_proposed(tmp_path: Path) -> None:
    def play(messages: Any, allow_tools: bool) -> Any:
        asked = sum(1 for message in messages if message.role == "tool")
        tries = [
            call("source_forget", '{"query": "Porto"}', "1"),
            call("source_forget", '{"query": "Porto", "confirm": true}', "2"),
            call("memory_forget", '{"query": "Porto"}', "3"),
        ]
        return says("yes", tries[asked]) if asked < len(tries) else says("yes")

    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, PlayedModel(play=play)) as runner:
            ended = await tell(runner, OF_MODEL)
        assert ended.proposes_erasure
        assert PORTO in texts(db)
        assert rows(db, "SELECT count(*) FROM erasures") == [(0,)]


@in_event_loop
async def test_requests_that_stand_alone_confirm_one_another(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            await end_of(await runner.ask(ASKED["en"], is_standalone=True))
            assert (await end_of(await runner.ask("yes", is_standalone=True))).has_erased
        assert texts(db) == []


@in_event_loop
async def test_what_has_changed_since_is_shown_again_before_it_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        first, second = say(db, PORTO, "Porto again", thread="old")
        async with running(db, None) as runner:
            await tell(runner, "forget Porto")
            forget(db, tmp_path / "erasures.jsonl", [second])
            again = await tell(runner, "yes")
            assert (again.proposes_erasure, again.has_erased) == (True, False)
            assert again.text.startswith("Nothing was erased: what would go has changed meanwhile.")
            assert "Porto again" not in again.text
            assert PORTO in texts(db)
            assert (await tell(runner, "yes")).has_erased
        assert (texts(db), first != second) == ([], True)


@in_event_loop
async def test_what_is_gone_meanwhile_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [only] = say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            await tell(runner, ASKED["en"])
            forget(db, tmp_path / "erasures.jsonl", [only])
            ended = await tell(runner, "yes")
        assert (ended.has_erased, ended.proposes_erasure) == (False, False)
        assert rows(db, "SELECT * FROM forget_proposals") == []


@in_event_loop
async def test_the_answer_that_quotes_what_was_kept_goes_when_that_is_forgotten_otherwise(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as db:
        [porto] = say(db, "Her city is Porto", thread="old")
        learn(db, "Melanie lives in Porto", porto, subject="Melanie")
        async with running(db, None) as runner:
            assert "Melanie lives in Porto" in (await tell(runner, "forget Porto")).text
            await tell(runner, "no")
        forget(db, tmp_path / "erasures.jsonl", [porto])
        assert texts(db) == ["forget Porto"]
        assert b"Melanie" not in db.path.read_bytes()


@in_event_loop
async def test_after_its_conversation_is_erased_the_next_message_starts_another(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        async with running(db, None) as runner:
            begun = await runner.ask("my code is 4711")
            await end_of(begun)
            await end_of(await runner.ask("delete this conversation", thread_id=begun.thread_id))
            assert (await end_of(await runner.ask("yes", thread_id=begun.thread_id))).has_erased
            assert rows(db, "SELECT * FROM threads") == []
            next_one = await runner.ask("My code is 4712 now", thread_id=begun.thread_id)
            await end_of(next_one)
        assert next_one.thread_id != begun.thread_id
        assert texts(db) == ["My code is 4712 now", "Noted."]


@in_event_loop
async def test_an_ephemeral_request_erases_nothing_and_says_how(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            ended = await end_of(await runner.ask_ephemeral(ASKED["zh"]))
        assert ended.text == "临时对话不能删除记忆：请在普通对话中用 `/忘记 文字`。"
        assert texts(db) == [PORTO]


@pytest.mark.parametrize("is_left", [True, False])
@in_event_loop
async def test_a_find_that_remains_is_told_apart(tmp_path: Path, is_left: bool) -> None:
    (tmp_path / "config.toml").write_text(default_config_text())
    (tmp_path / "notes.log").write_text("moved to Porto" if is_left else "something else")
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            await tell(runner, ASKED["en"])
            done = await tell(runner, "yes")
    assert (done.has_erased, done.leaves_traces) == (True, is_left)
    assert ("notes.log still holds" in done.text) is is_left
