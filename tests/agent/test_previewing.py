"""What a preview of forgetting shows in conversation, and what is said of it when no plain yes comes next."""

from pathlib import Path
from typing import Literal

import pytest

from pikobot.memory.forgetting.preview import preview
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.forgetting.wording import (
    hint_text,
    nothing_text,
    nothing_waits_text,
    unclear_text,
    unheeded_text,
)
from pikobot.memory.language.questions import language_of
from tests.agent.running import in_event_loop, running
from tests.agent.test_confirming import PORTO, tell, texts
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, NOW_MS, opened, say


@pytest.mark.parametrize(
    ("request_text", "between"),
    [
        ("forget Porto", "ok, but keep the first"),
        ("forget Porto", "Where is Porto?"),
        ("请忘记 Porto", "嗯，不过等等"),
    ],
)
@in_event_loop
async def test_without_a_model_what_is_no_plain_yes_is_answered_with_a_word_of_it(
    tmp_path: Path, request_text: str, between: str
) -> None:
    language: Literal["en", "zh"] = "en" if between.isascii() else "zh"
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            await tell(runner, request_text)
            told = (await tell(runner, between)).text
            assert told.startswith(unheeded_text(language) + "\n\n")
            assert unheeded_text(language) not in (await tell(runner, "I like tea")).text
            assert (await tell(runner, "yes")).text == nothing_waits_text("en")
        assert told in texts(db)
        assert PORTO in texts(db)


@pytest.mark.parametrize(
    ("request_text", "yes"),
    [
        ("forget Porto", "ok"),
        ("forget Porto", "delete it"),
        ("请忘记 Porto", "嗯"),
        ("请忘记 Porto", "是的，删吧"),
    ],
)
@in_event_loop
async def test_a_preview_and_its_receipt_give_the_same_numbers(
    tmp_path: Path, request_text: str, yes: str
) -> None:
    with opened(tmp_path) as db:
        [porto] = say(db, PORTO, thread="old")
        learn(db, "lives in Porto", porto)
        async with running(db, None) as runner:
            await tell(runner, "Where is Porto?", "asked")
            await tell(runner, request_text)  # and again, so that the first time is of earlier requests
            shown = (await tell(runner, request_text)).text
            done = await tell(runner, yes)
        counts = (
            ["7 messages", "1 fact", "3 conversations"]
            if yes.isascii()
            else ["消息 7 条", "事实 1 条", "话题 3 个"]
        )
        assert [count in shown for count in counts] == [True] * 3
        assert [f"\n- {count}" in done.text for count in counts] == [True] * 3
        assert texts(db) == []


@in_event_loop
async def test_what_only_resembles_the_words_must_be_seen_before_it_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "Lent Marco 250 euros", "借给张伟两千五", thread="old")
        async with running(db, None) as runner:
            for request_text in ("forget the money I lent to Marco", "忘掉我借给张伟的钱"):
                shown = await tell(runner, request_text)
                assert (shown.proposes_erasure, shown.must_be_seen) == (True, True)
                assert shown.text.startswith(
                    ("Nothing is certainly what you mean", "没有找到确定是你所指的内容")
                )
                assert (await tell(runner, "yes")).has_erased
            assert texts(db) == []
            say(db, "借给张伟两千五", "更正：张伟借的是三千", thread="old")
            shown = await tell(runner, "忘掉张伟借钱的事")
            assert (
                "“借给张伟两千五”（只含部分字词）\n- 2024年3月1日，你：“更正：张伟借的是三千”\n" in shown.text
            )
            assert (await tell(runner, "好的")).has_erased
            say(db, "Marco", thread="old")
            assert not (await tell(runner, "forget Marco")).must_be_seen


@pytest.mark.parametrize(
    ("every_year", "one_year"),
    [
        ("forget what I said in February", "forget what I said in February 2024"),
        ("忘掉我二月说过的话", "忘掉我2024年2月说过的话"),
    ],
)
@in_event_loop
async def test_days_of_every_year_must_be_seen_before_they_go(
    tmp_path: Path, every_year: str, one_year: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "one", at_ms=NOW_MS - 375 * DAY_MS, thread="old")
        say(db, "two", at_ms=NOW_MS - 20 * DAY_MS, thread="old")
        async with running(db, None) as runner:
            shown = await tell(runner, every_year)
            assert (shown.must_be_seen, "“one”" in shown.text, "“two”" in shown.text) == (True,) * 3
            await tell(runner, "no")
            shown = await tell(runner, one_year)
            assert (shown.must_be_seen, "“one”" in shown.text, "“two”" in shown.text) == (False, False, True)


@pytest.mark.parametrize(
    ("text", "noted", "question"),
    [
        ("forget Madrid and remember that I live in Lisbon", "Noted.", "Where do I live?"),
        ("忘记马德里，记住我住在里斯本", "已记下。", "我住在哪里？"),
    ],
)
@in_event_loop
async def test_of_two_things_at_once_none_is_erased_which_is_said_and_the_other_is_kept(
    tmp_path: Path, text: str, noted: str, question: str
) -> None:
    with opened(tmp_path) as db:
        say(db, "Madrid, 马德里", thread="old")
        async with running(db, None) as runner:
            told = await tell(runner, text)
            assert told.text.startswith(noted)
            assert told.text.endswith(hint_text(language_of(text)))
            assert not told.proposes_erasure
            assert text in (await tell(runner, question)).text


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("forget Lisbon", "What about Lisbon?"),
        ("it would be nice if you forgot Lisbon", "What about Lisbon?"),
        ("I'd rather you didn't remember Lisbon", "What about Lisbon?"),
        ("forget everything except Lisbon", "What about Lisbon?"),
        ("忘记河马和香菜", "河马在哪？"),
        ("从明天起忘记河马", "河马在哪？"),
        ("除了河马，其他都忘掉", "河马在哪？"),
    ],
)
@in_event_loop
async def test_a_request_to_forget_is_never_quoted_as_a_statement(
    tmp_path: Path, text: str, question: str
) -> None:
    with opened(tmp_path) as db:
        async with running(db, None) as runner:
            told = (await tell(runner, text)).text
            assert told in (nothing_text(language_of(text)), unclear_text(language_of(text)))
            assert "“" not in (await tell(runner, question)).text


@pytest.mark.parametrize(
    ("request_text", "no", "counted"),
    [
        ("forget Porto", "no", "(8 messages, 7 of requests to forget, 2 conversations)"),
        ("请忘记 Porto", "好吧，留着", "（消息 8 条，其中 7 条属于删除请求，话题 1 个）"),
    ],
)
@in_event_loop
async def test_requests_that_were_not_confirmed_are_not_shown_among_what_was_said(
    tmp_path: Path, request_text: str, no: str, counted: str
) -> None:
    with opened(tmp_path) as db:
        say(db, PORTO, thread="old")
        async with running(db, None) as runner:
            for _ in range(2):
                await tell(runner, request_text)
                await tell(runner, no)
            await tell(runner, "forget everything", "elsewhere")
            shown = await tell(runner, request_text)
            assert (counted in shown.text, shown.text.count("\n- ")) == (True, 1)
            assert (await tell(runner, "yes")).has_erased
        assert "Porto" not in "".join(texts(db))


@in_event_loop
async def test_where_nothing_but_an_earlier_request_is_left_that_is_shown(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        async with running(db, None) as runner:
            await tell(runner, "forget my dentist")
            shown = await tell(runner, "forget my dentist")
            assert "you: “forget my dentist”" in shown.text
            assert (await tell(runner, "yes")).has_erased
        assert texts(db) == []


@pytest.mark.parametrize(
    ("request_text", "hint"),
    [
        ("forget Porto", "… and 5 more: `/forget TEXT --all`"),
        ("请忘记 Porto", "… 还有 5 条：`/忘记 文字 --all`"),
    ],
)
@in_event_loop
async def test_a_long_list_says_how_to_see_all_of_it(tmp_path: Path, request_text: str, hint: str) -> None:
    with opened(tmp_path) as db:
        say(db, *(f"Porto {number}" for number in range(25)), thread="old")
        async with running(db, None) as runner:
            assert hint in (await tell(runner, request_text)).text


@in_event_loop
async def test_all_that_would_go_can_be_seen(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, *(f"Porto {number}" for number in range(30)), thread="old")
        by_size = {
            shows_all: len(preview(db, ForgetTarget(words=("porto",)), shows_all=shows_all).items)
            for shows_all in (False, True)
        }
    assert by_size == {False: 20, True: 30}
