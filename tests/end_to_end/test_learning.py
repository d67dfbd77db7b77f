"""From something said to a fact, to an answer that rests on it, to its explanation and its end."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.instances import Outcome, answers, ask, files_with, make_instance, rows, run
from tests.servers.openai_server import ScriptedOpenAI, extract, status, text, tool_calls

CAT = {
    "en": {
        "said": "My cat is called Miso, she is three",
        "quote": "My cat is called Miso",
        "fact": "The owner's cat is called Miso",
        "question": "What is my cat called?",
        "query": "cat",
    },
    "zh": {
        "said": "我的猫叫米粒，三岁了",
        "quote": "我的猫叫米粒",
        "fact": "主人的猫叫米粒",
        "question": "我的猫叫什么？",
        "query": "猫",
    },
}


def learned(said: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "text": said["fact"],
        "attributed_to": "user",
        "subject": "owner",
        "kind": "fact",
        "evidence": [{"source_id": "owner:last", "quote": said["quote"]}],
        **changes,
    }


def today(instance: Any) -> str:
    """The day of the first message where it was said, which is this machine's."""
    [(day,)] = rows(
        instance,
        "SELECT date((said_at_ms + utc_offset_min * 60000) / 1000, 'unixepoch') FROM sources ORDER BY id LIMIT 1",
    )
    return str(day)


@pytest.mark.parametrize(("code", "named"), [(302, "302"), (500, "500"), (401, "key")])
def test_work_that_a_provider_fails_says_so_and_is_left_for_later(
    tmp_path: Path, openai_server: ScriptedOpenAI, code: int, named: str
) -> None:
    instance = make_instance(tmp_path / "i", openai_server, extraction_enabled="true")
    openai_server.push(text("ok"), *[status(code, {})] * 5)
    ask(instance, CAT["en"]["said"], thread="first")
    done = run("work", "--drain", "--instance", str(instance.root))
    assert (done.code, done.out) == (5, "")
    assert done.err.startswith("not all is learned: learning failed (")
    assert named in done.err


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_is_said_is_learned_found_read_and_explained(
    tmp_path: Path, openai_server: ScriptedOpenAI, language: str
) -> None:
    said = CAT[language]
    instance = make_instance(tmp_path / "i", openai_server, extraction_enabled="true")
    openai_server.push(text("ok"), extract(learned(said)))
    ask(instance, said["said"], thread="first")
    assert run("work", "--drain", "--instance", str(instance.root)).code == 0
    assert rows(instance, "SELECT state, outcome, stored_facts FROM extraction_jobs") == [
        ("succeeded", "stored", 1)
    ]
    [(fact_id,)] = rows(instance, "SELECT public_id FROM facts")
    [(source_id,)] = rows(instance, "SELECT public_id FROM sources WHERE role = 'user'")
    openai_server.push(
        tool_calls(("memory_search", json.dumps({"query": said["query"]}))),
        tool_calls(("memory_read", json.dumps({"id": fact_id}))),
        text("42"),
    )
    assert ask(instance, said["question"], thread="later").out == "42\n"
    read = json.loads(openai_server.requests()[-1].body["messages"][-1]["content"])
    assert (read["id"], read["evidence"][0]["id"], read["evidence"][0]["quote"]) == (
        fact_id,
        source_id,
        said["quote"],
    )
    explained = ask(instance, "/why" if language == "en" else "/为什么", thread="later")
    day, quote = today(instance), said["quote"]
    assert (explained.code, explained.err) == (0, "")
    lines = explained.out.splitlines()
    expected = {
        "en": [
            "",
            "Looked up in memory:",
            f"• {said['fact']} [drawn from what was said]",
            f"    {day}, you: “{quote}”  (/forget {source_id})",
            "",
            "Forgetting a statement forgets everything that was made from it.",
        ],
        "zh": [
            "",
            "查到的记忆：",
            f"• {said['fact']} ［从说过的话中得出］",
            f"    {day}，你：“{quote}”（/忘记 {source_id}）",
            "",
            "忘记一条原话，会一并忘记由它得出的一切。",
        ],
    }
    assert lines[1:] == expected[language]


def test_a_correction_is_kept_explained_and_forgotten_for_good(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server, extraction_enabled="true")
    openai_server.push(text("ok"), extract(learned(CAT["en"], attribute="home_city", value="Lisbon")))
    ask(instance, CAT["en"]["said"], thread="first")
    run("work", "--drain", "--instance", str(instance.root))
    [(fact_id,)] = rows(instance, "SELECT public_id FROM facts")
    correction = {
        "id": fact_id,
        "quote": "she is called Momo",
        "value": "Momo",
    }
    openai_server.push(tool_calls(("memory_correct", json.dumps(correction))), text("Momo, then."))
    assert ask(instance, "No, she is called Momo", thread="later") == Outcome(
        0, "Momo, then.\n", "remembering…\n"
    )
    [(old_id, new_id)] = rows(
        instance,
        "SELECT o.public_id, n.public_id FROM sources AS o JOIN sources AS n ON n.id > o.id AND n.role = 'user' "
        "WHERE o.role = 'user'",
    )
    lines = ask(instance, "/why", thread="later").out.splitlines()
    assert lines[2:7] == [
        "Looked up in memory:",
        "• she is called Momo [you asked to remember it]",
        f"    {today(instance)}, you: “she is called Momo”  (/forget {new_id})",
        f"    it replaced: {CAT['en']['fact']} — {today(instance)}, you: “{CAT['en']['quote']}”  "
        f"(/forget {old_id})",
        "",
    ]
    assert ask(instance, f"/forget {new_id} --yes").code == 0
    assert ask(instance, "/why", thread="later").out == "There is no answer to explain here yet.\n"
    assert [text for text, _ in answers(instance)] == ["ok"]
    assert rows(instance, "SELECT text, superseded_by_id FROM facts") == [(CAT["en"]["fact"], None)]
    assert files_with(instance, "Momo") == []


def test_an_answer_without_memory_says_so(tmp_path: Path, openai_server: ScriptedOpenAI) -> None:
    instance = make_instance(tmp_path / "i", openai_server, extraction_enabled="true")
    assert ask(instance, "/why").out == "There is no answer to explain here yet.\n"
    openai_server.push(text("hi"))
    ask(instance, "hello")
    assert ask(instance, "/why").out == "The last answer used no memory: nothing but this conversation.\n"
    assert ask(instance, "/为什么").out == "上一个回答没有使用记忆，只用了这段对话。\n"
    assert len(openai_server.requests()) == 1


def test_recall_mode_is_explained_by_what_it_quotes(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    ask(instance, "我的猫叫米粒", thread="cats")
    assert "“我的猫叫米粒”" in ask(instance, "我的猫叫什么？", thread="cats").out
    [(source_id,)] = rows(instance, "SELECT public_id FROM sources ORDER BY id LIMIT 1")
    assert ask(instance, "/为什么", thread="cats").out.splitlines()[1:4] == [
        "",
        "读过的原话：",
        f"• {today(instance)}，你：“我的猫叫米粒”（/忘记 {source_id}）",
    ]


def test_learning_sees_neither_the_prompt_nor_what_was_recalled(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    instance = make_instance(tmp_path / "i", openai_server, extraction_enabled="true")
    openai_server.push(text("ok"), extract(learned(CAT["en"], attribute="preferred_name", value="Miso")))
    ask(instance, CAT["en"]["said"], thread="first")
    run("work", "--drain", "--instance", str(instance.root))
    openai_server.push(
        tool_calls(("memory_search", '{"query": "three"}')), text("Hello."), text('{"memory":[]}')
    )
    ask(instance, "Say hello", thread="later")
    assert "<owner_basics>" in openai_server.requests()[-1].body["messages"][1]["content"]
    run("work", "--drain", "--instance", str(instance.root))
    [_, prompt] = openai_server.requests()[-1].body["messages"]
    new = prompt["content"].partition("## New Messages\n")[2].partition("\n\n")[0].splitlines()
    assert [json.loads(line.partition(": ")[2])["text"] for line in new] == ["Say hello", "Hello."]
    assert "owner_basics" not in prompt["content"]
    assert rows(instance, "SELECT state, outcome FROM extraction_jobs ORDER BY id") == [
        ("succeeded", "stored"),
        ("succeeded", "nothing"),
    ]
