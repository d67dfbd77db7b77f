"""The tools that a model can call: each one memory operation, whose result is then cited in a transaction.

What a tool may do is decided by the execution (its scope, its run), never by arguments, and is checked at every
call: the citing transaction holds the run's lease against the database and drops what was forgotten between the
read and now. A bad call is answered with an error that the model can mend; a lost run raises `RunFenced`.
"""

import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError

from pikobot.adapters.chat import Message, ToolCall
from pikobot.agent.fact_tools import MEMORY_ASSERT, MEMORY_CORRECT, MEMORY_READ
from pikobot.agent.forget_tool import SOURCE_FORGET
from pikobot.agent.tool import Audience, Reading, RunFenced, Tool, ToolScope
from pikobot.errors import PikobotError, UsageError
from pikobot.memory.embedding.query_vectors import search_memory
from pikobot.memory.history import HistoryParams, HistoryReader, query_history
from pikobot.memory.search import ReadParams, SearchParams, read_source
from pikobot.store.connection import Connection, Database
from pikobot.store.facts import cite_facts, find_fact
from pikobot.store.leases import Lease, holds
from pikobot.store.runs import RunId, cite_sources
from pikobot.store.sources import find_source
from pikobot.text import parse_json

MAX_RESULT_CHARS = 40_000
# Complaints name the methods of `pikobot rpc`; a model is told its own tools.
_METHOD = re.compile(r"(?:,? or )?(?:use )?memory\.list|(memory|source)\.(search|read)\b")


async def _memory_search(params: SearchParams, scope: ToolScope) -> Reading:
    page = await search_memory(
        scope.db,
        scope.queries,
        params,
        allowed_scopes=scope.scope_ids,
        exclude=() if scope.request_id is None else (scope.request_id,),
        is_ephemeral=scope.run_id is None,
        workspace=scope.workspace,
    )
    source_ids = dict.fromkeys(source_id for record in page.records for source_id in record.source_ids)
    fact_ids = tuple(record.id for record in page.records if record.type == "fact")
    shown = page.as_json()
    del shown["degraded"]  # a sentence for the operator, which a model would repeat to the owner
    return Reading(shown | {"wordsOnly": page.degraded is not None}, tuple(source_ids), fact_ids)


def _source_read(conn: Connection, params: ReadParams, scope: ToolScope) -> Reading:
    found = read_source(conn, params, allowed_scopes=scope.scope_ids, now_ms=scope.db.clock.now_ms())
    return Reading(found.as_json(), (found.id,))


def _query_chat_history(conn: Connection, params: HistoryParams, scope: ToolScope) -> Reading:
    if scope.scope_id is None:
        return Reading({"results": [], "nextCursor": None}, ())
    page = query_history(conn, params, HistoryReader(scope.scope_id, scope.run_id, scope.db.clock.now_ms()))
    return Reading(page.as_json, tuple(source.public_id for source in page.sources))


TOOLS = (
    Tool(
        "memory_search",
        "Search everything the owner has said or stored, ranked: facts, each with a quote, and statements as they "
        "were made; 'wordsOnly': not by meaning. Use a few distinctive words, in the language of the statement you "
        "look for. Narrow with 'entity' (a name), 'tags', 'kind', 'from' and 'to'; 'history' also gives what was "
        "replaced since.",
        SearchParams,
        inquire=_memory_search,
    ),
    MEMORY_READ,
    Tool(
        "source_read",
        "Read one source in full, or a range of its characters, by the id that a search returned.",
        ReadParams,
        read=_source_read,
    ),
    Tool(
        "query_chat_history",
        "Find literal text in past messages, newest first, in all conversations or in one ('threadId'); without "
        "'query' it lists the newest messages.",
        HistoryParams,
        read=_query_chat_history,
        audience=Audience.RETAINED,
    ),
    MEMORY_ASSERT,
    MEMORY_CORRECT,
    SOURCE_FORGET,
)


def tools_for(scope: ToolScope) -> tuple[Tool, ...]:
    return tuple(tool for tool in TOOLS if scope.has(tool.audience))


async def call_tool(call: ToolCall, scope: ToolScope) -> tuple[Message, bool]:
    """Answer one call of the model: the tool message, and whether it reports an error.

    Raises `RunFenced` when the run is lost.
    """
    tool = next((tool for tool in tools_for(scope) if tool.name == call.name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in tools_for(scope))
        return _error(call, f"there is no tool {call.name!r:.80}; the tools are {names}"), True
    try:
        reading = await _performed(tool, _parsed(tool, call.arguments), scope)
        if scope.lease is not None and scope.run_id is not None:
            still_there = await scope.db.perform_async(
                cite, scope.lease, scope.run_id, reading.source_ids, reading.fact_ids
            )
            if still_there is None:
                raise RunFenced
            if not still_there:
                return _error(call, "what was found is being forgotten; search again"), True
    except PikobotError as error:
        return _error(call, _with_tool_names(str(error))), True
    return Message("tool", _bounded(reading.result), tool_call_id=call.id), False


def cite(
    db: Database,
    lease: Lease,
    run_id: RunId,
    source_ids: tuple[str, ...],
    fact_ids: tuple[str, ...] = (),
) -> bool | None:
    """Put what a tool has read into the run's citation set; ids are public.

    None when the run is lost; False when some of it is no longer there, and then nothing is cited.
    """
    now_ms = db.clock.now_ms()
    with db.write("cite what was read") as tx:
        if not holds(tx, lease):
            return None
        found = [find_source(tx, public_id, now_ms=now_ms) for public_id in source_ids]
        ids = [source.id for source in found if source is not None]
        if len(ids) < len(source_ids):
            return False
        if not all(find_fact(tx, public_id, now_ms=now_ms) for public_id in fact_ids):
            return False
        cite_sources(tx, run_id, ids)
        cite_facts(tx, run_id, fact_ids)
        return True


async def _performed(tool: Tool, params: BaseModel, scope: ToolScope) -> Reading:
    if tool.inquire is not None:
        return await tool.inquire(params, scope)
    if tool.write is None:
        if tool.read is None:
            raise PikobotError(f"{tool.name} does nothing")
        return await scope.db.read_async(tool.read, params, scope)
    written = await scope.db.perform_async(tool.write, params, scope)
    if written is None:
        raise RunFenced
    return written


def _parsed(tool: Tool, arguments: str) -> BaseModel:
    """The call's arguments as the tool's parameters; raises `UsageError` that says what to mend."""
    value = parse_json(arguments.strip() or "{}", f"the argument object of {tool.name}")
    try:
        return tool.params.model_validate(value)
    except ValidationError as error:
        findings = "; ".join(
            f"{'.'.join(str(part) for part in finding['loc']) or 'arguments'}: {finding['msg']}"
            for finding in error.errors(include_url=False, include_input=False)
        )
        raise UsageError(f"fix the arguments of {tool.name}: {findings:.1000}") from None


def _error(call: ToolCall, message: str) -> Message:
    return Message("tool", json.dumps({"error": message}, ensure_ascii=False), tool_call_id=call.id)


def _with_tool_names(message: str) -> str:
    return _METHOD.sub(lambda found: f"{found[1]}_{found[2]}" if found[1] else "", message)


def _bounded(result: dict[str, Any]) -> str:
    text = json.dumps(result, ensure_ascii=False)
    if len(text) <= MAX_RESULT_CHARS:
        return text
    note = {"error": f"the result has {len(text)} characters, the limit is {MAX_RESULT_CHARS}: ask for less"}
    return json.dumps(note, ensure_ascii=False)
