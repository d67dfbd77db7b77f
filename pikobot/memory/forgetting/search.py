"""What a request to forget means among what is kept: the sources that are to be proposed.

Words are looked for as they stand, as whole words, and in any other form; both kinds are proposed together. With them,
marked as such, goes what holds only most of the words: what was corrected is rarely said in the words of its
correction. Where nothing that tells something holds all of the words, the nearest is proposed alone. What the owner has
asked about the words, or asked to forget, tells nothing, so it is never a reason to look no further. What pikobot
itself has answered without a model is not looked for: it quotes what is, and goes with it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import nlargest
from itertools import islice

from pikobot.memory.forgetting.requests import means_to_forget
from pikobot.memory.forgetting.target import ForgetTarget, Resolved, Scopes, bounds_of, resolve
from pikobot.memory.forgetting.words import ForgetRequest
from pikobot.memory.language.periods import EveryYear, Period
from pikobot.memory.language.questions import is_request_for_answer
from pikobot.memory.recall.times import day_said
from pikobot.store.connection import Connection
from pikobot.store.erasing import closure, targets
from pikobot.store.erasing.targets import Moment
from pikobot.store.facts import FactId
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources
from pikobot.store.text.matching import find_matching, shares_of
from pikobot.store.text.segmentation import fold, is_cjk
from pikobot.store.threads import Thread

MAX_LOOSE = 10
MAX_LOOSE_READ = 200
MAX_EXACT_READ = 20
LEAST_PART_OF_WORD = 4  # characters
LEAST_SHARE = 0.5  # of the words, beside what holds all of them
LEAST_SHARE_OF_CORRECTED = 1 / 3  # where that, or what is looked at, corrects something
LEAST_SHARE_OF_NEAREST = 0.8

_CORRECTS = re.compile(
    "\\b(?:correction|corrected|actually|instead|no longer|not any ?more|rescheduled|postponed|cancelled|canceled|"
    "changed to|update|i meant|was wrong|were wrong)\\b|"
    "更正|纠正|糾正|改[到成为為在期]|其实|其實|不再|取消|推迟|推遲|延期|应该是|應該是|[弄记記说說搞]错"
)
_REPORTS = "\\W{0,3}(?:\\w+ ){0,2}(?:said|says|say|told|tells|tell|wrote|writes|mentioned|mentions)\\b"
_CHINESE_REPORTS = "[^，。！？,.!?]{0,6}?(?:说|說|讲|講|告诉|告訴|提到|写道|寫道)"


class Reach(StrEnum):
    """Whether all of what is proposed holds all of the words, only some of it does, or none of it."""

    ALL = "all"
    SOME = "some"
    NEAREST = "nearest"


@dataclass(frozen=True)
class Asked:
    """What is to be proposed: sources, and facts that are named as such.

    ``loose`` are the public ids of the sources that hold only a part of the words, ``period`` the days that were named.
    """

    source_ids: tuple[SourceId, ...] = ()
    fact_ids: tuple[FactId, ...] = ()
    loose: frozenset[str] = frozenset()
    reach: Reach = Reach.ALL
    period: Period | None = None

    @property
    def is_sure(self) -> bool:
        """Whether all of it is what the request names, in words and in days that are of one year."""
        return not self.loose and not isinstance(self.period, EveryYear)

    @property
    def is_nothing(self) -> bool:
        return not self.source_ids and not self.fact_ids


NOTHING = Asked()


def find_named(conn: Connection, target: ForgetTarget, scope_id: ScopeId) -> Asked:
    """What a target means in a scope, without the request (``along``) and its answer. Raises like `resolve`."""
    return _asked(conn, resolve(conn, target, [scope_id]))


def find_asked(
    conn: Connection, request: ForgetRequest, *, asking: str, thread: Thread, workspace: str, now_ms: int
) -> Asked:
    """What a request in the owner's own words means, said in a thread; ``asking`` is its own public id."""
    scopes, along = [thread.scope_id], (asking,)
    if request.words:
        found = _find_about(conn, request, _narrowed(request, along), scopes, now_ms)
        return replace(found, period=request.period)
    if request.period is not None:
        target = _narrowed(request, along)
    elif request.last_exchange:
        target = ForgetTarget(last_exchange=thread.public_id, along=along)
    elif request.this_thread:
        target = ForgetTarget(thread=thread.public_id, along=along)
    elif request.everything:
        target = ForgetTarget(workspace=workspace, along=along)
    else:
        return NOTHING
    found = _asked(conn, resolve(conn, target, scopes))
    if isinstance(request.period, EveryYear):
        said = _within(request.period, targets.moments_of(conn, found.source_ids))
        found = replace(found, source_ids=tuple(said))
    return replace(found, period=request.period)


def _within(period: Period | None, moments: Iterable[Moment]) -> list[SourceId]:
    """Of days of every year, which no range holds, what was said on one of them; otherwise all."""
    return [
        each.source_id
        for each in moments
        if not isinstance(period, EveryYear)
        or period.includes(day_said(each.said_at_ms, each.utc_offset_min))
    ]


def _narrowed(request: ForgetRequest, along: tuple[str, ...]) -> ForgetTarget:
    """The words, the period, or the words in the period."""
    first, last = (None, None) if request.period is None else (request.period.first, request.period.last)
    if isinstance(request.period, EveryYear):
        first = None
    return ForgetTarget(
        words=request.words,
        whole_words=bool(request.words),
        from_=None if first is None else first.isoformat(),
        to=None if last is None else last.isoformat(),
        owner_only=request.owner_only,
        along=along,
    )


def _find_about(
    conn: Connection, request: ForgetRequest, target: ForgetTarget, scopes: Scopes, now_ms: int
) -> Asked:
    resolved = resolve(conn, target, scopes)
    bounds = bounds_of(target, scopes)
    along = set(closure.closure_of(conn, resolved.along))

    def sought(source_ids: Iterable[SourceId]) -> list[SourceId]:
        others = [each for each in source_ids if each not in along]
        return _within(request.period, targets.moments_of(conn, others, without_own_answers=True))

    resolved = replace(resolved, sources=tuple(sought(resolved.sources)))
    if request.is_said_by and (said := _said_by(conn, request.words, resolved, now_ms)):
        return Asked(tuple(said))
    matching = find_matching(conn, request.words, bounds)
    exact = sorted({*resolved.sources, *sought(matching)})
    first = list(islice((source for source in _read(conn, exact, now_ms) if _tells(source)), MAX_EXACT_READ))
    shares = shares_of(conn, request.words, bounds, without=along)
    if not first and all(is_cjk(word) or len(word) >= LEAST_PART_OF_WORD for word in request.words):
        # Then a part of a word is near as well: "Quokka" in "Quokkasnout", but not "ok" in "smoke".
        anywhere = resolve(conn, replace(target, whole_words=False), scopes).sources
        shares |= dict.fromkeys(anywhere, 1.0)
    shares = {each: shares[each] for each in sought(set(shares).difference(exact))}
    loose = _loose(conn, shares, first, now_ms)
    reach = Reach.ALL if not loose else Reach.SOME if first else Reach.NEAREST
    ids = (*exact, *(source.id for source in loose))
    return Asked(ids, loose=frozenset(source.public_id for source in loose), reach=reach)


def _loose(
    conn: Connection, shares: dict[SourceId, float], exact: Sequence[Source], now_ms: int
) -> list[Source]:
    """What holds most of the words; without anything that tells and holds all, what holds the most of them."""
    first = nlargest(MAX_LOOSE_READ, shares, key=lambda source_id: (shares[source_id], source_id))
    found = [source for source in _read(conn, first, now_ms) if source.role != "assistant"]
    told = [shares[source.id] for source in found if _tells(source)]
    if not told:
        return []
    is_corrected = any(_CORRECTS.search(fold(source.text)) for source in exact)
    near = []
    for source in found:
        least = max(told) * LEAST_SHARE_OF_NEAREST
        if exact:
            corrects = is_corrected or _CORRECTS.search(fold(source.text))
            least = LEAST_SHARE_OF_CORRECTED if corrects else LEAST_SHARE
        if shares[source.id] > least:
            near.append(source)
    return near[:MAX_LOOSE]


def _said_by(conn: Connection, names: tuple[str, ...], resolved: Resolved, now_ms: int) -> list[SourceId]:
    """What somebody of that name has said, or is said to have said; empty when nothing tells of either."""
    holders = resolved.holders or {}
    spoken = [each for each in resolved.sources if holders[each] == "speaker"]
    named = [each for each in resolved.sources if holders[each] == "text"]
    name = re.escape(names[-1]) + (_CHINESE_REPORTS if is_cjk(names[-1]) else _REPORTS)
    reported = [each for each in _read(conn, named, now_ms) if re.search(name, fold(each.text))]
    if not spoken and not any(map(_tells, reported)):
        return []
    return sorted({*spoken, *(source.id for source in reported)})


def _read(conn: Connection, source_ids: Iterable[SourceId], now_ms: int) -> Iterable[Source]:
    """The sources in the order given, read as far as they are looked at."""
    for source_id in source_ids:
        yield from load_sources(conn, [source_id], now_ms=now_ms).values()


def _tells(source: Source) -> bool:
    """Whether it tells something: neither an answer that quotes, nor a question to pikobot or a request to forget."""
    if source.role != "user":
        return source.origin != "recall"
    return not is_request_for_answer(source.text) and not means_to_forget(source.text)


def _asked(conn: Connection, resolved: Resolved) -> Asked:
    along = set(closure.closure_of(conn, resolved.along))
    facts = targets.fact_ids_of(conn, [fact.public_id for fact in resolved.facts])
    return Asked(tuple(each for each in resolved.sources if each not in along), tuple(facts))
