"""`/forget` in the chat: what it understands, what it shows, when it asks again."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

import pytest

from pikobot.channels.terminal.forgetting import Forgotten, forget, target_of
from pikobot.channels.terminal.slash import Command, CommandName
from pikobot.channels.terminal.wording import EN, ZH
from pikobot.errors import ExitCode, UsageError
from pikobot.memory.forgetting.preview import ForgetPreview, PreviewItem
from pikobot.memory.forgetting.receipts import Changed
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.store.erasing.targets import FactGlance, Labels
from tests.channels.terminal.fakes import SOURCE_ID, FakeReceipt

THREAD_ID = "thr_aaaaaaaaaaaaaaaaaaaa"
FACT_ID = "fact_cccccccccccccccccccc"


@dataclass
class Dialog:
    """Says yes as often as it has answers left."""

    answers: list[bool] = field(default_factory=list)
    is_interactive: bool = True
    said: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.said.append(line)

    def complain(self, line: str) -> None:
        self.complaints.append(line)

    async def confirm(self, question: str) -> bool:
        return self.answers.pop(0)


@dataclass
class Service:
    previews: list[ForgetPreview]
    erased: list[str] = field(default_factory=list)
    is_clean: bool = True

    async def preview(self, target: ForgetTarget, *, shows_all: bool) -> ForgetPreview:
        return self.previews[0]

    async def forget(self, preview: ForgetPreview) -> FakeReceipt | Changed:
        """Something changes after every preview but the last."""
        self.previews.pop(0)
        if self.previews:
            return Changed()
        self.erased.append(preview.token)
        return FakeReceipt(preview.total, self.is_clean)


def shown(token: str, text: str, **changes: object) -> ForgetPreview:
    fields: dict[str, object] = {
        "target": ForgetTarget(words=("x",)),
        "scope_ids": None,
        "token": token,
        "items": (PreviewItem(SOURCE_ID, "user", "owner", "2024-03-02", text),),
        "direct": 1,
    }
    return ForgetPreview(**(fields | changes))  # type: ignore[arg-type]  # the fields of a preview


def carried_out(
    service: Service, dialog: Dialog, argument: str = "x", *, language: Literal["en", "zh"] = "en"
) -> Forgotten:
    command = Command(CommandName.FORGET, argument, is_confirmed=not dialog.is_interactive)
    words = ZH if language == "zh" else EN
    return asyncio.run(forget(command, thread_id=None, words=words, service=service, dialog=dialog))


@pytest.mark.parametrize(
    ("argument", "target"),
    [
        (FACT_ID, ForgetTarget(facts=(FACT_ID,))),
        ("2024-03-01..2024-03-31", ForgetTarget(from_="2024-03-01", to="2024-03-31")),
        ("2024-03-01 .. 2024-03-31T12:00", ForgetTarget(from_="2024-03-01", to="2024-03-31T12:00")),
        ("2024-03-01..", ForgetTarget(from_="2024-03-01")),
        ("2024/3/1..2024.03.31", ForgetTarget(from_="2024-03-01", to="2024-03-31")),
        ("1.2.3..1.2.4", ForgetTarget(words=("1.2.3..1.2.4",), whole_words=True)),
        ("..2024-03-31", ForgetTarget(to="2024-03-31")),
        ("2024-03-01到2024-03-31", ForgetTarget(from_="2024-03-01", to="2024-03-31")),
        ("2024-03-01 至 2024-03-31", ForgetTarget(from_="2024-03-01", to="2024-03-31")),
        ("“2024-03-01..2024-03-31”", ForgetTarget(words=("2024-03-01..2024-03-31",))),
        ("well..", ForgetTarget(words=("well..",), whole_words=True)),
        ("..", ForgetTarget(words=("..",), whole_words=True)),
        ("2024-03-01", ForgetTarget(words=("2024-03-01",), whole_words=True)),
        ("我搬到波尔图", ForgetTarget(words=("我搬到波尔图",), whole_words=True)),
        ("thread", ForgetTarget(thread=THREAD_ID)),
        ("", ForgetTarget(last_exchange=THREAD_ID)),
    ],
)
def test_what_an_argument_names(argument: str, target: ForgetTarget) -> None:
    assert target_of(argument, THREAD_ID, "") == target


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("2026-13-45..2026-11-27", "2026-13-45"),
        ("2026-11-01..2026-11-31", "2026-11-31"),
        ("..2023-02-29", "2023-02-29"),
        ("2026-11-01 到 2026-11-31", "2026-11-31"),
        ("2026/13/1..2026/11/30", "2026-13-01"),
        ("2026-11-01T25:00..", "2026-11-01T25:00"),
    ],
)
def test_a_range_with_a_day_that_there_is_not_is_refused(argument: str, wrong: str) -> None:
    with pytest.raises(UsageError, match=f"there is no such date: {wrong}$"):
        target_of(argument, THREAD_ID, "")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_stays_because_other_words_hold_the_text_is_told(language: Literal["en", "zh"]) -> None:
    told = {
        "en": "“tea” is also a part of other words (steak, teaches), in 2 messages that stay: /forget “tea” with the "
        "quotes erases that as well.",
        "zh": "另有 2 条消息只在其他词里含有“tea”（steak、teaches），不会删除：加引号的 /忘记 “tea” 会一并删除。",
    }
    inside: dict[str, object] = {
        "target": ForgetTarget(words=("tea",), whole_words=True),
        "inside": (2, ("steak", "teaches")),
    }
    for preview in (shown("1", "I like tea", **inside), shown("1", "", items=(), direct=0, **inside)):
        dialog = Dialog([False])
        carried_out(Service([preview]), dialog, language=language)
        assert told[language] in dialog.said


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(UsageError, match="to: is before from"):
        target_of("2024-03-31..2024-03-01", THREAD_ID, "")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_facts_conversations_and_names_are_shown_before_anything_goes(language: Literal["en", "zh"]) -> None:
    preview = shown(
        "1",
        "She paints",
        items=(PreviewItem(SOURCE_ID, "user", "owner", "2024-03-02", "She  paints", "fact"),),
        facts=(FactGlance(FACT_ID, "Melanie paints"),),
        fact_count=30,
        threads=((THREAD_ID, "Melanie"), ("thr_2", None)),
        thread_count=2,
        labels=Labels(threads=(("thr_3", "Melanie & me"),), thread_count=1),
    )
    dialog = Dialog([False])
    assert carried_out(Service([preview]), dialog, language=language) == Forgotten(ExitCode.DONE)
    expected = {
        "en": [
            "This would be erased for good, with everything made from it (1 message, 30 facts, 2 conversations):",
            "  2 March 2024, you: “She paints” [a fact learned from it holds the text]",
            "Facts that go with it (30):",
            "  Melanie paints",
            "  … and 29 more: with --all at its end, /forget lists every one",
            "Conversations that go as a whole: “Melanie”, 1 without a name",
            "The name of a conversation keeps it until the conversation is forgotten: “Melanie & me” (/forget thr_3)",
            EN.kept,
        ],
        "zh": [
            "这些会被永久删除，连同由此得出的一切（消息 1 条，事实 30 条，话题 2 个）：",
            "  2024年3月2日，你：“She paints”［由此得出的事实中有该文字］",
            "随之删除的事实（30 条）：",
            "  Melanie paints",
            "  … 还有 29 条：在 /忘记 后加上 --all 会全部列出",
            "整个删除的话题：“Melanie”、1 个未命名的话题",
            "话题名称中仍有该文字，删除话题才会消失：“Melanie & me” (/忘记 thr_3)",
            ZH.kept,
        ],
    }
    assert dialog.said == expected[language]


def test_what_has_changed_since_it_was_shown_is_shown_and_asked_again() -> None:
    service = Service([shown("1", "I moved to Porto"), shown("2", "Porto again")])
    dialog = Dialog([True, True])
    assert carried_out(service, dialog).is_erased
    assert (service.erased, dialog.answers) == (["2"], [])
    again = dialog.said.index(EN.forget_changed)
    assert [line for line in dialog.said[:again] if "Porto" in line] == [
        "  2 March 2024, you: “I moved to Porto”"
    ]
    assert dialog.said[again + 2] == "  2 March 2024, you: “Porto again”"


def test_a_no_to_what_has_changed_keeps_it() -> None:
    service = Service([shown("1", "波尔图"), shown("2", "波尔图，还有")])
    dialog = Dialog([True, False])
    assert not carried_out(service, dialog, language="zh").is_erased
    assert (service.erased, dialog.said[-1]) == ([], ZH.kept)


def test_without_a_dialog_what_has_changed_is_shown_and_erased() -> None:
    service = Service([shown("1", "a"), shown("2", "b")])
    dialog = Dialog(is_interactive=False)
    assert carried_out(service, dialog).exit_code == ExitCode.DONE
    assert service.erased == ["2"]


def test_what_is_forgotten_already_and_what_is_kept_by_a_name_alone_is_said() -> None:
    dialog = Dialog()
    nothing = shown("1", "", items=(), direct=0)
    assert carried_out(Service([shown("1", "", items=(), direct=0, already_erased=1)]), dialog) == Forgotten(
        0
    )
    labels = Labels(threads=((THREAD_ID, "Porto"),), thread_count=1)
    named = shown("1", "", items=(), direct=0, labels=labels)
    assert carried_out(Service([named]), dialog) == Forgotten(0)
    assert carried_out(Service([nothing]), Dialog(is_interactive=False)) == Forgotten(ExitCode.NOT_FOUND)
    assert dialog.said == [
        EN.already_forgotten,
        EN.nothing_to_forget,
        f"The name of a conversation keeps it until the conversation is forgotten: “Porto” (/forget {THREAD_ID})",
    ]


@pytest.mark.parametrize("is_interactive", [True, False])
def test_what_leaves_traces_has_failed(is_interactive: bool) -> None:
    service = Service([shown("1", "She paints")], is_clean=False)
    assert carried_out(service, Dialog([True], is_interactive)) == Forgotten(ExitCode.FAILED, True)


@pytest.mark.parametrize(
    ("language", "told"),
    [
        ("en", "(3 messages, 2 of requests to forget):"),
        ("zh", "（消息 3 条，其中 2 条属于删除请求）："),
    ],
)
def test_earlier_requests_are_counted_and_not_among_the_statements(
    language: Literal["en", "zh"], told: str
) -> None:
    dialog = Dialog([False])
    carried_out(Service([shown("1", "She paints", direct=3, aside=2)]), dialog, language=language)
    assert dialog.said[0].endswith(told)
    assert ("She paints" in dialog.said[1], len(dialog.said)) == (True, 3)
    assert "more" not in "".join(dialog.said)
