"""A database in a temporary directory, a clock that stands still, and things said on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pikobot.clock import Clock
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from pikobot.store.scopes import MAIN_WORKSPACE, Scope, ensure_scope, owner_scope
from pikobot.store.sources import NewSource, Origin, Role, delete_source, find_source, insert_source
from pikobot.store.threads import ensure_thread

NOW_MS = 1_709_300_000_000  # 2024-03-01T13:33:20Z
MINUTE_MS = 60_000
DAY_MS = 86_400_000


class StillClock:
    """Time stands still; ids count upwards."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.now = now_ms
        self.tokens = 0

    def now_ms(self) -> int:
        return self.now

    def token(self, prefix: str) -> str:
        self.tokens += 1
        return f"{prefix}_{self.tokens}"


@contextmanager
def opened(directory: Path, clock: Clock | None = None) -> Iterator[Database]:
    db = open_database(directory / "pikobot.sqlite3", clock or StillClock())
    try:
        yield db
    finally:
        db.close()


def say(
    db: Database,
    *texts: str,
    at_ms: int = NOW_MS,
    role: Role = "user",
    speaker: str = "owner",
    origin: Origin = "said",
    scope: Scope | None = None,
    thread: str = "t1",
    expires_at_ms: int | None = None,
    utc_offset_min: int = 0,
    external_id: str | None = None,
) -> list[str]:
    """Store the texts a minute apart; returns their public ids."""

    def store(db: Database) -> list[str]:
        with db.write("say") as tx:
            scope_id = ensure_scope(tx, scope or owner_scope(MAIN_WORKSPACE))
            thread_id = ensure_thread(tx, scope_id, thread, db.clock).id
            ids = [
                insert_source(
                    tx,
                    NewSource(
                        role=role,
                        speaker=speaker,
                        scope_id=scope_id,
                        thread_id=thread_id,
                        text=text,
                        origin=origin,
                        said_at_ms=at_ms + position * MINUTE_MS,
                        utc_offset_min=utc_offset_min,
                        external_id=external_id,
                        expires_at_ms=expires_at_ms,
                    ),
                    db.clock,
                )
                for position, text in enumerate(texts)
            ]
            return [
                str(tx.execute("SELECT public_id FROM sources WHERE id = ?", (source_id,)).fetchall()[0][0])
                for source_id in ids
            ]

    return db.perform(store)


def erase(db: Database, public_id: str) -> None:
    """Remove a source and leave a tombstone."""

    def remove(db: Database) -> None:
        with db.write("erase") as tx:
            source = find_source(tx, public_id, now_ms=0)
            assert source is not None
            identity = tx.execute("SELECT identity FROM sources WHERE id = ?", (source.id,)).fetchall()[0][0]
            delete_source(tx, source.id)
            tx.execute(
                """
                INSERT INTO erasures (position, entity, public_id, identity, erased_at_ms, hash)
                VALUES ((SELECT count(*) + 1 FROM erasures), 'source', ?, ?, 0, zeroblob(32))
                """,
                (public_id, identity),
            )

    db.perform(remove)
