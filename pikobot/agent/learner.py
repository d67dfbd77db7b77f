"""Background learning: works off extraction jobs, one after the other, while the program runs.

    claim ─▶ Mem0 in a worker thread, its model calls made and accounted for here ─▶ commit

What may have been charged without an answer ends the job as 'unknown'; only a failure that certainly cost nothing
puts it off. When a budget or the hourly limit is reached, learning waits; nothing is lost.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable

from pikobot.adapters.chat import CallFailure, ChatCallFailed, Completion, TextDelta, closing
from pikobot.adapters.mem0.candidates import (
    Candidate,
    Extracted,
    ExtractionBatch,
    ExtractionOutcome,
    KnownFact,
    NothingToRemember,
    Refused,
    SourceTurn,
    Truncated,
    Unparsable,
)
from pikobot.adapters.mem0.candidates import Role as TurnRole
from pikobot.adapters.mem0.engine import MemoryExtractor
from pikobot.adapters.mem0.llm import ModelRequest
from pikobot.adapters.prices import cost_microusd, request_bytes, reserve_microusd
from pikobot.agent.executor import Brain
from pikobot.agent.tool import RunFenced
from pikobot.errors import BudgetExceeded, PikobotError
from pikobot.memory import extract
from pikobot.memory.extract import ClaimedJob, Idle, LearningLimits
from pikobot.memory.facts import Committed, FactCandidate, Quoted, commit_candidates
from pikobot.store.attempts import AttemptOutcome, AttemptState, NewAttempt
from pikobot.store.connection import Database
from pikobot.store.extraction_jobs import Outcome
from pikobot.store.facts import Fact
from pikobot.store.sources import Source

IDLE_CHECK_S = 60.0
BUDGET_PAUSE_MS = 60 * 60_000
MAX_TURN_BYTES = 16_000  # of a longer message only its beginning is learned from

_ROLES: dict[str, TurnRole] = {"user": "owner", "assistant": "assistant", "participant": "participant"}


class Learner:
    """Works off the extraction jobs of one instance while `serve` runs.

    ``problem``: why a job was not done, the last one that was not since the program began.
    """

    def __init__(
        self,
        db: Database,
        brain: Brain,
        limits: LearningLimits,
        on_learned: Callable[[], None] = lambda: None,
    ) -> None:
        self._db = db
        self._brain = brain
        self._limits = limits
        self._on_learned = on_learned  # facts are there that nobody has embedded yet
        self._wake = asyncio.Event()
        self._extractor: MemoryExtractor | None = None
        self._streaming: asyncio.Task[Completion] | None = None
        self._is_leaving = False
        self.unavailable: str | None = None
        self.problem: str | None = None

    def wake(self) -> None:
        """Look for work now: something has been said."""
        self._wake.set()

    async def serve(self, *, until_idle: bool = False) -> None:
        """Work until cancelled, or until nothing can be done now when ``until_idle``.

        Ends at once when Mem0 can't be loaded as it was reviewed; ``unavailable`` then says why.
        """
        while self.unavailable is None:
            self._wake.clear()
            if await self.learn_next():
                continue
            if until_idle:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_CHECK_S):
                    await self._wake.wait()

    async def learn_next(self) -> bool:
        """Work on one job; False when none is due or the limits are reached."""
        claimed = await self._claim()
        if isinstance(claimed, Idle):
            return False
        try:
            return await self._learn(claimed)
        except asyncio.CancelledError:
            await self._db.perform_async(extract.give_back, claimed.lease)
            raise

    async def _claim(self) -> ClaimedJob | Idle:
        claiming = asyncio.ensure_future(self._db.perform_async(extract.claim_job, self._limits))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            lost = await claiming
            if isinstance(lost, ClaimedJob):
                await self._db.perform_async(extract.give_back, lost.lease)
            raise

    async def _learn(self, claimed: ClaimedJob) -> bool:
        try:
            await self._load_extractor()
        except PikobotError as error:
            self.unavailable = self.problem = str(error)
            await self._db.perform_async(extract.give_back, claimed.lease)
            return False
        try:
            outcome = await self._extract(claimed)
        except RunFenced:
            return True
        except ChatCallFailed as failure:
            self.problem = f"learning failed ({failure.code}): {failure}"
            if failure.may_have_charged:
                await self._db.perform_async(extract.end_unknown, claimed.lease, failure.code)
            else:
                await self._db.perform_async(extract.put_off, claimed.lease, failure.code)
            return True
        except BudgetExceeded as error:
            self.problem = str(error)
            later_ms = self._db.clock.now_ms() + BUDGET_PAUSE_MS
            await self._db.perform_async(extract.give_back, claimed.lease, not_before_ms=later_ms)
            return False
        except Exception:  # noqa: BLE001 — the edge of a job: it is put off and shows, the others go on
            await self._db.perform_async(extract.put_off, claimed.lease, "internal")
            return True
        await self._commit(claimed, outcome)
        return True

    async def _load_extractor(self) -> None:
        if self._extractor is None:
            self._extractor = await asyncio.to_thread(MemoryExtractor)

    async def _extract(self, claimed: ClaimedJob) -> ExtractionOutcome:
        """Mem0 in a thread of its own; when this is cancelled, the thread has ended before that goes on.

        An answer that is there by then has been paid for, and is committed before leaving.
        """
        loop = asyncio.get_running_loop()

        def call(request: ModelRequest) -> Completion:
            if self._is_leaving:
                raise asyncio.CancelledError
            return asyncio.run_coroutine_threadsafe(self._call(claimed, request), loop).result()

        if self._extractor is None:
            raise PikobotError("the extractor is not loaded")
        working = asyncio.ensure_future(asyncio.to_thread(self._extractor.extract, _batch(claimed), call))
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            self._is_leaving = True
            if self._streaming is not None:
                self._streaming.cancel()
            await asyncio.wait({working})
            if not working.cancelled() and working.exception() is None:
                await self._commit(claimed, working.result())
            raise

    async def _call(self, claimed: ClaimedJob, request: ModelRequest) -> Completion:
        """One model call with its account. Raises `ChatCallFailed`, `BudgetExceeded`, `RunFenced`."""
        tariff = self._brain.tariff
        if tariff.prices is None:
            raise BudgetExceeded(tariff.price_remedy)
        new = NewAttempt(
            run_id=None,
            job_id=claimed.job.id,
            workspace=claimed.workspace,
            purpose=extract.PURPOSE,
            model=tariff.model,
            reserved_microusd=reserve_microusd(
                request_bytes(request.messages, ()), tariff.max_output_tokens, tariff.prices
            ),
        )
        attempt = await self._db.perform_async(extract.begin_call, claimed.lease, new, self._limits)
        if attempt is None:
            raise RunFenced
        if self._is_leaving:
            not_made = AttemptOutcome(state=AttemptState.FAILED, error_code="cancelled")
            await self._db.perform_async(extract.end_call, attempt, not_made)
            raise asyncio.CancelledError
        self._streaming = asyncio.ensure_future(self._complete(request))
        try:
            completion = await self._streaming
        except ChatCallFailed as failure:
            state = AttemptState.UNKNOWN if failure.may_have_charged else AttemptState.FAILED
            ended = AttemptOutcome(state=state, error_code=failure.code)
            await self._db.perform_async(extract.end_call, attempt, ended)
            raise
        usage = completion.usage
        ended = AttemptOutcome(
            state=AttemptState.SUCCEEDED,
            cost_microusd=None if usage is None else cost_microusd(usage, tariff.prices),
            input_tokens=usage.input_tokens if usage else None,
            cached_input_tokens=usage.cached_input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
        )
        await self._db.perform_async(extract.end_call, attempt, ended)
        return completion

    async def _complete(self, request: ModelRequest) -> Completion:
        stream = self._brain.model.stream(
            request.messages,
            (),
            max_output_tokens=self._brain.tariff.max_output_tokens,
            cache_key=extract.PURPOSE,
            wants_json=True,
        )
        try:
            async with asyncio.timeout(self._brain.run_timeout_s), closing(stream) as items:
                async for item in items:
                    if not isinstance(item, TextDelta):
                        return item
        except TimeoutError as error:
            raise ChatCallFailed(
                "no whole answer within chat.run_timeout_s", code=CallFailure.TIMED_OUT
            ) from error
        raise PikobotError("the model adapter ended its stream without a completion")

    async def _commit(self, claimed: ClaimedJob, outcome: ExtractionOutcome) -> None:
        if not isinstance(outcome, Extracted):
            await self._db.perform_async(extract.end_without_facts, claimed.lease, _named(outcome), {})
            return
        committed = await self._db.perform_async(
            commit_candidates,
            claimed.lease,
            claimed.snapshots,
            [_candidate(candidate) for candidate in outcome.candidates],
            rejections=Counter(str(rejection.reason) for rejection in outcome.rejections),
        )
        if committed.result is Committed.SOURCES_CHANGED:
            await self._db.perform_async(
                extract.put_off, claimed.lease, "sources_changed", answer_is_stale=True
            )
            return
        self._on_learned()


def _batch(claimed: ClaimedJob) -> ExtractionBatch:
    return ExtractionBatch(
        turns=tuple(_turn(source) for source in claimed.turns),
        earlier=tuple(_turn(source) for source in claimed.earlier),
        known_facts=tuple(_known(fact) for fact in claimed.known),
    )


def _turn(source: Source) -> SourceTurn:
    return SourceTurn(
        source_id=source.public_id,
        role=_ROLES[source.role],
        speaker=source.speaker,
        said_at_ms=source.said_at_ms,
        utc_offset_min=source.utc_offset_min,
        text=source.text.encode()[:MAX_TURN_BYTES].decode(errors="ignore"),
        is_dated=source.is_dated,
    )


def _known(fact: Fact) -> KnownFact:
    speaker = fact.evidence[0].source.role if fact.evidence else "user"
    return KnownFact(fact.public_id, fact.text, _ROLES[speaker], fact.subject)


def _candidate(candidate: Candidate) -> FactCandidate:
    return FactCandidate(
        text=candidate.text,
        subject=candidate.subject,
        attribute=candidate.attribute,
        value=candidate.value,
        kind=candidate.kind.value,
        evidence=tuple(
            Quoted(quote.source_id, quote.start_byte, quote.end_byte) for quote in candidate.evidence
        ),
        depends_on=candidate.depends_on,
        entities=candidate.entities,
        event_time=candidate.event_time,
        valid_until=candidate.valid_until,
        tags=candidate.tags,
        same_as=candidate.same_as,
    )


def _named(outcome: NothingToRemember | Unparsable | Truncated | Refused) -> Outcome:
    match outcome:
        case NothingToRemember():
            return "nothing"
        case Unparsable():
            return "unparsable"
        case Truncated():
            return "truncated"
        case Refused():
            return "refused"
