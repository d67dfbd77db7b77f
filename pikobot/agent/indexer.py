"""Background embedding: gives sources and facts their vectors, batch after batch, while the program runs.

    claim ─▶ embedder, its call accounted for ─▶ vectors stored ─▶ … ─▶ the old set dropped, blocks made tidy

A failure for the sake of a text puts that text off; any other is the provider's, and embedding rests for a while,
longer each time, with nothing lost or counted. What may have been charged without an answer ends the batch as
'unknown'. When a budget is reached, embedding waits for the next period.
"""

import asyncio
import contextlib

from pikobot.errors import BudgetExceeded
from pikobot.memory.embedding import embed
from pikobot.memory.embedding.contract import Embedded, EmbeddingFailed, EmbeddingLimits, Engine
from pikobot.memory.embedding.embed import ClaimedBatch, Idle
from pikobot.memory.embedding.problems import BUDGET, Failing
from pikobot.store.attempts import AttemptId, AttemptOutcome, AttemptState, NewAttempt
from pikobot.store.connection import Database
from pikobot.text import Count

LEASE_MS = 15 * 60_000
IDLE_CHECK_S = 60.0
BUDGET_PAUSE_MS = 60 * 60_000
FIRST_PAUSE_MS = 15_000
LONGEST_PAUSE_MS = 60 * 60_000
PAUSE_FACTOR = 4
MAX_CAUGHT_UP = 32  # texts: a few seconds of a slow machine at the most


class Indexer:
    """Embeds what one instance holds while `serve` runs. ``problem``: why it rests."""

    def __init__(self, db: Database, engine: Engine, limits: EmbeddingLimits) -> None:
        self._db = db
        self._engine = engine
        self._limits = limits
        self._wake = asyncio.Event()
        self._paused_until_ms = 0
        self._failures = 0
        self.problem: str | None = None

    def wake(self) -> None:
        """Look for work now: something has been said or learned."""
        self._wake.set()

    async def serve(self, *, until_idle: bool = False) -> None:
        """Work until cancelled, or until nothing can be done now when ``until_idle``."""
        while True:
            self._wake.clear()
            if await self.embed_next() or await self._tidy():
                continue
            if until_idle:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_CHECK_S):
                    await self._wake.wait()

    async def catch_up(self) -> None:
        """Embed the little that waits, for a question that comes next: by a local model, which costs nothing."""
        if not self._engine.is_local:
            return
        waiting = await self._db.read_async(
            embed.count_waiting,
            self._engine.profile,
            now_ms=self._db.clock.now_ms(),
            at_most=MAX_CAUGHT_UP + 1,
        )
        if 0 < waiting <= MAX_CAUGHT_UP:
            while await self.embed_next():
                pass

    async def embed_next(self) -> bool:
        """Embed one batch; False when nothing is due, or embedding rests."""
        if self._db.clock.now_ms() < self._paused_until_ms:
            return False
        claimed = await self._db.perform_async(
            embed.claim_batch, self._engine.profile, limit=self._engine.batch, lease_ms=LEASE_MS
        )
        if isinstance(claimed, Idle):
            return False
        try:
            return await self._embed(claimed)
        except asyncio.CancelledError:
            await self._db.perform_async(embed.give_back, claimed.lease)
            raise

    async def _embed(self, claimed: ClaimedBatch) -> bool:
        try:
            attempt = await self._begin(claimed)
        except BudgetExceeded as error:
            await self._db.perform_async(embed.give_back, claimed.lease)
            if self._engine.price is not None:
                await self._note(BUDGET)
            return self._rest(str(error), BUDGET_PAUSE_MS)
        if attempt is None and not self._engine.is_local:
            return True  # the batch went while it was claimed
        try:
            embedded = await self._vectors(claimed)
        except EmbeddingFailed as failure:
            return await self._fail(claimed, attempt, failure)
        account = None if attempt is None else (attempt, embed.succeeded(self._engine, embedded))
        await self._db.perform_async(embed.commit_batch, claimed, embedded, account)
        self.problem, self._failures = None, 0
        return True

    async def _begin(self, claimed: ClaimedBatch) -> AttemptId | None:
        """Reserve the call; None when the batch is lost, and for a local embedder. Raises `BudgetExceeded`."""
        engine = self._engine
        if engine.is_local:
            return None
        if engine.price is None:
            raise BudgetExceeded(engine.price_remedy)
        new = NewAttempt(
            run_id=None,
            workspace=claimed.workspace,
            purpose=embed.PURPOSE,
            model=engine.profile.model,
            reserved_microusd=engine.reserve_microusd([text.text for text in claimed.texts]),
        )
        return await self._db.perform_async(embed.begin_call, claimed.lease, new, self._limits)

    async def _vectors(self, claimed: ClaimedBatch) -> Embedded:
        """Raises `EmbeddingFailed`, also when there are not as many vectors as texts."""
        embedded = await self._engine.embedder.embed_passages([text.text for text in claimed.texts])
        if len(embedded.vectors) != len(claimed.texts):
            raise EmbeddingFailed(
                f"the embedder gave {Count(len(embedded.vectors)):vector} for {Count(len(claimed.texts)):text}",
                code="malformed",
                may_have_charged=True,
            )
        return embedded

    async def _fail(self, claimed: ClaimedBatch, attempt: AttemptId | None, failure: EmbeddingFailed) -> bool:
        if attempt is not None:
            state = AttemptState.UNKNOWN if failure.may_have_charged else AttemptState.FAILED
            ended = AttemptOutcome(state=state, error_code=failure.code)
            await self._db.perform_async(embed.end_call, attempt, ended)
        if failure.is_about_text:
            await self._db.perform_async(embed.put_off, claimed.lease, failure.code)
            return True
        await self._db.perform_async(embed.give_back, claimed.lease)
        await self._note(failure.code)
        pause_ms = min(FIRST_PAUSE_MS * PAUSE_FACTOR**self._failures, LONGEST_PAUSE_MS)
        if failure.retry_after_s is not None:
            pause_ms = max(pause_ms, int(failure.retry_after_s * 1000))
        self._failures = min(self._failures + 1, 10)
        return self._rest(f"embedding failed ({failure.code}): {failure}", pause_ms)

    async def _note(self, code: str) -> None:
        await self._db.perform_async(embed.note_failure, Failing.TEXTS, self._engine, code)

    def _rest(self, problem: str, pause_ms: int) -> bool:
        self.problem = problem
        self._paused_until_ms = self._db.clock.now_ms() + pause_ms
        return False

    async def _tidy(self) -> bool:
        """One short step of housekeeping: drop an old set, or bring a block up to date; False when all is done."""
        return await self._db.perform_async(embed.drop_retired) or await self._db.perform_async(
            embed.refresh_one, self._engine.profile
        )
