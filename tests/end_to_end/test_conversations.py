"""Conversations as their owner finds them again: lists, names, languages, questions about a time."""

from pathlib import Path

from pikobot.cli.import_ import import_
from pikobot.errors import ExitCode

from .instances import Outcome, ask, make_instance


def imported(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "chat.jsonl"
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return file


def test_a_conversation_is_found_by_its_name_among_many(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    lines = [f'{{"thread":"t{number}","role":"user","text":"note {number}"}}' for number in range(30)]
    assert import_("jsonl", str(imported(tmp_path, *lines)), instance.root) == ExitCode.DONE
    shown = ask(instance, "/threads").out.splitlines()
    assert len(shown) == 21
    assert shown.pop() == (f"… and more, older ones: `pikobot rpc threads.list {instance.option}` lists all.")
    assert shown[0].endswith("  1 message  t29 “note 29”")
    assert ask(instance, "/forget thread --yes", thread="t3").code == 0
    assert "“note 3”" not in ask(instance, "Which note 3?").out


def test_commands_speak_their_own_language_or_that_of_their_conversation(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    assert ask(instance, "/threads").out == "No conversations yet.\n"
    ask(instance, "我搬到波尔图了", thread="搬家")
    assert ask(instance, "/threads", thread="搬家").out.endswith("  2 条消息  搬家 “我搬到波尔图了”\n")
    ask(instance, "ok", thread="搬家")
    assert "回忆模式" in ask(instance, "/status", thread="搬家").out
    assert "recall" in ask(instance, "/status").out
    ask(instance, "Where did I move?", thread="搬家")
    assert "recall" in ask(instance, "/status", thread="搬家").out
    assert "回忆模式" in ask(instance, "/状态", thread="搬家").out


def test_what_was_answered_by_quoting_is_not_memory_and_goes_with_what_it_quotes(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    ask(instance, "I moved to Porto in March 2024")
    assert ask(instance, "What did I do in March 2024?").out.startswith("From March 2024, or about it:\n- ")
    assert ask(instance, "今天我说了什么？").out.count("“") == 1
    assert ask(instance, "/forget Porto --yes").code == 0
    assert ask(instance, "What did I do in March 2024?") == Outcome(
        0,
        "I found no statement from March 2024, nor about it. Other words for the time, or a subject, may find it.\n",
        "",
    )
