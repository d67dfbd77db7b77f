import pytest

from pikobot.adapters.chat import CallFailure, ChatCallFailed, Message, ToolCall
from pikobot.errors import DamagedData, ExitCode

CALL = ToolCall("call_1", "memory_search", '{"query": "波尔图"')


@pytest.mark.parametrize(
    "message",
    [
        Message("system", "Be brief."),
        Message("user", "我搬到了波尔图"),
        Message("assistant", "", (CALL, ToolCall("call_2", "source_read", ""))),
        Message("tool", "[]", tool_call_id="call_1"),
    ],
)
def test_a_message_survives_the_wire_form(message: Message) -> None:
    assert Message.from_json(message.to_json()) == message


def test_the_wire_form_is_that_of_chat_completions() -> None:
    assert Message("assistant", "Wait.", (CALL,)).to_json() == {
        "role": "assistant",
        "content": "Wait.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "memory_search", "arguments": '{"query": "波尔图"'},
            }
        ],
    }


def test_null_content_is_empty() -> None:
    assert Message.from_json({"role": "assistant", "content": None}) == Message("assistant", "")


@pytest.mark.parametrize(
    ("wire", "key"),
    [
        ({}, "role"),
        ({"role": "developer", "content": ""}, "role"),
        ({"role": ["user"], "content": ""}, "role"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "tool", "content": "", "tool_call_id": 7}, "tool_call_id"),
        ({"role": "assistant", "content": "", "tool_calls": "all"}, "tool_calls"),
        ({"role": "assistant", "content": "", "tool_calls": [7]}, "tool_calls"),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": 7}}]}, "name"),
    ],
)
def test_a_damaged_message_names_its_key(wire: dict[str, object], key: str) -> None:
    with pytest.raises(DamagedData, match=repr(key)):
        Message.from_json(wire)


def test_no_failure_that_may_have_charged_is_retryable() -> None:
    assert not [code for code in CallFailure if code.may_have_charged and code.is_retryable]


def test_a_failed_call_is_a_provider_error() -> None:
    failed = ChatCallFailed("x", code=CallFailure.TRUNCATED, partial_text="half")
    assert (failed.exit_code, failed.may_have_charged, failed.is_retryable, failed.partial_text) == (
        ExitCode.PROVIDER,
        True,
        False,
        "half",
    )
