import asyncio
import logging
import subprocess
import sys

import pytest

from pikobot.adapters.chat import (
    Completion,
    Message,
    StopReason,
    TextDelta,
    ToolCall,
    ToolSchema,
    Usage,
    closing,
)
from tests.adapters.calls import API_KEY, HELLO, answer, model_at
from tests.servers.openai_server import ScriptedOpenAI, text, tool_calls

SEARCH = ToolSchema("memory_search", "Search memory", {"type": "object", "properties": {}})


def test_importing_the_adapter_does_not_import_the_client() -> None:
    code = "import sys, pikobot.adapters.openai_chat; print(sorted({'openai', 'httpx2'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.parametrize("words", ["Hello, I am here.", "你好，我在这里。😀"])
def test_an_answer_streams_in_pieces_and_ends_with_its_usage(
    openai_server: ScriptedOpenAI, words: str
) -> None:
    openai_server.push(
        text(
            words,
            usage={
                "prompt_tokens": 30,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 20},
            },
        )
    )
    assert answer(model_at(openai_server.base_url)) == Completion(
        words, (), StopReason.STOP, Usage(30, 20, 7)
    )


def test_the_request_is_what_the_caller_gave_and_nothing_of_the_environment(
    openai_server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_BASE_URL",
        "OPENAI_API_KEY",
        "OPENAI_ORG_ID",
        "OPENAI_PROJECT_ID",
        "OPENAI_ADMIN_KEY",
    ):
        monkeypatch.setenv(name, "http://leaked.invalid")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Leaked: yes\nAuthorization: Bearer leaked")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    messages = (
        Message("system", "Be brief."),
        Message("user", "找一下"),
        Message("assistant", "", (ToolCall("call_0", "memory_search", '{"query": "波尔图"}'),)),
        Message("tool", "[]", tool_call_id="call_0"),
    )
    answer(model_at(openai_server.base_url), messages, [SEARCH], cache_key="thread", allow_tools=False)
    (received,) = openai_server.requests()
    assert received.body == {
        "model": "scripted",
        "messages": [message.to_json() for message in messages],
        "max_tokens": 100,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [SEARCH.to_json()],
        "tool_choice": "none",
    }
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {API_KEY}"
    assert sorted(received.headers) == [
        "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host",
        "user-agent", "x-stainless-raw-response",
    ]  # fmt: skip


def test_parallel_tool_calls_come_out_whole_with_malformed_arguments_as_they_are(
    openai_server: ScriptedOpenAI,
) -> None:
    openai_server.push(
        tool_calls(("memory_search", '{"query": "波尔图"}'), ("source_read", '{"id": '), text="Wait.")
    )
    assert answer(model_at(openai_server.base_url), tools=[SEARCH]) == Completion(
        "Wait.",
        (
            ToolCall("call_0", "memory_search", '{"query": "波尔图"}'),
            ToolCall("call_1", "source_read", '{"id": '),
        ),
        StopReason.TOOL_CALLS,
        Usage(10, 0, 5),
    )


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (text("Hi", usage=None), Completion("Hi", (), StopReason.STOP, None)),
        (text("Hi", done=False), Completion("Hi", (), StopReason.STOP, Usage(10, 0, 5))),
        (text("Hi", reasoning="hidden thoughts"), Completion("Hi", (), StopReason.STOP, Usage(10, 0, 5))),
        (
            text("", refusal="I can't help."),
            Completion("I can't help.", (), StopReason.CONTENT_FILTER, Usage(10, 0, 5)),
        ),
        ({"length": "Once upon"}, Completion("Once upon", (), StopReason.LENGTH, Usage(10, 0, 5))),
        ({"big": 200_000}, Completion("x" * 200_000, (), StopReason.STOP, Usage(10, 0, 5))),
    ],
)  # fmt: skip
def test_unusual_answers_are_answers(
    openai_server: ScriptedOpenAI, step: dict[str, object], expected: Completion
) -> None:
    openai_server.push(step)
    assert answer(model_at(openai_server.base_url)) == expected


def test_silence_after_the_finish_reason_is_the_end(
    openai_server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pikobot.adapters.openai_chat.USAGE_GRACE_S", 0.05)
    finished = {"choices": [{"delta": {"content": "Done"}, "finish_reason": "stop"}]}
    openai_server.push({"raw": [finished, ": wait\n\n"], "delay_ms": 60_000})
    assert answer(model_at(openai_server.base_url)) == Completion("Done", (), StopReason.STOP, None)


def test_an_endpoint_without_a_key_is_called_all_the_same(openai_server: ScriptedOpenAI) -> None:
    assert answer(model_at(openai_server.base_url, api_key=None)).text == "echo: Hello"


def test_a_lone_surrogate_in_a_message_reaches_the_provider_as_a_replacement(
    openai_server: ScriptedOpenAI,
) -> None:
    answer(model_at(openai_server.base_url), [Message("user", "half \ud83d")])
    (received,) = openai_server.requests()
    assert received.body["messages"] == [{"role": "user", "content": "half \ufffd"}]


def test_leaving_the_stream_closes_the_connection(openai_server: ScriptedOpenAI) -> None:
    async def leave() -> None:
        model = model_at(openai_server.base_url)
        async with closing(model.stream(HELLO, (), max_output_tokens=100)) as items:
            async for item in items:
                assert item == TextDelta("one t")
                break
        await asyncio.to_thread(openai_server.wait_for_requests, 1, outcome="client_left")
        await model.aclose()

    openai_server.push({"hang": "half", "text": "one two three four ", "chunks": 4})
    asyncio.run(leave())


@pytest.mark.parametrize("place", ["accept", "headers", "half"])
def test_a_cancelled_call_closes_the_connection(openai_server: ScriptedOpenAI, place: str) -> None:
    async def cancel() -> None:
        model = model_at(openai_server.base_url)
        task = asyncio.create_task(_collect(model))
        await asyncio.to_thread(openai_server.wait_for_requests, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(openai_server.wait_for_requests, 1, outcome="client_left")
        await model.aclose()

    openai_server.push({"hang": place, "text": "one two three four"})
    asyncio.run(cancel())


def test_calls_at_the_same_time_do_not_mix(openai_server: ScriptedOpenAI) -> None:
    async def both() -> list[str]:
        model = model_at(openai_server.base_url)
        try:
            return await asyncio.gather(*(_collect(model, word) for word in ("one", "two", "三")))
        finally:
            await model.aclose()

    assert asyncio.run(both()) == ["echo: one", "echo: two", "echo: 三"]


def test_a_closed_model_opens_again(openai_server: ScriptedOpenAI) -> None:
    model = model_at(openai_server.base_url)
    assert [answer(model).text, answer(model).text] == ["echo: Hello", "echo: Hello"]


def test_nothing_of_a_call_is_logged(
    openai_server: ScriptedOpenAI, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_LOG", "debug")
    with caplog.at_level(logging.DEBUG):
        answer(model_at(openai_server.base_url), [Message("user", "my secret diary")])
    assert not [
        record for record in caplog.records if record.name.split(".")[0] in ("openai", "httpx2", "httpcore2")
    ]


def test_the_cache_key_goes_to_openai_alone() -> None:
    model = model_at("https://api.openai.com/v1")
    assert model._request(HELLO, (), 100, cache_key="k", allow_tools=True)["prompt_cache_key"] == "k"
    model = model_at("https://api.deepseek.com")
    assert "prompt_cache_key" not in model._request(HELLO, (), 100, cache_key="k", allow_tools=True)


async def _collect(model: object, word: str = "Hello") -> str:
    stream = model.stream([Message("user", word)], (), max_output_tokens=100)  # type: ignore[attr-defined]
    return "".join([item.text async for item in stream if isinstance(item, TextDelta)])
