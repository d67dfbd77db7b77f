"""What a statement tells: which words of a question it holds, whether it says more, and of whom it speaks.

Recall mode chooses by it among what the text index finds. The lists are closed classes: courtesies, relatives, and the
few Chinese verbs that go with anything.
"""

import re
from collections.abc import Iterable, Sequence

from pikobot.memory.language.questions import keywords
from pikobot.store.text.irregular_words import other_forms
from pikobot.store.text.segmentation import fold, is_cjk, pairs, pieces

_LONGEST_VOCATIVE = 3  # characters of a Chinese name beside a courtesy
_SHORT_ENDINGS = ("", "s", "es", "ed", "d", "ing", "er")
_LONGEST_ENDING = 3

# What people say to each other without telling anything.
_COURTESY = re.compile(
    "\\b(?:thanks?(?: you)?(?: (?:so|very) much| a lot)?|thx|cheers|hi|hello|hey|(?:good)?bye|"
    "good (?:morning|afternoon|evening|night|luck|job)|see you(?: (?:soon|later|tomorrow|then|there|around))?|"
    "talk (?:to you )?(?:soon|later)|take care|congrat(?:s|ulations)|well done|you(?:'re| are) welcome|no problem|"
    "have a (?:nice|great|good|lovely) (?:day|one|time|weekend|evening|trip)|please|sorry|wow|yes|yeah|yay|ok(?:ay)?|"
    "sure|great|awesome|cool|nice|ha(?:ha)+|lol|oh)\\b|"
    "多?谢谢?|多?謝謝?|感谢|感謝|辛苦了|再见|再見|拜拜|你好|您好|哈喽|早安|晚安|早上好|晚上好|恭喜|加油|不客气|不客氣|"
    "没关系|沒關係|好的|明天见|回头见|太好了|太棒了|是的|真的|哈哈+|嗯+"
)
_CHINESE_PARTICLES = re.compile("[的吗嗎呢吧啊呀哦]")
_OWN = re.compile("^\\s*我[们們]?的")
_DETERMINERS = frozenset("the my our s".split())
# Verbs that go with anything: alone they make two statements no more alike than "do" does.
_LIGHT = frozenset("去吃做买買看有到来來在要想用给給打开開放天大多好人事过過了的得上下个個")

# Each with its other names; a word in several of them ("brother") stands for each.
_RELATIVES: tuple[frozenset[str], ...] = (
    frozenset({"mother", "mum", "mom", "妈妈", "媽媽", "母亲", "母親", "妈"}),
    frozenset({"father", "dad", "爸爸", "父亲", "父親", "爸"}),
    frozenset({"parents", "父母", "爸妈"}),
    frozenset({"brother", "brothers", "哥哥", "我哥"}),
    frozenset({"brother", "brothers", "弟弟", "我弟"}),
    frozenset({"sister", "sisters", "姐姐", "我姐"}),
    frozenset({"sister", "sisters", "妹妹", "我妹"}),
    frozenset({"son", "sons", "儿子", "兒子"}),
    frozenset({"daughter", "daughters", "女儿", "女兒"}),
    frozenset({"wife", "老婆", "妻子", "太太"}),
    frozenset({"husband", "老公", "丈夫"}),
    frozenset({"grandmother", "grandma", "granny", "奶奶"}),
    frozenset({"grandmother", "grandma", "granny", "外婆", "姥姥"}),
    frozenset({"grandfather", "grandpa", "爷爷", "爺爺"}),
    frozenset({"grandfather", "grandpa", "外公", "姥爷"}),
    frozenset({"uncle", "叔叔"}),
    frozenset({"uncle", "舅舅"}),
    frozenset({"aunt", "阿姨"}),
    frozenset({"aunt", "姑姑"}),
    frozenset({"cousin", "cousins", "表哥", "表弟", "表姐", "表妹", "堂哥", "堂弟"}),
    frozenset({"friend", "friends", "朋友"}),
    frozenset({"colleague", "colleagues", "coworker", "同事"}),
    frozenset({"boss", "supervisor", "老板", "老闆", "上司", "领导"}),
    frozenset({"neighbour", "neighbor", "neighbours", "neighbors", "邻居", "鄰居"}),
)
# That an appointment, a number or a place is not what it was.
_CHANGE = re.compile(
    "\\b(?:moved|postponed|rescheduled|changed|cancell?ed|shifted|delayed|instead|called off|put off|no longer|"
    "brought forward|not any ?more|now)\\b|改|取消|推迟|推遲|延[期后後]|提前|换到|換到|挪到|不再|不用去|作废|作廢"
)
# That what was just said was wrong.
_CORRECTION = re.compile(
    "\\s*(?:(?:oh|oops|sorry|wait|hmm|no|well)[,.! —-]+)*(?:actually|correction|no,|i meant?\\b|my mistake|"
    "scratch that|rather,|not .{1,20}, but\\b)|"
    "\\s*(?:[哦啊呃嗯]?[，,]?)(?:其实|其實|更正|纠正|糾正|不对|不對|不是|我?[说說记記写寫]错|我?[說记記]錯|应该是|應該是|准确地?说|我是说)"
)
_TIMES_OF_DAY = re.compile(
    "\\b(?:morning|noon|afternoon|evening|night|o'clock|am|pm|today|tomorrow|date|time)\\b|"
    "[早晚]上|[上中下]午|凌晨|[0-9一二三四五六七八九十]+[点點](?:半|[0-9一二三四五六七八九十]+分)?"
)

_RELATIVE = {
    word: frozenset().union(*(group for group in _RELATIVES if word in group))
    for word in frozenset().union(*_RELATIVES)
}
_CHINESE_RELATIVE = "|".join(sorted(filter(is_cjk, _RELATIVE), key=len, reverse=True))
_ENGLISH_RELATIVE = "|".join(word for word in _RELATIVE if not is_cjk(word))
_ANOTHER = re.compile(f"\\b(?:{_ENGLISH_RELATIVE})\\b|{_CHINESE_RELATIVE}")
_ONESELF = re.compile(
    f"\\bi\\b|\\bmy (?!(?:\\w+ )?(?:{_ENGLISH_RELATIVE})\\b)|"
    f"我(?!(?:[们們]|家)?的?[小大二三]?(?:[哥弟姐妹]|{_CHINESE_RELATIVE}))"
)
_KINDS = [
    re.compile(kind)
    for kind in (
        "\\b(?:my name is|call me|i(?:'m| am) called)\\b|我(?:的?名字|就)?叫|我姓",
        "\\bi(?:'ve| have)?(?: now| just)? (?:live|moved)\\b|\\bi(?:'m| am) living\\b|\\bmy (?:home|address)\\b|"
        "我(?:现在|一直|们)?(?:住|搬)|我家(?:在|住|搬)",
        "\\bi(?:'m| am)?(?: now)? (?:work|working)\\b|\\bmy (?:job|work|employer|company) is\\b|"
        "我[^，。]{0,10}(?:工作|上班|做[^，。]{0,6}(?:经理|师|员|生意))|我的?(?:工作|职业)是",
        "\\b(?:allerg(?:y|ic|ies)|vegetarian|vegan|diabetic|asthma|intolerant)\\b|过敏|過敏|吃素|糖尿",
        "\\bi was born\\b|\\bmy birthday\\b|我(?:的|是)?[^，。]{0,8}(?:生日|出生)",
        f"\\b(?:my|our|i have an?|i have two) (?:\\w+ )?(?:{_ENGLISH_RELATIVE}|kids|children|cat|dog)\\b|"
        f"我(?:们家|家|的)?(?:有|的)?[^，。]{{0,3}}(?:{_CHINESE_RELATIVE}|孩子|小孩|猫|狗)",
        "\\bi(?: really| also)? (?:like|love|hate|prefer|enjoy|dislike)\\b|\\bmy favou?rite\\b|"
        "我[也很最不]?(?:特别|比较|非常)?(?:喜欢|喜歡|爱|愛|讨厌|討厭)",
        "\\b(?:i|my)\\b|我",
    )
]
OTHER_KIND = len(_KINDS) - 1
# What finds such statements in the index.
TELLING_WORDS = (
    "name called live moved work job allergic vegetarian born birthday like love prefer favourite "
    "我叫 我姓 我住 我家 工作 上班 过敏 生日 喜欢 讨厌"
).split()
_ASKS_OF_OWNER = re.compile("\\b(?:i|my|me|mine|myself)\\b|我(?![们們])")


def held(text: str, words: Iterable[str]) -> frozenset[str]:
    """Which of the words a text holds in any form; of a run of Chinese, which of its pairs."""
    folded = fold(text)
    own: list[str] | None = None
    found: set[str] = set()
    for word in words:
        if is_cjk(word):
            found.update(pair for pair in pairs(word) if pair in folded)
            continue
        forms = [form for form in (word, *other_forms(word)) if _stem(form) in folded]
        if forms and own is None:
            own = list(pieces(folded))
        if any(_is_form(piece, form) for piece in own or () for form in forms):
            found.add(word)
    return frozenset(found)


def tells(text: str, words: Sequence[str]) -> bool:
    """Whether a text holds a word of the question itself, not only its speaker or a neighbour, and more than it."""
    return bool(held(text, words)) and says_more(text, words)


def repeats(text: str, words: Sequence[str]) -> bool:
    """Whether a text says all that is asked, and no more: "Ana called" answers whether she did."""
    return _COURTESY.search(fold(text)) is None and held(text, words) == held(" ".join(words), words)


def says_more(text: str, words: Sequence[str] = ()) -> bool:
    """Whether a text says anything beside the words, courtesies and particles."""
    folded = fold(text)
    rest = _COURTESY.sub(" ", folded)
    is_courteous = rest != folded
    rest = _without_stems(rest, held(text, filter(is_cjk, words)))
    named = _CHINESE_PARTICLES.sub(" ", _OWN.sub("", rest))
    left = [piece for piece in pieces(named) if piece not in words and piece not in _DETERMINERS]
    if not is_courteous:
        return bool(left)
    told = keywords(" ".join(left))
    if words or not told:
        return bool(told)
    return len("".join(told)) > _LONGEST_VOCATIVE if is_cjk(told[0]) else len(told) > 1


def holds_most(text: str, words: Sequence[str]) -> bool:
    """Whether a text holds at least half of the words, a run of Chinese as soon as it holds one of its pairs."""
    return 2 * sum(bool(held(text, (word,))) for word in words) >= len(words) > 0


def holds_like(text: str, other: str, words: Sequence[str]) -> bool:
    """Whether a text holds something of each word that the other one holds, and half of all that it holds of them."""
    own, others = held(text, words), held(other, words)
    parts = [held(other, (word,)) for word in words]
    return 2 * len(own & others) >= len(others) and all(part & own for part in parts if part)


def lasting_words(rest: str) -> list[str]:
    """The words of a statement without its times: what it is about, for as long as that is planned."""
    return [
        word for word in keywords(_TIMES_OF_DAY.sub(" ", rest)) if len(word) > 1 and not word[0].isdecimal()
    ]


def changes(text: str) -> bool:
    """Whether a statement tells that something is otherwise than it was."""
    return _CHANGE.search(fold(text)) is not None


def corrects(text: str) -> bool:
    """Whether a statement begins by taking back what was said before it: "Actually …", ``更正：…``."""
    return _CORRECTION.match(fold(text)) is not None


def kind_told(text: str) -> int:
    """Which kind of thing a statement tells about whoever says it, the most telling first; beyond them the rest."""
    folded = fold(text)
    return next((number for number, kind in enumerate(_KINDS) if kind.search(folded)), len(_KINDS))


def identifies(text: str, name: Iterable[str]) -> bool:
    """Whether a text says who the bearer of a name is: "my brother Tom", "Tom is a nurse", ``小美是我的同学``."""
    folded = fold(text)
    return any(
        re.search(
            f"\\b(?:{_ENGLISH_RELATIVE}|my|our) {each}\\b|\\b{each}(?:'s|,| is| was) (?:my|our|an?|the)\\b|"
            f"(?:{_CHINESE_RELATIVE}|我的?){each}|{each}[是，]",
            folded,
        )
        for each in map(re.escape, name)
    )


def is_light(stems: frozenset[str]) -> bool:
    """Whether nothing is held but Chinese characters that go with anything."""
    return all(_LIGHT.issuperset(stem) for stem in stems)


def asks_of_owner(text: str) -> bool:
    """Whether somebody speaks of themself alone: "my", not "our"."""
    return _ASKS_OF_OWNER.search(fold(text)) is not None


def speaks_of_another(text: str) -> bool:
    """Whether a text speaks of a relative, a friend or a colleague, and not of whoever says it."""
    folded = fold(text)
    return _ANOTHER.search(folded) is not None and _ONESELF.search(folded) is None


def relatives_in(text: str) -> list[frozenset[str]]:
    """The relatives that a text names, each with its other names."""
    return list(dict.fromkeys(_RELATIVE[match.group()] for match in _ANOTHER.finditer(fold(text))))


def _without_stems(folded: str, stems: frozenset[str]) -> str:
    """The text without every character that belongs to one of the pairs."""
    covered = [False] * len(folded)
    for stem in stems:
        at = folded.find(stem)
        while at >= 0:
            covered[at : at + len(stem)] = [True] * len(stem)
            at = folded.find(stem, at + 1)
    return "".join(" " if hidden else char for char, hidden in zip(folded, covered, strict=True))


def _is_form(piece: str, word: str) -> bool:
    """Whether a word may be another form of one: the index stems, this only has to tell a neighbour from a match."""
    if len(word) < 4:
        ends = (*_SHORT_ENDINGS, word[-1:] + "ed", word[-1:] + "ing")
        return piece.startswith(word) and piece[len(word) :] in ends
    return piece.startswith(_stem(word)) and len(piece) <= len(word) + _LONGEST_ENDING


def _stem(word: str) -> str:
    return word[: max(3, len(word) - _LONGEST_ENDING)]
