"""What is near to a question in meaning, where vectors are at hand: only what is much nearer than everything else."""

from collections.abc import Callable, Sequence

from pikobot.memory.embedding.contract import QueryVector
from pikobot.memory.embedding.embed import usable_set
from pikobot.memory.recall.order import distinct
from pikobot.store.connection import Connection
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources
from pikobot.store.vectors.owners import OwnerKind

MAX_QUOTES_BY_MEANING = 3
# How much nearer than usual a statement must be to a question. What is usual depends on the language, the model and
# what is talked about. With local E5, among 20 to 300 statements of LoCoMo, LifeBench and made-up notes, in English
# and Chinese: of 790 questions that none answers the nearest is so near to 11 %, of 72 that it answers to 58 %.
LEAST_ABOVE_USUAL = 0.22
# What is usual among few statements is no measure: it counts like so many of the two languages together.
USUAL_OF_FEW = 0.25
WEIGHT_OF_FEW = 5
MEASURED_BY_MEANING = 500
LEAST_SHARE_OF_NEAREST = 0.9


def near_in_meaning(
    conn: Connection,
    question: QueryVector,
    *,
    scope_id: ScopeId,
    now_ms: int,
    admits: Callable[[Source], bool],
) -> list[Source]:
    """The admitted sources of a scope that are near to a question in meaning, nearest first, of the set that serves."""
    vector_set, _ = usable_set(conn, question.profile, now_ms=now_ms)
    if vector_set is None:
        return []
    from pikobot.store.vectors.eligibility import Eligibility  # loads numpy
    from pikobot.store.vectors.means import mean_nearness
    from pikobot.store.vectors.scan import scan

    eligibility = Eligibility(scope_ids=[scope_id], kinds=[OwnerKind.SOURCE])
    hits = scan(conn, vector_set.id, question.values, k=MEASURED_BY_MEANING, eligibility=eligibility)
    scores = [hit.score for hit in hits or []]
    usual = usual_nearness(scores)
    if len(scores) == MEASURED_BY_MEANING:
        usual = mean_nearness(conn, vector_set, question.values) or usual
    least = usual + LEAST_ABOVE_USUAL
    near = {SourceId(hit.owner.id): hit.score for hit in hits or [] if hit.score >= least}
    found = [source for source in load_sources(conn, near, now_ms=now_ms).values() if admits(source)]
    floor = near[found[0].id] * LEAST_SHARE_OF_NEAREST if found else 0.0
    return distinct(source for source in found if near[source.id] >= floor)[:MAX_QUOTES_BY_MEANING]


def usual_nearness(scores: Sequence[float]) -> float:
    """How near to a question the statements are that are not the nearest one, given best first."""
    rest = scores[1:]
    return (sum(rest) + WEIGHT_OF_FEW * USUAL_OF_FEW) / (len(rest) + WEIGHT_OF_FEW)
