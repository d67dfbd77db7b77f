"""One list out of several rankings.

Scores of different rankings don't compare, so places are added up (reciprocal rank fusion, Cormack et al. 2009).
Neither ranking has a threshold: what only words find is there, and what only meaning finds.

The constants were chosen on LoCoMo (R@10, categories 1-4) and LifeBench-zh (hit@10) with local E5, centred, each
source embedded as "speaker: text": words alone 0.745 and 0.842, meaning alone 0.68 and 0.71, fused with an offset of
10 and meaning at 0.7 of the weight of words 0.775 and 0.868. At full weight 0.775 and 0.855, at 0.4 0.766 and 0.861;
offsets of 3 and 40 give 0.780 and 0.752 on LoCoMo, 0.855 and 0.837 on LifeBench-zh. The usual 60 lets the long
middles of both rankings outvote the first places. Both are ranked with the conversation around each hit
(`store.text.ranking`); without that the ranking by meaning adds 0.767 instead of 0.775 on LoCoMo. Meaning ranked only
60 or 50 deep instead of 100 gives 0.776 and 0.861, or 0.773 and 0.863. Embedding every message together with the one
before it did no better (0.768 to 0.782 fused, by the way of centring) and would make each vector depend on two
sources.

Then what says the same is shown once: of equal facts the best placed, and a source together with the fact that
quotes it as that fact, with the source as its quote.
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from pikobot.memory.records import RecordType
from pikobot.store.connection import Connection
from pikobot.store.fact_index import evidence_of, sameness_of

# Small, so that the first places of each ranking count much more than the rest.
RANK_OFFSET = 10
MEANING_WEIGHT = 0.7

_TYPES: tuple[RecordType, ...] = ("source", "fact", "document", "conversation")


class Candidate(NamedTuple):
    """One entry of a ranking; higher scores are better. A fact may have taken in a source that it quotes."""

    type: RecordType
    row_id: int
    score: float
    quoted_id: int | None = None

    @property
    def key(self) -> int:
        return key_of(self.type, self.row_id)


def key_of(record_type: RecordType, row_id: int) -> int:
    """One number for type and row, as cursors and rankings hold it."""
    return row_id * len(_TYPES) + _TYPES.index(record_type)


def keys_of(record_type: RecordType, row_ids: Iterable[int]) -> list[int]:
    """The same for rows of one type."""
    code = _TYPES.index(record_type)
    return [row_id * len(_TYPES) + code for row_id in row_ids]


def fused(by_words: Sequence[Sequence[int]], by_meaning: Sequence[Sequence[int]] = ()) -> list[Candidate]:
    """One list of what the keys in the rankings stand for, best first; equals keep the order of their rankings."""
    scores: dict[int, float] = {}
    for weight, rankings in ((1.0, by_words), (MEANING_WEIGHT, by_meaning)):
        for ranking in rankings:
            for place, key in enumerate(ranking, RANK_OFFSET + 1):
                scores[key] = scores.get(key, 0.0) + weight / place
    ordered = sorted(scores.items(), key=itemgetter(1), reverse=True)
    width = len(_TYPES)
    return [Candidate(_TYPES[key % width], key // width, score) for key, score in ordered]


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
    return -((_TYPES.index(record_type) - key) // len(_TYPES))


def _sorted(candidates: Sequence[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda candidate: -candidate.score)
