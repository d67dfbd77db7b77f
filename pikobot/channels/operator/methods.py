"""What the operator can ask: one registry, used by the server and by `pikobot rpc` when nobody serves.

A `Method` is one read of one snapshot; an `Operation` changes something, blocks, and opens its own transactions;
an `Inquiry` awaits something outside before it reads, such as the vector of a question.
Parameters are validated here, results are plain JSON objects with camelCase keys. The operator reads all scopes.
"""

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field, model_validator

from pikobot import __version__
from pikobot.agent.indexer import Indexer
from pikobot.channels.operator.embedding_status import embedding_status
from pikobot.channels.operator.protocol import Json
from pikobot.clock import iso_time
from pikobot.config import Config
from pikobot.credentials import Credentials
from pikobot.errors import InvalidParams, NotFound, UnknownMethod
from pikobot.instance import Instance
from pikobot.memory import cursors
from pikobot.memory.assertions import RememberParams, Statement, remember
from pikobot.memory.edits import EditParams, Learning, edit_rpc
from pikobot.memory.embedding.engines import Embedding, embedding_of
from pikobot.memory.embedding.query_vectors import QueryEmbedder, search_memory
from pikobot.memory.forgetting.retention import retention_state
from pikobot.memory.forgetting.rpc import ForgetParams, forget_rpc
from pikobot.memory.lineage import FactParams, read_fact
from pikobot.memory.params import Cursor, Name, Params, validated
from pikobot.memory.search import (
    ListParams,
    ReadParams,
    SearchParams,
    list_memory,
    read_source,
    scope_named,
)
from pikobot.memory.spending import month_start_ms
from pikobot.memory.tags import TagParams, TagsParams, tag_counts, tag_fact
from pikobot.store import embedding_jobs, extraction_jobs, listing, schema
from pikobot.store.connection import Connection, Database
from pikobot.store.fact_index import count_facts
from pikobot.store.leases import State
from pikobot.store.runs import RunId, count_by_state
from pikobot.store.scopes import Scope, ScopeId, load_scope, owner_scope
from pikobot.store.settings import INSTANCE_ID, read_setting
from pikobot.store.sources import count_sources
from pikobot.store.threads import ThreadId, find_thread_by_public_id, list_threads
from pikobot.text import MAX_NAME_CHARS_SHOWN, shown_name

DEFAULT_ROWS = 20
MAX_ROWS = 200
MICROUSD = 1_000_000

NO_MODEL = "no chat model: recall mode; set PIKOBOT_CHAT_API_KEY or chat_api_key in credentials.toml"
CAN_CHARGE = "each retried job or batch calls its model again, which can charge"
NO_PROVIDER = "no chat model: recall mode; set chat.provider to turn one on"

P = TypeVar("P", bound=Params)


@dataclass(frozen=True)
class OperatorContext:
    """What the methods answer from, apart from their parameters. ``on_change``: an operation has ended."""

    db: Database
    ledger_path: Path
    config: Config
    mode: Literal["model", "recall"]
    is_served: bool
    degraded: tuple[str, ...]
    queries: QueryEmbedder
    embedding: Embedding
    indexer_problem: Callable[[], str | None] = lambda: None
    retention_problem: Callable[[], str | None] = lambda: None
    on_change: Callable[[], None] = lambda: None

    @property
    def now_ms(self) -> int:
        return self.db.clock.now_ms()

    async def close(self) -> None:
        """Close what embeds; only for who made the context without giving it."""
        await self.embedding.aclose()


@dataclass(frozen=True)
class Method(Generic[P]):
    params: type[P]
    answer: Callable[[Connection, OperatorContext, P], Json]


@dataclass(frozen=True)
class Operation(Generic[P]):
    params: type[P]
    run: Callable[[OperatorContext, P], Json]


@dataclass(frozen=True)
class Inquiry(Generic[P]):
    params: type[P]
    answer: Callable[[OperatorContext, P], Awaitable[Json]]


class RetryParams(Params):
    """Parameters of ``memory.retry``: one extraction job by its id, or all that failed or ended unknown."""

    job_id: Name | None = Field(default=None, alias="jobId")
    all: bool = False

    @model_validator(mode="after")
    def _names_jobs(self) -> "RetryParams":
        if (self.job_id is None) != self.all:
            raise ValueError("jobId: give either jobId, or all: true")
        return self


class ThreadsParams(Params):
    """Parameters of ``threads.list``; ``key`` is the name of a thread."""

    scope: Name | None = None
    key: Name | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = DEFAULT_ROWS
    cursor: Cursor | None = None


class RunsParams(Params):
    """Parameters of ``runs.list``; the thread by its id."""

    scope: Name | None = None
    thread: Name | None = None
    state: Literal["queued", "leased", "succeeded", "failed", "cancelled", "unknown"] | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = DEFAULT_ROWS
    cursor: Cursor | None = None


class NoParams(Params):
    """Parameters of a method that takes none."""


def create_context(
    db: Database,
    instance: Instance,
    config: Config,
    credentials: Credentials,
    *,
    is_served: bool,
    catches_up: bool = False,
    embedding: Embedding | None = None,
    indexer_problem: Callable[[], str | None] = lambda: None,
    retention_problem: Callable[[], str | None] = lambda: None,
    on_change: Callable[[], None] = lambda: None,
) -> OperatorContext:
    """The context of an open instance. ``embedding`` is made from the settings when it is not given.

    ``catches_up``: nothing embeds in the background, so a search embeds the little that waits before it. ``on_change``
    tells the background otherwise: it is called on the event loop when an operation has ended, whatever came of it.
    """
    is_model_on = config.chat.is_model_on(has_key=credentials.chat_api_key is not None)
    no_model = None if is_model_on else NO_PROVIDER if config.chat.provider == "none" else NO_MODEL
    embedding = embedding or embedding_of(config, credentials, db.clock)
    catch_up = None
    if catches_up and embedding.engine is not None:
        catch_up = Indexer(db, embedding.engine, embedding.limits).catch_up
    return OperatorContext(
        db=db,
        ledger_path=instance.ledger_path,
        config=config,
        mode="model" if is_model_on else "recall",
        is_served=is_served,
        degraded=() if no_model is None else (no_model,),
        queries=embedding.queries(db, catch_up),
        embedding=embedding,
        indexer_problem=indexer_problem,
        retention_problem=retention_problem,
        on_change=on_change,
    )


def call(
    context: OperatorContext,
    method: str,
    params: object,
    run: Callable[[Coroutine[Any, Any, Json]], Json] = asyncio.run,
) -> Json:
    """Answer a call, from any thread but the writer's and outside of event loops; ``run`` awaits an inquiry.

    Raises `UnknownMethod`, `InvalidParams` and what the method raises.
    """
    known = _known(method)
    if isinstance(known, Inquiry):
        return run(call_async(context, method, params))
    checked = validated(known.params, params)
    if isinstance(known, Operation):
        return known.run(context, checked)
    with context.db.read() as conn:
        return known.answer(conn, context, checked)


async def call_async(context: OperatorContext, method: str, params: object) -> Json:
    """Like `call`, from the event loop; when it is cancelled, an operation ends before that is delivered."""
    known = _known(method)
    checked = validated(known.params, params)
    if isinstance(known, Method):
        return await context.db.read_async(known.answer, context, checked)
    if isinstance(known, Inquiry):
        return await known.answer(context, checked)
    running = asyncio.create_task(asyncio.to_thread(known.run, context, checked))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError as error:
            cancelled = error
    context.on_change()
    if cancelled is not None:
        running.exception()  # observed: the cancellation is what the caller gets
        raise cancelled
    return running.result()


def _known(method: str) -> Method[Any] | Operation[Any] | Inquiry[Any]:
    known = METHODS.get(method)
    if known is None:
        near = difflib.get_close_matches(method[:MAX_NAME_CHARS_SHOWN], METHODS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UnknownMethod(f"there is no method {shown_name(method)}; {meant}known are {', '.join(METHODS)}")
    return known


async def _memory_search(context: OperatorContext, params: SearchParams) -> Json:
    page = await search_memory(context.db, context.queries, params, allowed_scopes=None)
    return page.as_json()


def _memory_list(conn: Connection, context: OperatorContext, params: ListParams) -> Json:
    page = list_memory(conn, params, allowed_scopes=None, now_ms=context.now_ms)
    return page.as_json() | {"extraction": _extraction(conn)}


def _memory_read(conn: Connection, context: OperatorContext, params: FactParams) -> Json:
    return read_fact(conn, params, allowed_scopes=None, now_ms=context.now_ms).as_json()


def _memory_tags(conn: Connection, context: OperatorContext, params: TagsParams) -> Json:
    scope_id, is_known = _scope(conn, params.scope)
    scope_ids = None if params.scope is None else [scope_id] if scope_id is not None and is_known else []
    return tag_counts(conn, scope_ids=scope_ids, now_ms=context.now_ms, limit=params.limit)


def _memory_tag(context: OperatorContext, params: TagParams) -> Json:
    return context.db.perform(tag_fact, params)


def _memory_remember(context: OperatorContext, params: RememberParams) -> Json:
    scope = owner_scope() if params.scope is None else Scope.parse(params.scope)
    asserted = context.db.perform(remember, params.assertion(), Statement(scope))
    if asserted is None:
        raise LookupError("a statement has no lease to lose")
    with context.db.read() as conn:
        stored = read_fact(
            conn, FactParams(id=asserted.fact.public_id), allowed_scopes=None, now_ms=context.now_ms
        )
    return stored.as_json() | {"repeated": asserted.is_repeated}


def _memory_forget(context: OperatorContext, params: ForgetParams) -> Json:
    return forget_rpc(context.db, context.ledger_path, params)


def _memory_retry(context: OperatorContext, params: RetryParams) -> Json:
    return {"requeued": context.db.perform(_requeue, params.job_id), "note": CAN_CHARGE}


def _requeue(db: Database, public_id: str | None) -> int:
    with db.write("retry what failed") as tx:
        if public_id is None:
            return extraction_jobs.requeue(tx, None) + embedding_jobs.requeue(tx)
        job = extraction_jobs.find_job(tx, public_id)
        if job is None:
            raise NotFound(f"there is no extraction job {shown_name(public_id)}")
        if not extraction_jobs.requeue(tx, job.id):
            raise InvalidParams(
                f"jobId: the job is {job.state.value}; only failed and unknown ones with sources can be retried"
            )
        return 1


def _extraction(conn: Connection) -> Json:
    counts = extraction_jobs.count_jobs(conn)
    return {"queued": counts.queued, "failed": counts.failed, "unknown": counts.unknown}


def _source_edit(context: OperatorContext, params: EditParams) -> Json:
    config = context.config
    learning = Learning(
        said=config.extraction.enabled,
        imported=config.extraction.enabled and config.memory.extract_imports,
    )
    return edit_rpc(context.db, context.ledger_path, params, learning)


def _source_read(conn: Connection, context: OperatorContext, params: ReadParams) -> Json:
    return read_source(conn, params, allowed_scopes=None, now_ms=context.now_ms).as_json()


def _threads_list(conn: Connection, context: OperatorContext, params: ThreadsParams) -> Json:
    bound_to = cursors.fingerprint("threads.list", params)
    scope_id, is_known = _scope(conn, params.scope)
    found = list_threads(
        conn,
        scope_id=scope_id,
        before_id=ThreadId(before) if (before := _before(params.cursor, bound_to)) is not None else None,
        now_ms=context.now_ms,
        limit=params.limit + 1 if is_known else 0,
        key=params.key,
    )
    shown = found[: params.limit]
    cursor = cursors.position_cursor(bound_to, [shown[-1][0]]) if len(found) > params.limit else None
    threads: list[Json] = [
        {
            "id": thread.public_id,
            "key": thread.key,
            "scope": str(load_scope(conn, thread.scope_id)),
            "createdAt": iso_time(thread.created_at_ms),
            "lastSaidAt": _time(thread.last_said_at_ms),
            "messages": thread.messages,
            "beginning": thread.beginning,
        }
        for _, thread in shown
    ]
    return {"threads": threads, "cursor": cursor}


def _runs_list(conn: Connection, context: OperatorContext, params: RunsParams) -> Json:
    bound_to = cursors.fingerprint("runs.list", params)
    scope_id, is_known = _scope(conn, params.scope)
    thread = None if params.thread is None else find_thread_by_public_id(conn, params.thread)
    if params.thread is not None and thread is None:
        raise NotFound(f"there is no thread {shown_name(params.thread)}; look for it with threads.list")
    found = listing.list_runs(
        conn,
        scope_id=scope_id,
        thread_id=None if thread is None else thread.id,
        state=None if params.state is None else State(params.state),
        before_id=RunId(before) if (before := _before(params.cursor, bound_to)) is not None else None,
        limit=params.limit + 1 if is_known else 0,
    )
    shown = found[: params.limit]
    cursor = cursors.position_cursor(bound_to, [shown[-1].id]) if len(found) > params.limit else None
    return {"runs": [_run(run) for run in shown], "cursor": cursor}


def _run(run: listing.RunSummary) -> Json:
    return {
        "id": run.public_id,
        "thread": {"id": run.thread_public_id, "key": run.thread_key},
        "state": run.state.value,
        "model": run.model,
        "errorCode": run.error_code,
        "claims": run.claims,
        "createdAt": iso_time(run.created_at_ms),
        "finishedAt": _time(run.finished_at_ms),
        "attempts": run.attempts,
        "costMicroUsd": run.cost_microusd,
        "tokens": {
            "input": run.input_tokens,
            "cachedInput": run.cached_input_tokens,
            "output": run.output_tokens,
        },
    }


def _status(conn: Connection, context: OperatorContext, params: NoParams) -> Json:
    embedding = embedding_status(
        conn,
        context.embedding,
        context.queries,
        provider=context.config.embedding.provider,
        indexer_problem=context.indexer_problem(),
        now_ms=context.now_ms,
    )
    problems = [embedding["problem"], context.retention_problem()]
    return {
        "version": __version__,
        "schemaVersion": schema.applied_version(conn),
        "instanceId": read_setting(conn, INSTANCE_ID),
        "served": context.is_served,
        "mode": context.mode,
        "model": context.config.chat.model if context.mode == "model" else None,
        "counts": {
            "facts": count_facts(conn, now_ms=context.now_ms),
            "sources": count_sources(conn, now_ms=context.now_ms),
            "threads": listing.count_threads(conn),
            "runs": {state.value: 0 for state in State} | count_by_state(conn),
        },
        "extraction": _extraction(conn),
        "unknownOutcomes": listing.count_unknown_outcomes(conn),
        "spend": _spend(conn, context),
        "embedding": embedding,
        "retention": _retention(conn, context),
        "degraded": [*context.degraded, *(problem for problem in problems if problem is not None)],
    }


def _retention(conn: Connection, context: OperatorContext) -> Json:
    limits = context.config.retention
    return retention_state(
        conn, message_days=limits.message_days, max_sources=limits.max_sources, now_ms=context.now_ms
    )


def _spend(conn: Connection, context: OperatorContext) -> Json:
    since_ms = month_start_ms(context.now_ms)
    workspaces: list[Json] = [
        {
            "workspace": spending.workspace,
            "spentMicroUsd": spending.spent_microusd,
            "reservedMicroUsd": spending.reserved_microusd,
        }
        for spending in listing.spending_by_workspace(conn, since_ms=since_ms)
    ]
    return {
        "since": iso_time(since_ms),
        "workspaces": workspaces,
        "workspaceBudgetMicroUsd": round(context.config.budget.workspace_usd_per_month * MICROUSD),
    }


def _scope(conn: Connection, text: str | None) -> tuple[ScopeId | None, bool]:
    """The scope's id, and whether anything can be in it: a scope that was never stored has no id."""
    scope_id = None if text is None else scope_named(conn, text)
    return scope_id, text is None or scope_id is not None


def _before(cursor: str | None, bound_to: str) -> int | None:
    return None if cursor is None else cursors.read_position(cursor, bound_to, 1)[0]


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso_time(at_ms)


METHODS: dict[str, Method[Any] | Operation[Any] | Inquiry[Any]] = {
    "memory.search": Inquiry(SearchParams, _memory_search),
    "memory.list": Method(ListParams, _memory_list),
    "memory.read": Method(FactParams, _memory_read),
    "memory.tag": Operation(TagParams, _memory_tag),
    "memory.tags": Method(TagsParams, _memory_tags),
    "memory.remember": Operation(RememberParams, _memory_remember),
    "memory.retry": Operation(RetryParams, _memory_retry),
    "memory.forget": Operation(ForgetParams, _memory_forget),
    "source.read": Method(ReadParams, _source_read),
    "source.edit": Operation(EditParams, _source_edit),
    "threads.list": Method(ThreadsParams, _threads_list),
    "runs.list": Method(RunsParams, _runs_list),
    "status": Method(NoParams, _status),
}
