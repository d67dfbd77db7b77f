"""Entities: the people and things that facts name, and the other names that facts teach for them.

An entity is a name in a scope, recognised by its folded form, English and Chinese alike; its spelling is the
one that came first. It goes with its last fact. Aliases are never applied when a fact is stored: whoever looks
for a name gets the facts of every entity that the name, or an alias of it, means now (`meant_by`).
"""

import json
from collections.abc import Collection, Iterable

from pikobot.store.connection import Connection
from pikobot.store.text.segmentation import fold

# Attributes of a named subject whose value is another name of it.
ALIAS_ATTRIBUTES = frozenset({"name", "preferred_name", "nickname", "alias", "also_known_as", "full_name"})


def fold_name(name: str) -> str:
    """The form in which names are compared: NFKC, case folded, white space as single spaces."""
    return " ".join(fold(name).split())


def spelled(conn: Connection, scope_id: int, name: str) -> str:
    """The spelling under which the scope knows that name, or the name itself."""
    row = conn.execute(
        "SELECT name FROM entities WHERE scope_id = ? AND folded = ?", (scope_id, fold_name(name))
    ).fetchone()
    return name if row is None else str(row[0])


def meant_by(conn: Connection, folded: str) -> list[int]:
    """Entities of any scope that the folded name means there: by their name, an alias of theirs, or as an alias."""
    rows = conn.execute(
        """
        WITH named (id, scope_id) AS MATERIALIZED (
            SELECT id, scope_id FROM entities WHERE folded = :name
            UNION
            SELECT n.id, n.scope_id FROM entity_aliases AS a CROSS JOIN entities AS n ON n.id = a.entity_id
            WHERE a.folded = :name
        )
        SELECT id FROM named
        UNION
        SELECT n.id FROM named AS k CROSS JOIN entity_aliases AS a ON a.entity_id = k.id
        CROSS JOIN entities AS n ON n.scope_id = k.scope_id AND n.folded = a.folded
        ORDER BY 1
        """,
        {"name": folded},
    )
    return [row[0] for row in rows]


def link_entities(conn: Connection, scope_id: int, fact_id: int, names: Iterable[str]) -> None:
    """Say which names a fact is about. Caller holds write; names without a letter or sign are left out."""
    for folded, name in {fold_name(name): name for name in reversed(list(names))}.items():
        if folded:
            conn.execute(
                "INSERT OR IGNORE INTO fact_entities (fact_id, entity_id) VALUES (?, ?)",
                (fact_id, _ensure(conn, scope_id, name, folded)),
            )


def teach_alias(conn: Connection, scope_id: int, fact_id: int, name: str, alias: str) -> None:
    """A fact says that an entity is also called something. Caller holds write."""
    folded, other = fold_name(name), fold_name(alias)
    if folded and other and folded != other:
        conn.execute(
            "INSERT OR IGNORE INTO entity_aliases (entity_id, folded, fact_id) VALUES (?, ?, ?)",
            (_ensure(conn, scope_id, name, folded), other, fact_id),
        )


def entities_of(conn: Connection, fact_id: int) -> tuple[str, ...]:
    """The names that a fact is about, in the order in which the scope learned them."""
    rows = conn.execute(
        """
        SELECT n.name FROM fact_entities AS fe JOIN entities AS n ON n.id = fe.entity_id
        WHERE fe.fact_id = ? ORDER BY n.id
        """,
        (fact_id,),
    )
    return tuple(row[0] for row in rows)


def drop_unused(conn: Connection, entity_ids: Collection[int]) -> int:
    """Remove those of the entities that no fact is about any more. Caller holds write."""
    conn.execute(
        """
        DELETE FROM entities
        WHERE id IN (SELECT value FROM json_each(?))
          AND NOT EXISTS (SELECT 1 FROM fact_entities AS fe WHERE fe.entity_id = entities.id)
        """,
        (json.dumps(sorted(entity_ids)),),
    )
    return conn.changes()


def _ensure(conn: Connection, scope_id: int, name: str, folded: str) -> int:
    conn.execute(
        "INSERT OR IGNORE INTO entities (scope_id, name, folded) VALUES (?, ?, ?)",
        (scope_id, " ".join(name.split()), folded),
    )
    row = conn.execute(
        "SELECT id FROM entities WHERE scope_id = ? AND folded = ?", (scope_id, folded)
    ).fetchone()
    if row is None:
        raise LookupError("an entity that was just stored")
    return int(row[0])
