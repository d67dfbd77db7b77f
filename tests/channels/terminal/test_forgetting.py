"""`/forget` in the chat: what it understands, what it shows, when it asks again."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

import pytest

from pikobot.channels.terminal.forgetting import Forgotten, forget, target_of
from pikobot.channels.terminal.slash import Command, CommandName
from pikobot.channels.terminal.wording import EN, ZH
from pikobot.errors import ExitCode, UsageError
from pikobot.memory.forget_preview import ForgetPreview, PreviewItem
from pikobot.memory.forget_target import ForgetTarget
from pikobot.memory.receipts import Changed
from pikobot.store.targets import FactGlance, Labels
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
        ("..2024-03-31", ForgetTarget(to="2024-03-31")),
        ("2024-03-01到2024-03-31", ForgetTarget(from_="2024-03-01", to="2024-03-31")),
        ("2024-03-01 至 2024-03-31", ForgetTarget(from_="2024-03-01", to="2024-03-31")),
        ("“2024-03-01..2024-03-31”", ForgetTarget(words=("2024-03-01..2024-03-31",))),
        ("well..", ForgetTarget(words=("well..",))),
        ("..", ForgetTarget(words=("..",))),
        ("2024-03-01", ForgetTarget(words=("2024-03-01",))),
        ("我搬到波尔图", ForgetTarget(words=("我搬到波尔图",))),
        ("thread", ForgetTarget(thread=THREAD_ID)),
        ("", ForgetTarget(last_exchange=THREAD_ID)),
    ],
)
def test_what_an_argument_names(argument: str, target: ForgetTarget) -> None:
    assert target_of(argument, THREAD_ID, "") == target


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
            "This will be erased, with everything derived from it (1 statement):",
            "  2024-03-02  owner: She paints [a fact learned from it holds the text]",
            "Facts that go with it (30):",
            "  Melanie paints",
            "  … and 29 more: with --all at its end, /forget lists every one",
            "Conversations of which nothing is left (2): “Melanie”, “unnamed”",
            "The name of a conversation keeps it until the conversation is forgotten: “Melanie & me” (/forget thr_3)",
            EN.kept,
        ],
        "zh": [
            "以下内容及由其得出的一切将被删除（1 条）：",
            "  2024-03-02  owner: She paints［由此得出的事实中有该文字］",
            "随之删除的事实（30 条）：",
            "  Melanie paints",
            "  … 还有 29 条：在 /忘记 后加上 --all 会全部列出",
            "不再有任何内容的话题（2 个）：“Melanie”, “未命名”",
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
        "  2024-03-02  owner: I moved to Porto"
    ]
    assert dialog.said[again + 2] == "  2024-03-02  owner: Porto again"


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
        ("en", "With it 2 messages go of earlier requests to forget it."),
        ("zh", "同时删除 2 条以前的删除请求和回答。"),
    ],
)
def test_earlier_requests_are_counted_and_not_among_the_statements(
    language: Literal["en", "zh"], told: str
) -> None:
    dialog = Dialog([False])
    carried_out(Service([shown("1", "She paints", direct=3, aside=2)]), dialog, language=language)
    assert dialog.said[1:3] == ["  2024-03-02  owner: She paints", told]
    assert "more" not in "".join(dialog.said)
