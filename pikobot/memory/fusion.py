"""One list out of several rankings.

Scores of different rankings don't compare, so places are added up (reciprocal rank fusion, Cormack et al. 2009).
Then what says the same is shown once: of equal facts the best placed, and a source together with the fact that
quotes it as that fact, with the source as its quote.
"""

from collections.abc import Sequence
from typing import NamedTuple

from pikobot.memory.records import RecordType
from pikobot.store.connection import Connection
from pikobot.store.fact_index import evidence_of, sameness_of

# Small, so that the first places of each ranking count much more than the rest.
RANK_OFFSET = 10

_CODES: dict[RecordType, int] = {"source": 0, "fact": 1, "document": 2, "conversation": 3}


class Candidate(NamedTuple):
    """One entry of a ranking; higher scores are better. A fact may have taken in a source that it quotes."""

    type: RecordType
    row_id: int
    score: float
    quoted_id: int | None = None

    @property
    def key(self) -> int:
        """One number for type and row, as cursors hold it."""
        return self.row_id * len(_CODES) + _CODES[self.type]


def fused(rankings: Sequence[Sequence[Candidate]]) -> list[Candidate]:
    """One list, best first; equals keep the order of their rankings."""
    scores: dict[int, float] = {}
    found: dict[int, Candidate] = {}
    for ranking in rankings:
        for place, candidate in enumerate(ranking, 1):
            key = candidate.key
            scores[key] = scores.get(key, 0.0) + 1 / (RANK_OFFSET + place)
            found.setdefault(key, candidate)
    return _sorted([candidate._replace(score=scores[key]) for key, candidate in found.items()])


def folded(conn: Connection, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The list with every statement once: a fact takes the place in the ranking of the source that it shows."""
    fact_ids = [candidate.row_id for candidate in candidates if candidate.type == "fact"]
    if not fact_ids:
        return list(candidates)
    stated = sameness_of(conn, fact_ids)
    quoted = evidence_of(conn, fact_ids)
    sources = {candidate.row_id: candidate for candidate in candidates if candidate.type == "source"}
    known = set()
    kept = []
    for candidate in candidates:
        if candidate.type == "fact" and candidate.row_id in stated and stated[candidate.row_id] not in known:
            known.add(stated[candidate.row_id])
            # The sources are in the order of their ranking.
            own = [source for key, source in sources.items() if key in quoted[candidate.row_id]]
            if own:
                del sources[own[0].row_id]
                score = candidate.score + own[0].score
                candidate = candidate._replace(score=score, quoted_id=own[0].row_id)
            kept.append(candidate)
    rest = [
        each
        for each in candidates
        if each.type not in ("fact", "source") or (each.type == "source" and each.row_id in sources)
    ]
    return _sorted([*kept, *rest])


def first_row_at(record_type: RecordType, key: int) -> int:
    """The first row of a type whose key is not below the given one: rows before it have smaller keys."""
    return -((_CODES[record_type] - key) // len(_CODES))


def _sorted(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: -candidate.score)
