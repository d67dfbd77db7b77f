"""From one element of an answer to a candidate, or to the first reason against it.

A candidate's quotes are in their sources byte for byte, one speaker said all of them, and that speaker may
establish what the element claims: a fact about the owner needs the owner's words. Verified quotes of anybody
else, and of earlier turns, become dependencies: context without which the rest is not understood.
Parts that change no meaning (tags, links, a wrong kind, a month where a day belongs) are dropped and counted instead.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError

from pikobot.adapters.mem0 import candidates as c
from pikobot.adapters.mem0.candidates import Candidate, Dropped, RejectionReason, Role, SourceTurn
from pikobot.adapters.mem0.copied import is_copied
from pikobot.errors import PikobotError

_Voice: TypeAlias = tuple[Role, str]  # who spoke: role and speaker
_PRECEDENCE: tuple[Role, ...] = ("owner", "participant", "assistant")
_ASSISTANT_WORDS = frozenset(("assistant", "the assistant", "助手", "助理"))
_ROLES_BY_ATTRIBUTION: dict[str, frozenset[Role]] = {
    "user": frozenset(("owner", "participant")),
    "owner": frozenset(("owner",)),
    "participant": frozenset(("participant",)),
    "assistant": frozenset(("assistant",)),
}
_TAG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_ATTRIBUTE = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_PART_OF_DATE = re.compile(r"[12]\d{3}(-(0[1-9]|1[0-2]))?")
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")


@dataclass(frozen=True)
class Validated:
    """``candidates`` keep the order of their elements."""

    candidates: tuple[Candidate, ...]
    rejections: tuple[c.Rejection, ...]
    dropped: Dropped


def validate_elements(elements: Sequence[Any], batch: c.ExtractionBatch) -> Validated:
    """Judges every element by itself; of equal ones the first stands."""
    accepted: dict[tuple[str, str, str], Candidate] = {}
    rejections: list[c.Rejection] = []
    dropped = Dropped()
    for index, element in enumerate(elements):
        if index >= c.MAX_ELEMENTS:
            rejections.append(c.Rejection(index, RejectionReason.TOO_MANY, "memory"))
            continue
        try:
            candidate, left_out = _Judged(batch, _Element.model_validate(element)).candidate()
        except ValidationError as error:
            rejections.append(c.Rejection(index, *_schema_reason(error)))
            continue
        except _Rejected as rejected:
            rejections.append(c.Rejection(index, rejected.reason, rejected.key))
            continue
        dropped += left_out
        key = (candidate.text, candidate.attributed_to, candidate.subject)
        if key in accepted:
            rejections.append(c.Rejection(index, RejectionReason.DUPLICATE, "text"))
            candidate = _merged(accepted[key], candidate)
        accepted[key] = candidate
    return Validated(tuple(accepted.values()), tuple(rejections), dropped)


class _Quote(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    source_id: str
    quote: str


class _Element(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    id: Any = None
    text: str
    attributed_to: str | None = None
    linked_memory_ids: list[Any] | None = None
    subject: str | None = None
    attribute: Any = None
    value: Any = None
    kind: Any = None
    evidence: list[_Quote]
    depends_on: list[str] | None = None
    entities: list[Any] | None = None
    event_time: str | None = None
    valid_until: str | None = None
    tags: list[Any] | None = None


class _Rejected(PikobotError):
    """Caught in this module."""

    def __init__(self, reason: RejectionReason, key: str) -> None:
        super().__init__(f"{reason} at {key}")
        self.reason = reason
        self.key = key


@dataclass(frozen=True)
class _Options:
    attribute: str | None
    value: str | None
    kind: c.FactKind
    entities: tuple[str, ...]
    tags: tuple[str, ...]
    links: tuple[str, ...]


@dataclass(frozen=True)
class _Quoted:
    turn: SourceTurn
    evidence: c.Evidence
    is_new: bool

    @property
    def voice(self) -> _Voice:
        return self.turn.role, self.turn.speaker


class _Judged:
    """One element against its batch."""

    def __init__(self, batch: c.ExtractionBatch, element: _Element) -> None:
        self._batch = batch
        self._element = element
        self._new = {turn.source_id: turn for turn in batch.turns}
        self._earlier = {turn.source_id: turn for turn in batch.earlier}

    def candidate(self) -> tuple[Candidate, Dropped]:
        """Raises _Rejected with the first reason."""
        element = self._element
        text = _bounded(element.text.strip(), c.MAX_TEXT_CHARS, "text")
        if not text:
            raise _Rejected(RejectionReason.MALFORMED, "text")
        quoted = self._quoted()
        subject = self._subject()
        role, speaker = voice = self._voice(quoted, subject)
        own = [quote for quote in quoted if quote.is_new and quote.voice == voice]
        depends_on = self._dependencies(quoted, own)
        self._check_not_copied(text, {quote.turn.source_id for quote in quoted} | set(depends_on))
        event_time = _time(element.event_time, own[0].turn, "event_time")
        valid_until = _time(element.valid_until, own[0].turn, "valid_until")
        if event_time and valid_until and valid_until[:10] < event_time[:10]:
            raise _Rejected(RejectionReason.BAD_DATE, "valid_until")
        options, dropped = self._options()
        candidate = Candidate(
            text=text,
            subject=subject or (speaker.strip() if role == "participant" else role) or role,
            evidence=tuple(dict.fromkeys(quote.evidence for quote in own)),
            depends_on=depends_on,
            event_time=event_time,
            valid_until=valid_until,
            attributed_to=role,
            speaker=speaker,
            attribute=options.attribute,
            value=options.value,
            kind=options.kind,
            entities=options.entities,
            tags=options.tags,
            linked_fact_ids=options.links,
        )
        return candidate, dropped

    def _quoted(self) -> list[_Quoted]:
        if not self._element.evidence:
            raise _Rejected(RejectionReason.MISSING_EVIDENCE, "evidence")
        if len(self._element.evidence) > c.MAX_EVIDENCE:
            raise _Rejected(RejectionReason.TOO_LONG, "evidence")
        quoted = [self._find(item) for item in self._element.evidence]
        if not any(quote.is_new for quote in quoted):
            raise _Rejected(RejectionReason.OLD_EVIDENCE, "evidence")
        return quoted

    def _find(self, item: _Quote) -> _Quoted:
        turn = self._new.get(item.source_id) or self._earlier.get(item.source_id)
        if turn is None:
            raise _Rejected(RejectionReason.UNKNOWN_SOURCE, "evidence")
        if not item.quote.strip():
            raise _Rejected(RejectionReason.MISSING_EVIDENCE, "evidence")
        _bounded(item.quote, c.MAX_QUOTE_CHARS, "evidence")
        at = turn.text.find(item.quote)
        if at < 0:
            raise _Rejected(RejectionReason.QUOTE_NOT_FOUND, "evidence")
        start = len(turn.text[:at].encode())
        evidence = c.Evidence(turn.source_id, item.quote, start, start + len(item.quote.encode()))
        return _Quoted(turn, evidence, turn.source_id in self._new)

    def _subject(self) -> str | None:
        """The canonical subject: "owner", "assistant", a name, or None where the element says none."""
        name = _bounded((self._element.subject or "").strip(), c.MAX_NAME_CHARS, "subject")
        if not name or name.casefold() in c.FIRST_PERSON:
            return None
        turns = (*self._batch.turns, *self._batch.earlier)
        for role in _PRECEDENCE:
            for turn in turns:
                if turn.role == role and turn.speaker.casefold() == name.casefold():
                    return turn.speaker if role == "participant" else role
        if name.casefold() in c.OWNER_WORDS:
            return "owner"
        return "assistant" if name.casefold() in _ASSISTANT_WORDS else name

    def _voice(self, quoted: Sequence[_Quoted], subject: str | None) -> _Voice:
        """Whose words establish the element; nothing that it says of itself may contradict them."""
        voices = [quote.voice for quote in quoted if quote.is_new]
        claimed = (self._element.attributed_to or "").strip().casefold()
        is_about_owner = subject == "owner" or (subject is None and claimed in ("user", "owner"))
        if is_about_owner and all(role == "assistant" for role, _ in voices):
            raise _Rejected(RejectionReason.ASSISTANT_ONLY_EVIDENCE, "evidence")
        if subject in ("owner", "assistant"):
            voices = [voice for voice in voices if voice[0] == subject]
        if not voices:
            raise _Rejected(RejectionReason.WRONG_SPEAKER, "subject")
        voices = [voice for voice in voices if _agrees(voice, claimed)]
        if not voices:
            raise _Rejected(RejectionReason.ATTRIBUTION_CONTRADICTS, "attributed_to")
        return min(voices, key=lambda voice: (voice[1] != subject, _PRECEDENCE.index(voice[0])))

    def _dependencies(self, quoted: Sequence[_Quoted], own: Sequence[_Quoted]) -> tuple[str, ...]:
        named = self._element.depends_on or []
        if any(source_id not in self._new and source_id not in self._earlier for source_id in named):
            raise _Rejected(RejectionReason.UNKNOWN_DEPENDENCY, "depends_on")
        evident = {quote.turn.source_id for quote in own}
        context = [quote.turn.source_id for quote in quoted] + named
        needed = tuple(dict.fromkeys(source_id for source_id in context if source_id not in evident))
        if len(needed) > c.MAX_DEPENDENCIES:
            raise _Rejected(RejectionReason.TOO_LONG, "depends_on")
        return needed

    def _check_not_copied(self, text: str, source_ids: set[str]) -> None:
        turns = {**self._earlier, **self._new}
        said = [turns[source_id].text for source_id in source_ids]
        if is_copied(text, self._batch.known_facts, said):
            raise _Rejected(RejectionReason.COPIED, "text")

    def _options(self) -> tuple[_Options, Dropped]:
        """What an element may leave out or have wrong and still stand."""
        element = self._element
        attribute, value = _attribute(element.attribute), _value(element.value)
        if value is None:
            attribute = None
        kind = element.kind if element.kind in list(c.FactKind) else None
        entities = _distinct([_name(entity) for entity in element.entities or []], c.MAX_ENTITIES)
        tags = _distinct([_tag(tag) for tag in element.tags or []], c.MAX_TAGS)
        links = _distinct(
            [self._fact_id(link) for link in element.linked_memory_ids or []], c.MAX_KNOWN_FACTS
        )
        options = _Options(attribute, value, c.FactKind(kind or "fact"), entities, tags, links)
        dropped = Dropped(
            unknown_keys=len(element.model_extra or {}),
            attributes=int(element.attribute is not None and attribute is None),
            kinds=int(element.kind is not None and kind is None),
            entities=len(element.entities or []) - len(entities),
            tags=len(element.tags or []) - len(tags),
            links=len(element.linked_memory_ids or []) - len(links),
            dates=sum(
                bool(_PART_OF_DATE.fullmatch((written or "").strip()))
                for written in (element.event_time, element.valid_until)
            ),
        )
        return options, dropped

    def _fact_id(self, link: Any) -> str | None:
        """Mem0 numbers the known facts "0", "1", … for the model."""
        known = {str(position): fact.fact_id for position, fact in enumerate(self._batch.known_facts)}
        return known.get(link) if isinstance(link, str) else None


def _agrees(voice: _Voice, claimed: str) -> bool:
    role, speaker = voice
    roles = _ROLES_BY_ATTRIBUTION.get(claimed)
    return not claimed or (role in roles if roles is not None else speaker.casefold() == claimed)


def _bounded(text: str, max_chars: int, key: str) -> str:
    if len(text) > max_chars:
        raise _Rejected(RejectionReason.TOO_LONG, key)
    return text


def _time(value: str | None, turn: SourceTurn, key: str) -> str | None:
    """An ISO date as it is, a date-time with an offset: that of the quoted turn where it has none.

    A year or a month alone is no time, and is not wrong either: the text and the quote say it.
    """
    written = (value or "").strip()
    if not written or _PART_OF_DATE.fullmatch(written):
        return None
    try:
        if _DATE.fullmatch(written):
            return date.fromisoformat(written).isoformat()
        if _DATE_TIME.fullmatch(written):
            moment = datetime.fromisoformat(written)
            zone = moment.tzinfo or timezone(timedelta(minutes=turn.utc_offset_min))
            return moment.replace(tzinfo=zone).isoformat().replace("+00:00", "Z")
    except ValueError:
        pass  # such as the 31st of June
    raise _Rejected(RejectionReason.BAD_DATE, key)


def _attribute(value: Any) -> str | None:
    is_key = isinstance(value, str) and len(value) <= c.MAX_ATTRIBUTE_CHARS and _ATTRIBUTE.fullmatch(value)
    return str(value) if is_key else None


def _value(value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = str(value).strip()
    return text if 0 < len(text) <= c.MAX_VALUE_CHARS else None


def _name(value: Any) -> str | None:
    text = value.strip() if isinstance(value, str) else ""
    return text if 0 < len(text) <= c.MAX_NAME_CHARS else None


def _tag(value: Any) -> str | None:
    is_tag = isinstance(value, str) and len(value) <= c.MAX_TAG_CHARS and _TAG.fullmatch(value)
    return str(value) if is_tag else None


def _distinct(values: Sequence[str | None], limit: int) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if value is not None))[:limit]


def _merged(first: Candidate, second: Candidate) -> Candidate:
    """The first one, with the evidence of both if one voice said both."""
    if first.speaker != second.speaker:
        return first
    evidence = tuple(dict.fromkeys(first.evidence + second.evidence))
    evident = {item.source_id for item in evidence}
    context = dict.fromkeys(first.depends_on + second.depends_on)
    depends_on = tuple(source_id for source_id in context if source_id not in evident)
    return replace(first, evidence=evidence, depends_on=depends_on)


def _schema_reason(error: ValidationError) -> tuple[RejectionReason, str]:
    first = error.errors(include_url=False, include_context=False)[0]
    key = str(first["loc"][0]) if first["loc"] else "memory"
    is_absent = first["type"] == "missing" or first["input"] is None
    if key == "evidence" and is_absent:
        return RejectionReason.MISSING_EVIDENCE, key
    return RejectionReason.MALFORMED, key
