import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.adapters.chat import (
    MAX_ANSWER_BYTES,
    CallFailure,
    ChatCallFailed,
    Completion,
    StopReason,
    ToolCall,
    Usage,
)
from pikobot.adapters.chat_chunks import MAX_TOOL_CALLS, AnswerBuilder

END: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def _delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _calls(*calls: dict[str, Any]) -> dict[str, Any]:
    return _delta(tool_calls=list(calls))


def _call(name: Any = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": arguments}}


def _complete(*chunks: Any) -> Completion:
    builder = AnswerBuilder()
    texts = [
        builder.add(chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()) for chunk in chunks
    ]
    completion = builder.completion()
    assert "".join(texts) == completion.text
    return completion


def _code(*chunks: Any) -> CallFailure:
    with pytest.raises(ChatCallFailed) as failed:
        _complete(*chunks)
    return failed.value.code


SEARCH = ToolCall("a", "search", '{"q": 1}')
READ = ToolCall("b", "read", "{}")


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (
            [
                _calls(_call("search", "", index=0, id="a"), _call("read", "", index=1, id="b")),
                _calls(_call(None, '{"q"', index=0)),
                _calls(_call(None, "{}", index=1), _call(None, ": 1}", index=0)),
            ],
            (SEARCH, READ),
        ),
        (  # no index, ids repeated
            [
                _calls(_call("search", '{"q"', id="a")),
                _calls(_call("read", "{}", id="b")),
                _calls(_call(None, ": 1}", id="a")),
            ],
            (SEARCH, READ),
        ),
        (  # no index, no id in what continues
            [
                _calls(_call("search", "", id="a")),
                _calls(_call(None, '{"q"')),
                _calls(_call(None, ": 1}")),
                _calls(_call("read", "{}", id="b")),
            ],
            (SEARCH, READ),
        ),
        ([_calls(_call("search", '{"q": 1}', index=0, id="a"), _call("read", "{}", index=0, id="b"))], (SEARCH, READ)),
        ([_calls(_call("search", '{"q"', index=0)), _calls(_call("search", ": 1}", index=0, id="a"))], (SEARCH,)),
        ([_calls(_call("search", {"q": 1}, index=0, id="a"))], (SEARCH,)),
        ([_calls(_call("search", "not json \ud83d", index=0, id="a"))], (ToolCall("a", "search", "not json \ufffd"),)),
        ([_calls(_call("read", None, index=3, id="b"))], (ToolCall("b", "read", ""),)),
    ],
)  # fmt: skip
def test_tool_calls_come_together_however_they_are_split(
    chunks: list[dict[str, Any]], expected: tuple[ToolCall, ...]
) -> None:
    assert _complete(*chunks, END) == Completion("", expected, StopReason.TOOL_CALLS, None)


def test_a_missing_or_repeated_id_is_replaced_by_a_stable_one() -> None:
    chunks = [
        _calls(_call("search", "{}", index=0), _call("search", "{}", index=1)),
        _calls(_call("read", "{}", index=2, id="b"), _call("read", "{}", index=3, id="b")),
    ]
    first, second = _complete(*chunks, END), _complete(*chunks, END)
    assert first == second
    assert len({call.id for call in first.tool_calls}) == 4
    assert first.tool_calls[2].id == "b"


@settings(max_examples=50, deadline=None)
@given(
    arguments=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
)
def test_interleaved_arguments_are_never_mixed(arguments: list[str], order: Any) -> None:
    chunks = [_calls(_call(f"tool_{n}", "", index=n, id=f"id_{n}")) for n in range(len(arguments))]
    queues = {n: list(text) for n, text in enumerate(arguments)}
    while queues:
        n = order.choice(sorted(queues))
        chunks.append(_calls(_call(None, queues[n].pop(0), index=n)))
        queues = {key: left for key, left in queues.items() if left}
    expected = tuple(ToolCall(f"id_{n}", f"tool_{n}", text) for n, text in enumerate(arguments))
    assert _complete(*chunks, END).tool_calls == expected


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        (_delta(content=None, role="assistant"), ""),
        (_delta(reasoning_content="hidden", content=None), ""),
        (_delta(content="可见", reasoning_content="hidden"), "可见"),
        ({"choices": [{"delta": None}]}, ""),
        ({"choices": []}, ""),
        ({"choices": None, "usage": None}, ""),
        ({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}, ""),
        (_delta(content="", tool_calls=None), ""),
    ],
)
def test_chunks_that_say_little_are_accepted(chunk: dict[str, Any], text: str) -> None:
    assert _complete(chunk, END) == Completion(text, (), StopReason.STOP, None)


def test_a_character_split_between_chunks_is_joined_and_a_lone_half_replaced() -> None:
    chunks = [
        b'{"choices": [{"delta": {"content": "%s"}}]}' % part
        for part in (b"a\\ud83d", b"\\ude00b", b"\\udc00c\\ud83dd")
    ]
    assert _complete(*chunks, END).text == "a😀b\ufffdc\ufffdd"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 2}, Usage(9, 0, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}, Usage(9, 4, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, Usage(9, 0, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}, Usage(9, 8, 2)),
        ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 80}, Usage(9, 9, 2)),
        ({"prompt_tokens": -9, "completion_tokens": 2}, None),
        ({"prompt_tokens": 10**30, "completion_tokens": 2}, None),
        ({"prompt_tokens": "many", "completion_tokens": 2}, None),
        ("none", None),
    ],
)  # fmt: skip
def test_usage_is_read_in_both_dialects_or_not_at_all(usage: Any, expected: Usage | None) -> None:
    assert _complete(END, {"choices": [], "usage": usage}).usage == expected


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ("stop", StopReason.STOP),
        ("EOS", StopReason.STOP),
        ("length", StopReason.LENGTH),
        ("tool_calls", StopReason.STOP),  # although it calls none
        ("content_filter", StopReason.CONTENT_FILTER),
    ],
)
def test_finish_reasons_of_several_servers_are_known(reported: str, expected: StopReason) -> None:
    assert _complete({"choices": [{"delta": {}, "finish_reason": reported}]}).stop_reason is expected


@pytest.mark.parametrize(
    "chunk",
    [
        b"",
        b"not json",
        b"\xff",
        b"[" * 200_000,
        b"7",
        {"choices": "all"},
        {"choices": [7]},
        {"choices": [{"delta": "text"}]},
        _delta(content=["part"]),
        _delta(tool_calls={"index": 0}),
        _calls(_call(7, "{}", index=0)),
        {"choices": [{"delta": {}, "finish_reason": 7}]},
    ],
)
def test_chunks_of_the_wrong_shape_are_malformed(chunk: Any) -> None:
    assert _code(chunk, END) is CallFailure.MALFORMED


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([_delta(content="half")], CallFailure.TRUNCATED),
        ([], CallFailure.TRUNCATED),
        ([_calls(_call(None, "{}", index=0, id="a")), END], CallFailure.MALFORMED),
        ([_calls(*(_call("t", "", index=n) for n in range(MAX_TOOL_CALLS + 1))), END], CallFailure.MALFORMED),
        ([{"choices": [{"delta": {}, "finish_reason": "abort"}]}], CallFailure.SERVER_ERROR),
        ([{"error": "overloaded"}], CallFailure.SERVER_ERROR),
        ([_delta(content="长" * (MAX_ANSWER_BYTES // 3 + 1)), END], CallFailure.TOO_LARGE),
        ([_calls(_call("t", "x" * MAX_ANSWER_BYTES, index=0)), END], CallFailure.TOO_LARGE),
    ],
)
def test_an_answer_that_is_none_fails(chunks: list[Any], code: CallFailure) -> None:
    assert _code(*chunks) is code
