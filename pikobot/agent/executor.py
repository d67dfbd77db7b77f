"""Answer one claimed run: with the model, or from memory alone when there is none.

The only place where a run's outcome is decided. Every way out ends the run exactly once, in one transaction,
and emits `RunEnded` last. What the provider may have charged for is never asked again by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from pikobot.adapters.chat import ChatCallFailed, ChatModel, Message, StopReason, ToolCall
from pikobot.agent import events, runs
from pikobot.agent.accounting import RunJournal, Tariff
from pikobot.agent.context import Room, ephemeral_context
from pikobot.agent.loop import PARAGRAPH, Emit, Loop
from pikobot.agent.runs import Claimed, Result
from pikobot.agent.tool import RunFenced, ToolScope
from pikobot.agent.tools import call_tool, cite, tools_for
from pikobot.clock import local_utc_offset_min
from pikobot.errors import BudgetExceeded, PikobotError, ProviderError
from pikobot.memory.embedding.query_vectors import Asked, QueryEmbedder
from pikobot.memory.forgetting import proposals
from pikobot.memory.forgetting import search as forget_search
from pikobot.memory.forgetting.requests import (
    asks_to_forget,
    means_to_forget,
    read_request,
)
from pikobot.memory.forgetting.wording import (
    ephemeral_text,
    hint_text,
    nothing_text,
    question_text,
    unclear_text,
)
from pikobot.memory.forgetting.words import ForgetRequest
from pikobot.memory.language.questions import is_question, language_of
from pikobot.memory.recall.answers import MemoryAnswer, answer_from_memory
from pikobot.memory.recall.times import day_said
from pikobot.store.attempts import AttemptId
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.scopes import Scope, ScopeId, find_scope
from pikobot.store.sources import SourceId
from pikobot.text import Count


@dataclass(frozen=True)
class Brain:
    """A chat model with its tariff and its room; in recall mode there is none. ``close`` ends its connections.

    ``shows_basics``: the owner's basics are at hand in every request.
    """

    model: ChatModel
    tariff: Tariff
    room: Room
    run_timeout_s: float
    shows_basics: bool = True
    close: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Outcome:
    """How answering went, before it is committed."""

    state: State
    text: str
    is_partial: bool = False
    error: PikobotError | None = None
    error_code: str | None = None
    proposes_erasure: bool = False
    is_own: bool = False  # no model has made it
    asked: forget_search.Asked = forget_search.NOTHING  # what it proposes to erase, if no model has


class Executor:
    """Answers the runs of one instance; holds no state of its own."""

    def __init__(
        self,
        db: Database,
        brain: Brain | None,
        *,
        learns: bool = False,
        queries: QueryEmbedder | None = None,
    ) -> None:
        """``queries`` makes the model's searches find by meaning too; without it they find by words."""
        self._queries = queries
        self._db = db
        self._brain = brain
        self._learns = learns

    async def execute(self, claimed: Claimed, emit: Emit, *, preface: str = "") -> None:
        """Answer a claimed run to its end. A cancellation is the caller's to record (`runs.finish`, `interrupt`).

        ``preface`` is a paragraph that the answer begins with, whatever it is.

        Raises `RunFenced` when the run is lost: then nothing of it was kept.
        """
        if claimed.context.left_out:
            emit(
                events.Notice(
                    f"{Count(claimed.context.left_out):message is|messages are} not shown to the model, the oldest"
                )
            )
        if preface:
            emit(events.TextDelta(preface + PARAGRAPH))
        request = self._asked_in(claimed.request.text)
        if request is not None:
            outcome = await self._propose(claimed, request, emit)
        elif self._brain is None:
            outcome = await self._recall(claimed, emit)
        else:
            scope = ToolScope(
                db=self._db,
                scope_id=claimed.thread.scope_id,
                lease=claimed.lease,
                run_id=claimed.run.id,
                request_id=claimed.request.id,
                may_assert=claimed.scope.kind == "private" and claimed.request.role == "user",
                queries=self._queries,
                workspace=claimed.scope.workspace,
            )
            loop = _loop(self._brain, scope, claimed.scope.workspace, emit)
            loop.transcript.extend(claimed.transcript)
            loop.cache_key = claimed.thread.public_id
            outcome = await converse(loop, claimed.context.messages, self._brain.run_timeout_s)
        if outcome.state is State.SUCCEEDED:
            outcome = await self._with_proposal(claimed, outcome, emit)
        if preface and outcome.text:
            outcome = replace(outcome, text=preface + PARAGRAPH + outcome.text)
        await self._commit(claimed, outcome, emit)

    async def execute_ephemeral(self, text: str, owner: Scope, emit: Emit) -> events.RunEnded:
        """Answer without retaining anything but the account of what it cost; the caller emits the end."""
        scope_id = await self._db.read_async(find_scope, owner)
        if self._asked_in(text) is not None or (self._brain is None and means_to_forget(text)):
            outcome = _said(ephemeral_text(language_of(text)), emit)
        elif self._brain is None:
            found = await self._search_memory(text, scope_id, None)
            outcome = _said(found.text, emit)
        else:
            scope = ToolScope(
                db=self._db,
                scope_id=scope_id,
                lease=None,
                run_id=None,
                request_id=None,
                queries=self._queries,
                workspace=owner.workspace,
            )
            loop = _loop(self._brain, scope, owner.workspace, emit)
            context = await self._db.read_async(
                ephemeral_context,
                text,
                scope_id,
                self._brain.room,
                now_ms=self._db.clock.now_ms(),
                with_basics=self._brain.shows_basics,
            )
            outcome = await converse(loop, context, self._brain.run_timeout_s)
        return events.RunEnded(outcome.state, outcome.text, outcome.is_partial, outcome.error)

    async def _recall(self, claimed: Claimed, emit: Emit) -> Outcome:
        """Quote from memory; search again when something found was forgotten before it could be cited."""
        text = claimed.request.text
        if means_to_forget(text):
            return _said(unclear_text(language_of(text)), emit)
        is_cited: bool | None = False
        while not is_cited:
            found = await self._search_memory(text, claimed.thread.scope_id, claimed.request.id)
            is_cited = await self._db.perform_async(cite, claimed.lease, claimed.run.id, found.source_ids)
            if is_cited is None:
                raise RunFenced
        hint = PARAGRAPH + hint_text(language_of(text)) if asks_to_forget(text) else ""
        return _said(found.text + hint, emit)

    def _asked_in(self, text: str) -> ForgetRequest | None:
        now_ms = self._db.clock.now_ms()
        today = day_said(now_ms, local_utc_offset_min(now_ms))
        return read_request(text, today, is_alone=self._brain is None)

    async def _propose(self, claimed: Claimed, request: ForgetRequest, emit: Emit) -> Outcome:
        """What a request to forget means is shown like what a model proposes; no model is asked about it."""
        asked = await self._db.read_async(
            forget_search.find_asked,
            request,
            asking=claimed.request.public_id,
            thread=claimed.thread,
            workspace=claimed.scope.workspace,
            now_ms=self._db.clock.now_ms(),
        )
        if asked.is_nothing:
            return _said(nothing_text(language_of(claimed.request.text)), emit)
        if not await self._db.perform_async(proposals.propose, claimed.lease, asked):
            raise RunFenced
        return Outcome(State.SUCCEEDED, "", is_own=True, asked=asked)

    async def _with_proposal(self, claimed: Claimed, outcome: Outcome, emit: Emit) -> Outcome:
        """The answer with what the run has proposed to forget below it, for the owner to confirm."""
        language = language_of(claimed.request.text)
        shown = await self._db.perform_async(proposals.show, claimed.lease, language, outcome.asked)
        if shown is None:
            raise RunFenced
        if not shown:
            return outcome if outcome.text else _said(nothing_text(language), emit)
        addition = PARAGRAPH + shown if outcome.text else shown
        question = question_text(language)
        emit(events.TextDelta(addition.removesuffix(question)))
        emit(events.TextDelta(question, asks_to_erase=True))
        return replace(outcome, text=outcome.text + addition, proposes_erasure=True)

    async def _search_memory(
        self, text: str, scope_id: ScopeId | None, request_id: SourceId | None
    ) -> MemoryAnswer:
        asked = Asked()
        if self._queries is not None and is_question(text):
            asked = await self._queries.ask(text, is_ephemeral=request_id is None)
        return await self._db.read_async(
            answer_from_memory,
            text,
            scope_id=scope_id,
            request_id=request_id,
            now_ms=self._db.clock.now_ms(),
            meaning=asked.vector,
        )

    async def _commit(self, claimed: Claimed, outcome: Outcome, emit: Emit) -> None:
        result = None
        if outcome.text:
            result = Result(outcome.text, "recall" if outcome.is_own else "model", outcome.is_partial)
        state = await self._db.perform_async(
            runs.finish,
            claimed,
            outcome.state,
            result,
            error_code=outcome.error_code,
            learns=self._learns and not means_to_forget(claimed.request.text),
        )
        if state is None:
            raise RunFenced
        ended = events.RunEnded(state, outcome.text, outcome.is_partial, outcome.error)
        unseen = outcome.proposes_erasure and not (outcome.is_own and outcome.asked.is_sure)
        emit(replace(ended, proposes_erasure=outcome.proposes_erasure, must_be_seen=unseen))


async def converse(loop: Loop[AttemptId], context: Sequence[Message], timeout_s: float) -> Outcome:
    """Run the loop to its end within the time that a whole answer may take; failures become outcomes."""
    try:
        async with asyncio.timeout(timeout_s):
            answer = await loop.run(context)
    except ChatCallFailed as failure:
        return _failed(loop, failure, failure.code)
    except BudgetExceeded as refusal:
        return _failed(loop, refusal, "budget_exceeded")
    except ProviderError as failure:
        return _failed(loop, failure, "provider_error")
    except TimeoutError:
        late = ProviderError(f"no whole answer within chat.run_timeout_s = {timeout_s:g}; ask again")
        return _failed(loop, late, "deadline")
    if not answer.text.strip():
        return _failed(loop, ProviderError("the model gave an empty answer; ask again"), "empty_answer")
    if answer.stop_reason is StopReason.LENGTH:
        loop.emit(events.Notice("the answer is cut off at chat.max_output_tokens"))
    if answer.stop_reason is StopReason.CONTENT_FILTER:
        loop.emit(events.Notice("the provider's content filter cut the answer off"))
    return Outcome(State.SUCCEEDED, answer.text, is_partial=answer.stop_reason is not StopReason.STOP)


def _said(text: str, emit: Emit) -> Outcome:
    emit(events.TextDelta(text))
    return Outcome(State.SUCCEEDED, text, is_own=True)


def _failed(loop: Loop[AttemptId], error: PikobotError, code: str) -> Outcome:
    return Outcome(State.FAILED, loop.visible, bool(loop.visible), error, code)


def _loop(brain: Brain, scope: ToolScope, workspace: str, emit: Emit) -> Loop[AttemptId]:
    async def call(tool_call: ToolCall) -> tuple[Message, bool]:
        return await call_tool(tool_call, scope)

    return Loop(
        model=brain.model,
        tools=[tool.schema() for tool in tools_for(scope)],
        call_tool=call,
        journal=RunJournal(scope.db, brain.tariff, scope.lease, workspace),
        emit=emit,
        max_output_tokens=brain.tariff.max_output_tokens,
    )
