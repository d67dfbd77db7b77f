"""What the operator can ask: one registry, used by the server and by `pikobot rpc` when nobody serves.

Every method is one read of one snapshot. Parameters are validated here, results are plain JSON objects with
camelCase keys. The operator reads all scopes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field

from pikobot import __version__
from pikobot.channels.operator.protocol import MAX_METHOD_CHARS_NAMED, Json
from pikobot.clock import iso_time
from pikobot.config import Config
from pikobot.credentials import Credentials
from pikobot.errors import NotFound, UnknownMethod
from pikobot.memory import cursors
from pikobot.memory.params import Cursor, Name, Params, validated
from pikobot.memory.search import (
    ListParams,
    ReadParams,
    SearchParams,
    list_memory,
    read_source,
    scope_named,
    search,
)
from pikobot.store import listing, schema
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import State
from pikobot.store.runs import RunId, count_by_state
from pikobot.store.scopes import ScopeId, load_scope
from pikobot.store.settings import INSTANCE_ID, read_setting
from pikobot.store.sources import count_sources
from pikobot.store.threads import ThreadId, find_thread_by_public_id, list_threads

DEFAULT_ROWS = 20
MAX_ROWS = 200
MICROUSD = 1_000_000

TEXT_ONLY = "no embeddings yet: text search only"
NO_MODEL = "no chat model: recall mode; set PIKOBOT_CHAT_API_KEY or chat_api_key in credentials.toml"
NO_PROVIDER = "no chat model: recall mode; set chat.provider to turn one on"

P = TypeVar("P", bound=Params)


@dataclass(frozen=True)
class OperatorContext:
    """What the methods answer from, apart from their parameters."""

    db: Database
    config: Config
    mode: Literal["model", "recall"]
    is_served: bool
    degraded: tuple[str, ...]
    search_degraded: str | None

    @property
    def now_ms(self) -> int:
        return self.db.clock.now_ms()


@dataclass(frozen=True)
class Method(Generic[P]):
    params: type[P]
    answer: Callable[[Connection, OperatorContext, P], Json]


class ThreadsParams(Params):
    """Parameters of ``threads.list``."""

    scope: Name | None = None
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
    db: Database, config: Config, credentials: Credentials, *, is_served: bool
) -> OperatorContext:
    """The context of an open instance."""
    is_model_on = config.chat.is_model_on(has_key=credentials.chat_api_key is not None)
    search_degraded = None if config.embedding.provider == "disabled" else TEXT_ONLY
    no_model = None if is_model_on else NO_PROVIDER if config.chat.provider == "none" else NO_MODEL
    return OperatorContext(
        db=db,
        config=config,
        mode="model" if is_model_on else "recall",
        is_served=is_served,
        degraded=tuple(reason for reason in (no_model, search_degraded) if reason is not None),
        search_degraded=search_degraded,
    )


def answer(conn: Connection, context: OperatorContext, method: str, params: object) -> Json:
    """Run a method on a snapshot. Raises `UnknownMethod`, `InvalidParams` and what the method raises."""
    known = METHODS.get(method)
    if known is None:
        raise UnknownMethod(f"there is no method {_named(method)}; known are {', '.join(METHODS)}")
    return known.answer(conn, context, validated(known.params, params))


def _memory_search(conn: Connection, context: OperatorContext, params: SearchParams) -> Json:
    degraded = context.search_degraded
    page = search(conn, params, allowed_scopes=None, now_ms=context.now_ms, degraded=degraded)
    return page.as_json()


def _memory_list(conn: Connection, context: OperatorContext, params: ListParams) -> Json:
    return list_memory(conn, params, allowed_scopes=None, now_ms=context.now_ms).as_json()


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
        }
        for _, thread in shown
    ]
    return {"threads": threads, "cursor": cursor}


def _runs_list(conn: Connection, context: OperatorContext, params: RunsParams) -> Json:
    bound_to = cursors.fingerprint("runs.list", params)
    scope_id, is_known = _scope(conn, params.scope)
    thread = None if params.thread is None else find_thread_by_public_id(conn, params.thread)
    if params.thread is not None and thread is None:
        raise NotFound(f"there is no thread {_named(params.thread)}; look for it with threads.list")
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
    return {
        "version": __version__,
        "schemaVersion": schema.applied_version(conn),
        "instanceId": read_setting(conn, INSTANCE_ID),
        "served": context.is_served,
        "mode": context.mode,
        "model": context.config.chat.model if context.mode == "model" else None,
        "counts": {
            "sources": count_sources(conn, now_ms=context.now_ms),
            "threads": listing.count_threads(conn),
            "runs": {state.value: 0 for state in State} | count_by_state(conn),
        },
        "unknownOutcomes": listing.count_unknown_outcomes(conn),
        "spend": _spend(conn, context),
        "degraded": list(context.degraded),
    }


def _spend(conn: Connection, context: OperatorContext) -> Json:
    from pikobot.agent.runs import month_start_ms  # lazily: reading memory needs no agent

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


def _named(text: str) -> str:
    return ascii(text[:MAX_METHOD_CHARS_NAMED])


METHODS: dict[str, Method[Any]] = {
    "memory.search": Method(SearchParams, _memory_search),
    "memory.list": Method(ListParams, _memory_list),
    "source.read": Method(ReadParams, _source_read),
    "threads.list": Method(ThreadsParams, _threads_list),
    "runs.list": Method(RunsParams, _runs_list),
    "status": Method(NoParams, _status),
}
