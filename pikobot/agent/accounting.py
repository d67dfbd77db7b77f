"""The account of provider calls while a run is answered: reserve, then record what each call came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pikobot.adapters.chat import ChatCallFailed, Completion, Message, ToolSchema
from pikobot.adapters.prices import Prices, cost_microusd, request_bytes, reserve_microusd
from pikobot.agent import runs
from pikobot.agent.tool import RunFenced
from pikobot.errors import BudgetExceeded
from pikobot.store.attempts import AttemptId, AttemptOutcome, AttemptState, NewAttempt
from pikobot.store.connection import Database
from pikobot.store.leases import Lease


@dataclass(frozen=True)
class Tariff:
    """What calls cost and may cost. ``prices`` None: not known, and then every call is refused."""

    model: str
    prices: Prices | None
    price_remedy: str
    limits: runs.Limits
    max_output_tokens: int


@dataclass
class RunJournal:
    """A `loop.Journal` over the database. Without a lease (an ephemeral request) only the account is kept."""

    db: Database
    tariff: Tariff
    lease: Lease | None
    workspace: str
    spent_microusd: int = field(default=0, init=False)  # counts only where there is no run to sum up
    _reserved_microusd: int = field(default=0, init=False)  # by the call under way

    async def begin_call(self, messages: Sequence[Message], tools: Sequence[ToolSchema]) -> AttemptId:
        """Raises `BudgetExceeded` before any money is spent, `RunFenced` when the run is lost."""
        if self.tariff.prices is None:
            raise BudgetExceeded(self.tariff.price_remedy)
        reserved = reserve_microusd(
            request_bytes(messages, tools), self.tariff.max_output_tokens, self.tariff.prices
        )
        new = NewAttempt(
            run_id=None if self.lease is None else self.lease.row_id,
            workspace=self.workspace,
            purpose="chat" if self.lease is not None else "ephemeral",
            model=self.tariff.model,
            reserved_microusd=reserved,
        )
        attempt = await self.db.perform_async(
            runs.begin_attempt, self.lease, new, self.tariff.limits, self.spent_microusd
        )
        if attempt is None:
            raise RunFenced
        self.spent_microusd += reserved
        self._reserved_microusd = reserved
        return attempt

    async def end_call(self, ticket: AttemptId, completion: Completion) -> None:
        """Account for a finished call; without reported usage it counts for all that was reserved."""
        usage, prices = completion.usage, self.tariff.prices
        cost = cost_microusd(usage, prices) if usage is not None and prices is not None else None
        outcome = AttemptOutcome(
            state=AttemptState.SUCCEEDED,
            cost_microusd=cost,
            input_tokens=usage.input_tokens if usage else None,
            cached_input_tokens=usage.cached_input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
        )
        if cost is not None:
            self.spent_microusd += cost - self._reserved_microusd
        await self._end(ticket, outcome, completion.as_message())

    async def fail_call(self, ticket: AttemptId, failure: ChatCallFailed) -> None:
        state = AttemptState.UNKNOWN if failure.may_have_charged else AttemptState.FAILED
        if state is AttemptState.FAILED:
            self.spent_microusd -= self._reserved_microusd
        await self._end(ticket, AttemptOutcome(state=state, error_code=failure.code), None)

    async def keep_results(self, results: Sequence[Message]) -> None:
        if self.lease is not None and not await self.db.perform_async(runs.keep_results, self.lease, results):
            raise RunFenced

    async def _end(self, ticket: AttemptId, outcome: AttemptOutcome, reply: Message | None) -> None:
        if not await self.db.perform_async(runs.end_attempt, self.lease, ticket, outcome, reply):
            raise RunFenced
