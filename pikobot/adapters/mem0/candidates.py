"""The vocabulary of extraction: what goes in, what may come out, and every reason why something does not.

Rejections, drops and faults name places and reasons, never what anybody said: they may be kept for good.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from pikobot.errors import ProviderError

MAX_EARLIER_TURNS = 10
MAX_KNOWN_FACTS = 10
MAX_ELEMENTS = 200
MAX_TEXT_CHARS = 2_000
MAX_QUOTE_CHARS = 8_000
MAX_NAME_CHARS = 200
MAX_VALUE_CHARS = 1_000
MAX_EVIDENCE = 20
MAX_DEPENDENCIES = 20
MAX_ENTITIES = 32
MAX_TAGS = 8
MAX_TAG_CHARS = 48
MAX_ATTRIBUTE_CHARS = 48

# How models name whom a statement is about, in lower case: the owner, and whoever speaks.
OWNER_WORDS = frozenset(("owner", "the owner", "user", "the user", "用户", "主人"))
FIRST_PERSON = frozenset(("i", "me", "my", "myself", "我", "我自己", "本人"))

Role: TypeAlias = Literal["owner", "assistant", "participant"]


@dataclass(frozen=True)
class SourceTurn:
    """One retained message. ``utc_offset_min`` is that of its speaker when it was said, east positive.

    Of one without a date ``said_at_ms`` only gives its place.
    """

    source_id: str
    role: Role
    speaker: str
    said_at_ms: int
    utc_offset_min: int
    text: str
    is_dated: bool = True


@dataclass(frozen=True)
class KnownFact:
    """A stored fact that the model may link to, and that a candidate may say again."""

    fact_id: str
    text: str
    attributed_to: Role
    subject: str


@dataclass(frozen=True)
class ExtractionBatch:
    """The turns to learn from, and what helps to understand them.

    Facts come from ``turns`` alone, in order of time. ``earlier`` are turns before them, in order of time, of
    which long ones lose their middle; ``known_facts`` are the nearest stored facts, nearest first.
    """

    turns: tuple[SourceTurn, ...]
    earlier: tuple[SourceTurn, ...] = ()
    known_facts: tuple[KnownFact, ...] = ()

    def __post_init__(self) -> None:
        ids = [turn.source_id for turn in (*self.turns, *self.earlier)]
        if not self.turns or len(set(ids)) != len(ids):
            raise ValueError("a batch needs turns, each of them once")
        if len(self.earlier) > MAX_EARLIER_TURNS or len(self.known_facts) > MAX_KNOWN_FACTS:
            raise ValueError(f"at most {MAX_EARLIER_TURNS} earlier turns, {MAX_KNOWN_FACTS} known facts")


class FactKind(StrEnum):
    FACT = "fact"
    PREFERENCE = "preference"
    EVENT = "event"
    PLAN = "plan"
    DECISION = "decision"
    RELATIONSHIP = "relationship"


@dataclass(frozen=True)
class Evidence:
    """A quote that stands byte for byte in its source, at ``[start_byte, end_byte)`` of its UTF-8."""

    source_id: str
    quote: str
    start_byte: int
    end_byte: int


@dataclass(frozen=True)
class Candidate:
    """A statement with proven quotes, all of one speaker; the caller decides whether and how it is stored.

    ``evidence`` belongs together: the text may need all of it. ``depends_on`` are the sources that give it its
    context. ``subject`` is "owner", "assistant" or a name; times are ISO dates, or date-times with an offset.
    ``same_as`` is the known fact that says just this. ``vector`` is None when ``same_as`` is set, without an
    embedder, and after it failed.
    """

    text: str
    subject: str
    attribute: str | None
    value: str | None
    kind: FactKind
    evidence: tuple[Evidence, ...]
    depends_on: tuple[str, ...]
    entities: tuple[str, ...]
    event_time: str | None
    valid_until: str | None
    tags: tuple[str, ...]
    attributed_to: Role
    speaker: str
    linked_fact_ids: tuple[str, ...] = ()
    same_as: str | None = None
    vector: Sequence[float] | None = None


class RejectionReason(StrEnum):
    """Why an element is no candidate."""

    MALFORMED = "malformed"  # a key is missing, or its value has the wrong type
    TOO_LONG = "too_long"
    TOO_MANY = "too_many"  # more elements than a document may have
    MISSING_EVIDENCE = "missing_evidence"
    UNKNOWN_SOURCE = "unknown_source"
    QUOTE_NOT_FOUND = "quote_not_found"
    OLD_EVIDENCE = "old_evidence"  # all quotes are from earlier turns
    ASSISTANT_ONLY_EVIDENCE = "assistant_only_evidence"
    WRONG_SPEAKER = "wrong_speaker"  # the subject did not say what is quoted, and must have
    ATTRIBUTION_CONTRADICTS = "attribution_contradicts"
    UNKNOWN_DEPENDENCY = "unknown_dependency"
    BAD_DATE = "bad_date"
    COPIED = "copied"  # the text of a known fact, of which the sources named hold hardly a word
    DUPLICATE = (
        "duplicate"  # an element before it says the same, and has its evidence if one speaker said both
    )


@dataclass(frozen=True)
class Rejection:
    """``element`` counts from 0 in the answer; ``key`` is where the reason was found."""

    element: int
    reason: RejectionReason
    key: str


@dataclass(frozen=True)
class Dropped:
    """How much was left out of elements that stand nevertheless."""

    unknown_keys: int = 0
    attributes: int = 0
    kinds: int = 0
    entities: int = 0
    tags: int = 0
    links: int = 0
    dates: int = 0

    def __add__(self, other: "Dropped") -> "Dropped":
        sums = {name: getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__}
        return replace(self, **sums)


class DocumentFault(StrEnum):
    """Why an answer is not one document of the contract."""

    EMPTY = "empty"
    NOT_JSON = "not_json"
    PROSE = "prose"  # text before the document
    FENCED = "fenced"
    MORE_AFTER_IT = "more_after_it"  # a second document, or text
    ENDS_EARLY = "ends_early"
    NOT_AN_OBJECT = "not_an_object"
    WRONG_KEYS = "wrong_keys"
    DUPLICATE_KEY = "duplicate_key"
    NOT_A_NUMBER = "not_a_number"  # NaN, Infinity, or a number beyond them
    NUL_CHARACTER = "nul_character"
    LONE_SURROGATE = "lone_surrogate"
    TOO_DEEP = "too_deep"
    TOOL_CALL = "tool_call"


@dataclass(frozen=True)
class Extracted:
    """A valid document with elements. ``embedding_error``: the candidates have no vectors because of it."""

    candidates: tuple[Candidate, ...]
    rejections: tuple[Rejection, ...]
    dropped: Dropped
    calls: int
    embedding_error: ProviderError | None = field(default=None, compare=False)


@dataclass(frozen=True)
class NothingToRemember:
    """A valid document without elements."""

    calls: int


@dataclass(frozen=True)
class Unparsable:
    """Two answers, each with its fault; nothing of either counts."""

    faults: tuple[DocumentFault, ...]
    calls: int


@dataclass(frozen=True)
class Truncated:
    """An answer was longer than the model may write; nothing of it counts."""

    calls: int


@dataclass(frozen=True)
class Refused:
    """The model or its provider declined."""

    calls: int


ExtractionOutcome: TypeAlias = Extracted | NothingToRemember | Unparsable | Truncated | Refused
