"""What recall mode quotes for a question, and what it says before that.

First what answers the question: of its time, by whom it asks, of whom it speaks. Then guesses, said to be guesses:
other everyday words, what is near in meaning, what has some of the words. `statements` finds them, `asking` reads the
question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import date, timedelta

from pikobot.memory.embedding.contract import QueryVector
from pikobot.memory.language.periods import EveryYear, Period, Understood, find_period
from pikobot.memory.language.questions import Language, is_follow_up, keywords, language_of, subject_words
from pikobot.memory.recall import wording
from pikobot.memory.recall.asking import Saying, Sought, read_plainly, read_saying, read_sought
from pikobot.memory.recall.everyday_words import other_words
from pikobot.memory.recall.order import distinct
from pikobot.memory.recall.statements import MAX_QUOTES, About, Statements
from pikobot.memory.recall.telling import asks_of_owner, held
from pikobot.memory.recall.times import is_surely_of, names_earlier_only
from pikobot.memory.recall.wording import spoken_period
from pikobot.store.sources import Source
from pikobot.store.text.segmentation import fold, is_cjk

# Of a time not longer than that what happened then is quoted where nothing is found of what is asked about.
MAX_DAYS_TOLD = timedelta(days=31)
MAX_DAYS_NAMED = timedelta(days=7)


@dataclass(frozen=True)
class Section:
    """Statements, with the line before them, or in their place."""

    heading: str
    quoted: Sequence[Source] = ()


@dataclass(frozen=True)
class Found:
    """What is quoted, and what is said after it."""

    sections: tuple[Section, ...]
    ending: str = ""

    @property
    def quoted(self) -> list[Source]:
        """Each source once, in the order in which it is quoted."""
        every = [source for section in self.sections for source in section.quoted]
        return list({source.id: source for source in every}.values())


def nothing(language: Language) -> Found:
    return Found((Section(wording.NOTHING[language]),))


def find(statements: Statements, text: str, today: date, *, meaning: QueryVector | None = None) -> Found:
    """What is quoted for a question, or for a few bare words, as asked on that day."""
    language, text = language_of(text), read_plainly(text)
    understood = find_period(text, today)
    saying = read_saying(fold(text) if understood is None else understood.rest)
    is_listed = saying is not None and saying.is_owner and understood is not None
    if saying is not None and not is_listed and statements.is_speaker(saying):
        return _said_by(statements, saying, text, understood, language)
    if understood is None and saying is not None and saying.names_somebody:
        reported = _reported(statements, saying, text, language)
        if reported.quoted:
            return reported
    if understood is None and (followed := _following(statements, text, language)) is not None:
        return followed
    if understood is not None:
        found = _found_in(statements, text, understood, language)
        return found if found.quoted else _or_aside(statements, text, understood, found)
    return _found_about(statements, text, language, meaning)


def _following(statements: Statements, text: str, language: Language) -> Found | None:
    """What is quoted for "and the phone?": what holds it together with the subject of the question before."""
    if not is_follow_up(text):
        return None
    words, before = keywords(text), keywords(statements.asked_before() or "")
    if not words or not before:
        return None
    answers = [
        source
        for source in statements.about(read_sought(text, [*words, *before])).answers
        if held(source.text, words) and held(source.text, before)
    ]
    return Found((Section(wording.FOUND[language], answers),)) if answers else None


def _or_aside(statements: Statements, text: str, understood: Understood, found: Found) -> Found:
    aside = _found_in(replace(statements, asides=True), text, understood, language_of(text))
    return aside if aside.quoted else found


def _found_about(statements: Statements, text: str, language: Language, meaning: QueryVector | None) -> Found:
    words = keywords(text)
    sought = read_sought(text, words)
    about = statements.about(sought) if words else About([], [])
    if not about.answers and words:
        aside = replace(statements, asides=True).about(sought)
        about = aside if aside.answers or not about.nearest else about
    if about.answers:
        return Found((Section(wording.FOUND[language], statements.corrected(about.answers)),))
    others = other_words(text)
    guessed = statements.perhaps(others, sought) if others else []
    sections = [Section(wording.PERHAPS[language], guessed)]
    if meaning is not None and not guessed:
        guessed = [each for each in statements.like(meaning) if each not in about.nearest]
        sections = [Section(wording.FOUND_BY_MEANING[language], guessed)]
    nearest = [source for source in about.nearest if source not in guessed]
    sections.append(Section(_nearest(about, text, language), nearest))
    found = Found(tuple(section for section in sections if section.quoted))
    return found if found.quoted else nothing(language)


def _nearest(about: About, text: str, language: Language) -> str:
    if not about.missing:
        return wording.NEAREST[language]
    names = [_as_asked(name, text) for name in about.missing]
    return wording.NEAREST_WITHOUT[language].format(names=("、" if language == "zh" else " or ").join(names))


def _as_asked(name: frozenset[str], text: str) -> str:
    """The form of a name that the question has, as it is written there; of whoever asks "your brother"."""
    folded = fold(text)
    forms = sorted(each for each in name if each in folded)
    form = max(forms, key=lambda each: (len(each), not each.startswith("我")), default=min(name))
    if f"my {form}" in folded:
        return f"your {form}"
    at = folded.find(form)
    return text[at : at + len(form)] if at >= 0 and len(folded) == len(text) else form


def _said_by(
    statements: Statements, saying: Saying, text: str, understood: Understood | None, language: Language
) -> Found:
    """What somebody said, of a time and about a subject where the question has them; or else what others said of it."""
    period = None if understood is None else _period_of(understood)
    words = _words_about(saying)
    quoted, has_more = statements.said_by(saying, words, period)
    who = _spoken_who(saying, text, language)
    sections = []
    if quoted:
        heading = wording.FOUND_BY[language].format(who=who)
        if understood is not None:
            heading = wording.FOUND_BY_IN[language].format(
                who=who, period=_spoken_of(understood, quoted, language)
            )
        sections.append(Section(heading, quoted))
    if period is not None:
        named = [each for each in statements.said_of(saying, words, period) if each not in quoted]
        heading = wording.FOUND_BY_OF[language].format(who=who, period=spoken_period(period, language))
        sections += [Section(heading, named)] if named else []
    if sections:
        return Found(tuple(sections), wording.MORE_BY[language] if has_more else "")
    if saying.is_pikobot and not words:
        other: list[Source] = []
    elif understood is not None:
        other = _found_in(statements, text, understood, language).quoted
    else:
        other = statements.about(read_sought(text, keywords(text))).answers if keywords(text) else []
    heading = (wording.NOT_BY_BUT if other else wording.NOT_BY)[language].format(who=who)
    return Found((Section(heading, other),))


def _reported(statements: Statements, saying: Saying, text: str, language: Language) -> Found:
    """Of whoever has said nothing here: what they are told to have said, then what else is told of them."""
    words = _words_about(saying)
    told = statements.reporting(saying, words)
    told += statements.about(read_sought(text, [*keywords(saying.who), *words])).answers
    heading = wording.FOUND_OF[language].format(who=_spoken_who(saying, text, language))
    return Found((Section(heading[0].upper() + heading[1:], distinct(told)[:MAX_QUOTES]),))


def _words_about(saying: Saying) -> list[str]:
    return [word for word in subject_words(saying.about) if not is_cjk(word) or len(word) > 1]


def _spoken_who(saying: Saying, text: str, language: Language) -> str:
    if saying.is_owner:
        return wording.YOU[language]
    if saying.is_pikobot:
        return "pikobot"
    who = saying.who.removeprefix("my ")
    return "你" + who[1:] if who.startswith("我") else _as_asked(frozenset({who}), text)


def _period_of(understood: Understood) -> Period:
    return EveryYear(*astuple(understood.period)) if understood.is_yearly else understood.period


def _spoken_of(understood: Understood, quoted: Sequence[Source], language: Language) -> str:
    """The days of a month or day without a year are those of any year, unless all that is found is of the last one."""
    is_last = all(is_surely_of(source, understood.period) for source in quoted)
    return spoken_period(understood.period if is_last else _period_of(understood), language)


def _found_in(statements: Statements, text: str, understood: Understood, language: Language) -> Found:
    """What was said in a period, or is about it; of a subject that has nothing there, what was said otherwise."""
    period, period_words = _period_of(understood), keywords(understood.words)
    subject = subject_words(understood.rest)
    is_of_owner = asks_of_owner(understood.rest)
    if not subject:
        quoted, has_more = statements.of(period, period_words, is_of_owner=is_of_owner)
        if not quoted:
            return Found(
                (Section(wording.NOTHING_IN[language].format(period=spoken_period(period, language))),)
            )
        found = _in_period(statements, understood, quoted, (), language)
        return replace(found, ending=wording.MORE[language] if has_more else "")
    sought = read_sought(text, subject, understood.words)
    if quoted := statements.about_in(sought, period, period_words):
        return _in_period(statements, understood, quoted, subject, language)
    sections = tuple(_beside(statements, sought, understood, language))
    if sections:
        return Found(sections)
    return Found((Section(wording.NOTHING_EVER[language].format(period=spoken_period(period, language))),))


def _in_period(
    statements: Statements,
    understood: Understood,
    quoted: list[Source],
    subject: Sequence[str],
    language: Language,
) -> Found:
    """What is of the period, after what was said later of what is planned for it; last what only was said then."""
    period = _period_of(understood)
    asks_what_was_said = read_saying(understood.rest) is not None
    earlier = [] if asks_what_was_said else [each for each in quoted if names_earlier_only(each, period)]
    quoted = [each for each in quoted if each not in earlier]
    later = statements.since(quoted, subject, period)
    quoted = [each for each in quoted if each not in later]
    quoted = statements.corrected(quoted) if subject else quoted
    sections = [Section(wording.FOUND_SINCE[language], later)] if later else []
    for heading, each in ((wording.FOUND_IN, quoted), (wording.FOUND_OF_EARLIER, earlier)):
        if each:
            sections.append(
                Section(heading[language].format(period=_spoken_of(understood, each, language)), each)
            )
    return Found(tuple(sections))


def _beside(
    statements: Statements, sought: Sought, understood: Understood, language: Language
) -> Iterator[Section]:
    """Of a subject that has nothing in a period: what was said of it otherwise, and what is about the period."""
    period, period_words = _period_of(understood), keywords(understood.words)
    spoken = spoken_period(period, language)
    length = MAX_DAYS_TOLD + timedelta(1) if period.first is None else period.last - period.first
    elsewhere = statements.about(sought).answers
    if elsewhere:
        yield Section(wording.FOUND_ELSEWHERE[language].format(period=spoken), elsewhere)
        named = statements.naming(period, period_words) if length <= MAX_DAYS_NAMED else []
        if named:
            yield Section(wording.FOUND_BESIDE[language].format(period=spoken), named)
    elif length <= MAX_DAYS_TOLD:
        told, _ = statements.of(period, period_words, is_of_owner=sought.is_of_owner)
        if told:
            named_period = _spoken_of(understood, told, language)
            later = statements.since(told, (), period)
            if later:
                yield Section(wording.FOUND_SINCE[language], later)
            yield Section(wording.FOUND_OF_DAY[language].format(period=named_period), told)
