"""Finding by meaning: the vectors nearest to a question among what may be found, ranked like what words find.

    eligibility in SQL ─▶ exact scan ─▶ eligibility of each hit again ─▶ ranking with the conversation around it

The scan is told what may not come (expired sources, replaced facts), or, where few can come, what may; whatever it
finds is held against the same conditions as a text hit, so a stale vector grants nothing. Loads numpy.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy.typing as npt

from pikobot.store.connection import Connection
from pikobot.store.fact_index import FactFilters, FactHit, eligible_facts_sql, rank_similar_facts
from pikobot.store.text.index import TextHit, rank_similar
from pikobot.store.vectors.eligibility import Eligibility, OwnerQuery
from pikobot.store.vectors.owners import OwnerKind
from pikobot.store.vectors.profiles import SetId
from pikobot.store.vectors.scan import Scan

_EXPIRED_SOURCES = "SELECT id FROM sources WHERE expires_at_ms IS NOT NULL AND expires_at_ms <= :now_ms"
_REPLACED_FACTS = "SELECT id FROM facts WHERE superseded_by_id IS NOT NULL"
_EXPIRED_FACTS = f"""
    SELECT fact_id FROM fact_evidence WHERE source_id IN ({_EXPIRED_SOURCES})
    UNION SELECT fact_id FROM fact_context WHERE source_id IN ({_EXPIRED_SOURCES})
"""


# So many more than wanted are looked at, because some may not be eligible.
SPARE = 10


@dataclass(frozen=True, eq=False)
class Question:
    """A question in both forms, with the set that its vector belongs to.

    To look is begun first and finished later, so that words are looked for meanwhile on the same connection.
    """

    text: str
    values: npt.ArrayLike
    set_id: SetId
    should_stop: Callable[[], bool]

    def sources(
        self,
        conn: Connection,
        *,
        scope_ids: Collection[int] | None,
        from_ms: int | None,
        to_ms: int | None,
        now_ms: int,
        exclude_ids: Collection[int],
        limit: int,
    ) -> Callable[[], list[TextHit]]:
        """Begin to look; what is returned gives the eligible sources nearest to the question, none when stopped."""
        begun = self._begin(
            conn,
            Eligibility(
                scope_ids=scope_ids,
                kinds=[OwnerKind.SOURCE],
                from_ms=from_ms,
                to_ms=to_ms,
                without=(OwnerQuery(OwnerKind.SOURCE, _EXPIRED_SOURCES, {"now_ms": now_ms}),),
            ),
            limit,
        )
        return lambda: rank_similar(
            conn,
            begun.finish_ids() or [],
            query=self.text,
            scope_ids=scope_ids,
            now_ms=now_ms,
            limit=limit,
            from_ms=from_ms,
            to_ms=to_ms,
            exclude_ids=exclude_ids,
        )

    def facts(self, conn: Connection, *, filters: FactFilters, limit: int) -> Callable[[], list[FactHit]]:
        """Begin to look; what is returned gives the eligible facts nearest to the question, none when stopped."""
        only: tuple[OwnerQuery, ...] = ()
        without: tuple[OwnerQuery, ...] = ()
        if filters.is_selective:
            only = (OwnerQuery(OwnerKind.FACT, eligible_facts_sql(), filters.bindings(conn)),)
        else:
            without = (OwnerQuery(OwnerKind.FACT, _EXPIRED_FACTS, {"now_ms": filters.now_ms}),)
            without += () if filters.history else (OwnerQuery(OwnerKind.FACT, _REPLACED_FACTS),)
        eligibility = Eligibility(
            scope_ids=filters.scope_ids, kinds=[OwnerKind.FACT], only=only, without=without
        )
        begun = self._begin(conn, eligibility, limit)
        return lambda: rank_similar_facts(conn, begun.finish_ids() or [], filters=filters, limit=limit)

    def _begin(self, conn: Connection, eligibility: Eligibility, limit: int) -> Scan:
        return Scan(
            conn,
            self.set_id,
            self.values,
            k=limit + SPARE,
            eligibility=eligibility,
            should_stop=self.should_stop,
        )
