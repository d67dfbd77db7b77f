"""What somebody may ask to forget: sources by id, by a literal in their text, or at the end of a thread.

Expired sources are found too: until they are pruned they can be forgotten like any other.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import SourceId
from pikobot.store.threads import ThreadId


@dataclass(frozen=True)
class SourceGlance:
    """As much of a source as somebody needs to recognise it."""

    public_id: str
    role: str
    speaker: str
    said_at_ms: int
    utc_offset_min: int
    beginning: str


def find_ids(
    conn: Connection, public_ids: Iterable[str], scope_ids: Collection[ScopeId] | None
) -> dict[str, SourceId]:
    """The sources of those public ids in the scopes (None: all), those that exist."""
    found = {}
    for public_id in public_ids:
        row = conn.execute(
            """
            SELECT id FROM sources
            WHERE public_id = :id AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
            """,
            {"id": public_id, "scopes": _json(scope_ids)},
        ).fetchone()
        if row is not None:
            found[public_id] = SourceId(row[0])
    return found


def find_containing(
    conn: Connection, literal: str, scope_ids: Collection[ScopeId] | None, *, up_to: SourceId
) -> list[SourceId]:
    """Sources up to an id whose text contains the literal in any case; reads every text of the scopes."""
    rows = conn.execute(
        """
        SELECT id FROM sources
        WHERE id <= :up_to AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
          AND contains_folded(text, :folded)
        ORDER BY id
        """,
        {"up_to": up_to, "scopes": _json(scope_ids), "folded": literal.casefold()},
    )
    return [SourceId(row[0]) for row in rows]


def find_last_exchange(conn: Connection, thread_id: ThreadId) -> list[SourceId]:
    """The thread's last request and what came after it; empty when nobody has asked anything."""
    rows = conn.execute(
        """
        SELECT id FROM sources
        WHERE thread_id = :thread AND id >= (
            SELECT max(id) FROM sources WHERE thread_id = :thread AND role = 'user' AND kind = 'message'
        )
        ORDER BY id
        """,
        {"thread": thread_id},
    )
    return [SourceId(row[0]) for row in rows]


def find_newest(conn: Connection) -> str | None:
    """Public id of the source that was stored last."""
    row = conn.execute("SELECT public_id FROM sources ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else str(row[0])


def public_ids_of(conn: Connection, source_ids: Iterable[SourceId]) -> tuple[str, ...]:
    """Public ids in the order of the ids."""
    rows = conn.execute(
        "SELECT public_id FROM sources WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(list(source_ids)),),
    )
    return tuple(row[0] for row in rows)


def glance_at(conn: Connection, source_ids: Iterable[SourceId], *, max_chars: int) -> list[SourceGlance]:
    """The sources in the order given, their texts cut."""
    glances = []
    for source_id in source_ids:
        row = conn.execute(
            """
            SELECT public_id, role, speaker, said_at_ms, utc_offset_min, substr(text, 1, ?)
            FROM sources WHERE id = ?
            """,
            (max_chars, source_id),
        ).fetchone()
        if row is not None:
            glances.append(SourceGlance(*row))
    return glances


def _json(scope_ids: Collection[ScopeId] | None) -> str | None:
    return None if scope_ids is None else json.dumps(sorted(scope_ids))
