"""Which statements of a scope recall mode quotes: those about something, those of a period, or both.

Earlier answers of recall mode and bare questions are no statements, nor is what the owner has asked pikobot, or told it
to forget. What is told beside such a request is quoted where nothing else is found. A statement is of a period when it
was said in it, or names a time in it: "I moved to Porto in March 2024" is of March 2024, whenever it was said.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from pikobot.memory import moments
from pikobot.memory.basics import owner_basics
from pikobot.memory.embed import usable_set
from pikobot.memory.embedding import QueryVector
from pikobot.memory.forget_requests import asks_to_forget, means_to_forget
from pikobot.memory.periods import EveryYear, Period, last_years, periods_in
from pikobot.memory.questions import is_only_question, is_question, is_request_for_answer
from pikobot.memory.small_talk import small_talk_of
from pikobot.store.connection import Connection
from pikobot.store.listing import count_owners_messages, list_sources
from pikobot.store.query_terms import widened
from pikobot.store.scopes import ScopeId
from pikobot.store.segmentation import fold, is_cjk, pairs, pieces
from pikobot.store.sources import Source, SourceId, find_source, load_sources
from pikobot.store.text_index import search_text
from pikobot.store.vectors.owners import OwnerKind

MAX_QUOTES = 5
MAX_LISTED = 10
# Earlier questions about the same thing match as well as its statements do: look further until there are enough.
CANDIDATES = (50, 500, 5_000)
# Every candidate is read for the times that it names, which costs more than its score.
CANDIDATES_READ = (50, 500)
MAX_LOOKED_THROUGH = 500
YEARS_LOOKED_THROUGH = 50
# A statement that matches much less than the best one shares a common word with the question, not its subject.
LEAST_SHARE_OF_BEST = 0.5
MAX_QUOTES_BY_MEANING = 3
# How much nearer than usual a statement must be to a question. What is usual depends on the language, the model and
# what is talked about. With local E5, among 20 to 300 statements of LoCoMo, LifeBench and made-up notes, in English
# and Chinese: of 790 questions that none answers the nearest is so near to 11 %, of 72 that it answers to 58 %.
LEAST_ABOVE_USUAL = 0.22
# What is usual among few statements is no measure: it counts like so many of the two languages together.
USUAL_OF_FEW = 0.25
WEIGHT_OF_FEW = 5
MEASURED_BY_MEANING = 500
LEAST_SHARE_OF_NEAREST = 0.9
DAY_MS = 86_400_000
ANY_OTHER_TIME = timedelta(days=500)

_COMMAND = re.compile("\\s*/[a-z]+(?:\\s|$)")
_MONTHS = """January February March April May June July August September October November December""".split()


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

    def about(self, words: Sequence[str]) -> list[Source]:
        """Those that hold the words, best first."""
        return self._matching(words, words)

    def about_in(self, words: Sequence[str], period: Period, period_words: Sequence[str]) -> list[Source]:
        """Those of the period that hold the words, best first; what was said in it before what names it."""
        said = self._matching(words, words, said_in=period)
        terms = [*words, *period_words, *_names(period)]
        named = self._matching(terms, words, lambda source: _names_time_in(source, period))
        return _distinct([*said, *named])[:MAX_QUOTES]

    def like(self, question: QueryVector) -> list[Source]:
        """Those that are near to a question in meaning, nearest first, of the set that serves."""
        vector_set, _ = usable_set(self.conn, question.profile, now_ms=self.now_ms)
        if vector_set is None:
            return []
        from pikobot.store.vectors.eligibility import Eligibility  # loads numpy
        from pikobot.store.vectors.means import mean_nearness
        from pikobot.store.vectors.scan import scan

        eligibility = Eligibility(scope_ids=[self.scope_id], kinds=[OwnerKind.SOURCE])
        hits = scan(self.conn, vector_set.id, question.values, k=MEASURED_BY_MEANING, eligibility=eligibility)
        scores = [hit.score for hit in hits or []]
        usual = usual_nearness(scores)
        if len(scores) == MEASURED_BY_MEANING:
            usual = mean_nearness(self.conn, vector_set, question.values) or usual
        least = usual + LEAST_ABOVE_USUAL
        near = {SourceId(hit.owner.id): hit.score for hit in hits or [] if hit.score >= least}
        found = [
            source
            for source in load_sources(self.conn, near, now_ms=self.now_ms).values()
            if self._is_told(source)
        ]
        floor = near[found[0].id] * LEAST_SHARE_OF_NEAREST if found else 0.0
        return _distinct(source for source in found if near[source.id] >= floor)[:MAX_QUOTES_BY_MEANING]

    def of(self, period: Period, period_words: Sequence[str]) -> tuple[list[Source], bool]:
        """The last ones of the period in the order in which they were said, and whether there are more."""
        found = self._said_around(period)
        said = [each for each in found if self._is_told(each) and _is_said_in(each, period)]
        terms = [*period_words, *_names(period)]
        named = self._matching(terms, (), lambda source: _names_time_in(source, period))
        every = _distinct([*said, *named])
        shown = sorted(every[:MAX_LISTED], key=lambda source: (source.said_at_ms, source.id))
        return shown, len(every) > MAX_LISTED or len(found) == MAX_LOOKED_THROUGH

    def of_owner(self) -> list[Source]:
        """What the basics of the owner rest on, and then the last that the owner has told, newest first."""
        basics = owner_basics(self.conn, self.scope_id, now_ms=self.now_ms)
        known = [find_source(self.conn, public_id, now_ms=self.now_ms) for public_id in basics.source_ids]
        last = list_sources(
            self.conn,
            scope_ids=[self.scope_id],
            from_ms=None,
            to_ms=None,
            before=None,
            now_ms=self.now_ms,
            limit=MAX_LOOKED_THROUGH,
        )
        told = [source for source in last if source.role == "user" and self._is_told(source)]
        return _distinct([*(source for source in known if source is not None), *told])[:MAX_QUOTES]

    def count_of_owner(self) -> tuple[int, Source | None]:
        """How many messages the owner has left, with the request, and the first one that has a date."""
        count, first_id = count_owners_messages(self.conn, self.scope_id, now_ms=self.now_ms)
        first = [] if first_id is None else load_sources(self.conn, [first_id], now_ms=self.now_ms).values()
        return count, next(iter(first), None)

    def _said_around(self, period: Period) -> list[Source]:
        """What was said in a period and on the days beside it, newest first; of many years, the last ones."""
        found: list[Source] = []
        for each in last_years(period, YEARS_LOOKED_THROUGH) if isinstance(period, EveryYear) else (period,):
            found += list_sources(
                self.conn,
                scope_ids=[self.scope_id],
                from_ms=_from_ms(each),
                to_ms=_to_ms(each),
                before=None,
                now_ms=self.now_ms,
                limit=MAX_LOOKED_THROUGH - len(found),
            )
            if len(found) == MAX_LOOKED_THROUGH:
                break
        return found

    def _is_told(self, source: Source) -> bool:
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
    ) -> list[Source]:
        """What the terms find and is admitted, among it each of the words, without what matches much less."""
        bounds = None if isinstance(said_in, EveryYear) else said_in
        kept: list[Source] = []
        for limit in CANDIDATES if terms is words and not self.asides else CANDIDATES_READ:
            hits = search_text(
                self.conn,
                query=" ".join(terms),
                scope_ids=[self.scope_id],
                now_ms=self.now_ms,
                limit=limit,
                from_ms=None if bounds is None else _from_ms(bounds),
                to_ms=None if bounds is None else _to_ms(bounds),
                exclude_ids=() if self.request_id is None else (self.request_id,),
            )
            scores = {SourceId(hit.source_id): hit.score for hit in hits}
            found = [
                source
                for source in load_sources(self.conn, scores, now_ms=self.now_ms).values()
                if (said_in is None or _is_said_in(source, said_in))
                and (not words or _tells(source.text, words))
                and self._is_statement(source)
                and (admits is None or admits(source))
            ]
            floor = scores[found[0].id] * LEAST_SHARE_OF_BEST if found else 0.0
            kept = _distinct(source for source in found if scores[source.id] >= floor)
            if len(kept) >= MAX_QUOTES or len(hits) < limit:
                break
        return kept[:MAX_QUOTES]


def usual_nearness(scores: Sequence[float]) -> float:
    """How near to a question the statements are that are not the nearest one, given best first."""
    rest = scores[1:]
    return (sum(rest) + WEIGHT_OF_FEW * USUAL_OF_FEW) / (len(rest) + WEIGHT_OF_FEW)


def day_said(at_ms: int, utc_offset_min: int) -> date:
    """The calendar day where it was said."""
    return (datetime.fromtimestamp(at_ms / 1000, UTC) + timedelta(minutes=utc_offset_min)).date()


def is_of(source: Source, period: Period) -> bool:
    """Whether it was said in a period or names a time in it."""
    return _is_said_in(source, period) or _names_time_in(source, period)


def _only_requests(source: Source) -> bool:
    """Whether the owner's words only ask, greet, tell to forget, or are meant as a command."""
    text = source.text
    is_talk = _COMMAND.match(text) is not None or small_talk_of(text) is not None
    return is_talk or is_request_for_answer(text) or means_to_forget(text)


def _also_requests(text: str) -> bool:
    return is_question(text) or asks_to_forget(text)


def _tells(text: str, words: Sequence[str]) -> bool:
    """Whether a text holds a word of the question itself, not only its speaker or a neighbour, and more than it."""
    folded = fold(text)
    stems = [
        part
        for word in widened(words)
        for part in (pairs(word) if is_cjk(word) else [word[: max(3, len(word) - 3)]])
    ]
    return any(stem in folded for stem in stems) and not set(pieces(text)) <= set(words)


def _is_said_in(source: Source, period: Period) -> bool:
    return source.is_dated and period.includes(day_said(source.said_at_ms, source.utc_offset_min))


def _names_time_in(source: Source, period: Period) -> bool:
    said_on = day_said(source.said_at_ms, source.utc_offset_min)
    named = set(periods_in(source.text, said_on))
    if not source.is_dated:  # then only what means the same on another day counts
        named &= set(periods_in(source.text, said_on - ANY_OTHER_TIME))
    return any(map(period.holds, named))


def _names(period: Period) -> list[str]:
    """How statements may name a day, a month or a year, in words to search for."""
    if period.first is None or period.first.year != period.last.year:
        return []
    year, month, day = period.last.year, period.last.month, period.last.day
    names = [] if isinstance(period, EveryYear) else [str(year), f"{year}年"]
    if period.first.month == month:
        names += [_MONTHS[month - 1].lower(), f"{month}月", f"{month:02}"]
    if period.first == period.last:
        names += [str(day), f"{day:02}", f"{day}日", f"{day}号"]
    return names


def _from_ms(period: Period) -> int | None:
    """A day early: a source's own offset may be any."""
    return None if period.first is None else moments.first_ms(period.first.isoformat()) - DAY_MS


def _to_ms(period: Period) -> int:
    return moments.after_ms(period.last.isoformat()) + DAY_MS


def _distinct(sources: Iterable[Source]) -> list[Source]:
    """Each text once, where it comes first; case, spaces and punctuation make no other text."""
    kept: dict[tuple[str, ...], Source] = {}
    for source in sources:
        kept.setdefault(tuple(pieces(source.text)) or (source.text,), source)
    return list(kept.values())
