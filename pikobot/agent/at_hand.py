"""What an owner's chats know without asking, as it stands at the very end of a request.

Two blocks: the owner's basics, and the standing preferences in the owner's own words. Both are read from the facts
of a private scope without a model or a search, and each is bounded. They change when the owner's facts do, so they
belong behind everything that has to stay the same from turn to turn. Text in them is escaped for XML: what is
remembered can't end a block or begin another.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pikobot.memory.basics import MAX_BLOCK_CHARS, escaped_line, owner_basics, standing_preferences
from pikobot.memory.records import fact_day
from pikobot.store.connection import Connection
from pikobot.store.facts import Fact
from pikobot.store.scopes import ScopeId, load_scope
from pikobot.store.sources import SourceId, find_source

MAX_PREFERENCE_CHARS = 300
_BASICS = ("\n\n<owner_basics>\n", "\n</owner_basics>")
_PREFERENCES = ("\n\n<standing_preferences>\n", "\n</standing_preferences>")


@dataclass(frozen=True)
class AtHand:
    """The blocks, public ids of the facts in them, and the sources that those rest on."""

    text: str = ""
    fact_ids: tuple[str, ...] = ()
    source_ids: tuple[SourceId, ...] = ()


def at_hand(
    conn: Connection, scope_id: ScopeId | None, *, with_basics: bool, max_block_chars: int, now_ms: int
) -> AtHand:
    """The blocks of a private scope, each of at most so many characters, and never more than 2,000."""
    if scope_id is None or load_scope(conn, scope_id).kind != "private":
        return AtHand()
    room = min(max_block_chars, MAX_BLOCK_CHARS)
    parts = [_preferences(conn, scope_id, room, now_ms)]
    if with_basics:
        parts.insert(0, _basics(conn, scope_id, room, now_ms))
    return AtHand(
        "".join(part.text for part in parts),
        tuple(dict.fromkeys(fact_id for part in parts for fact_id in part.fact_ids)),
        tuple(dict.fromkeys(source_id for part in parts for source_id in part.source_ids)),
    )


def _basics(conn: Connection, scope_id: ScopeId, room: int, now_ms: int) -> AtHand:
    basics = owner_basics(conn, scope_id, now_ms=now_ms, max_chars=room - len("".join(_BASICS)))
    if not basics.text:
        return AtHand()
    sources = [find_source(conn, public_id, now_ms=now_ms) for public_id in basics.source_ids]
    source_ids = tuple(source.id for source in sources if source is not None)
    return AtHand(basics.text.join(_BASICS), basics.fact_ids, source_ids)


def _preferences(conn: Connection, scope_id: ScopeId, room: int, now_ms: int) -> AtHand:
    """The newest that fit, oldest first. Quoted, because only the owner's own words may become an instruction."""
    known = standing_preferences(conn, scope_id, now_ms=now_ms)
    used = len("".join(_PREFERENCES))
    kept: list[tuple[str, Fact]] = []
    for fact in sorted(known, key=lambda each: (each.said_at_ms, each.id), reverse=True):
        line = _preference(fact)
        used += len(line) + 1
        if used > room + 1:  # the first line has no line break before it
            break
        kept.insert(0, (line, fact))
    if not kept:
        return AtHand()
    return AtHand(
        "\n".join(line for line, _ in kept).join(_PREFERENCES),
        tuple(fact.public_id for _, fact in kept),
        _sources_of(fact for _, fact in kept),
    )


def _preference(fact: Fact) -> str:
    quote = escaped_line(fact.evidence[0].quote, MAX_PREFERENCE_CHARS)
    return f"- “{quote}” ({fact_day(fact)})"


def _sources_of(facts: Iterable[Fact]) -> tuple[SourceId, ...]:
    every: Sequence[SourceId] = [source.id for fact in facts for source in fact.sources]
    return tuple(every)
