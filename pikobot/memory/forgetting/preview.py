"""What forgetting would take, shown before anything goes, and the token that stands for exactly that.

A token binds every source that would go, with its text: when one of them is gone, edited, or another one would go as
well, the token is out of date and nothing is erased with it. Nobody else can make one.
"""

import hmac
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pikobot.clock import iso_time, local_utc_offset_min
from pikobot.memory.forgetting.receipts import labels_as_json
from pikobot.memory.forgetting.requests import MAX_REQUEST_CHARS, means_to_forget
from pikobot.memory.forgetting.target import ForgetTarget, Resolved, Scopes, resolve
from pikobot.memory.language.questions import is_request_for_answer
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import closure, targets
from pikobot.store.erasing.targets import FactGlance, Holder, Labels
from pikobot.store.facts import facts_resting_on
from pikobot.store.prepare import identity_key
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import SourceId
from pikobot.store.text.literal import words_around

MAX_ITEMS = 20
MAX_WORDS_AROUND = 3
MAX_BEGINNING_CHARS = 80
NO_LABELS = Labels()


class PreviewItem(NamedTuple):
    """One source that would go; ``said`` is the time in the source's own offset, None where nobody knows it.

    ``held`` says where the literal was found that was asked for.
    """

    id: str
    role: str
    speaker: str
    said: str | None
    beginning: str
    held: Holder | None = None


@dataclass(frozen=True, kw_only=True)
class ForgetPreview:
    """What would go: ``direct`` sources that were asked for, ``derived`` ones that were made from them.

    ``items`` are the first twenty, what people said before what a model answered; ``facts`` likewise.
    ``aside``: how many of the sources are earlier requests to forget with their answers, which are no items where
    there is anything else.
    ``exchanges``: how many are questions to pikobot and answers that quote, likewise no items unless all are shown.
    ``along``: how many go along unshown, the request that asks for it with its answer. ``threads`` are those of which
    nothing is left, as (public id, name). ``labels`` are names that hold what was asked for and stay. ``inside``:
    of how many sources, which stay, other words hold the text within them, and the first of those words.
    """

    target: ForgetTarget
    scope_ids: frozenset[ScopeId] | None
    token: str
    items: tuple[PreviewItem, ...] = ()
    direct: int = 0
    derived: int = 0
    aside: int = 0
    exchanges: int = 0
    along: int = 0
    facts: tuple[FactGlance, ...] = ()
    fact_count: int = 0
    threads: tuple[tuple[str, str | None], ...] = ()
    thread_count: int = 0
    labels: Labels = NO_LABELS
    inside: tuple[int, tuple[str, ...]] = (0, ())
    already_erased: int = 0

    @property
    def total(self) -> int:
        return self.direct + self.derived

    @property
    def told(self) -> int:
        """How many of the sources are for somebody to recognise: all but those that are only counted."""
        return self.total - self.aside - self.exchanges

    def as_json(self) -> dict[str, object]:
        shown: dict[str, object] = {
            "status": "preview",
            "token": self.token,
            "direct": self.direct,
            "derived": self.derived,
            "total": self.total,
            "requests": self.aside,
            "exchanges": self.exchanges,
            "alreadyErased": self.already_erased,
            "items": [item._asdict() for item in self.items],
            "facts": {
                "total": self.fact_count,
                "items": [{"id": fact.public_id, "text": fact.text} for fact in self.facts],
            },
            "threads": {
                "total": self.thread_count,
                "items": [{"id": public_id, "name": name} for public_id, name in self.threads],
            },
        }
        if self.target.from_ is not None or self.target.to is not None:
            shown["range"] = {
                "from": None if self.target.from_ is None else _local_time(self.target.first_ms),
                "before": None if self.target.to is None else _local_time(self.target.after_ms),
            }
        if self.target.words:
            shown["names"] = labels_as_json(self.labels)
        return shown


def preview(
    db: Database, target: ForgetTarget, scope_ids: Scopes = None, *, shows_all: bool = False
) -> ForgetPreview:
    """Show what forgetting would take, ``shows_all``: every item and fact of it. Changes nothing.

    Raises `NotFound` for an id that never was or is out of the scopes; a text that nothing holds is an empty
    preview, so are ids that are erased already.
    """
    with db.read() as conn:
        return preview_in(conn, target, scope_ids, shows_all=shows_all)


def preview_in(
    conn: Connection, target: ForgetTarget, scope_ids: Scopes, *, shows_all: bool = False
) -> ForgetPreview:
    """Like `preview`, in the caller's snapshot."""
    scopes = None if scope_ids is None else frozenset(scope_ids)
    resolved = resolve(conn, target, scopes)
    shown = shown_sources(conn, resolved)
    along = closure.closure_of(conn, resolved.along)
    asked = set(resolved.sources).intersection(shown)
    derived = [source_id for source_id in shown if source_id not in asked]
    aside = _set_aside(conn, shown)
    first = [*(source_id for source_id in resolved.sources if source_id in asked), *derived]
    told, exchanges = _in_order(conn, [source_id for source_id in first if source_id not in aside])
    if shows_all or not told:
        told, exchanges = [*told, *exchanges], []
    at_most = None if shows_all else MAX_ITEMS
    facts = facts_resting_on(conn, shown)
    threads = targets.emptied_threads(conn, [*shown, *along])
    return ForgetPreview(
        target=target,
        scope_ids=scopes,
        token=token_of(conn, resolved, shown),
        items=tuple(_items(conn, told[:at_most], resolved.holders or {})),
        direct=len(asked),
        derived=len(derived),
        aside=len(aside),
        exchanges=len(exchanges),
        along=len(along),
        facts=tuple(targets.glance_at_facts(conn, facts[:at_most], max_chars=MAX_BEGINNING_CHARS)),
        fact_count=len(facts),
        threads=tuple(threads[:MAX_ITEMS]),
        thread_count=len(threads),
        labels=labels_left(conn, target, scopes, threads, shown),
        inside=_inside_words(conn, target, scopes, {*shown, *along}),
        already_erased=resolved.already_erased,
    )


def shown_sources(conn: Connection, resolved: Resolved) -> list[SourceId]:
    """What goes and is shown: all of the closure but the request that asks for it, and what was made of that."""
    along = set(closure.closure_of(conn, resolved.along))
    return [each for each in closure.closure_of(conn, resolved.sources) if each not in along]


def _set_aside(conn: Connection, shown: Sequence[SourceId]) -> set[SourceId]:
    """Earlier requests to forget, with their answers; none where nothing else would be shown."""
    requests = targets.requests_of(conn, shown, max_chars=MAX_REQUEST_CHARS)
    aside = {source_id for source_id, text in requests if means_to_forget(text)}
    return aside if len(aside) < len(shown) else set()


def _in_order(conn: Connection, source_ids: Sequence[SourceId]) -> tuple[list[SourceId], list[SourceId]]:
    """What people said before what a model answered; apart from it what tells nothing that isn't said elsewhere."""
    messages = targets.messages_of(conn, source_ids, max_chars=MAX_REQUEST_CHARS)
    exchanges = {
        source_id
        for source_id, role, origin, text in messages
        if origin == "recall" or (role == "user" and is_request_for_answer(text))
    }
    answers = {source_id for source_id, role, _, _ in messages if role == "assistant"}
    told = [source_id for source_id in source_ids if source_id not in exchanges]
    told.sort(key=answers.__contains__)
    return told, [source_id for source_id in source_ids if source_id in exchanges]


def token_of(conn: Connection, resolved: Resolved, shown: Sequence[SourceId]) -> str:
    """Binds the sources that were shown as they are, and the facts and threads that were named."""
    mac = hmac.new(identity_key(conn), b"forget\0", "sha256")
    for public_id, content_hash in targets.fingerprints_of(conn, shown):
        mac.update(public_id.encode() + b"\0" + content_hash)
    for fact in resolved.facts:
        mac.update(fact.public_id.encode() + b"\0")
    mac.update(repr(resolved.threads).encode())
    return mac.hexdigest()


def labels_left(
    conn: Connection,
    target: ForgetTarget,
    scopes: Scopes,
    threads: Sequence[tuple[str, str | None]],
    shown: Sequence[SourceId],
) -> Labels:
    """Names that hold a literal of the target and stay when these threads and sources go."""
    if not target.words:
        return NO_LABELS
    gone_threads = {public_id for public_id, _ in threads}
    gone = {public_id for public_id, _ in targets.fingerprints_of(conn, shown)}
    return targets.find_labels(conn, target.words[0], scopes, without=gone_threads | gone, at_most=MAX_ITEMS)


def glances(conn: Connection, source_ids: Sequence[SourceId]) -> tuple[PreviewItem, ...]:
    """The first twenty of the sources, for somebody to recognise them."""
    return tuple(_items(conn, source_ids[:MAX_ITEMS], {}))


def _inside_words(
    conn: Connection, target: ForgetTarget, scopes: Scopes, gone: Collection[SourceId]
) -> tuple[int, tuple[str, ...]]:
    """Where a text that was asked for as a whole word is only a part of another one."""
    if not target.whole_words:
        return 0, ()
    found = resolve(conn, replace(target, whole_words=False), scopes)
    left = [source_id for source_id in found.sources if source_id not in gone]
    words: dict[str, None] = {}
    for text in targets.texts_of(conn, left[:MAX_ITEMS]):
        for literal in target.words:
            words.update(dict.fromkeys(words_around(text, literal)))
    return len(left), tuple(words)[:MAX_WORDS_AROUND]


def _items(
    conn: Connection, source_ids: Sequence[SourceId], holders: dict[SourceId, Holder]
) -> list[PreviewItem]:
    glances = targets.glance_at(conn, source_ids, max_chars=MAX_BEGINNING_CHARS)
    return [
        PreviewItem(
            glance.public_id,
            glance.role,
            glance.speaker,
            iso_time(glance.said_at_ms, glance.utc_offset_min) if glance.is_dated else None,
            glance.beginning,
            holders.get(source_id),
        )
        for source_id, glance in zip(source_ids, glances, strict=True)
    ]


def _local_time(at_ms: int) -> str:
    return iso_time(at_ms, local_utc_offset_min(at_ms))
