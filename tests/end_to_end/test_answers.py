"""One answer from start to stop, against the scripted provider; every `ask` opens the instance anew."""

import json
from pathlib import Path

import pytest

from pikobot.agent import loop
from pikobot.credentials import save_credential
from tests.end_to_end.instances import (
    Outcome,
    answers,
    ask,
    attempt_states,
    files_with,
    make_instance,
    rows,
    run_states,
)
from tests.servers.openai_server import ScriptedOpenAI, Step, status, text, tool_calls

KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "FIRST_PAUSE_S", 0.01)


def test_an_answer_is_printed_and_nothing_else(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(text("你好，**Porto**!\n", reasoning="hidden thoughts", chunks=7))
    assert ask(instance, "hello") == Outcome(0, "你好，**Porto**!\n", "")
    assert (run_states(instance), attempt_states(instance)) == ([("succeeded", None)], ["succeeded"])
    assert answers(instance) == [("你好，**Porto**!\n", 0)]
    assert files_with(instance, "hidden thoughts") == []


def test_a_tool_finds_what_was_said_and_the_answer_depends_on_it(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(text("Noted."), tool_calls(("memory_search", '{"query":"Porto"}')), text("In March."))
    ask(instance, "I moved to Porto in March 2024")
    assert ask(instance, "When did I move to Porto?") == Outcome(0, "In March.\n", "searching memory…\n")
    result = json.loads(openai_server.requests()[2].body["messages"][-1]["content"])
    assert "I moved to Porto in March 2024" in [record["text"] for record in result["results"]]
    assert "When did I move to Porto?" not in [record["text"] for record in result["results"]]
    sql = """
        SELECT t.text FROM source_dependencies AS d
        JOIN sources AS t ON t.id = d.depends_on_id JOIN sources AS a ON a.id = d.source_id
        WHERE a.text = 'In March.' ORDER BY t.id
    """
    assert {"I moved to Porto in March 2024", "When did I move to Porto?"} <= {
        row[0] for row in rows(instance, sql)
    }


def test_a_malformed_tool_call_is_mended_by_the_model(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(
        tool_calls(("memory_search", '{"query": "Por')),
        tool_calls(("memory_serach", "{}")),
        tool_calls(("memory_search", '{"query": "Porto"}')),
        text("Nothing was said about it."),
    )
    assert ask(instance, "Porto?").out == "Nothing was said about it.\n"
    sent = [json.loads(one.body["messages"][-1]["content"]) for one in openai_server.requests()[1:]]
    assert ["error" in result for result in sent] == [True, True, False]
    assert "not valid JSON" in sent[0]["error"]
    assert "there is no tool 'memory_serach'" in sent[1]["error"]


def test_a_limited_rate_is_waited_for(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(status(429, {}, retry_after="0"), status(429, {}), text("at last"))
    outcome = ask(instance, "hello")
    assert (outcome.code, outcome.out) == (0, "at last\n")
    assert outcome.err.count("trying again in") == 2
    assert attempt_states(instance) == ["failed", "failed", "succeeded"]


FAILURES: list[tuple[Step, dict[str, object], str, str]] = [
    (status(500, {}), {}, "server_error", "failed; it may have charged"),
    ({"hang": "accept"}, {"chat_timeout_s": 0.3}, "timed_out", "sent nothing for 0.3 s"),
    ({"hang": "headers"}, {"chat_timeout_s": 0.3}, "timed_out", "chat.timeout_s"),
    ({"keepalive": True}, {"chat_timeout_s": 0.3}, "timed_out", "chat.timeout_s"),
    ({"keepalive": True}, {"chat_run_timeout_s": 0.5}, "deadline", "chat.run_timeout_s = 0.5"),
    ({"malformed": "html"}, {}, "malformed", "not a chat completion stream"),
    ({"malformed": "document"}, {}, "malformed", "not a chat completion stream"),
    ({"malformed": "types"}, {}, "malformed", ""),
    ({"malformed": "json"}, {}, "malformed", ""),
]


@pytest.mark.parametrize(("step", "settings", "code", "reason"), FAILURES, ids=lambda value: str(value)[:40])
def test_a_failure_that_may_have_charged_ends_unknown_and_is_not_repeated(
    tmp_path: Path,
    openai_server: ScriptedOpenAI,
    step: Step,
    settings: dict[str, object],
    code: str,
    reason: str,
) -> None:
    instance = make_instance(tmp_path / "i", openai_server, **settings)
    openai_server.push(step)
    outcome = ask(instance, "hello", thread="t")
    assert (outcome.code, outcome.out) == (5, "")
    assert "error: " in outcome.err
    assert reason in outcome.err
    assert "incomplete" not in outcome.err
    assert (run_states(instance), attempt_states(instance)) == ([("unknown", code)], ["unknown"])
    openai_server.push(text("next"))
    assert ask(instance, "again", thread="t").out == "next\n"
    assert len(openai_server.requests()) == 2
    assert [state for state, _ in run_states(instance)] == ["unknown", "succeeded"]


@pytest.mark.parametrize("kind", ["truncate", "reset"])
def test_a_broken_answer_is_shown_kept_and_flagged(
    tmp_path: Path, openai_server: ScriptedOpenAI, kind: str
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push({kind: "The answer is forty-two.", "chunks": 2, "delay_ms": 50}, text("next"))
    outcome = ask(instance, "hello", thread="t")
    assert (outcome.code, outcome.out) == (5, "The answer i\n")
    assert "The answer above is incomplete." in outcome.err
    assert answers(instance) == [("The answer i", 1)]
    assert run_states(instance) == [("unknown", "truncated")]
    ask(instance, "go on", thread="t")
    assert {"role": "assistant", "content": "The answer i […]"} in openai_server.requests()[1].body[
        "messages"
    ]


@pytest.mark.parametrize(
    ("step", "notice"),
    [
        ({"length": "It was a dark and"}, "cut off at chat.max_output_tokens"),
        (text("It was a dark and", finish_reason="content_filter"), "content filter"),
    ],
    ids=["length", "content_filter"],
)
def test_an_answer_that_was_cut_off_says_so(
    tmp_path: Path, openai_server: ScriptedOpenAI, step: Step, notice: str
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(step)
    outcome = ask(instance, "hello")
    assert (outcome.code, outcome.out) == (0, "It was a dark and\n")
    assert notice in outcome.err
    assert answers(instance) == [("It was a dark and", 1)]


def test_a_very_long_answer_comes_whole(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push({"big": 200_000})
    outcome = ask(instance, "hello")
    assert (outcome.code, outcome.out) == (0, "x" * 200_000 + "\n")
    assert answers(instance) == [("x" * 200_000, 0)]


@pytest.mark.parametrize(
    ("code", "error_code", "reason"),
    [
        (401, "unauthorized", "refused the API key; check PIKOBOT_CHAT_API_KEY"),
        (402, "payment_required", "wants to be paid"),
        (404, "not_found", "check chat.base_url and chat.model"),
        (400, "refused_request", "refused the request"),
    ],
)
def test_a_refusal_costs_nothing_and_names_the_remedy(
    tmp_path: Path,
    openai_server: ScriptedOpenAI,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error_code: str,
    reason: str,
) -> None:
    monkeypatch.setenv("PIKOBOT_CHAT_API_KEY", KEY)
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(status(code, {"error": {"message": f"no such thing as {KEY}"}}))
    outcome = ask(instance, "hello")
    assert (outcome.code, outcome.out) == (5, "")
    assert reason in outcome.err
    assert KEY not in outcome.err
    assert openai_server.requests()[0].headers["authorization"] == f"Bearer {KEY}"
    assert (run_states(instance), attempt_states(instance)) == ([("failed", error_code)], ["failed"])
    assert files_with(instance, KEY) == []


def test_a_key_in_the_credentials_is_used_and_stays_there(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    save_credential(instance.credentials_path, "chat_api_key", KEY)
    ask(instance, "hello")
    assert openai_server.requests()[0].headers["authorization"] == f"Bearer {KEY}"
    assert files_with(instance, KEY) == ["credentials.toml"]


def test_a_provider_that_is_not_there_is_tried_a_few_times(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.stop()
    outcome = ask(instance, "hello")
    assert (outcome.code, outcome.out) == (5, "")
    assert "check the network and chat.base_url" in outcome.err
    assert (run_states(instance), attempt_states(instance)) == ([("failed", "unreachable")], ["failed"] * 4)


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"chat_price_input": 1, "chat_price_output": 1, "budget_run_usd": 0.000001}, "budget.run_usd"),
        (
            {"chat_price_input": 1, "chat_price_output": 1, "budget_workspace_usd_per_month": 0.000001},
            "budget.workspace_usd_per_month",
        ),
    ],
)
@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_a_budget_refuses_before_anything_is_sent(
    tmp_path: Path, openai_server: ScriptedOpenAI, settings: dict[str, object], key: str, is_ephemeral: bool
) -> None:
    instance = make_instance(tmp_path / "i", openai_server, **settings)
    outcome = ask(instance, "hello", is_ephemeral=is_ephemeral)
    assert (outcome.code, outcome.out) == (5, "")
    assert f"raise {key} with `pikobot init --set {key}=… {instance.option}`" in outcome.err
    assert (openai_server.requests(), attempt_states(instance)) == ([], [])


def test_a_provider_with_unknown_prices_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIKOBOT_CHAT_API_KEY", KEY)
    settings = {"chat_base_url": "https://models.invalid/v1", "chat_model": "unknown"}
    instance = make_instance(tmp_path / "我的 i", None, chat_provider="custom", **settings)
    outcome = ask(instance, "hello")
    assert outcome.code == 5
    assert f"--set chat.price_output=… {instance.option}`" in outcome.err


def test_costs_are_counted_from_the_reported_usage(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    prices = {"chat_price_input": 1, "chat_price_cached_input": 0.5, "chat_price_output": 2}
    instance = make_instance(tmp_path / "i", openai_server, **prices)
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 40}}
    openai_server.push(text("hi", usage=usage))
    ask(instance, "hello")
    assert rows(instance, "SELECT cost_microusd, cached_input_tokens FROM attempts") == [(60 + 20 + 20, 40)]


def test_a_named_thread_goes_on_and_a_message_without_one_stands_alone(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(text("a1"), text("a2"), text("a3"))
    for message, thread in (("one", "旅行"), ("two", "旅行"), ("three", None)):
        assert ask(instance, message, thread=thread).code == 0
    sent = [
        [each["content"].rpartition("] ")[2] for each in one.body["messages"][1:]]
        for one in openai_server.requests()
    ]
    assert sent == [["one"], ["one", "a1", "two"], ["three"]]
    first, second = (one.body["messages"] for one in openai_server.requests()[:2])
    assert second[: len(first)] == first


@pytest.mark.parametrize(
    "step", [text("an ephemeral answer"), {"truncate": "an ephemeral answer"}], ids=["whole", "broken"]
)
def test_an_ephemeral_request_leaves_no_byte_of_text_in_the_instance(
    tmp_path: Path, openai_server: ScriptedOpenAI, step: Step
) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(tool_calls(("memory_search", '{"query":"zeppelin"}')), step)
    ask(instance, "where is my zeppelin 飞艇", is_ephemeral=True)
    assert [
        name
        for name in ("sources", "runs", "threads", "run_transcript")
        if rows(instance, f"SELECT 1 FROM {name}")
    ] == []
    assert attempt_states(instance) == ["succeeded", "succeeded" if "text" in step else "unknown"]
    assert files_with(instance, "zeppelin", "飞艇", "ephemeral a") == []


def test_an_ephemeral_request_can_search_what_was_kept(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server)
    openai_server.push(text("Noted."), tool_calls(("memory_search", '{"query":"Porto"}')), text("Yes."))
    ask(instance, "I moved to Porto")
    assert ask(instance, "Porto?", is_ephemeral=True).out == "Yes.\n"
    assert "I moved to Porto" in openai_server.requests()[2].body["messages"][-1]["content"]
    assert len(rows(instance, "SELECT 1 FROM sources")) == 2


def test_without_a_model_the_statement_is_quoted_however_often_it_is_asked_for(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    noted = ask(instance, "I moved to Porto in March 2024")
    assert noted.out == "Noted.\n"
    assert "chat_api_key" in noted.err  # once
    assert ask(instance, "2024年3月我搬到了波尔图") == Outcome(0, "已记下。\n", "")
    for question, head, quote in (
        ("Where did I move?", "This is what was said:", ", you: “I moved to Porto in March 2024”"),
        ("我搬到哪里了？", "找到这些原话：", "，你：“2024年3月我搬到了波尔图”"),
    ):
        first, second = ask(instance, question), ask(instance, question)
        assert first == second
        assert [first.out.splitlines()[0], len(first.out.splitlines())] == [head, 2]
        assert first.out.endswith(quote + "\n")
        assert first.err == ""


def test_without_a_model_an_ephemeral_question_leaves_nothing(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    ask(instance, "I moved to Porto")
    assert "“I moved to Porto”" in ask(instance, "Did I move, quizzically?", is_ephemeral=True).out
    assert files_with(instance, "quizzically", "what was said") == []
