"""Requests to forget in the owner's own words, in English and Chinese. Pure; nothing is erased on its account.

`asks_to_forget` is the wide gate before a model may propose to forget: whether the message itself tells somebody to.
What is quoted, denied, told about the past or asked about does not. `read_request` is narrow: only a message that is
nothing but a request is one, and only of a form whose object can be told; no model is asked about it. Where there is
none, it takes a short object that nothing marks as one for words as well ("delete Melanie"). Between them
`means_to_forget` knows a message that can be nothing else than a request, whatever its object: it states nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from pikobot.memory.periods import Period, find_period
from pikobot.memory.questions import keywords
from pikobot.store.segmentation import fold

MAX_REQUEST_CHARS = 400
ANY_DAY = date(2000, 1, 1)  # for who wants to know only whether a period is named
MAX_BARE_WORDS = (
    3  # of an object that nothing marks as one: "forget Melanie", but "forget Paris is a film" tells
)


@dataclass(frozen=True)
class ForgetRequest:
    """What is asked for: one of this conversation, its last exchange, everything, a period, or all of some words.

    With a period the words are looked for in what was said in it; ``owner_only``: by the owner.
    """

    this_thread: bool = False
    last_exchange: bool = False
    everything: bool = False
    period: Period | None = None
    owner_only: bool = False
    words: tuple[str, ...] = ()


_QUOTED = re.compile(
    "```.*?```|“[^”]*”|‘[^’]*’|「[^」]*」|『[^』]*』|《[^》]*》|\"[^\"\n]*\"|(?<!\\w)'[^'\n]*'(?!\\w)|^[ \t]*>.*$",
    re.DOTALL | re.MULTILINE,
)
_SENTENCE_END = re.compile("[.!?。！？;；\n]+")
_CLAUSE_END = re.compile("[,，、]+")
_COURTESY = re.compile(
    "(?:hi|hey|hello|ok|okay|please|pls|thanks|thank you|many thanks|谢谢|謝謝|麻烦了|你好|好吗|拜托)?(?: *pikobot)?"
)

_MIND = re.compile("^(?:please )?(?:would|do) you mind (forget|delet|remov|eras)t?ing\\b")
_BASE = {"delet": "delete", "remov": "remove", "eras": "erase", "forget": "forget"}
_STOP = re.compile(
    "^((?:please |pikobot |can you |could you )*)stop (?:remember|keep|stor)ing\\b|"
    "^(please )(?:do not|don't|no longer) (?:remember|keep|store)\\b"
)
_CHINESE_STOP = re.compile(
    "(?P<polite>(?:请|請|你|麻烦|麻煩)*)(?:别|別|不要)(?P<again>再)?(?:记得|記得|记着|記著|记住|記住)"
    "(?P<object>.+?)(?P<end>了)?吧?"
)

_VERB = "(?:forget|erase|delete|remove|wipe|purge|clear|scrub|unlearn)"
_BEFORE_VERB = (
    "(?:please|pls|kindly|just|and|then|now|also|ok|okay|so|pikobot|go ahead and|you|to|you to|should|must|let's|lets|"
    "all|completely|permanently)"
)
_ENGLISH_REQUEST = re.compile(f"(?:^|^(?:hey |hi )?pikobot: *|{_BEFORE_VERB}\\s+){_VERB}\\b(?!-|\\s+to\\b)")
_NOT_A_REQUEST = re.compile(
    "^(?:how|what|why|when|where|who|which|does|did|do|is|are|was|were|has|have|had|if)\\b|"
    "\\b(?:don't|dont|do not|never|not|won't|can't|cannot|didn't|doesn't|without)\\s+(?:ever\\s+|you\\s+|just\\s+)*"
    f"{_VERB}\\b|"
    "\\b(?:i|we|he|she|they|people|who)\\s+(?:\\w+ly\\s+|always\\s+|often\\s+|just\\s+|tend to\\s+|want to\\s+)*"
    f"{_VERB}\\b"
)
_CHINESE_VERB = "(?:忘记|忘記|忘掉|忘了|遗忘|遺忘|删除|刪除|删掉|刪掉|删了|抹掉|抹去|清除|清空|擦除|移除)"
_CHINESE_REQUEST = re.compile(
    "^(?:请|請|麻烦|麻煩|帮我|幫我|帮忙|你好|你|您|现在|現在|那|就|再|也|都|全部|全|彻底|永久|给我|給我|助手|"
    "我要|我想|我希望|希望|让|讓|能不能|可不可以|可以|可否|能否|能|好|行|吧|pikobot|一下|马上|立刻|把.*|将.*|將.*|[:\\s])*"
    + _CHINESE_VERB
)
_CHINESE_NOT = re.compile(
    "(?<![能可])[别別莫勿未没沒不](?:要|会|會|能|可|想|准|许)?(?:再)?(?:把.*)?"
    + _CHINESE_VERB
    + "|^(?!.*[能可]).*了[吗嗎]$"
)


_EXCEPTION = re.compile(
    "\\b(?:except|excluding|apart from|aside from|other than|besides|but (?:not|keep|for|only))\\b|"
    "\\b(?:everything|everyone|everybody|anything|all)(?: [^ ]+){0,6} but\\b"
    "|除了|除.+外|以外|之外|[但只]保留"
)


def asks_to_forget(text: str) -> bool:
    """Whether the message, apart from what it quotes, tells somebody to forget or delete something."""
    return any(map(_is_request, _sentences(_QUOTED.sub(" ", text))))


def read_request(text: str, today: date, *, is_alone: bool = False) -> ForgetRequest | None:
    """What a message asks to forget when it asks for nothing else, and that can be told; otherwise None.

    ``is_alone``: there is no model that could tell more.
    """
    sentences = [each for each in _sentences(text[: MAX_REQUEST_CHARS + 1]) if not _COURTESY.fullmatch(each)]
    if len(text) > MAX_REQUEST_CHARS or len(sentences) != 1 or not _is_request(sentences[0]):
        return None
    asked = sentences[0]
    if _EXCEPTION.search(asked):
        return None  # what is to be kept is no word to look for
    request = _read_english(asked, today) or _read_chinese(asked, today)
    if request is None and is_alone:
        return _bare_english(asked) or _bare_chinese(asked)
    return request


def means_to_forget(text: str) -> bool:
    """Whether a message is nothing but a request to forget, of whatever, and so states nothing."""
    if len(text) > MAX_REQUEST_CHARS or not asks_to_forget(text):
        return False
    sentences = [each for each in _sentences(text) if not _COURTESY.fullmatch(each)]
    return all(_is_request(each) and (_is_meant(each) or _is_chinese_meant(each)) for each in sentences)


def _sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE_END.split(fold(text).replace("’", "'")):
        if part.strip():
            yield _in_plain_verbs(part.strip())


def _in_plain_verbs(sentence: str) -> str:
    """The sentence with the verbs that are looked for, where it asks by other ones."""
    sentence = _MIND.sub(lambda mind: f"please {_BASE[mind[1]]}", sentence)
    sentence = _STOP.sub(lambda stop: f"{stop[1] or stop[2] or ''}forget", sentence)
    sentence = sentence.replace("get rid of", "remove")
    stop = _CHINESE_STOP.fullmatch(sentence)
    if stop and (stop["polite"] or stop["again"] or stop["end"] or _ZH_MARKED.match(stop["object"])):
        return f"请忘记{stop['object']}"
    return sentence


def _is_request(sentence: str) -> bool:
    clauses = [clause.strip() for clause in _CLAUSE_END.split(sentence)]
    for position, clause in enumerate(clauses):
        is_asked_about = _NOT_A_REQUEST.search(clause if position else sentence)
        if _ENGLISH_REQUEST.search(clause) and not is_asked_about:
            return True
        if _CHINESE_REQUEST.search(clause) and not _CHINESE_NOT.search(clause):
            return True
    return False


# English -------------------------------------------------------------------------------------------

_POLITE = re.compile(
    "^(?:(?:hey|hi|ok|okay|pikobot|please|pls|kindly|now|just|go ahead and|can you|could you|would you|will you|"
    "you can|you should|you must|i want you to|i'd like you to|i would like you to|i need you to|completely|"
    "permanently)[ ,:]+)*"
)
_ENDING = re.compile(
    "[ ,]+(?:please|pls|thanks|thank you|for good|forever|permanently|completely|again|now|ok|okay|"
    "from (?:your |my |the )?(?:memory|records|database|notes))$"
)
_IDIOM = frozenset(
    {
        "it",
        "that",
        "about it",
        "about that",
        "me",
        "me not",
        "you",
        "this",
        "them",
        "all that",
        "those",
        "these",
    }
)
_THREAD = re.compile(
    "(?:this|the|our|the whole|this whole|this entire|the entire|the current) "
    "(?:conversation|chat|thread|discussion|dialogue)(?: history)?"
)
_LAST = re.compile(
    "(?:what|everything) i(?: have|'ve)? just (?:said|told you|wrote|asked)|"
    "(?:the|my|that|our) (?:last|previous) (?:message|messages|exchange|thing|question|answer|statement)(?: i said)?|"
    "that last (?:message|bit|thing|part)|this message"
)
_EVERYTHING = re.compile(
    "everything|all|all of it|it all|everything (?:about me|you know|you remember|you(?:'ve| have) (?:learned|stored))"
    "(?: about me)?|"
    "(?:everything|all|all that) (?:i|we)(?:'ve| have)?(?: ever)? (?:said|told you|talked about|discussed)|"
    "(?:all|all of) (?:my|your|our|the) (?:data|memory|memories|messages|conversations|chats)|"
    "your (?:whole |entire )?memory|my data"
)
_SAID_THEN = re.compile(
    "(?:everything|anything|all|what|whatever|all that|all of)?\\s*"
    "(?:(?:the|my|our|all|all the|all my|all our|all of our) )?"
    "(?:messages|conversations?|chats?|discussions?|notes)?\\s*"
    "(?P<who>i|we)?(?:'ve| have)?\\s*(?:ever )?(?:said|told you|wrote|talked about|talked|discussed|mentioned|had)?"
    "(?: to you)?(?: from| in| on| during| of| since| between| about)?(?: the)?"
)
# That something was said then: of "my trip to Porto last year" it is not.
_SAID_ABOUT = re.compile(
    "(?P<said>(?:.* )?(?:said|told you|wrote|talked|discussed|mentioned|messages|conversations?|chats?|discussions?|"
    "notes)(?: to you)?) (?:about|on|regarding|concerning|of) (?P<topic>.+)"
)
_ABOUT = re.compile(
    "(?:(?:everything|all|anything|whatever|what)\\s*(?:that )?(?:(?:you|i|we)(?: have|'ve)? "
    "(?:know|knew|learned|remember|said|told you|mentioned|stored)\\s*)?(?:to you )?)?"
    "(?:about|on|regarding|concerning|of) (?P<topic>.+)"
)
_MARKED = re.compile("(?:that|my|our|the|his|her|their|this|these|those|what|whatever) (?P<topic>.+)")
_MEMORIES = re.compile(
    "(?:all |the |your |my |any |every )*(?:memory|memories|notes?|facts?|records?|messages?|statements?)"
    "(?: (?:about|of|on|that|where|in which) (?P<topic>.+))"
)
_THING = re.compile(
    "(?:all |the |that |those |any )*(?:thing|things|stuff|bit|part|sentence|line|info|information|data|details)"
    " about (?P<topic>.+)"
)
_MY = re.compile(
    "my (?P<topic>(?:(?!from|on|in|with|off|at|to|for|by|and|or|then|before|after)[^ ,]+ ?){1,5})"
)
_OF_MEMORY = frozenset({"forget", "delete", "erase", "remove", "unlearn"})  # "clear my desk" may be a note
_MEANT_VERBS = frozenset({"delete", "erase", "unlearn"})
_MEANT_OBJECT = re.compile("(?:my|everything|all|what (?:i|you|we)|anything|whatever (?:i|you)) ?.*")


_ARTICLE = re.compile("^(?:the|that|this|a|an|any) ")
_NAMES_NOTHING = frozenset(
    "it that this these those them they he she him her me you us one ones all any some each both everything "
    "anything nothing everyone anyone something stuff thing things more less half most rest other others only just "
    "not but and or nor if unless without with from in on at to than then when what who whom which where why how "
    "before after until since last first previous next recent latest old new again is are was were be been being "
    "has have had do does did can could will would should may might must".split()
)
_ASKED = re.compile(f"(?P<verb>{_VERB})(?:\\s+(?P<object>.+))?")


def _is_meant(sentence: str) -> bool:
    """With these verbs a note may begin too: "Remove the stains with vinegar"."""
    rest = _POLITE.sub("", sentence).strip()
    asked = _ASKED.fullmatch(rest)
    if asked is None:
        return False
    named = _without_ending(asked["object"] or "")
    return (
        rest != sentence
        or asked["verb"] in _MEANT_VERBS
        or not named
        or named in _IDIOM
        or (asked["verb"] in _OF_MEMORY and _MEANT_OBJECT.fullmatch(named) is not None)
        or _read_english(sentence, ANY_DAY) is not None
    )


def _read_english(sentence: str, today: date) -> ForgetRequest | None:
    asked = _ASKED.fullmatch(_POLITE.sub("", sentence.strip()).strip())
    if asked is None or asked["object"] is None:
        return None
    named = _without_ending(asked["object"])
    if named in _IDIOM:
        return None
    if _THREAD.fullmatch(named):
        return ForgetRequest(this_thread=True)
    if _LAST.fullmatch(named):
        return ForgetRequest(last_exchange=True)
    if _EVERYTHING.fullmatch(named):
        return ForgetRequest(everything=True)
    return _english_period(named, today) or _english_topic(asked["verb"], named)


def _bare_english(sentence: str) -> ForgetRequest | None:
    """Of a verb that a note does not begin with, or asked politely: an object of few words, all of which name it."""
    asked = _ASKED.fullmatch(_POLITE.sub("", sentence.strip()).strip())
    if asked is None or asked["verb"] not in _OF_MEMORY or not _is_meant(sentence):
        return None
    named = _ARTICLE.sub("", _without_ending(asked["object"] or ""))
    words = named.split()
    is_name = 0 < len(words) <= MAX_BARE_WORDS and not _NAMES_NOTHING.intersection(words)
    return _about(named) if is_name else None


def _without_ending(named: str) -> str:
    named = named.strip()
    while (shorter := _ENDING.sub("", named)) != named:
        named = shorter
    return named


def _english_period(named: str, today: date) -> ForgetRequest | None:
    understood = find_period(named, today)
    if understood is None:
        return None
    rest = " ".join(understood.rest.split())
    if (said := _SAID_THEN.fullmatch(rest)) is not None:
        return ForgetRequest(period=understood.period, owner_only=said["who"] == "i")
    about = _SAID_ABOUT.fullmatch(rest)
    said = None if about is None else _SAID_THEN.fullmatch(about["said"])
    if about is None or said is None:
        return None
    return _about(about["topic"], period=understood.period, owner_only=said["who"] == "i")


def _english_topic(verb: str, named: str) -> ForgetRequest | None:
    found = _ABOUT.fullmatch(named) or _MEMORIES.fullmatch(named) or _THING.fullmatch(named)
    if found is None and verb != "forget" and verb in _OF_MEMORY:
        found = _MY.fullmatch(named)
    if found is None and verb == "forget":
        found = _MARKED.fullmatch(named)
        if found is None and len(named.split()) <= MAX_BARE_WORDS:
            return _about(named)
    return None if found is None else _about(found["topic"])


# Chinese -------------------------------------------------------------------------------------------

_CHINESE_POLITE = re.compile(
    "^(?P<polite>(?:请|請|麻烦|麻煩|帮我|幫我|帮忙|你好|你|您|现在|現在|能不能|可不可以|可以|可否|能否|能|给我|給我|助手|pikobot|"
    "我要|我想|我希望|希望|让|讓|[ ,:，])*)"
)
_ADVERB = "(?:都|全都|全部|全|统统|統統|彻底|徹底|永久|永远|给我|給我|从记忆中|从记忆里|马上|立刻)*"
_PARTICLE = "(?P<end>了|掉|吧|啊|呀|哦|哟|嘛|好吗|好嗎|可以吗|可以嗎|行吗|行嗎|吗|嗎|谢谢|謝謝)*"
_OBJECT_FIRST = re.compile(f"(?:把|将|將)(?P<object>.+?){_ADVERB}(?P<verb>{_CHINESE_VERB}|忘){_PARTICLE}")
_VERB_FIRST = re.compile(f"{_ADVERB}(?P<verb>{_CHINESE_VERB})(?P<object>.+?){_PARTICLE}")
_ZH_THREAD = re.compile(
    "(?:这|這|本|当前|當前|整|这整|目前)(?:整)?(?:个|個|次|段|场|場)?(?:对话|對話|话题|話題|聊天|会话|會話|谈话|談話)(?:记录|記錄)?"
)
_ZH_LAST = re.compile(
    "(?:我)?(?:刚才|剛才|刚刚|剛剛|刚|剛)(?:我)?(?:说|說|讲|講|问|問)?(?:过|過)?的?"
    "(?:那|这|這)?(?:一)?(?:句|条|條|段)?(?:话|話|消息|回答|一切|内容|那些)?|"
    "(?:我)?(?:上|最后|最後)(?:面)?(?:说的|說的)?(?:那)?(?:一)?(?:句|条|條|个|個|次)(?:话|話|消息|回答|问题|問題|内容)?"
)
_ZH_EVERYTHING = re.compile(
    "(?:跟你|和你|对你)?我(?:们|們)?(?:跟你|和你|对你|告诉你)?(?:说|說|讲|講|聊|写)过的?(?:话|話|一切|所有|东西|内容)?|记忆|記憶|"
    "(?:关于我的|關於我的|我的|我|你的|你知道的|你记得的|我说过的|我說過的|我们聊过的)?(?:一切|所有|全部|全部的|所有的)"
    "(?:东西|東西|内容|內容|记忆|記憶|对话|對話|聊天记录|事情|事|资料|資料|数据|數據|信息|话|話)?|你的(?:全部)?(?:记忆|記憶)"
)
_ZH_SAID_THEN = re.compile(
    "(?:的|在|里|裡|中|期间|的时候)*(?P<who>我|我们|我們)?(?:跟你|和你|对你)?(?:都|所|和你|跟你)*"
    "(?:说|說|讲|講|聊|谈|談|提|写)?(?:过|過|到|了|的)*(?:所有|一切|全部)?(?:的)*"
    "(?:对话|對話|话|話|聊天|聊天记录|聊天記錄|记录|記錄|消息|内容|內容|东西|東西|事情|事|一切|所有)?"
)
_ZH_SAY = "(?:说|說|讲|講|聊|谈|談|提|写|寫)"
_ZH_OF = "(?:关于|關於|有关|有關)"
_ZH_SAID_ABOUT = re.compile(
    "(?:的|在|里|裡|中|期间|的时候)*(?P<who>我们|我們|我)?(?:跟你|和你|对你|對你)?(?:都|所)*"
    f"(?:(?P<verb>{_ZH_SAY}|告诉你|告訴你)(?:过|過|到|起|了)*(?:的{_ZH_OF}?|{_ZH_OF})|的?(?:所有|一切|全部)?{_ZH_OF})"
    f"(?P<topic>[^的].*?)(?:有关|有關|相关|相關)?(?P<then>{_ZH_SAY}(?:过|過|到|起)?)?的?(?:所有|一切|全部)?"
    "(?:(?P<noun>对话|對話|话|話|聊天记录|聊天記錄|聊天|记录|記錄|消息)|内容|內容|事情|事|东西|東西|信息)?"
)
# One thing by its name: not several, not all but one, not what somebody else would have to point at.
_ZH_BARE = re.compile("[^的和跟与與或除只不没沒别別以都全每最各些所几幾]{1,12}")
_ZH_NAMES_NOTHING = re.compile(
    "(?:第|这|這|那|它|他|她|我|你|您|咱|自己|大家|别人|別人|上|下|前|后|後|刚才|剛才|刚刚|剛剛|一切|東西|东西|内容|內容|"
    "话|話|消息|记录|記錄|对话|對話|事情|事|[个個件条條句段次回们們一二两兩三四五六七八九十0-9])+"
)
_ZH_ABOUT = re.compile(
    "(?:所有|一切|全部)?(?:的)?(?:关于|關於|有关|有關|跟|和|与|與)(?P<topic>.+?)(?:有关|有關|相关|相關)?(?:的)?"
    "(?:所有|一切|全部)?(?:的)?(?:记忆|記憶|内容|內容|事情|事|东西|東西|记录|記錄|对话|對話|信息|资料|資料|话|話)?"
)
_ZH_MEMORIES = re.compile("(?P<topic>.+?)(?:的)?(?:记忆|記憶|记录|記錄|内容|內容|信息|资料|資料|消息)")
# An object that shows what is meant: without one of these, "忘记带伞" tells what somebody forgot to do.
_ZH_MARKED = re.compile("我|你|关于|關於|有关|有關|这|這|那|所有|一切|全部|刚|剛|跟|和|与|與|他|她")
_ZH_MATTER = re.compile("(?:的|这|這|那)?(?:件|回)?(?:事情|事儿|事兒|事)$")
_ZH_FORGOTTEN = re.compile("我的.+")
_ZH_MINE = re.compile("我的(?P<topic>[^从從里裡上中和跟]{1,12})")
_ZH_ASKING = frozenset({"吧", "好吗", "好嗎", "可以吗", "可以嗎", "行吗", "行嗎", "谢谢", "謝謝"})
# "我想忘记她" tells of the writer; "我想让你忘记她" asks.
_ZH_OF_ONESELF = re.compile("我(?:想|要|希望)(?:忘|把.*忘)")


def _is_chinese_meant(sentence: str) -> bool:
    """Without a polite word 忘 may tell what the writer has forgotten."""
    polite, rest = _without_politeness(sentence)
    if _ZH_OF_ONESELF.match(sentence):
        return False
    asked = _chinese_asked(sentence)
    if asked is None:
        return re.fullmatch(_CHINESE_VERB + _PARTICLE, rest) is not None
    is_plain = not polite and asked["end"] not in _ZH_ASKING
    if asked["verb"].startswith("忘") and is_plain:
        return _read_chinese(sentence, ANY_DAY) is not None
    return not is_plain or asked["end"] != "了" or asked["verb"].startswith(("删", "刪", "抹"))


def _without_politeness(sentence: str) -> tuple[str, str]:
    polite = _CHINESE_POLITE.match(sentence)
    return (polite["polite"].strip(), sentence[polite.end() :]) if polite else ("", sentence)


def _read_chinese(sentence: str, today: date) -> ForgetRequest | None:
    polite, rest = _without_politeness(sentence)
    object_first = _OBJECT_FIRST.fullmatch(rest)
    asked = object_first or _VERB_FIRST.fullmatch(rest)
    if asked is None or _ZH_OF_ONESELF.match(sentence):
        return None
    named = asked["object"].strip(" ,，")
    if _ZH_THREAD.fullmatch(named):
        return ForgetRequest(this_thread=True)
    if _ZH_LAST.fullmatch(named):
        return ForgetRequest(last_exchange=True)
    if _ZH_EVERYTHING.fullmatch(named):
        return ForgetRequest(everything=True)
    is_told = object_first is None or asked["end"] == "了" or asked["verb"] == "忘了"
    is_plain = is_told and not polite and asked["end"] not in _ZH_ASKING
    return _chinese_period(named, today) or _chinese_topic(asked, named, is_plain)


def _chinese_period(named: str, today: date) -> ForgetRequest | None:
    understood = find_period(named, today)
    if understood is None:
        return None
    rest = "".join(understood.rest.split())
    if (said := _ZH_SAID_THEN.fullmatch(rest)) is not None:
        return ForgetRequest(period=understood.period, owner_only=said["who"] == "我")
    about = _ZH_SAID_ABOUT.fullmatch(rest)
    if about is None or not (about["verb"] or about["then"] or about["noun"]):
        return None
    return _about(about["topic"], period=understood.period, owner_only=about["who"] == "我")


def _bare_chinese(sentence: str) -> ForgetRequest | None:
    """A short object that names one thing, of a sentence that can't tell what the writer has done."""
    asked = _chinese_asked(sentence)
    if asked is None or not _is_chinese_meant(sentence):
        return None
    named = asked["object"].strip(" ,，")
    return _about(named) if _ZH_BARE.fullmatch(named) and not _ZH_NAMES_NOTHING.fullmatch(named) else None


def _chinese_asked(sentence: str) -> re.Match[str] | None:
    rest = _without_politeness(sentence)[1]
    return _OBJECT_FIRST.fullmatch(rest) or _VERB_FIRST.fullmatch(rest)


def _chinese_topic(asked: re.Match[str], named: str, is_plain: bool) -> ForgetRequest | None:
    """Without a polite word, 忘记 and 忘了 may as well tell what the writer has forgotten."""
    if found := _ZH_ABOUT.fullmatch(named):
        return _about(found["topic"])
    if not asked["verb"].startswith("忘"):
        found = _ZH_MEMORIES.fullmatch(named) or _ZH_MINE.fullmatch(named)
        return None if found is None else _about(found["topic"])
    if is_plain and asked["verb"] != "忘掉":
        tells = asked["verb"] == "忘了" or (
            asked["end"] == "了" and _ZH_FORGOTTEN.fullmatch(named) is not None
        )
        if tells or _ZH_MARKED.match(named) is None:
            return None
    return _about(named)


def _about(topic: str, *, period: Period | None = None, owner_only: bool = False) -> ForgetRequest | None:
    words = tuple(keywords(_ZH_MATTER.sub("", topic)))
    return ForgetRequest(words=words, period=period, owner_only=owner_only) if words else None
