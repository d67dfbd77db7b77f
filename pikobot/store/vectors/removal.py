"""Take vectors out: the slot is overwritten with zeros, the row deleted, in the caller's transaction.

secure_delete overwrites the row; after the commit and a truncation of the WAL the bytes are in no file.
Without numpy, so that forgetting does not load it.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from pikobot.store.connection import Connection
from pikobot.store.vectors.layout import Layout, block_data, empty_slot
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.profiles import SetId


@dataclass(frozen=True)
class Place:
    """Where a stored vector's slot is."""

    vector_id: int
    block_id: int
    slot: int
    layout: Layout


def delete_vectors(conn: Connection, set_id: SetId, owners: Iterable[Owner]) -> int:
    """Delete the owners' vectors from this set; returns how many there were. Caller holds write."""
    return _delete(conn, owners, set_id)


def delete_vector(conn: Connection, set_id: SetId, owner: Owner) -> bool:
    """Delete one vector from this set; False when there was none. Caller holds write."""
    return _delete(conn, [owner], set_id) == 1


def forget_owners(conn: Connection, owners: Iterable[Owner]) -> int:
    """Delete the owners' vectors from every set, retired ones too; returns how many. Caller holds write."""
    return _delete(conn, owners, None)


def _delete(conn: Connection, owners: Iterable[Owner], set_id: SetId | None) -> int:
    by_kind = defaultdict(list)
    for owner in owners:
        by_kind[owner.kind].append(owner.id)
    deleted = 0
    for kind, ids in by_kind.items():
        places = _places(conn, kind, ids, set_id)
        for block_id, group in groupby(places, key=lambda place: place.block_id):
            members = list(group)
            with block_data(conn, block_id, for_writing=True) as blob:
                for place in members:
                    empty_slot(blob, place.layout, place.slot)
            conn.executemany("DELETE FROM vectors WHERE id = ?", [(place.vector_id,) for place in members])
            conn.execute("UPDATE vector_blocks SET live = live - ? WHERE id = ?", (len(members), block_id))
            deleted += len(members)
    return deleted


def _places(conn: Connection, kind: OwnerKind, ids: Sequence[int], set_id: SetId | None) -> list[Place]:
    rows = conn.execute(
        """
        SELECT v.id, v.block_id, v.slot, s.dimension, b.capacity
        FROM json_each(:ids) AS gone
        CROSS JOIN vectors AS v ON v.owner_kind = :kind AND v.owner_id = gone.value
        JOIN vector_blocks AS b ON b.id = v.block_id
        JOIN vector_sets AS s ON s.id = b.set_id
        WHERE :set IS NULL OR v.set_id = :set
        ORDER BY v.block_id, v.slot
        """,
        {"ids": json.dumps(sorted(set(ids))), "kind": kind, "set": set_id},
    )
    return [Place(row[0], row[1], row[2], Layout(row[3], row[4])) for row in rows]
