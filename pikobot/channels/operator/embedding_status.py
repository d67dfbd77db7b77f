"""How search by meaning stands, as the operator's ``status`` tells it: the vectors, what waits, and what is wrong.

What this process saw fail counts before what an earlier one noted.
"""

from pikobot.channels.operator.protocol import Json
from pikobot.memory.embedding.embed import NOT_EMBEDDED, progress, usable_set
from pikobot.memory.embedding.engines import Embedding
from pikobot.memory.embedding.problems import Failing, noted
from pikobot.memory.embedding.query_vectors import QueryEmbedder
from pikobot.store.connection import Connection
from pikobot.store.embedding_jobs import count_above_mark, newest_problem
from pikobot.store.sources import count_sources
from pikobot.store.vectors.profiles import Profile, SetId, VectorSet, active_set, building_set

MAX_WAITING_COUNTED = 1_000_000
NO_SET = SetId(0)  # has no vectors and never will: ids begin at 1


def embedding_status(
    conn: Connection,
    embedding: Embedding,
    queries: QueryEmbedder,
    *,
    provider: str,
    indexer_problem: str | None,
    now_ms: int,
) -> Json:
    """Of the set that serves and of one that is being made; ``problem`` says why searches find less than they could."""
    serving, building = active_set(conn), building_set(conn)
    sets = [None if each is None else _set_state(conn, each, now_ms) for each in (serving, building)]
    engine = embedding.engine
    if engine is not None and serving is not None and engine.profile not in _profiles(serving, building):
        sets[1] = _not_begun(conn, engine.profile, now_ms)
    has_waiting = any(each is not None and each["waiting"] for each in sets)
    if engine is None:
        problems = [queries.problem(None)]
    else:
        by, profile = engine.profile.provider, None if serving is None else serving.profile
        asking, embedding_texts = queries.problem(profile), indexer_problem
        if asking is None and (was := noted(conn, Failing.QUESTIONS, provider=by)) is not None:
            asking = f"text search only: {was}"
        if engine.price is None:
            embedding_texts = None if engine.price_remedy in (asking or "") else engine.price_remedy
        elif embedding_texts is None and has_waiting:
            embedding_texts = noted(conn, Failing.TEXTS, provider=by)
        problems = [_unusable(conn, serving, now_ms), asking, embedding_texts]
    return {
        "provider": provider,
        "profile": _profile(None if engine is None else engine.profile),
        "serving": sets[0],
        "building": sets[1],
        "problem": "; ".join(dict.fromkeys(problem for problem in problems if problem is not None)) or None,
    }


def _unusable(conn: Connection, serving: VectorSet | None, now_ms: int) -> str | None:
    if serving is None:
        return NOT_EMBEDDED if count_sources(conn, now_ms=now_ms) else None
    return usable_set(conn, serving.profile, now_ms=now_ms)[1]


def _profiles(*vector_sets: VectorSet | None) -> list[Profile]:
    return [each.profile for each in vector_sets if each is not None]


def _not_begun(conn: Connection, profile: Profile, now_ms: int) -> Json:
    """The set of settings that nobody has embedded with yet: everything waits for it."""
    waiting = count_above_mark(conn, NO_SET, now_ms=now_ms, at_most=MAX_WAITING_COUNTED)
    counts = {"vectors": 0, "waiting": waiting, "failed": 0, "unknown": 0}
    return {"profile": _profile(profile), **counts, "errorCode": None}


def _set_state(conn: Connection, vector_set: VectorSet, now_ms: int) -> Json:
    state = progress(conn, vector_set, now_ms=now_ms)
    above_mark = count_above_mark(conn, vector_set.id, now_ms=now_ms, at_most=MAX_WAITING_COUNTED)
    return {
        "profile": _profile(vector_set.profile),
        "vectors": state.vectors,
        "waiting": above_mark + state.batches.queued,
        "failed": state.batches.failed,
        "unknown": state.batches.unknown,
        "errorCode": newest_problem(conn, vector_set.id),
    }


def _profile(profile: Profile | None) -> Json | None:
    if profile is None:
        return None
    return {
        "provider": profile.provider,
        "model": profile.model,
        "dimension": profile.dimension,
        "prefixRule": profile.prefix_rule,
    }
