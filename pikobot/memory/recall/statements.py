"""Which statements of a scope recall mode quotes: those about something, those of a period, or both.

Earlier answers of recall mode and bare questions are no statements, nor is what the owner has asked pikobot, or told it
to forget. What is told beside such a request is quoted where nothing else is found. A statement is of a period when it
was said in it, or names a time in it: "I moved to Porto in March 2024" is of March 2024, whenever it was said.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pikobot.memory.embedding.contract import QueryVector
from pikobot.memory.forgetting.requests import asks_to_forget, means_to_forget
from pikobot.memory.language.periods import EveryYear, Period, last_years, without_periods
from pikobot.memory.language.questions import (
    asks_to_recall,
    is_only_question,
    is_question,
    is_request_for_answer,
    keywords,
)
from pikobot.memory.recall.asking import SAYING_WORDS, Saying, Sought
from pikobot.memory.recall.nearness import near_in_meaning
from pikobot.memory.recall.order import distinct, has_name, is_by, last_told, ordered
from pikobot.memory.recall.small_talk import small_talk_of
from pikobot.memory.recall.telling import (
    asks_of_owner,
    changes,
    corrects,
    held,
    holds_like,
    holds_most,
    is_light,
    lasting_words,
    repeats,
    speaks_of_another,
    tells,
)
from pikobot.memory.recall.times import (
    DAY_MS,
    day_said,
    from_ms_of,
    is_said_in,
    moment_of,
    names_from_later,
    names_of,
    names_time_in,
    to_ms_of,
)
from pikobot.store.connection import Connection
from pikobot.store.listing import SourcePosition, list_said_by, list_sources
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources
from pikobot.store.text.index import search_text
from pikobot.store.text.segmentation import fold, pieces

MAX_QUOTES = 5
MAX_NEAREST = 3
# So many of the best are put in order by what they say and when.
MAX_COMPARED = 10
MAX_LOOKED_AFTER = 3
MAX_LOOKED_BEFORE = 50
# What has so many of the words, or pairs of Chinese characters, may answer without the name that is asked for.
STEMS_WITHOUT_NAME = 3
# Earlier questions about the same thing match as well as its statements do: look further until there are enough.
CANDIDATES = (50, 500, 5_000)
# Every candidate is read for the times that it names, which costs more than its score.
CANDIDATES_READ = (50, 500)
MAX_LOOKED_THROUGH = 500
YEARS_LOOKED_THROUGH = 50
# A statement that matches much less than the best one shares a common word with the question, not its subject.
LEAST_SHARE_OF_BEST = 0.5

_COMMAND = re.compile("\\s*/[a-z]+(?:\\s|$)")


class About(NamedTuple):
    """What answers a question, or what is only near to it, as of the names ``missing`` nobody has spoken."""

    answers: list[Source]
    nearest: list[Source]
    missing: Sequence[frozenset[str]] = ()


@dataclass(frozen=True)
class Statements:
    """The statements of a scope, without the request that is being answered; ``asides``: what is told beside a request.

    A request names what it is about, so it matches like what is told about that, and would hide it.
    """

    conn: Connection
    scope_id: ScopeId
    request_id: SourceId | None
    now_ms: int
    asides: bool = False

    def about(self, sought: Sought) -> About:
        """Those that hold the words, best first: what answers, or else what is only near to it."""
        found = self._matching(sought.words, sought.words, repeats_too=sought.is_yes_no)
        missing: list[frozenset[str]] = []
        for name in sought.names:
            if not any(has_name(source, name) for source in found):
                named = self._matching(tuple(name), tuple(name))
                found = distinct([*named, *found])
                missing += [] if named else [name]
        if missing:
            return About([], ordered(found, sought)[:MAX_QUOTES], missing)
        is_answer = [self._may_answer(source, sought) for source in found]
        good = [source for source, answers in zip(found, is_answer, strict=True) if answers]
        near = [source for source, answers in zip(found, is_answer, strict=True) if not answers]
        return About(ordered(good, sought)[:MAX_QUOTES], ordered(near, sought)[:MAX_NEAREST])

    def about_in(self, sought: Sought, period: Period, period_words: Sequence[str]) -> list[Source]:
        """Those of the period that hold the words, best first; what was said in it before what names it."""
        words = sought.words
        said = self._matching(words, words, said_in=period, repeats_too=sought.is_yes_no)
        terms = [*words, *period_words, *names_of(period)]
        named = self._matching(terms, words, lambda source: names_time_in(source, period))
        said, named = ([each for each in found if self._may_answer(each, sought)] for found in (said, named))
        return distinct([*ordered(said, sought), *ordered(named, sought)])[:MAX_QUOTES]

    def naming(self, period: Period, period_words: Sequence[str]) -> list[Source]:
        """Those that name a time in the period, newest first."""
        terms = [*period_words, *names_of(period)]
        named = self._matching(terms, (), lambda source: names_time_in(source, period))
        later = names_from_later(period)
        if later is not None:
            words, said_in = later
            named += self._matching(
                words, (), lambda source: names_time_in(source, period), said_in=said_in, least_share=0.0
            )
        return sorted(distinct(named), key=moment_of, reverse=True)[:MAX_QUOTES]

    def since(self, quoted: Sequence[Source], words: Sequence[str], period: Period) -> list[Source]:
        """What was said of the same later than what names the period: it may have been moved or called off.

        Without words of a question, what changes something and holds most of the words of what is quoted; of what is
        quoted itself only what changes something.
        """
        found: list[Source] = []
        known = {source.id for source in quoted}
        for source in [each for each in quoted if not is_said_in(each, period)][:MAX_LOOKED_AFTER]:
            said_on = day_said(source.said_at_ms, source.utc_offset_min)
            terms = words or lasting_words(without_periods(source.text, said_on))
            found += [
                later
                for later in self._matching(terms, terms, least_share=LEAST_SHARE_OF_BEST if words else 0.0)
                if moment_of(later) > moment_of(source)
                and (words or holds_most(later.text, terms))
                and ((words and later.id not in known) or changes(later.text))
            ]
        newest = sorted(found, key=moment_of, reverse=True)
        return distinct(newest)[:MAX_NEAREST]

    def corrected(self, quoted: Sequence[Source]) -> list[Source]:
        """The statements, each of the first ones after what corrected it, the last correction first."""
        every: list[Source] = []
        for position, source in enumerate(quoted):
            corrections = self._corrections(source) if position < MAX_LOOKED_AFTER else []
            every += [*reversed(corrections), source]
        return distinct(every)

    def _corrections(self, source: Source) -> list[Source]:
        """What its speaker said to take it back: right after it, or within a day and with some of its words."""
        if not source.is_dated or source.role == "assistant":
            return []
        following = list_sources(
            self.conn,
            scope_ids=[self.scope_id],
            from_ms=source.said_at_ms,
            to_ms=source.said_at_ms + DAY_MS,
            before=None,
            now_ms=self.now_ms,
            limit=MAX_LOOKED_THROUGH,
        )
        terms = lasting_words(fold(source.text))
        found: list[Source] = []
        is_next = True
        for each in reversed(following):
            is_after = (each.said_at_ms, each.id) > (source.said_at_ms, source.id)
            is_same = (each.role, each.speaker) == (source.role, source.speaker)
            if not (is_after and is_same and self.is_told(each)):
                continue
            if corrects(each.text) and (is_next or held(each.text, terms)):
                found.append(each)
            is_next = False
        return found

    def said_by(
        self, saying: Saying, words: Sequence[str], period: Period | None
    ) -> tuple[list[Source], bool]:
        """What somebody said: about the words best first, or the last in order; and whether there is more."""
        if words:
            terms = words if saying.is_owner else [*words, *pieces(saying.who)]
            found = self._matching(terms, words, lambda source: is_by(source, saying), said_in=period)
            return ordered(found, Sought(tuple(words)))[:MAX_QUOTES], False
        listed = self._listed_by(saying, period)
        told = [
            each
            for each in listed
            if is_by(each, saying)
            and each.id != self.request_id
            and self._is_statement(each)
            and (period is None or is_said_in(each, period))
        ]
        shown, has_more = last_told(distinct(told))
        return shown, has_more or len(listed) == MAX_LOOKED_THROUGH

    def said_of(self, saying: Saying, words: Sequence[str], period: Period) -> list[Source]:
        """What somebody said, at any time, that names a time in the period, and holds the words; newest first."""
        terms = [*words, *pieces(saying.who), *names_of(period)]
        named = self._matching(
            terms, words, lambda source: is_by(source, saying) and names_time_in(source, period)
        )
        return sorted(named, key=moment_of, reverse=True)[:MAX_QUOTES]

    def is_speaker(self, saying: Saying) -> bool:
        """Whether anybody of that name has said anything."""
        return (
            saying.is_owner
            or saying.is_pikobot
            or any(is_by(each, saying) for each in self._listed_by(saying, None))
        )

    def reporting(self, saying: Saying, words: Sequence[str]) -> list[Source]:
        """What tells that somebody has said something, with the words, newest first."""
        named = [*keywords(saying.who), *words]
        found = self._matching(
            [*named, *SAYING_WORDS],
            words,
            lambda source: saying.is_reported_in(source.text),
            least_share=0.0,
        )
        return sorted(found, key=moment_of, reverse=True)[:MAX_QUOTES]

    def perhaps(self, words: Sequence[str], sought: Sought) -> list[Source]:
        """Those that hold other everyday words for what is asked, of whoever asks."""
        found = self._matching(
            words, words, lambda source: self._may_answer(source, replace(sought, words=()))
        )
        if sought.is_of_owner:
            found.sort(key=lambda source: (source.role != "user", not asks_of_owner(source.text)))
        return found[:MAX_NEAREST]

    def like(self, question: QueryVector) -> list[Source]:
        """Those that are near to a question in meaning, nearest first."""
        return near_in_meaning(
            self.conn, question, scope_id=self.scope_id, now_ms=self.now_ms, admits=self.is_told
        )

    def of(
        self, period: Period, period_words: Sequence[str], *, is_of_owner: bool
    ) -> tuple[list[Source], bool]:
        """The last ones of the period in the order in which they were said, and whether there are more.

        ``is_of_owner``: of others only where the owner has said nothing.
        """
        found = self._said_around(period)
        said = [each for each in found if self.is_told(each) and is_said_in(each, period)]
        every = distinct([*said, *self.naming(period, period_words)])
        if is_of_owner:
            every = [each for each in every if each.role == "user"] or every
        shown, has_more = last_told(every)
        return shown, has_more or len(found) == MAX_LOOKED_THROUGH

    def asked_before(self) -> str | None:
        """The owner's message before the request in its conversation."""
        request_ids = [] if self.request_id is None else [self.request_id]
        for request in load_sources(self.conn, request_ids, now_ms=self.now_ms).values():
            before = list_sources(
                self.conn,
                scope_ids=[self.scope_id],
                from_ms=None,
                to_ms=None,
                before=SourcePosition(request.said_at_ms, request.id),
                now_ms=self.now_ms,
                limit=MAX_LOOKED_BEFORE,
            )
            own = (each for each in before if each.thread_id == request.thread_id and each.role == "user")
            return next((each.text for each in own), None)
        return None

    def last(self) -> list[Source]:
        """What was said last in the scope, by anybody, newest first."""
        return list_sources(
            self.conn,
            scope_ids=[self.scope_id],
            from_ms=None,
            to_ms=None,
            before=None,
            now_ms=self.now_ms,
            limit=MAX_LOOKED_THROUGH,
        )

    def _listed_by(self, saying: Saying, period: Period | None) -> list[Source]:
        if saying.is_owner or saying.is_pikobot:
            return self.last() if period is None else self._said_around(period)
        return list_said_by(
            self.conn,
            saying.who,
            scope_id=self.scope_id,
            from_ms=None if period is None or isinstance(period, EveryYear) else from_ms_of(period),
            to_ms=None if period is None or isinstance(period, EveryYear) else to_ms_of(period),
            now_ms=self.now_ms,
            limit=MAX_LOOKED_THROUGH,
        )

    def _may_answer(self, source: Source, sought: Sought) -> bool:
        """Whether it speaks of whom the question names, or of whoever asks, and holds more than a light verb of it."""
        if sought.names and not any(has_name(source, name) for name in sought.names):
            return len(held(source.text, sought.words)) >= STEMS_WITHOUT_NAME
        if sought.is_of_owner and (speaks_of_another(source.text) or _speaks_of_speaker(source)):
            return False
        if sought.names or is_light(held(" ".join(sought.words), sought.words)):
            return True
        return not is_light(held(source.text, sought.words))

    def _said_around(self, period: Period) -> list[Source]:
        """What was said in a period and on the days beside it, newest first; of many years, the last ones."""
        found: list[Source] = []
        for each in last_years(period, YEARS_LOOKED_THROUGH) if isinstance(period, EveryYear) else (period,):
            found += list_sources(
                self.conn,
                scope_ids=[self.scope_id],
                from_ms=from_ms_of(each),
                to_ms=to_ms_of(each),
                before=None,
                now_ms=self.now_ms,
                limit=MAX_LOOKED_THROUGH - len(found),
            )
            if len(found) == MAX_LOOKED_THROUGH:
                break
        return found

    def is_told(self, source: Source) -> bool:
        """Whether somebody but pikobot told it."""
        return source.role != "assistant" and source.id != self.request_id and self._is_statement(source)

    def _is_statement(self, source: Source) -> bool:
        if source.origin == "recall" or is_only_question(source.text):
            return False
        if source.role != "user" or source.origin != "said":
            return not self.asides
        return not _only_requests(source) and self.asides == _also_requests(source.text)

    def _matching(
        self,
        terms: Sequence[str],
        words: Sequence[str],
        admits: Callable[[Source], bool] | None = None,
        *,
        said_in: Period | None = None,
        least_share: float = LEAST_SHARE_OF_BEST,
        repeats_too: bool = False,
    ) -> list[Source]:
        """What the terms find and is admitted, among it each of the words, without what matches much less.

        ``repeats_too``: what says just the words as well, where nothing tells more.
        """
        bounds = None if isinstance(said_in, EveryYear) else said_in
        kept: list[Source] = []
        for limit in CANDIDATES if terms is words and not self.asides else CANDIDATES_READ:
            hits = search_text(
                self.conn,
                query=" ".join(terms),
                scope_ids=[self.scope_id],
                now_ms=self.now_ms,
                limit=limit,
                from_ms=None if bounds is None else from_ms_of(bounds),
                to_ms=None if bounds is None else to_ms_of(bounds),
                exclude_ids=() if self.request_id is None else (self.request_id,),
            )
            scores = {SourceId(hit.source_id): hit.score for hit in hits}
            found: list[Source] = []
            repeating: list[Source] = []
            floor = 0.0
            for source in load_sources(self.conn, scores, now_ms=self.now_ms).values():
                if scores[source.id] < floor or not (said_in is None or is_said_in(source, said_in)):
                    continue
                is_telling = not words or tells(source.text, words)
                is_admitted = is_telling or (repeats_too and repeats(source.text, words))
                if not is_admitted or not self._is_statement(source):
                    continue
                if admits is None or admits(source):
                    floor = floor or scores[source.id] * least_share * is_telling
                    found.append(source)
                    repeating += [] if is_telling else [source]
            kept = distinct(_without(repeating, found, words))
            if len(kept) >= MAX_QUOTES or len(hits) < limit:
                break
        return kept[:MAX_COMPARED]


def _without(repeating: Sequence[Source], found: Sequence[Source], words: Sequence[str]) -> list[Source]:
    """What is found without what only repeats the words, where something tells more that has most of each of them."""
    known = {source.id for source in repeating}
    telling = [source.text for source in found if source.id not in known]
    left_out = {
        source.id for source in repeating if any(holds_like(text, source.text, words) for text in telling)
    }
    return [source for source in found if source.id not in left_out]


def _only_requests(source: Source) -> bool:
    """Whether the owner's words only ask, greet, tell to forget, or are meant as a command."""
    text = source.text
    is_talk = _COMMAND.match(text) is not None or small_talk_of(text) is not None
    return is_talk or is_request_for_answer(text) or asks_to_recall(text) or means_to_forget(text)


def _speaks_of_speaker(source: Source) -> bool:
    """Whether somebody else speaks of themself."""
    return source.role == "participant" and asks_of_owner(source.text)


def _also_requests(text: str) -> bool:
    return is_question(text) or asks_to_forget(text)
