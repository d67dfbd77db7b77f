"""What a tool is, on whose behalf it is called, and what it gives back.

A tool either reads in a snapshot, perhaps after asking outside, or writes in transactions of its own on the writer
thread. Whichever it does, what it hands the model is cited afterwards (`tools.cite`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from pikobot.adapters.chat import ToolSchema
from pikobot.memory.embedding.query_vectors import QueryEmbedder
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import Lease
from pikobot.store.runs import RunId
from pikobot.store.scopes import MAIN_WORKSPACE, ScopeId
from pikobot.store.sources import SourceId


class RunFenced(Exception):
    """The run was stopped, forgotten or taken over while it worked: nothing of it may be kept."""


class Audience(StrEnum):
    """Which requests have a tool."""

    ALL = "all"
    RETAINED = "retained"  # those with a run: not ephemeral ones
    OWNER = "owner"  # retained ones that the owner of a private scope has written


@dataclass(frozen=True)
class ToolScope:
    """On whose behalf tools are called. An ephemeral request has neither lease nor run: it cites nothing.

    ``may_assert``: the request is the owner's own message in a private conversation.
    """

    db: Database
    scope_id: ScopeId | None
    lease: Lease | None
    run_id: RunId | None
    request_id: SourceId | None
    may_assert: bool = False
    queries: QueryEmbedder | None = None
    workspace: str = MAIN_WORKSPACE

    @property
    def scope_ids(self) -> list[ScopeId]:
        return [] if self.scope_id is None else [self.scope_id]

    def has(self, audience: Audience) -> bool:
        is_retained = self.lease is not None and self.run_id is not None
        match audience:
            case Audience.ALL:
                return True
            case Audience.RETAINED:
                return is_retained
            case Audience.OWNER:
                return is_retained and self.may_assert and self.request_id is not None


@dataclass(frozen=True)
class Reading:
    """What a tool gives the model, and the public ids of the sources and facts in it."""

    result: dict[str, Any]
    source_ids: tuple[str, ...] = ()
    fact_ids: tuple[str, ...] = ()


Read = Callable[[Connection, Any, ToolScope], Reading]
Inquire = Callable[[Any, ToolScope], Awaitable[Reading]]
"""A read that first awaits something outside, such as the vector of a question."""
Write = Callable[[Database, Any, ToolScope], Reading | None]
"""An operation on the writer thread; None when the run is lost."""


@dataclass(frozen=True)
class Tool:
    """Exactly one of ``read``, ``inquire`` and ``write`` does its work."""

    name: str
    description: str
    params: type[BaseModel]
    read: Read | None = None
    inquire: Inquire | None = None
    write: Write | None = None
    audience: Audience = Audience.ALL

    def schema(self) -> ToolSchema:
        return ToolSchema(self.name, self.description, _plain_schema(self.params))


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
