"""What the terminal does with an answer that proposes to erase."""

import asyncio
import io

import pytest

from pikobot.agent.events import RunEnded, TextDelta
from pikobot.channels.terminal.once import answer_once
from pikobot.channels.terminal.services import ChatOptions
from pikobot.channels.terminal.slash import without_confirmation
from pikobot.channels.terminal.wording import EN, ZH
from pikobot.store.leases import State
from tests.channels.terminal.fakes import FakeInstance, Script, answer, scripted
from tests.channels.terminal.test_chat import ENTER, talk

SHOWN: Script = [
    TextDelta("This would go."),
    TextDelta("\n\nErase it?", asks_to_erase=True),
    RunEnded(State.SUCCEEDED, "This would go.\n\nErase it?", proposes_erasure=True),
]
DONE: Script = [TextDelta("Forgotten."), RunEnded(State.SUCCEEDED, "Forgotten.", has_erased=True)]


def once(instance: FakeInstance, text: str, thread: str | None = None) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    options = ChatOptions(thread=thread, environ={})
    return (
        asyncio.run(answer_once(instance.services, text, options, out, err)),
        out.getvalue(),
        err.getvalue(),
    )


@pytest.mark.parametrize(
    ("text", "request_text", "is_confirmed"),
    [
        ("forget my dentist --yes", "forget my dentist", True),
        ("忘记我的牙医 --yes\n", "忘记我的牙医", True),
        ("forget my dentist", "forget my dentist", False),
        ("what does the flag --yes", "what does the flag --yes", False),
        ("don't forget my dentist --yes", "don't forget my dentist --yes", False),
        ("--yes", "--yes", False),
    ],
)
def test_the_flag_belongs_to_a_request_to_forget_alone(
    text: str, request_text: str, is_confirmed: bool
) -> None:
    assert without_confirmation(text) == (request_text, is_confirmed)


def test_a_single_request_says_how_to_confirm_and_succeeds() -> None:
    instance = scripted(SHOWN)
    code, out, err = once(instance, "forget my dentist", thread="t")
    assert (code, out, err) == (0, "This would go.\n\nErase it?\n", EN.forget_proposed + "\n")
    assert instance.runner.asked == [("forget my dentist", {"thread_key": "t"})]


@pytest.mark.parametrize(("text", "yes"), [("forget my dentist --yes", "yes"), ("忘记我的牙医 --yes", "是")])
def test_with_the_flag_the_owners_yes_follows_at_once(text: str, yes: str) -> None:
    instance = scripted(SHOWN, DONE)
    assert once(instance, text) == (0, "This would go.\nForgotten.\n", "")
    assert instance.runner.asked == [
        (text.removesuffix(" --yes"), {"is_standalone": True}),
        (yes, {"is_standalone": True}),
    ]


def test_the_flag_does_not_confirm_what_a_model_has_chosen() -> None:
    chosen: Script = [RunEnded(State.SUCCEEDED, "All would go.", proposes_erasure=True, must_be_seen=True)]
    instance = scripted(chosen)
    code, _, err = once(instance, "forget what is too much --yes")
    assert (code, err) == (0, EN.forget_must_be_seen + "\n")
    assert instance.runner.asked == [("forget what is too much", {"is_standalone": True})]


def test_an_erasure_that_leaves_traces_has_failed() -> None:
    left: Script = [RunEnded(State.SUCCEEDED, "Forgotten.", has_erased=True, leaves_traces=True)]
    assert once(scripted(left), "yes") == (1, "Forgotten.\n", "")


def test_with_the_flag_nothing_follows_an_answer_that_proposes_nothing() -> None:
    instance = scripted(answer("Nothing matches."))
    assert once(instance, "forget my dentist --yes") == (0, "Nothing matches.\n", "")
    assert [text for text, _ in instance.runner.asked] == ["forget my dentist"]


def test_what_changed_after_a_yes_is_shown_and_not_erased_unseen() -> None:
    instance = scripted(SHOWN, SHOWN)
    code, out, err = once(instance, "忘记我的牙医 --yes")
    assert (code, out, err) == (0, "This would go.\nThis would go.\n\nErase it?\n", ZH.forget_proposed + "\n")


def test_the_line_editor_forgets_what_was_typed_when_something_was_erased() -> None:
    up = "\x1b[A"
    instance = scripted(SHOWN, DONE, answer("1"))
    keys = ["forget my secret", ENTER, "yes", ENTER, up, "new", ENTER, "/quit", ENTER]
    _, _, err = talk(instance, keys)
    assert [text for text, _ in instance.runner.asked] == ["forget my secret", "yes", "new"]
    assert EN.scrollback in err
