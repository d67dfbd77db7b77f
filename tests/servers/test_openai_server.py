import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.servers.openai_server import (
    REPOSITORY,
    Received,
    ScriptedOpenAI,
    extract,
    status,
    text,
    tool_calls,
)


def _post(server: ScriptedOpenAI, **body: Any) -> Any:
    document = {"model": "m", "messages": [{"role": "user", "content": "你好"}], **body}
    request = urllib.request.Request(f"{server.base_url}/chat/completions", json.dumps(document).encode())
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def test_it_runs_as_a_command_with_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps([text("scripted")]), "utf-8")
    command = [sys.executable, "-m", "tests.servers.openai_server", "--port", "0", "--script", str(script)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            base_url = f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
            with urllib.request.urlopen(f"{base_url}/models") as response:
                assert json.load(response)["data"] == [{"id": "scripted", "object": "model"}]
        finally:
            process.kill()


def test_answers_that_are_not_streamed_come_as_one_document(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(text("一", usage=None), tool_calls(("search", "{}")))
    first, second = _post(openai_server), _post(openai_server)
    assert (first["choices"][0]["message"], first["usage"]) == ({"role": "assistant", "content": "一"}, None)
    assert second["choices"][0] == {
        "index": 0,
        "finish_reason": "tool_calls",
        "message": {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": {"name": "search", "arguments": "{}"}}
            ],
        },
    }


def test_a_step_with_a_match_waits_for_its_request(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(text("for the other", match="世界"), text("first"))
    answers = [_post(openai_server), _post(openai_server, messages=[{"role": "user", "content": "世界"}])]
    assert [one["choices"][0]["message"]["content"] for one in answers] == ["first", "for the other"]


def test_an_extraction_is_answered_with_the_ids_in_its_request(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(
        extract(
            {
                "text": "住在波尔图",
                "evidence": [{"source_id": "owner:last", "quote": "是的"}],
                "depends_on": ["assistant:0"],
            },
            {"text": "odd", "evidence": [{"source_id": "src_none", "quote": "x"}]},
        )
    )
    turns = [("user", "owner", "src_1"), ("assistant", "assistant", "src_2"), ("user", "owner", "src_3")]
    prompt = "\n".join(
        f"{side}: " + json.dumps({"source_id": id_, "role": role, "text": "是的"})
        for side, role, id_ in turns
    )
    answer = _post(openai_server, messages=[{"role": "user", "content": prompt}])
    assert json.loads(answer["choices"][0]["message"]["content"]) == {
        "memory": [
            {
                "id": "0",
                "text": "住在波尔图",
                "evidence": [{"source_id": "src_3", "quote": "是的"}],
                "depends_on": ["src_2"],
            },
            {
                "id": "1",
                "text": "odd",
                "evidence": [{"source_id": "src_none", "quote": "x"}],
                "depends_on": [],
            },
        ]
    }


def test_without_a_step_it_echoes_and_everything_received_is_kept(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(status(429, {}, retry_after="3"))
    with pytest.raises(urllib.error.HTTPError) as failed:
        _post(openai_server)
    failed.value.close()
    assert failed.value.headers["Retry-After"] == "3"
    assert _post(openai_server)["choices"][0]["message"]["content"] == "echo: 你好"
    first, second = openai_server.wait_for_requests(2, outcome="answered")
    assert isinstance(first, Received)
    assert second.body == {"model": "m", "messages": [{"role": "user", "content": "你好"}]}
    assert openai_server.steps_left() == 0


def test_a_stopped_server_starts_again_empty(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(text("never"))
    openai_server.stop()
    openai_server.reset()
    assert (openai_server.requests(), openai_server.steps_left()) == ([], 0)
