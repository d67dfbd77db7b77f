"""Tags of facts: relabelling, and which there are. They change neither what a fact says nor how it ranks."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from pikobot.errors import NotFound
from pikobot.memory.facts import MAX_TAGS
from pikobot.memory.params import Name, Params, Tag
from pikobot.memory.records import Json
from pikobot.store.connection import Connection, Database
from pikobot.store.fact_index import FactFilters, count_tags
from pikobot.store.facts import find_fact, same_statement, set_tags
from pikobot.store.scopes import ScopeId

DEFAULT_COUNTED = 100
MAX_COUNTED = 500


class TagParams(Params):
    """Parameters of ``memory.tag``: a fact and all the tags that it has from now on."""

    id: Name
    tags: list[Tag] = Field(max_length=MAX_TAGS)


class TagsParams(Params):
    """Parameters of ``memory.tags``."""

    scope: Name | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_COUNTED)] = DEFAULT_COUNTED


def tag_fact(db: Database, params: TagParams) -> Json:
    """Replace the tags of a fact and of all that say the same; as an operation on the writer thread."""
    tags = sorted(set(params.tags))
    with db.write("tag a fact") as tx:
        fact = find_fact(tx, params.id, now_ms=db.clock.now_ms())
        if fact is None:
            raise NotFound(f"there is no fact {params.id:.80}; look for it with memory.search")
        set_tags(tx, same_statement(tx, fact), tags)
    return {"id": fact.public_id, "tags": tags}


def tag_counts(conn: Connection, *, scope_ids: Sequence[ScopeId] | None, now_ms: int, limit: int) -> Json:
    """The most frequent tags of standing facts, each with how many statements have it."""
    found = count_tags(conn, filters=FactFilters(scope_ids=scope_ids, now_ms=now_ms), limit=limit + 1)
    return {
        "tags": [{"tag": tag, "count": count} for tag, count in found[:limit]],
        "truncated": len(found) > limit,
    }
