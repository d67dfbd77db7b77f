"""The tools that a model can call: each one memory operation, read in a snapshot and then cited in a transaction.

What a tool may read is decided by the execution (its scope, its run), never by arguments, and is checked at every
call: the citing transaction holds the run's lease against the database and drops what was forgotten between the
read and now. A bad call is answered with an error that the model can mend; a lost run raises `RunFenced`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from pikobot.adapters.chat import Message, ToolCall, ToolSchema
from pikobot.errors import PikobotError, UsageError
from pikobot.memory.history import HistoryParams, HistoryReader, query_history
from pikobot.memory.search import ReadParams, SearchParams, read_source, search
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import Lease, holds
from pikobot.store.runs import RunId, cite_sources
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import SourceId, find_source
from pikobot.text import parse_json

MAX_RESULT_CHARS = 40_000

Params = TypeVar("Params", bound=BaseModel)


class RunFenced(Exception):
    """The run was stopped, forgotten or taken over while it worked: nothing of it may be kept."""


@dataclass(frozen=True)
class ToolScope:
    """On whose behalf tools are called. An ephemeral request has neither lease nor run: it cites nothing."""

    db: Database
    scope_id: ScopeId | None
    lease: Lease | None
    run_id: RunId | None
    request_id: SourceId | None


@dataclass(frozen=True)
class Reading:
    """What a tool gives the model, and the public ids of the sources in it."""

    result: dict[str, Any]
    source_ids: tuple[str, ...]


@dataclass(frozen=True)
class Tool:
    name: str
    description: str
    params: type[BaseModel]
    read: Callable[[Connection, Any, ToolScope], Reading]
    is_for_ephemeral: bool

    def schema(self) -> ToolSchema:
        return ToolSchema(self.name, self.description, _plain_schema(self.params))


def _memory_search(conn: Connection, params: SearchParams, scope: ToolScope) -> Reading:
    page = search(
        conn,
        params,
        allowed_scopes=_scopes(scope),
        now_ms=scope.db.clock.now_ms(),
        exclude=() if scope.request_id is None else (scope.request_id,),
    )
    ids = dict.fromkeys(source_id for record in page.records for source_id in record.source_ids)
    return Reading(page.as_json(), tuple(ids))


def _source_read(conn: Connection, params: ReadParams, scope: ToolScope) -> Reading:
    found = read_source(conn, params, allowed_scopes=_scopes(scope), now_ms=scope.db.clock.now_ms())
    return Reading(found.as_json(), (found.id,))


def _query_chat_history(conn: Connection, params: HistoryParams, scope: ToolScope) -> Reading:
    if scope.scope_id is None:
        return Reading({"results": [], "nextCursor": None}, ())
    page = query_history(conn, params, HistoryReader(scope.scope_id, scope.run_id, scope.db.clock.now_ms()))
    return Reading(page.as_json, tuple(source.public_id for source in page.sources))


TOOLS = (
    Tool(
        "memory_search",
        "Search everything the owner has said or stored, ranked. Use a few distinctive words, in the language of "
        "the statement you look for. Filter by time with 'from' and 'to'. Results quote dated sources.",
        SearchParams,
        _memory_search,
        is_for_ephemeral=True,
    ),
    Tool(
        "source_read",
        "Read one source in full, or a range of its characters, by the id that a search returned.",
        ReadParams,
        _source_read,
        is_for_ephemeral=True,
    ),
    Tool(
        "query_chat_history",
        "Find literal text in past messages, newest first, in all conversations or in one ('threadId'); without "
        "'query' it lists the newest messages.",
        HistoryParams,
        _query_chat_history,
        is_for_ephemeral=False,
    ),
)


def tools_for(scope: ToolScope) -> tuple[Tool, ...]:
    return tuple(tool for tool in TOOLS if tool.is_for_ephemeral or scope.run_id is not None)


async def call_tool(call: ToolCall, scope: ToolScope) -> tuple[Message, bool]:
    """Answer one call of the model: the tool message, and whether it reports an error.

    Raises `RunFenced` when the run is lost.
    """
    tool = next((tool for tool in tools_for(scope) if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in tools_for(scope))
        return _error(call, f"there is no tool {call.name!r:.80}; the tools are {names}"), True
    try:
        params = _parsed(tool, call.arguments)
        reading = await scope.db.read_async(tool.read, params, scope)
        if scope.lease is not None and scope.run_id is not None:
            still_there = await scope.db.perform_async(cite, scope.lease, scope.run_id, reading.source_ids)
            if still_there is None:
                raise RunFenced
            if not still_there:
                return _error(call, "what was found is being forgotten; search again"), True
    except PikobotError as error:
        return _error(call, str(error)), True
    return Message("tool", _bounded(reading.result), tool_call_id=call.id), False


def cite(db: Database, lease: Lease, run_id: RunId, public_ids: tuple[str, ...]) -> bool | None:
    """Put what a tool has read into the run's citation set.

    None when the run is lost; False when some of it is no longer there, and then nothing is cited.
    """
    with db.write("cite sources") as tx:
        if not holds(tx, lease):
            return None
        found = [find_source(tx, public_id, now_ms=db.clock.now_ms()) for public_id in public_ids]
        ids = [source.id for source in found if source is not None]
        if len(ids) < len(public_ids):
            return False
        cite_sources(tx, run_id, ids)
        return True


def _parsed(tool: Tool, arguments: str) -> BaseModel:
    """The call's arguments as the tool's parameters; raises `UsageError` that says what to mend."""
    value = parse_json(arguments.strip() or "{}", f"the arguments of {tool.name}")
    try:
        return tool.params.model_validate(value)
    except ValidationError as error:
        findings = "; ".join(
            f"{'.'.join(str(part) for part in finding['loc']) or 'arguments'}: {finding['msg']}"
            for finding in error.errors(include_url=False, include_input=False)
        )
        raise UsageError(f"fix the arguments of {tool.name}: {findings:.1000}") from None


def _scopes(scope: ToolScope) -> list[ScopeId]:
    return [] if scope.scope_id is None else [scope.scope_id]


def _error(call: ToolCall, message: str) -> Message:
    return Message("tool", json.dumps({"error": message}, ensure_ascii=False), tool_call_id=call.id)


def _bounded(result: dict[str, Any]) -> str:
    text = json.dumps(result, ensure_ascii=False)
    if len(text) <= MAX_RESULT_CHARS:
        return text
    note = {"error": f"the result has {len(text)} characters, the limit is {MAX_RESULT_CHARS}: ask for less"}
    return json.dumps(note, ensure_ascii=False)


def _plain_schema(params: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema without titles and without the nulls of optional keys, which some servers can't parse."""
    schema = params.model_json_schema(by_alias=True)
    properties = {name: _plain_property(value) for name, value in schema.get("properties", {}).items()}
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _plain_property(value: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in value.get("anyOf", []) if option.get("type") != "null"]
    flat = {**value, **(options[0] if len(options) == 1 else {})}
    return {key: item for key, item in flat.items() if key not in ("title", "anyOf", "default")}
