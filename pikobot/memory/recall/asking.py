"""What a question asks for beside its words: whose sayings, of whom it speaks, and which names an answer must hold.

A name is what stands for one thing alone: a capitalised English word within the question, a relative ("my brother",
``哥哥``), or what a Chinese question goes to or is with (``搬到柏林``). Where no statement holds a name, none answers.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from pikobot.memory.language.periods import MAX_CHARS_READ
from pikobot.memory.language.questions import keywords
from pikobot.memory.recall.telling import asks_of_owner, held, relatives_in
from pikobot.store.text.segmentation import fold, is_cjk, pieces

OWNER_WORDS = frozenset({"i", "我"})
PIKOBOT_WORDS = frozenset({"you", "pikobot", "你", "您"})
# Who may be anybody: nobody in particular has said nothing.
_ANYBODY = frozenset(
    "anyone anybody everyone everybody someone somebody people others 有人 大家 别人 別人 人家 人们".split()
)

_CAPITALISED = re.compile('(?<=[\\w,;:\'’“"] )["“]?([A-Z][^\\W\\d_]+)')
_TIMES = frozenset(
    """monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december""".split()
)
_CHINESE_OBJECT = re.compile("[到去]([^到去]{2,})")
_LONGEST_WITH_OBJECT = 8  # characters: in a longer question a verb has more beside it than its object
_YES_NO = re.compile(
    "^(?:am|are|can|could|did|do|does|had|has|have|is|may|might|should|was|were|will|would)\\b|"
    "[吗嗎]|有没有|有沒有|是不是|[是能可]否|([会會能要去])不\\1"
)
_OWNED_BY = re.compile(
    "\\b(?!(?:what|who|where|when|how|that|there|here|it|he|she|let)['’])([^\\W\\d_]{3,})['’]s \\w"
)
# Whose name is asked for: 猫 in 我的猫叫什么.
_BEARER = re.compile("(?:的|我家?|我[们們]家?)(?P<thing>[^\\W\\d_的我们們家]{1,4}) ?叫(?=什么|什麼|甚麼|啥)")
_WHO = re.compile("\\bwho(?:'s)?\\b|[谁誰]")
_OWN_PAIR = re.compile("我(?![们們的])[^\\W\\d_]")

_SAY = "(?:say|said|tell|told|mention|mentioned|write|wrote|written|talk|talked)"
_ENGLISH_SAYING = re.compile(
    "\\b(?:did|has|have|had|does|what|everything|anything) "
    "(?P<who>(?!(?:did|has|have|had|does|was|is) )[^?,]{1,40}?)"
    f"(?: has| have| had)?(?: ever| also| just| already)? {_SAY}\\b"
    "(?: to (?:me|us|you)| me| us| you| anything| something)*(?P<about>.*)"
)
_ZH_BESIDE = (
    "(?:都|也|还|還|什么时候|什麼時候|哪天|曾经|曾經|曾|有没有|有沒有|以前|之前|刚才|剛才|最近|具体|具體)*"
)
_CHINESE_SAYING = re.compile(
    f"(?:.{{0,8}}(?:知道|[请請]问|[请請]問|想问|想問|告诉我|告訴我))?(?P<who>[^\\s，,。？?]{{1,12}}?)\\s*{_ZH_BESIDE}(?:[跟和对對向给給](?:我|大家|我们|我們))?{_ZH_BESIDE}"
    "(?:说|說|讲|講|提|聊|谈|談|写|寫|告诉|告訴)(?:过|過|了|到|起)*我?(?P<about>.*)"
)
_CHINESE_LISTENER = re.compile(
    "[跟和对對向给給](?:我们|我們|大家|[我你您])(?=[都也还還]?(?:说|說|讲|講|提|聊|谈|談|写|寫))"
)
# That somebody is said to have said something.
_SAYS = "(?:says?|said|tells?|told|mention(?:s|ed)?|wrote|writes|thinks?|thought|asks?|asked|promised|claim(?:s|ed))"
SAYING_WORDS = ("said", "told", "mentioned", "wrote", "说", "告诉", "提到", "讲")
_CHINESE_OTHER = re.compile("[跟和对對向与與]")


# Two Chinese characters count as a word.
MOST_WORDS_BESIDE_NAME = 5


class Saying(NamedTuple):
    """Who is asked to have said something, folded, and the folded text of what it is about."""

    who: str
    about: str

    @property
    def is_owner(self) -> bool:
        return self.who in OWNER_WORDS

    @property
    def is_pikobot(self) -> bool:
        return self.who in PIKOBOT_WORDS

    @property
    def names_somebody(self) -> bool:
        return not self.is_owner and self.who not in _ANYBODY and bool(keywords(self.who))

    def is_reported_in(self, text: str) -> bool:
        """Whether a text tells that they said something: "Ben said he will come", ``林悦跟我说她有空``."""
        who = re.escape(self.who)
        return bool(
            re.search(
                f"{who}(?:'s \\w+)?,? (?:\\w+ )?{_SAYS}\\b|according to {who}\\b|{who}[^，。,；]{{0,6}}"
                "(?:说|說|讲|講|提到|提过|告诉|告訴|写道|认为|觉得)",
                fold(text),
            )
        )

    def is_by(self, speaker: str) -> bool:
        """Whether a speaker has that name, or is called so among other names."""
        folded = fold(speaker)
        return self.who == folded or set(pieces(self.who)) <= set(pieces(folded))


@dataclass(frozen=True)
class Sought:
    """What an answer should hold: the words; of each name one form; ``is_of_owner``: it is about who asks.

    ``own`` is what a Chinese question says of its writer, with the pronoun: ``我叫`` tells a name from a cat's;
    ``asks_who``: a name is to be told from what its bearer does; ``is_yes_no``: the words alone would be an answer.
    """

    words: tuple[str, ...]
    names: tuple[frozenset[str], ...] = ()
    is_of_owner: bool = False
    own: frozenset[str] = frozenset()
    asks_who: bool = False
    is_yes_no: bool = False

    def names_in(self, text: str) -> int:
        return sum(bool(held(text, name)) for name in self.names)


def read_sought(text: str, words: list[str], period_words: str = "") -> Sought:
    """What a question looks for, given the words of it that are worth searching for.

    Of a long one every statement holds only a part, and which one is about it the rank tells better than a name.
    """
    text = text[:MAX_CHARS_READ]
    is_short = sum(len(word) / 2 if is_cjk(word) else 1 for word in words) <= MOST_WORDS_BESIDE_NAME
    if not is_short:
        return Sought(tuple(words), is_yes_no=is_yes_no(text))
    relatives = relatives_in(text)
    named = [frozenset({word}) for word in _names(text, period_words)]
    folded = fold(text)
    return Sought(
        tuple(words),
        tuple(dict.fromkeys([*relatives, *named])),
        is_of_owner=asks_of_owner(text) and not relatives,
        own=frozenset(_OWN_PAIR.findall(folded)),
        asks_who=_WHO.search(folded) is not None,
        is_yes_no=is_yes_no(text),
    )


def is_yes_no(text: str) -> bool:
    """Whether a question can be answered with yes or no."""
    return _YES_NO.search(fold(text[:MAX_CHARS_READ].strip())) is not None


def read_plainly(text: str) -> str:
    """A question as it is to be searched for, with a bearer apart from its name: ``我的猫 叫什么``.

    It has no words for the one of the two who talk to whom it was said: ``林悦跟我说了什么``.
    """
    plain = _CHINESE_LISTENER.sub("", text[:MAX_CHARS_READ])
    return _BEARER.sub(lambda match: f"{match.group()[:-1].rstrip()} 叫", plain)


def read_saying(rest: str) -> Saying | None:
    """Whose sayings a question asks for, given its folded text without its period; None when for nobody's."""
    flat = " ".join(rest[:MAX_CHARS_READ].split())
    if (asked := _ENGLISH_SAYING.search(flat)) is not None:
        return Saying(asked["who"].strip(), asked["about"])
    if (asked := _CHINESE_SAYING.search(flat)) is not None:
        return Saying(_CHINESE_OTHER.split(asked["who"])[0].strip(), asked["about"])
    return None


def _names(text: str, period_words: str) -> list[str]:
    passed = _TIMES | set(pieces(period_words))
    words = [fold(match) for match in _CAPITALISED.findall(text)] + _OWNED_BY.findall(fold(text))
    words += [match["thing"] for match in _BEARER.finditer(text)]
    found = [word for word in words if word not in passed and keywords(word) and not relatives_in(word)]
    for run in keywords(text):
        if is_cjk(run) and run not in period_words and len(run) <= _LONGEST_WITH_OBJECT:
            found += _CHINESE_OBJECT.findall(run)
    return list(dict.fromkeys(found))
