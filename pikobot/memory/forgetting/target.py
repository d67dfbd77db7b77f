"""What is to be forgotten: how somebody names it, and which sources, facts and threads that means now.

    ids             sources and facts, or the last exchange of a thread
    what was said   a literal, a thread, a workspace, a range of time, only the owner's words; these narrow one another

A fact means every row that states the same, with the sources that they quote: nothing that could teach it again is
left, and its tombstone keeps what was said before from teaching it (`memory.facts`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory import moments
from pikobot.memory.forgetting.requests import means_to_forget
from pikobot.store.connection import Connection
from pikobot.store.erasing import erasures, targets
from pikobot.store.erasing.erasures import Tombstone
from pikobot.store.erasing.targets import Bounds, Holder
from pikobot.store.scopes import ScopeId, scopes_of_workspace
from pikobot.store.sources import SourceId
from pikobot.store.threads import (
    Thread,
    ThreadId,
    find_thread_by_public_id,
    find_threads_by_key,
    threads_of_scopes,
)
from pikobot.text import shown_name

MAX_IDS_NAMED = 10
MAX_REQUESTS_PASSED = 50

Scopes = Collection[ScopeId] | None
"""The scopes that may be touched directly; None is the operator's: all. What depends on them goes everywhere."""


@dataclass(frozen=True, kw_only=True)
class ForgetTarget:
    """Ids, or any of the rest together; but a workspace and a thread exclude each other.

    Ids are public. ``words`` are literals in any case, all of which have to be there (`targets.find_holding`), with
    ``whole_words`` not inside other words. A ``thread`` may be its id or its name. ``from_`` and ``to`` are ISO 8601
    and include the moment or the day that they name, like those of ``memory.search``. ``owner_only`` leaves out what
    others said. ``along`` are sources that go along without being shown: the request that asks for it.
    """

    sources: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    last_exchange: str | None = None
    words: tuple[str, ...] = ()
    whole_words: bool = False
    thread: str | None = None
    workspace: str | None = None
    from_: str | None = None
    to: str | None = None
    owner_only: bool = False
    along: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by_id = [bool(self.sources or self.facts), bool(self.last_exchange)]
        narrowing = [self.words, self.thread, self.workspace, self.from_, self.to, self.owner_only]
        if sum(by_id) + any(narrowing) != 1 or (self.thread and self.workspace):
            raise InvalidParams(
                "name one thing to forget: sources, facts, or any of query, from, to with a thread or a workspace"
            )
        if not all(word.strip() for word in self.words):
            raise InvalidParams("the text to forget is empty")
        if self.to is not None and self.from_ is not None and self.first_ms >= self.after_ms:
            raise InvalidParams("to: is before from")

    @property
    def first_ms(self) -> int:
        return 0 if self.from_ is None else moments.first_ms(self.from_)

    @property
    def after_ms(self) -> int:
        return 0 if self.to is None else moments.after_ms(self.to)

    @property
    def is_whole(self) -> bool:
        """Whether a thread or a workspace goes with all that there is in it, and itself with it."""
        return not (self.words or self.from_ or self.to or self.owner_only)


@dataclass(frozen=True)
class Resolved:
    """What a target means now. ``holders``: where a literal was found, for the sources that hold it."""

    sources: tuple[SourceId, ...] = ()
    threads: tuple[ThreadId, ...] = ()
    facts: tuple[Tombstone, ...] = ()
    along: tuple[SourceId, ...] = ()
    holders: dict[SourceId, Holder] | None = None
    already_erased: int = 0


def resolve(conn: Connection, target: ForgetTarget, scopes: Scopes) -> Resolved:
    """Raises `NotFound` that names the ids which never were or are out of the scopes; erased ones are counted."""
    along = tuple(targets.find_ids(conn, target.along, scopes).values())
    if target.sources or target.facts:
        return _resolve_ids(conn, target, scopes, along)
    if target.last_exchange is not None:
        thread = _find_thread(conn, target.last_exchange, scopes)
        if thread is None:
            return Resolved(already_erased=1)
        before = along[0] if along else None
        return Resolved(tuple(_last_exchange(conn, thread.id, before)), along=along)
    return _resolve_said(conn, target, scopes, along)


def _last_exchange(conn: Connection, thread_id: ThreadId, before: SourceId | None) -> list[SourceId]:
    """The last exchange before a source, with those that only asked to forget it, which are not what is meant."""
    last = found = targets.find_last_exchange(conn, thread_id, before=before)
    earlier = last
    for _ in range(MAX_REQUESTS_PASSED):
        if not earlier or not all(map(means_to_forget, targets.texts_of(conn, earlier[:1]))):
            break
        earlier = targets.find_last_exchange(conn, thread_id, before=earlier[0])
        found = [*earlier, *found]
    return found if earlier else last


def bounds_of(target: ForgetTarget, scopes: Scopes, thread_id: ThreadId | None = None) -> Bounds:
    """What narrows a target beside its words."""
    return Bounds(
        scope_ids=scopes,
        thread_id=thread_id,
        from_ms=None if target.from_ is None else target.first_ms,
        to_ms=None if target.to is None else target.after_ms,
        role="user" if target.owner_only else None,
    )


def _resolve_ids(
    conn: Connection, target: ForgetTarget, scopes: Scopes, along: tuple[SourceId, ...]
) -> Resolved:
    sources = targets.find_ids(conn, target.sources, scopes)
    facts = targets.find_facts(conn, target.facts, scopes)
    erased = _missing(conn, "source", "memory.list", target.sources, sources)
    erased += _missing(conn, "fact", "memory.search", target.facts, facts)
    tombstones = {each.public_id: each for fact in facts.values() for each in fact.tombstones}
    quoted = (source_id for fact in facts.values() for source_id in fact.source_ids)
    return Resolved(
        tuple(dict.fromkeys((*sources.values(), *quoted))),
        facts=tuple(tombstones.values()),
        along=along,
        already_erased=erased,
    )


def _resolve_said(
    conn: Connection, target: ForgetTarget, scopes: Scopes, along: tuple[SourceId, ...]
) -> Resolved:
    thread = None
    if target.thread is not None:
        thread = _find_thread(conn, target.thread, scopes)
        if thread is None:
            return Resolved(already_erased=1)
    if target.workspace is not None:
        scopes = _scopes_in(conn, target.workspace, scopes)
    bounds = bounds_of(target, scopes, None if thread is None else thread.id)
    if target.words:
        holders = targets.find_holding(conn, target.words, bounds, whole_words=target.whole_words)
        for source_id in along:
            holders.pop(source_id, None)
        return Resolved(tuple(holders), along=along, holders=holders)
    threads = [] if thread is None else [thread.id]
    if target.workspace is not None and scopes is not None:
        threads = threads_of_scopes(conn, scopes)
    said = targets.find_in(conn, bounds)
    return Resolved(tuple(said), tuple(threads) if target.is_whole else (), along=along)


def _scopes_in(conn: Connection, workspace: str, scopes: Scopes) -> list[ScopeId]:
    found = [
        scope_id for scope_id in scopes_of_workspace(conn, workspace) if scopes is None or scope_id in scopes
    ]
    if not found:
        raise NotFound(f"there is no workspace {shown_name(workspace)}")
    return found


def _find_thread(conn: Connection, name: str, scopes: Scopes) -> Thread | None:
    """The thread of that id or name; None when it was erased."""
    thread = find_thread_by_public_id(conn, name)
    if thread is not None and (scopes is None or thread.scope_id in scopes):
        return thread
    if thread is None and erasures.is_erased(conn, name):
        return None
    named = [each for each in find_threads_by_key(conn, name) if scopes is None or each.scope_id in scopes]
    if len(named) > 1:
        raise InvalidParams("thread: several conversations have that name; give the id, see threads.list")
    if not named:
        raise NotFound(f"thread {shown_name(name)} does not exist; `pikobot rpc threads.list` lists threads")
    return named[0]


def _missing(
    conn: Connection, what: str, method: str, public_ids: Iterable[str], found: Collection[str]
) -> int:
    """How many of the ids that were not found are erased; raises `NotFound` that names those that are not."""
    missing = [public_id for public_id in dict.fromkeys(public_ids) if public_id not in found]
    unknown = [public_id for public_id in missing if not erasures.is_erased(conn, public_id)]
    if unknown:
        names = ", ".join(map(shown_name, unknown[:MAX_IDS_NAMED]))
        more = f" and {len(unknown) - MAX_IDS_NAMED} more" if len(unknown) > MAX_IDS_NAMED else ""
        verb = "does" if len(unknown) == 1 else "do"
        raise NotFound(
            f"{what}{'' if len(unknown) == 1 else 's'} {names}{more} {verb} not exist; "
            f"`pikobot rpc {method}` finds {what}s; nothing was forgotten"
        )
    return len(missing)
