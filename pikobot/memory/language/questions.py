"""Telling questions from statements, and the words of a question that are worth searching for; English, Chinese.

Used where no model is at hand. The lists are closed classes (pronouns, auxiliaries, particles, interrogatives):
dropping them can't drop a name or a thing. What might be either is a statement: a statement taken for a question
is never quoted again, a question taken for a statement is only noted.
"""

import re
from typing import Literal

from pikobot.store.text.segmentation import fold, is_cjk, pieces

MAX_BARE_CHARS = 24
Language = Literal["en", "zh"]

_QUESTION_MARKS = ("?", "？")
_AUXILIARIES = frozenset(
    "am are can could did do does had has have is may might should was were will would".split()
)
_INTERROGATIVES = frozenset("how what when where which who whom whose why".split())
_AFTER_INTERROGATIVE = _AUXILIARIES | frozenset(
    "about color colour far happened happens kind long many much often old s time".split()
)
_AFTER_AUXILIARY = frozenset(
    "anyone he i it my our she someone that the there these they this those we you".split()
)
# A diary leaves out its subject: "had the flu", "did my taxes", "was the best man". Only a person makes it a question.
_DIARY_AUXILIARIES = frozenset("did do had has have may might was were".split())
_PERSONS = frozenset("anyone he i she there they we you".split())
_REQUESTS = frozenset("find list search show tell".split())
_AFTER_REQUEST = frozenset("all any every everything for me my our us".split())
_CHINESE_REQUEST = re.compile(
    "[请請]?你?(?:麻烦|麻煩)?(?:[帮幫给給]我)?"
    "(?:告诉我|告訴我|查一下|查查|查找|找一下|找找|搜一下|搜索|列出|回忆一下|回憶一下)|"
    "[请請](?:具体|具體|完整|简要|簡要|详细|詳細|分别|分別|至少)*(?:说明|說明|列出|列举|列舉|回答|描述|指出|总结|總結)"
)
_CHINESE_INTERROGATIVES = re.compile(
    "(?<![没沒])(?:什么|啥|什麼|甚麼)(?![都也的])|(?<![没沒])[谁誰](?![都也])|哪(?!(?:里|裡|儿|兒|个|個)?[怕都也])|"
    "(?<![十百千万萬好前])[几幾](?:点|點|号|號|月|岁|歲|时|時)|(?<![没沒])多少(?!有)|(?<![没沒不])多久|多大|多远|多遠|"
    "(?<!不)怎[么麼样樣](?![都也])|[为為]何|何[时時地]|[是能可]否|有没有|有沒有|是不是|[会會]不[会會]|能不能|可不可以|要不要"
)
_CHINESE_PARTICLES = re.compile("[吗嗎]$|(?<![这這那多要])[么麼]$|^(?!.*[还還正才着著没沒]).*呢$")
_CHINESE_INDEFINITE = re.compile("不管|无论|無論|不论|不論|不知道")
_SENTENCE_END = re.compile("(?<=[.!?。！？])\\s*|\n+")
# A clause before a question that tells something by itself: "我上周搬家了，护照在哪里？", not "三月搬家之后，我…".
_CHINESE_TOLD = re.compile(
    "[了过過]$|^(?:我|我们|我們|咱们|咱們)(?!.*(?:[时時后後前中里裡]|期间|期間|以来|以來)$)"
)
_LONGEST_CHINESE_PREAMBLE = 5  # characters: "我想问一下，" before a question states nothing
_FUNCTION_WORDS = frozenset(
    """a about am an and any are as at be been but by can could did do does find for from get give go had has
    have he her hers him his how i if in into is it its just list me might mine my of on or our ours remind
    say said search shall she should show so some tell than that the their theirs them then there these they
    this those to us was we were what when where which who whom whose why will with would you your yours s t
    d m ll re ve""".split()
)
_CHINESE_FUNCTION_WORDS = re.compile(
    "什么时候|什麼時候|为什么|為什麼|是不是|有没有|有沒有|告诉我|告訴我|提醒我|查一下|找一下|搜一下|怎么样|怎麼樣|"
    "哪里|哪裡|哪儿|哪兒|哪个|哪個|哪些|什么|什麼|甚麼|怎么|怎麼|怎样|怎樣|多少|多久|多大|几点|幾點|几号|幾號|是否|能否|"
    "我们|我們|你们|你們|他们|他們|她们|她們|自己|这个|這個|那个|那個|请问|請問|"
    "[我你您他她它的了吗嗎呢么麼吧啊呀嘛是谁誰哪几幾]"
)

_DETERMINERS = frozenset("the my our your his her its their s".split())
_LONGEST_CHINESE_THING = 2  # characters: three may be a sentence
_FOLLOWING = re.compile(
    "(?:and(?: what about)?|what about|how about) [^?]{2,40}\\?|(?:那|那么|那麼).{1,12}呢[?？]?"
)
_RECALLING = re.compile(
    "(?:please |can you |could you )*remind me (?:again )?(?:how|what|when|where|which|who|whose|why)\\b|"
    "i(?: would like|'d like| want) to (?:know|hear|see) (?:how|what|when|where|which|who|whose|why)\\b|"
    "(?:please |can you |could you |help me )+(?:to )?(?:find|look up|look for|search for)\\b"
)
_CHINESE_OF = re.compile("^我[们們]?的|(?<=[^\\W\\d_])的(?=[^\\W\\d_])")

# Words that only ask, where they stand so, and are about something elsewhere: "what kind of art", "kind words".
_ASKING_PHRASES = re.compile(
    "\\b(?:what|which)(?: (?:other|different|specific))? (?:kind|sort|type)s? of\\b|"
    "\\bhow (?:many|much|long|often|far|old|big|come)\\b"
)

# What a question about a time has beside the time, when it is about nothing in particular.
_DOINGS = frozenset(
    """anything calendar coming day days doing done event events everything going gone happen happened happening happens
    made make making mention mentioned note noted occasion plan planned plans schedule scheduled something special talk
    talked talking thing things told up upcoming went write writing written wrote""".split()
)
_CHINESE_DOINGS = re.compile(
    "(?:[发發]生|告[诉訴]|事情|事儿|提到|[记記][录錄]|安排|日程|行程|计划|計劃|打算|日子|节日|節日|活动|活動|特别|特別|"
    "[说説讲講聊谈談提写寫记記做干幹去过過到些都有在忙事要该該会會想天那])+"
)


def language_of(text: str) -> Language:
    """Chinese when any CJK character occurs, else English."""
    return "zh" if any(is_cjk(piece) for piece in pieces(text)) else "en"


def is_question(text: str) -> bool:
    """Whether somebody asks something, or asks for something to be looked up, rather than states it."""
    stripped = text.strip().rstrip("\"'”’」』)） ")
    if stripped.endswith(_QUESTION_MARKS):
        return True
    first, second = ([*pieces(text), "", ""])[:2]
    if first in _REQUESTS and second in _AFTER_REQUEST:
        return True
    if first in _INTERROGATIVES and (second in _AFTER_INTERROGATIVE or first in ("who", "which", "whose")):
        return True
    if first in _AUXILIARIES and second in (_PERSONS if first in _DIARY_AUXILIARIES else _AFTER_AUXILIARY):
        return True
    return language_of(text) == "zh" and _is_chinese_question(stripped)


def is_only_question(text: str) -> bool:
    """Whether the text asks and states nothing: every sentence is a question."""
    sentences = [part for part in _SENTENCE_END.split(text.strip()) if any(map(str.isalnum, part))]
    return bool(sentences) and all(_states_nothing(sentence) for sentence in sentences)


def is_request_for_answer(text: str) -> bool:
    """Whether a text that somebody puts to pikobot only asks; what surrounds a question in it names what is meant.

    Wider than `is_only_question`, for nothing is lost when such a text is not quoted: "三月在海口，我去了哪些地方？".
    """
    sentences = [part for part in _SENTENCE_END.split(text.strip()) if any(map(str.isalnum, part))]
    return bool(sentences) and all(map(_only_asks, sentences))


def _only_asks(sentence: str) -> bool:
    *before, last = [part.strip() for part in sentence.split("，")]
    return is_question(last) and not any(
        _CHINESE_TOLD.search(part) and not is_question(part) for part in before
    )


def _states_nothing(sentence: str) -> bool:
    *before, last = [part.strip() for part in sentence.split("，")]
    return is_question(last) and not any(
        len(part) > _LONGEST_CHINESE_PREAMBLE and not is_question(part) for part in before
    )


def _is_chinese_question(text: str) -> bool:
    sentence = text.rstrip("。.!！~～… ")
    if _CHINESE_INDEFINITE.search(sentence):
        return False
    return any(
        (
            _CHINESE_REQUEST.match(sentence),
            _CHINESE_INTERROGATIVES.search(sentence),
            _CHINESE_PARTICLES.search(sentence),
        )
    )


def is_bare(text: str) -> bool:
    """Whether the text is no sentence but a few words, such as somebody types to look something up.

    What names one thing of another counts: "my plumber's phone", ``水管工的电话``.
    """
    if len(text.strip()) > MAX_BARE_CHARS:
        return False
    named = _CHINESE_OF.sub(" ", fold(text.strip()))
    words = [piece for piece in pieces(named) if piece not in _DETERMINERS]
    return words == keywords(text) != []


def is_lookup(text: str) -> bool:
    """Whether the text only names a thing, and tells nothing of it: "my boss", "cat", ``水管工的电话``."""
    if not is_bare(text):
        return False
    words = list(pieces(text))
    if language_of(text) == "zh":
        return "的" in text or len("".join(words)) <= _LONGEST_CHINESE_THING
    return len(words) == 1 or not _DETERMINERS.isdisjoint(words)


def is_follow_up(text: str) -> bool:
    """Whether a question leaves its subject to the one before: "and the phone?", ``那电话呢？``."""
    return _FOLLOWING.fullmatch(fold(text.strip())) is not None


def asks_to_recall(text: str) -> bool:
    """Whether somebody tells pikobot to look for something, in words that may also begin a note."""
    return _RECALLING.match(fold(text.strip())) is not None


def subject_words(text: str) -> list[str]:
    """The keywords without those that only ask what was said or done."""
    found: list[str] = []
    for word in keywords(text):
        if is_cjk(word):
            found += [] if _CHINESE_DOINGS.fullmatch(word) else [word]
        elif word not in _DOINGS:
            found.append(word)
    return list(dict.fromkeys(found))


def keywords(text: str) -> list[str]:
    """The words of a question without its function words, in order; CJK words stay runs of characters."""
    found: list[str] = []
    for piece in pieces(_ASKING_PHRASES.sub(" ", fold(text))):
        if is_cjk(piece):
            found += [run for run in _CHINESE_FUNCTION_WORDS.sub(" ", piece).split() if run]
        elif piece not in _FUNCTION_WORDS:
            found.append(piece)
    return list(dict.fromkeys(found))
