"""What the owner's chats know without asking: the owner's basics, and explicit preferences.

Both are read from the facts of one scope, without a model or a search, and nothing is written. Basics are a bounded
block; preferences are standing instructions of the owner and never permissions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from pikobot.memory import moments
from pikobot.memory.records import fact_day
from pikobot.store.connection import Connection
from pikobot.store.entities import fold_name
from pikobot.store.facts import OWNER, Fact, explicit_preferences, facts_of_attribute
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source

ATTRIBUTES = ("preferred_name", "name", "home_city", "home_country", "occupation")
MAX_BLOCK_CHARS = 2_000
MAX_VALUE_CHARS = 120
MAX_QUOTE_CHARS = 160
MAX_ALTERNATIVES = 3


@dataclass(frozen=True)
class Basics:
    """The block, and public ids of the facts in it and of all sources that they rest on."""

    text: str
    fact_ids: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()


def owner_basics(
    conn: Connection, scope_id: ScopeId | None, *, now_ms: int, max_chars: int = MAX_BLOCK_CHARS
) -> Basics:
    """A line for each basic that the owner has stated in the scope; what does not fit is left out, the last first.

    Explicit facts go before inferred ones, and what differs is given as alternatives, the newest first. A fact
    counts that is valid now and rests on messages of the owner alone. Text is escaped for XML, ``max_chars``
    counts it so and is at most 2,000.
    """
    if scope_id is None:
        return Basics("")
    room = min(max_chars, MAX_BLOCK_CHARS)
    lines: list[str] = []
    used: list[Fact] = []
    for attribute in ATTRIBUTES:
        known = facts_of_attribute(conn, scope_id, OWNER, attribute, now_ms=now_ms)
        chosen = _alternatives([fact for fact in known if is_owners(fact) and is_valid(fact, now_ms)])
        line = _line(attribute, chosen)
        if chosen and len("\n".join([*lines, line])) <= room:
            lines.append(line)
            used += chosen
    sources = dict.fromkeys(source.public_id for fact in used for source in fact.sources)
    return Basics("\n".join(lines), tuple(fact.public_id for fact in used), tuple(sources))


def standing_preferences(conn: Connection, scope_id: ScopeId | None, *, now_ms: int) -> list[Fact]:
    """Explicit preferences of the owner that hold now, oldest first, each statement once."""
    if scope_id is None:
        return []
    known = explicit_preferences(conn, scope_id, now_ms=now_ms)
    return list(
        {fact.identity: fact for fact in known if is_owners(fact) and is_valid(fact, now_ms)}.values()
    )


def is_valid(fact: Fact, now_ms: int) -> bool:
    """Whether the time until which a fact holds is not over."""
    return fact.valid_until is None or moments.after_ms(fact.valid_until) > now_ms


def is_owners(fact: Fact) -> bool:
    """Whether all that a fact rests on was said by the owner: neither answers nor documents nor others."""
    return all(map(_is_owners_message, fact.sources))


def escaped_line(text: str, max_chars: int) -> str:
    """The text as one line, escaped for XML, of at most so many characters; what is cut ends in an ellipsis."""
    flat = " ".join(text.split())
    if len(flat) > max_chars:
        flat = flat[:max_chars] + "…"
    escaped = escape(flat)
    while len(escaped) > max_chars:
        flat = flat.removesuffix("…")[:-1] + "…"
        escaped = escape(flat)
    return escaped


def _is_owners_message(source: Source) -> bool:
    return source.role == "user" and source.kind == "message" and source.origin in ("said", "imported")


def _alternatives(facts: Iterable[Fact]) -> list[Fact]:
    """The facts of the better basis, the newest for each value, newest first."""
    by_value: dict[str, Fact] = {}
    known = sorted(facts, key=lambda fact: (fact.said_at_ms, fact.id), reverse=True)
    best = [fact for fact in known if fact.basis == "explicit"] or known
    for fact in best:
        by_value.setdefault(fold_name(fact.value or fact.text), fact)
    return list(by_value.values())[:MAX_ALTERNATIVES]


def _line(attribute: str, facts: Sequence[Fact]) -> str:
    shown = [_shown(fact) for fact in facts]
    if len(shown) == 1:
        return f"- {attribute}: {shown[0]}"
    return f"- {attribute} is not clear; stated were: {'; '.join(shown)}"


def _shown(fact: Fact) -> str:
    value = escaped_line(fact.value or fact.text, MAX_VALUE_CHARS)
    day = fact_day(fact)
    if fact.basis == "explicit":
        return f"{value} (stated on {day})"
    return f"{value} (inferred from “{escaped_line(fact.evidence[0].quote, MAX_QUOTE_CHARS)}”, {day})"
