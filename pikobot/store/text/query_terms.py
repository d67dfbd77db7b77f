"""From a question to the terms that are worth ranking by.

Words of pure grammar are left out: in a question they match nearly everything and push the answer down. A
query of nothing else keeps them all, so no query loses its meaning. Rankings OR the terms; pairs of a CJK
run stand for themselves, because a phrase of a whole Chinese question would match nothing.

Figures, recall@10 of LoCoMo categories 1-4 and hit@10 of LifeBench-zh: all terms 0.723 and 0.847; English
function words dropped 0.749; Chinese pairs with a function character dropped 0.853. A limit on document
frequency instead of the lists (2 % to 50 % of all sources) lost 0.03 to 0.1 and 0.03 to 0.08; phrases of
three or four Chinese characters beside the pairs lost 0.04 to 0.07; dropping numbers, such as years, lost
0.015 in Chinese. With the other forms of irregular words 0.747 of 0.745; those of the -ing and -s forms as well,
which are often nouns (building, dreams), lost 0.002.
"""

from collections.abc import Sequence

from pikobot.store.text.irregular_words import other_forms
from pikobot.store.text.segmentation import fold, is_cjk, pairs, pieces

FUNCTION_WORDS = frozenset(
    """
    a an the and or but if of to in on at by for with about as from into is are was were be been being am do
    does did doing have has had having will would can could should may might i me my we us our you your he
    him his she her it its they them their this that these those what which who whom whose when where why how
    not no so than too very s t d ll m re ve """.split()
)
# Of 的了吗呢吧是在和与 and the characters that question words are made of; in a run of two they may be a
# word.
FUNCTION_CHARACTERS = frozenset("的了吗呢吧是在和与什么怎哪")
# A character alone between other words is a word, unless it is one of these or counts what the number before it says.
LONE_FUNCTION_CHARACTERS = FUNCTION_CHARACTERS | frozenset(
    "我你您他她它们們这這那谁誰几幾嗎啊呀嘛也都就还還很又到从從把被对對给給上下里裡與"
    "年月日号號点點时時分岁歲周週个個次"
)
LONGEST_PLAIN_RUN = 2


def question_terms(text: str) -> list[str]:
    """Return the distinct terms of a question in order: folded words, CJK pairs, or lone CJK characters."""
    every: list[str] = []
    telling: list[str] = []
    for piece in pieces(text):
        if not is_cjk(piece):
            every.append(piece)
            telling += [] if piece in FUNCTION_WORDS else [piece]
            continue
        run = pairs(piece)
        every += run
        telling += [part for part in run if _is_telling(part, piece)]
    return list(dict.fromkeys(telling or every))


def widened(terms: Sequence[str]) -> list[str]:
    """The terms, and then the other forms of those that are irregular: who asks for ``lose`` means ``lost`` too."""
    return list(dict.fromkeys([*terms, *(form for term in terms for form in other_forms(term))]))


class NamedSpeakers:
    """Tells which speakers a question names: by a whole word, or by a CJK name anywhere in its text."""

    def __init__(self, question: str) -> None:
        self._text = fold(question)
        self._words = frozenset(pieces(question)) - FUNCTION_WORDS
        self._known: dict[str, bool] = {}

    def include(self, speaker: str) -> bool:
        if speaker not in self._known:
            self._known[speaker] = any(self._has(part) for part in pieces(speaker))
        return self._known[speaker]

    def _has(self, part: str) -> bool:
        return len(part) > 1 and (part in self._words or (is_cjk(part) and part in self._text))


def _is_telling(part: str, run: str) -> bool:
    """Whether a pair of a CJK run, or the one character that a run is, is worth ranking by."""
    if len(run) == 1:
        return part not in LONE_FUNCTION_CHARACTERS
    return len(run) <= LONGEST_PLAIN_RUN or FUNCTION_CHARACTERS.isdisjoint(part)
