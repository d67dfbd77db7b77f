"""From the words of a question to its vector: the one step of a search that may leave the process.

    question ─▶ profile of the set that serves ─▶ its embedder, accounted for ─▶ vector, or why there is none

A failure costs the search its vectors and nothing else: the reason goes into the result, and for a while no other
search waits for the same failure. Vectors of recent questions are kept in memory only, those of ephemeral requests
not at all.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from pikobot.errors import BudgetExceeded
from pikobot.memory.embedding import embed, problems
from pikobot.memory.embedding.contract import Embedded, EmbeddingFailed, EmbeddingLimits, Engine, QueryVector
from pikobot.memory.embedding.problems import BUDGET, Failing, failed
from pikobot.memory.records import Page
from pikobot.memory.search import SearchParams, search
from pikobot.store.attempts import AttemptOutcome, AttemptState, NewAttempt
from pikobot.store.connection import Connection, Database
from pikobot.store.scopes import MAIN_WORKSPACE, ScopeId
from pikobot.store.sources import SourceId
from pikobot.store.vectors.profiles import Profile, active_set, count_vectors

KEPT = 64
ANSWER_TIMEOUT_S = 15.0
LOCAL_TIMEOUT_S = 60.0  # a process that asks once loads its model first: up to 17 s on two busy cores
REST_MS = 30_000


@dataclass(frozen=True)
class Asked:
    """The vector of a question, or why there is none."""

    vector: QueryVector | None = None
    degraded: str | None = None


class QueryEmbedder:
    """Embeds the questions of one instance, for the set that serves.

    ``engines`` gives the engine of a profile, or why it can't be had: after a change of the settings the old vectors
    serve on while the new ones are made. ``unavailable`` is the reason why there is no engine at all; when none is
    wanted, doing without is no degradation. ``catch_up`` embeds what was said just before, where nobody else does.
    """

    def __init__(
        self,
        db: Database,
        engines: Callable[[Profile], Engine | str],
        limits: EmbeddingLimits,
        *,
        is_wanted: bool = True,
        unavailable: str | None = None,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._db = db
        self._is_wanted = is_wanted
        self._engines = engines
        self._limits = limits
        self._unavailable = unavailable
        self._catch_up = catch_up
        self._kept: OrderedDict[tuple[Profile, str], QueryVector] = OrderedDict()
        self._rests_until_ms = 0
        self._failure: str | None = None

    def problem(self, serving: Profile | None) -> str | None:
        """Why questions are not embedded now for the set that serves. From any thread."""
        if self._unavailable is not None or not self._is_wanted:
            return self._unavailable
        engine = None if serving is None else self._engines(serving)
        if serving is not None and isinstance(engine, str):
            return _not_asked(serving, engine)
        if isinstance(engine, Engine) and engine.price is None:
            return f"text search only: {engine.price_remedy}"
        return self._failure if self._is_resting else None

    async def ask(self, text: str, *, is_ephemeral: bool = False, workspace: str = MAIN_WORKSPACE) -> Asked:
        """Embed a question; the reason instead of a vector when that fails, never an error."""
        if self._unavailable is not None or not self._is_wanted:
            return Asked(degraded=self._unavailable)
        if self._catch_up is not None:
            await self._catch_up()
        serving = await self._db.read_async(_serving, self._db.clock.now_ms())
        if isinstance(serving, str):
            return Asked(degraded=serving)
        profile, has_failed = serving
        kept = self._kept.get((profile, text))
        if kept is not None:
            self._kept.move_to_end((profile, text))
            return Asked(kept)
        if self._is_resting:
            return Asked(degraded=self._failure)
        engine = self._engines(profile)
        if isinstance(engine, str):
            return Asked(degraded=_not_asked(profile, engine))
        if engine.price is None:
            return Asked(degraded=f"text search only: {engine.price_remedy}")
        asked = await self._embedded(engine, text, is_ephemeral=is_ephemeral, workspace=workspace)
        if has_failed and asked.vector is not None:
            await self._db.perform_async(embed.clear_failure, Failing.QUESTIONS)
        return asked

    @property
    def _is_resting(self) -> bool:
        return self._db.clock.now_ms() < self._rests_until_ms

    async def _embedded(self, engine: Engine, text: str, *, is_ephemeral: bool, workspace: str) -> Asked:
        try:
            embedded = await self._accounted(engine, text, workspace)
        except BudgetExceeded as error:
            await self._note(engine, BUDGET)
            return Asked(degraded=f"text search only: {error}")
        except EmbeddingFailed as failure:
            self._failure = f"text search only: {failed(failure.code)}"
            if not failure.is_about_text:
                self._rests_until_ms = self._db.clock.now_ms() + REST_MS
                await self._note(engine, failure.code)
            return Asked(degraded=self._failure)
        vector = QueryVector(engine.profile, embedded.vectors[0])
        if not is_ephemeral:
            self._kept[engine.profile, text] = vector
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return Asked(vector)

    async def _note(self, engine: Engine, code: str) -> None:
        await self._db.perform_async(embed.note_failure, Failing.QUESTIONS, engine, code)

    async def _accounted(self, engine: Engine, text: str, workspace: str) -> Embedded:
        if engine.is_local:
            return await _answered(engine, text)
        new = NewAttempt(
            run_id=None,
            workspace=workspace,
            purpose=embed.QUERY_PURPOSE,
            model=engine.profile.model,
            reserved_microusd=engine.reserve_microusd([text]),
        )
        attempt = await self._db.perform_async(embed.begin_call, None, new, self._limits)
        if attempt is None:
            raise LookupError("a call without a lease can't lose one")
        outcome = AttemptOutcome(state=AttemptState.UNKNOWN, error_code="interrupted")
        try:
            embedded = await _answered(engine, text)
            outcome = embed.succeeded(engine, embedded)
        except EmbeddingFailed as failure:
            state = AttemptState.UNKNOWN if failure.may_have_charged else AttemptState.FAILED
            outcome = AttemptOutcome(state=state, error_code=failure.code)
            raise
        finally:
            await self._db.perform_async(embed.end_call, attempt, outcome)
        return embedded


async def search_memory(
    db: Database,
    queries: QueryEmbedder | None,
    params: SearchParams,
    *,
    allowed_scopes: Sequence[ScopeId] | None,
    exclude: Collection[SourceId] = (),
    is_ephemeral: bool = False,
    workspace: str = MAIN_WORKSPACE,
) -> Page:
    """`search` by words and by meaning. When it is cancelled the scan stops before that is delivered."""
    asked = Asked()
    if queries is not None and (params.admit_facts or params.admit_sources):
        asked = await queries.ask(params.query, is_ephemeral=is_ephemeral, workspace=workspace)
    is_cancelled = threading.Event()
    reading = asyncio.ensure_future(
        db.read_async(
            search,
            params,
            allowed_scopes=allowed_scopes,
            now_ms=db.clock.now_ms(),
            degraded=asked.degraded,
            exclude=exclude,
            query_vector=asked.vector,
            should_stop=is_cancelled.is_set,
        )
    )
    try:
        return await asyncio.shield(reading)
    except asyncio.CancelledError:
        is_cancelled.set()
        await asyncio.wait({reading})
        raise


def _not_asked(profile: Profile, reason: str) -> str:
    return f"text search only: the vectors are of {profile.model} until they are made anew, and {reason}"


def _serving(conn: Connection, now_ms: int) -> tuple[Profile, bool] | str:
    """The profile of the set that serves, and whether the last question failed; the reason if no set can answer."""
    serving = active_set(conn)
    if serving is None or not count_vectors(conn, serving.id):
        return embed.NOT_EMBEDDED
    _, unusable = embed.usable_set(conn, serving.profile, now_ms=now_ms)
    return unusable or (serving.profile, problems.is_noted(conn, Failing.QUESTIONS))


async def _answered(engine: Engine, text: str) -> Embedded:
    try:
        async with asyncio.timeout(LOCAL_TIMEOUT_S if engine.is_local else ANSWER_TIMEOUT_S):
            embedded = await engine.embedder.embed_queries([text])
    except TimeoutError as error:
        raise EmbeddingFailed(
            "no vector for the question in time", code="timed_out", may_have_charged=True
        ) from error
    if len(embedded.vectors) != 1:
        raise EmbeddingFailed("the embedder gave no vector", code="malformed", may_have_charged=True)
    return embedded
