"""Telling questions from statements, and the words of a question that are worth searching for; English, Chinese.

Used where no model is at hand. The lists are closed classes (pronouns, auxiliaries, particles, interrogatives):
dropping them can't drop a name or a thing.
"""

import re
from typing import Literal

from pikobot.store.segmentation import is_cjk, pieces

Language = Literal["en", "zh"]

_QUESTION_MARKS = ("?", "？")
_AUXILIARIES = frozenset(
    "am are can could did do does had has have is may might should was were will would".split()
)
_INTERROGATIVES = frozenset("how what when where which who whom whose why".split())
_AFTER_INTERROGATIVE = _AUXILIARIES | frozenset(
    "about color colour far kind long many much often old s time".split()
)
_AFTER_AUXILIARY = frozenset(
    "anyone he i it my our she someone that the there these they this those we you".split()
)
_REQUESTS = frozenset("find list search show tell".split())
_CHINESE_MARKERS = re.compile(
    "[吗呢么]|什么|甚麼|什麼|哪|谁|誰|几|幾|多少|多久|多大|怎|为何|為何|是否|能否|可否|有没有|有沒有|是不是|"
    "告诉我|告訴我|提醒我|查一下|查查|找一下|找找|搜一下|搜索|列出"
)
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
    "[我你您他她它的了吗呢么吧啊呀嘛是谁誰哪几幾]"
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
    if first in _REQUESTS:
        return True
    if first in _INTERROGATIVES and (second in _AFTER_INTERROGATIVE or first in ("who", "which", "whose")):
        return True
    if first in _AUXILIARIES and second in _AFTER_AUXILIARY:
        return True
    return language_of(text) == "zh" and bool(_CHINESE_MARKERS.search(text))


def is_only_question(text: str) -> bool:
    """Whether the text asks and states nothing: one sentence, a question."""
    sentences = [part for part in re.split(r"(?<=[.!?。！？])\s*", text.strip()) if part.strip()]
    return len(sentences) <= 1 and is_question(text)


def keywords(text: str) -> list[str]:
    """The words of a question without its function words, in order; CJK words stay runs of characters."""
    found: list[str] = []
    for piece in pieces(text):
        if is_cjk(piece):
            found += [run for run in _CHINESE_FUNCTION_WORDS.sub(" ", piece).split() if run]
        elif piece not in _FUNCTION_WORDS:
            found.append(piece)
    return list(dict.fromkeys(found))
