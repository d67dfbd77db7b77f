"""Which vectors may be found, decided before anything is ranked.

Scopes and kinds choose whole blocks. Times and lists of owners choose slots: `SlotFilter` turns them into a
boolean per slot. Lists of owners come from SQL, so that whatever the caller can express as a query over its
own tables (tags, expiry, erased sources) holds for vectors too.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from pikobot.store.connection import MAX_INTEGER, Connection, SqlValue
from pikobot.store.vectors.blocks import Slots
from pikobot.store.vectors.owners import OwnerKind
from pikobot.store.vectors.records import Bools, Int64s

# Up to this id a set of owners is a table of one byte each; above it a sorted list, which is slower to ask.
MAX_TABLE = 1 << 26


@dataclass(frozen=True)
class OwnerQuery:
    """Owners of one kind: a SELECT of one column of row ids, with named parameters, written by the store."""

    kind: OwnerKind
    sql: str
    bindings: Mapping[str, SqlValue] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Eligibility:
    """None and () restrict nothing. ``only`` restricts the kinds that it names, and no others."""

    scope_ids: Collection[int] | None = None
    kinds: Collection[OwnerKind] | None = None
    from_ms: int | None = None  # [from_ms, to_ms) of the owners' times
    to_ms: int | None = None
    only: tuple[OwnerQuery, ...] = ()
    without: tuple[OwnerQuery, ...] = ()


EVERYTHING = Eligibility()


class SlotFilter:
    """The part of an eligibility that is decided slot by slot, ready to be asked many times."""

    def __init__(self, conn: Connection, eligibility: Eligibility) -> None:
        self._from_ms = -MAX_INTEGER if eligibility.from_ms is None else eligibility.from_ms
        self._to_ms = MAX_INTEGER if eligibility.to_ms is None else eligibility.to_ms
        self._has_times = eligibility.from_ms is not None or eligibility.to_ms is not None
        self._only = [(query.kind, _OwnerIds(_owner_ids(conn, query))) for query in eligibility.only]
        excluded = [(query.kind, _owner_ids(conn, query)) for query in eligibility.without]
        self._without = [(kind, _OwnerIds(ids)) for kind, ids in excluded if len(ids)]

    def restricts(self, kind: OwnerKind) -> bool:
        """Whether the slots of that kind have to be looked at at all."""
        return self._has_times or any(kind == named for named, _ in (*self._only, *self._without))

    def eligible(self, kind: OwnerKind, slots: Slots, *, has_gaps: bool) -> Bools:
        """A boolean for each slot of a block of that kind; empty slots, if it has any, are never eligible."""
        mask: Bools = slots["vector_id"] != 0 if has_gaps else np.ones(len(slots), np.bool_)
        if self._has_times:
            mask &= (slots["at_ms"] >= self._from_ms) & (slots["at_ms"] < self._to_ms)
        owner_ids = slots["owner_id"]
        for named, owners in self._only:
            if named == kind:
                mask &= owners.contain(owner_ids)
        for named, owners in self._without:
            if named == kind:
                mask &= ~owners.contain(owner_ids)
        return mask


class _OwnerIds:
    """A set of positive ids with a vectorised membership test."""

    def __init__(self, ids: Int64s) -> None:
        last = int(ids.max()) if len(ids) else 0
        self._sorted: Int64s | None = None
        self._table = np.zeros(0, np.bool_)
        if last > MAX_TABLE:
            self._sorted = np.unique(ids)
        else:
            self._table = np.zeros(last + 2, np.bool_)
            self._table[ids] = True

    def contain(self, ids: Int64s) -> Bools:
        if self._sorted is not None:
            return np.isin(ids, self._sorted)
        return self._table[np.clip(ids, 0, len(self._table) - 1)]


def _owner_ids(conn: Connection, query: OwnerQuery) -> Int64s:
    """One string of all ids is several times faster to fetch than a row for each."""
    row = conn.execute(
        f"WITH owners (id) AS ({query.sql}) SELECT group_concat(id, ' ') FROM owners WHERE id > 0",
        dict(query.bindings),
    ).fetchone()
    if row is None or row[0] is None:
        return np.zeros(0, np.int64)
    return np.fromstring(str(row[0]), np.int64, sep=" ")
