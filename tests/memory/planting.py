"""Marks in every place that a message reaches, and the look for them in the bytes of an instance."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pikobot.memory.forgetting.receipts import AlreadyErased, Changed, Receipt
from pikobot.store.connection import Database
from pikobot.store.erasing.pages import open_raw
from tests.memory.conversing import Exchange, attach, exchange

ENGLISH = "zanzibarite-7731"
CHINESE = "紫水晶藏宝图"
MARKS = (ENGLISH, CHINESE)


def receipt_of(outcome: Receipt | AlreadyErased | Changed) -> Receipt:
    assert isinstance(outcome, Receipt)
    return outcome


def everything(root: Path) -> bytes:
    """All bytes of all files, SQLite's index of its WAL left out. Only after the database was closed or copied."""
    return b"\0".join(file.read_bytes() for file in sorted(root.rglob("*")) if file.is_file())


def on_disk(db: Database) -> bytes:
    """The same while it is open."""
    parts = []
    for file in sorted(db.path.parent.iterdir()):
        if file.name.startswith(db.path.name):
            if not file.name.endswith("-shm"):
                with open_raw(file) as raw:
                    parts.append(raw(0, file.stat().st_size))
        elif file.is_file():
            parts.append(file.read_bytes())
    return b"\0".join(parts)


def marks_in(data: bytes) -> list[str]:
    forms = {
        mark: (mark.encode(), json.dumps(mark)[1:-1].encode(), mark.encode("utf-16-le")) for mark in MARKS
    }
    return [mark for mark, spellings in forms.items() if any(spelling in data for spelling in spellings)]


def plant(db: Database) -> Exchange:
    """The marks in a message, what was made of it, an attachment, its name, a transcript and a thread's name."""
    marks = " ".join(MARKS)
    secret = exchange(
        db, f"the code is {marks}", f"noted: {marks}", thread=f"about {marks}", transcript=[marks]
    )
    attach(db, secret.request, marks.encode() * 2000, f"{marks}.txt")
    assert secret.answer is not None
    exchange(db, "what was the code?", f"it was {marks}", reads=[secret.request, secret.answer])
    exchange(db, "remind me", transcript=[marks], reads=[secret.answer], is_leased=True, thread="reminder")
    return secret


@contextmanager
def copied_at_every_statement(db: Database, into: Path) -> Iterator[list[Path]]:
    """Copies of the files as a kill before each statement of the block would leave them, oldest first."""
    copies: list[Path] = []

    def copy(cursor: object, sql: str, bindings: object) -> bool:
        target = into / f"at-{len(copies)}"
        target.mkdir()
        for file in db.path.parent.iterdir():
            if file.is_file() and not file.name.endswith("-shm"):
                shutil.copy(file, target)
        copies.append(target)
        return True

    db.perform(lambda db: setattr(db.maintenance_connection(), "exec_trace", copy))
    yield copies
    db.perform(lambda db: setattr(db.maintenance_connection(), "exec_trace", None))
