"""The shared conversations and their questions, with the records that hold each answer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDERS = ("locomo", "lifebench-zh")


@dataclass(frozen=True)
class Question:
    """``evidence`` holds one set of record ids for each piece of gold evidence; any of a set will do."""

    text: str
    category: int | str
    evidence: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Conversation:
    folder: str
    name: str
    file: Path
    records: tuple[dict[str, Any], ...]
    questions: tuple[Question, ...]


def load_conversations(data: Path, folder: str) -> list[Conversation]:
    """Every conversation of the folder that has questions with evidence, by name."""
    questions = _lines(data / folder / "questions.jsonl")
    return [
        _conversation(
            folder, file, [q for q in questions if q["conversation"] == file.stem and q["evidence"]]
        )
        for file in sorted((data / folder).glob("*.jsonl"))
        if file.stem != "questions"
    ]


def _conversation(folder: str, file: Path, questions: list[dict[str, Any]]) -> Conversation:
    records = _lines(file)
    ids = [record["id"] for record in records]
    known = [
        Question(
            q["question"], q["category"], tuple(_record_ids(ids, evidence) for evidence in q["evidence"])
        )
        for q in questions
    ]
    return Conversation(folder, file.stem, file, tuple(records), tuple(known))


def _record_ids(ids: list[str], evidence: str) -> frozenset[str]:
    """An evidence id names a record, or the records that go on after it and a colon."""
    return frozenset(
        record_id for record_id in ids if record_id == evidence or record_id.startswith(f"{evidence}:")
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
