"""Rows that come and go until SQLite moves them between pages, and the bytes of its files."""

import random
from pathlib import Path

from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.pages import open_raw
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import NewSource, SourceId, delete_source, insert_source
from pikobot.store.threads import ensure_thread
from tests.memory.conversing import write


def churn(db: Database, *, seed: int = 1) -> list[bytes]:
    """Insert and delete so much that SQLite moves rows between pages; returns the marks of what was deleted."""
    chance = random.Random(seed)

    def fill(tx: Connection) -> dict[SourceId, str]:
        scope = ensure_scope(tx, owner_scope())
        thread = ensure_thread(tx, scope, "churn", db.clock).id
        marks = {}
        for at in range(800):
            mark = f"mark{chance.randrange(10**9):09}x"
            text = f"{mark} " + "filler " * chance.choice([1, 5, 20, 100, 400])
            new = NewSource(
                role="user",
                speaker="o",
                scope_id=scope,
                thread_id=thread,
                text=text,
                origin="said",
                said_at_ms=at,
            )
            marks[insert_source(tx, new, db.clock)] = mark
        return marks

    def delete(tx: Connection, ids: list[SourceId]) -> None:
        for source_id in ids:
            delete_source(tx, source_id)

    marks = write(db, fill)
    order = list(marks)
    chance.shuffle(order)
    gone = order[:650]
    for start in range(0, len(gone), 10):
        write(db, delete, gone[start : start + 10])
    return [marks[source_id].encode() for source_id in gone]


def raw_bytes(path: Path) -> bytes:
    with open_raw(path) as raw:
        return raw(0, raw.size)
