"""What recall mode knows of its owner: what they told about themself, one of each kind before the rest."""

from pikobot.memory.basics import owner_basics
from pikobot.memory.recall.order import distinct, of_each_kind
from pikobot.memory.recall.small_talk import wants
from pikobot.memory.recall.statements import MAX_LOOKED_THROUGH, MAX_QUOTES, Statements
from pikobot.memory.recall.telling import TELLING_WORDS, says_more
from pikobot.store.listing import count_owners_messages
from pikobot.store.sources import Source, SourceId, find_source, load_sources
from pikobot.store.text.index import search_text


def of_owner(statements: Statements) -> list[Source]:
    """What the basics of the owner rest on, then what the owner told about themself, and then the last."""
    conn, scope_id, now_ms = statements.conn, statements.scope_id, statements.now_ms
    basics = owner_basics(conn, scope_id, now_ms=now_ms)
    known = [find_source(conn, public_id, now_ms=now_ms) for public_id in basics.source_ids]
    hits = search_text(
        conn,
        query=" ".join(TELLING_WORDS),
        scope_ids=[scope_id],
        now_ms=now_ms,
        limit=MAX_LOOKED_THROUGH,
        roles=("user",),
    )
    found = load_sources(conn, [SourceId(hit.source_id) for hit in hits], now_ms=now_ms).values()
    every = {source.id: source for source in [*found, *statements.last()]}.values()
    told = [
        source
        for source in every
        if source.role == "user"
        and statements.is_told(source)
        and says_more(source.text)
        and not wants(source.text)
    ]
    telling = [source for source in known if source is not None] + of_each_kind(told)
    return distinct(telling)[:MAX_QUOTES]


def count_of_owner(statements: Statements) -> tuple[int, Source | None]:
    """How many messages the owner has left, with the request, and the first one that has a date."""
    conn, now_ms = statements.conn, statements.now_ms
    count, first_id = count_owners_messages(conn, statements.scope_id, now_ms=now_ms)
    first = [] if first_id is None else load_sources(conn, [first_id], now_ms=now_ms).values()
    return count, next(iter(first), None)
