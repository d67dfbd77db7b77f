"""Requests to forget in Chinese: what their object names. Pure."""

import re
from dataclasses import replace
from datetime import date

from pikobot.memory.forgetting.words import ANY_DAY, CHINESE_VERB, UNCLEAR_DAY, ForgetRequest, about, said_in
from pikobot.memory.language.periods import find_period, periods_in
from pikobot.memory.language.questions import keywords

_CHINESE_POLITE = re.compile(
    "^(?P<polite>(?:请|請|麻烦|麻煩|帮我|幫我|帮忙|你好|你|您|现在|現在|能不能|可不可以|可以|可否|能否|能|给我|給我|助手|pikobot|"
    "我要|我想|我希望|希望|让|讓|从(?:现在|今天|今)(?:起|开始)|從(?:現在|今天|今)(?:起|開始)|以后|以後|[ ,:，])*)"
)
_ADVERB = "(?:都|全部|全|统统|統統|彻底|徹底|永久|永远|给我|給我|从记忆中|从记忆里|马上|立刻)*+"
_PARTICLE = "(?P<end>了|掉|吧|啊|呀|哦|哟|嘛|好吗|好嗎|可以吗|可以嗎|行吗|行嗎|吗|嗎|谢谢|謝謝)*"
_OBJECT_FIRST = re.compile(f"(?:把|将|將)(?P<object>.+?){_ADVERB}(?P<verb>{CHINESE_VERB}|忘){_PARTICLE}")
_VERB_FIRST = re.compile(f"{_ADVERB}(?P<verb>{CHINESE_VERB})(?P<object>.+?){_PARTICLE}")
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
_ZH_SAID_BY = re.compile(
    "(?!(?:我们|我們|我|你)?(?:关于|關於|有关|有關)|(?:我们|我們|我)[跟和对對同与與])(?:"
    "(?:所有|一切|全部)?(?P<name>[^的]{1,12}?)(?:[跟和对對给給向]我们?)?(?:都|所|曾经|曾經|曾)?"
    f"(?:{_ZH_SAY}|发|發|告诉我|告訴我)(?:过|過|了|到)*(?:(?:的?{_ZH_OF}(?P<topic>.+?))?的?(?:所有|一切|全部)?的?"
    "(?:话|話|一切|内容|內容|东西|東西|事情|事|消息)?|的(?P<thing>[^的我你他她它]{1,12})|(?P<of>[^的我你他她它]{1,8})的(?:坏|壞)?(?:话|話))|"
    "(?P<whose>[^的]{1,12})的(?:所有|一切|全部)?(?:话|話|发言|發言|言论|言論|消息|聊天记录|聊天記錄))"
)
_ZH_AND_SAID = re.compile(
    f"(?P<topic>.+?)(?:和|跟|与|與|以及|还有|還有)(?:她|他|它)们?所?(?:跟我|对我)?{_ZH_SAY}.*"
)
_ZH_TALKED = re.compile(
    f"(?:我们|我們|我)[跟和对對同与與](?P<topic>.+?)(?:一起)?{_ZH_SAY}(?:过|過|到|起)?的?(?:所有|一切|全部)?的?"
    "(?:话|話|内容|內容|东西|東西|事情|事)?"
)
_ZH_SOMEBODY = re.compile("(?:[你您他她它誰谁].*|[我咱]们?|我們|大家|别人|別人|自己)")
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
_ZH_MEMORIES = re.compile(
    "(?P<topic>[^这這那].*?)(?:(?:的)?(?:记忆|記憶|记录|記錄|内容|內容|信息|资料|資料|消息)|"
    "的?(?:这|這|那)(?:一)?(?:句|条|條|段)(?:话|話|消息)?)"
)
_ZH_FUNCTION = re.compile("[是不没沒有的和跟与與在也都就还還]{1,2}")
# Something of somebody, where a polite word shows that pikobot is asked.
_ZH_BARE_OF = re.compile(
    "[^的和跟与與或除只不没沒别別全每各这這那]{1,8}(?<![上下里裡中外])的[^的和跟与與或除只不没沒别別全每各]{1,8}"
)
# An object that shows what is meant: without one of these, "忘记带伞" tells what somebody forgot to do.
CHINESE_MARKED = re.compile("我|你|关于|關於|有关|有關|这|這|那|所有|一切|全部|刚|剛|跟|和|与|與|他|她")
_ZH_MATTER_OF = re.compile(
    ".+的(?:这|這|那)?(?:件|回)?(?:事情|事儿|事兒|事)|.+(?:这|這|那)(?:一)?(?:句|条|條|段)(?:话|話|消息)?"
)
# Things by their names, of a sentence that doesn't tell what somebody forgot to do: 忘记带伞, 忘记关灯.
_ZH_NAME = (
    "(?![带帶买買吃喝关關锁鎖拿交回给給做去打写寫说說问問告把在洗充付还還寄取接送发發换換订訂定约約开開放看听聽学學用穿"
    "戴加存备備保提报報签簽填检檢复複预預浇澆喂餵倒扔收晒刷叫通邀要该該怎自设設调調拔插点點请請祝]|什么|什麼)"
    "[^的了过過着著么麼吗嗎不没沒别別是在和跟与與及、,，]{1,12}"
)
_ZH_NAMES = re.compile(f"{_ZH_NAME}(?:[和跟与與及、,，]{_ZH_NAME})*")
_ZH_FROM_WHEN = re.compile("^(?:从|從).{1,4}(?:起|开始|開始)[,，]?")  # 从明天起: nothing waits until then
_ZH_REST = re.compile(
    "(?:除.+?|(?:(?:只?保留|只?留下).+?[,，]?)?(?:其他|其它|其余|其餘|别的|別的|剩下)的?.{0,4}?)"
    "(?:都|全部|全|统统|統統)*" + CHINESE_VERB + "[了掉吧]*"
)
_ZH_LIST = re.compile("[和跟与與及、,，]")
_ZH_FORGOTTEN = re.compile("我的.+")
_ZH_MINE = re.compile("我(?P<topic>[^的从從里裡上中和跟]{0,4}的[^的从從里裡上中和跟]{1,12})")
_ZH_ASKING = frozenset({"吧", "好吗", "好嗎", "可以吗", "可以嗎", "行吗", "行嗎", "谢谢", "謝謝"})
# "我想忘记她" tells of the writer; "我想让你忘记她" asks.
_ZH_OF_ONESELF = re.compile("我(?:想|要|希望)(?:忘|把.*忘)")


def is_chinese_meant(sentence: str) -> bool:
    """Without a polite word 忘 may tell what the writer has forgotten."""
    polite, rest = _without_politeness(sentence)
    if _ZH_OF_ONESELF.match(sentence):
        return False
    if _ZH_REST.fullmatch(rest):
        return True
    if later := _ZH_FROM_WHEN.match(rest):
        return is_chinese_meant(f"请{rest[later.end() :]}")
    asked = _chinese_asked(sentence)
    if asked is None:
        return re.fullmatch(CHINESE_VERB + _PARTICLE, rest) is not None
    is_plain = not polite and asked["end"] not in _ZH_ASKING
    if asked["verb"].startswith("忘") and is_plain:
        return read_chinese(sentence, ANY_DAY) is not None or _tells_no_past(asked)
    return not is_plain or asked["end"] != "了" or asked["verb"].startswith(("删", "刪", "抹"))


def _tells_no_past(asked: re.Match[str]) -> bool:
    """Whether a plain 忘 with this object can't be what the writer has forgotten, though it may name nothing."""
    named = asked["object"].strip(" ,，")
    is_verb_first = not asked.string.startswith(("把", "将", "將"))
    if asked["end"] == "了" and (is_verb_first and asked["verb"] != "忘掉"):
        return False
    if asked["end"] != "了" and (_ZH_NAMES_NOTHING.fullmatch(named) or _ZH_FUNCTION.fullmatch(named)):
        return True
    if asked["verb"] == "忘了":
        return False
    is_named = asked["end"] is None and is_verb_first and _ZH_NAMES.fullmatch(named) is not None
    return (is_named and not periods_in(named, ANY_DAY)) or _chinese_said_by(named) is not None


def _without_politeness(sentence: str) -> tuple[str, str]:
    polite = _CHINESE_POLITE.match(sentence)
    return (polite["polite"].strip(), sentence[polite.end() :]) if polite else ("", sentence)


def read_chinese(sentence: str, today: date) -> ForgetRequest | None:
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
    if UNCLEAR_DAY.search(named) and _ZH_SAID_THEN.fullmatch("".join(UNCLEAR_DAY.sub("", named).split())):
        return _chinese_period(named, today)
    return _chinese_period(named, today) or _chinese_topic(asked, named, is_plain)


def _chinese_period(named: str, today: date) -> ForgetRequest | None:
    understood = find_period(named, today)
    if understood is None:
        return None
    period = said_in(understood)
    rest = "".join(understood.rest.split())
    if (said := _ZH_SAID_THEN.fullmatch(rest)) is not None:
        return ForgetRequest(period=period, owner_only=said["who"] == "我")
    topic = _ZH_SAID_ABOUT.fullmatch(rest)
    if topic is not None and (topic["verb"] or topic["then"] or topic["noun"]):
        return about(topic["topic"], period=period, owner_only=topic["who"] == "我")
    by = _chinese_said_by(rest)
    return replace(by, period=period) if by and by.words else None


def bare_chinese(sentence: str) -> ForgetRequest | None:
    """A short object that names one thing, of a sentence that can't tell what the writer has done."""
    asked = _chinese_asked(sentence)
    if asked is None or not is_chinese_meant(sentence):
        return None
    named = asked["object"].strip(" ,，")
    if asked["verb"].startswith("忘") and _ZH_NAMES.fullmatch(named):
        return about(_ZH_LIST.sub(" ", named))
    if _without_politeness(sentence)[0] and _ZH_BARE_OF.fullmatch(named):
        return about(named)
    return about(named) if _ZH_BARE.fullmatch(named) and not _ZH_NAMES_NOTHING.fullmatch(named) else None


def _chinese_asked(sentence: str) -> re.Match[str] | None:
    rest = _without_politeness(sentence)[1]
    return _OBJECT_FIRST.fullmatch(rest) or _VERB_FIRST.fullmatch(rest)


def _chinese_said_by(named: str) -> ForgetRequest | None:
    """What somebody has said; of a pronoun a request without words, for that one can't be told."""
    found = _ZH_SAID_BY.fullmatch(named)
    if found is None:
        return None
    name = found["name"] or found["whose"]
    is_nobody = _ZH_SOMEBODY.fullmatch(name) or periods_in(name, ANY_DAY)
    words = () if is_nobody else tuple(keywords(name))
    if topic := found["topic"] or found["thing"] or found["of"]:
        return about(f"{name if words else ''} {topic}")
    return ForgetRequest(words=words, is_said_by=True)


def _chinese_topic(asked: re.Match[str], named: str, is_plain: bool) -> ForgetRequest | None:
    """Without a polite word, 忘记 and 忘了 may as well tell what the writer has forgotten."""
    both = _ZH_AND_SAID.fullmatch(named) or _ZH_TALKED.fullmatch(named)
    if found := (None if both else _ZH_ABOUT.fullmatch(named)):
        return about(re.sub(f"{_ZH_SAY}[过過到起]?$", "", found["topic"]))
    by = None if both else _chinese_said_by(named)
    if not asked["verb"].startswith("忘"):
        found = both or (None if by else _ZH_MEMORIES.fullmatch(named) or _ZH_MINE.fullmatch(named))
        return _known(by) if found is None else about(found["topic"])
    if is_plain and asked["verb"] != "忘掉":
        is_named = by is not None or both is not None or _ZH_MATTER_OF.fullmatch(named) is not None
        is_verb_first = not asked.string.startswith(("把", "将", "將"))
        tells = asked["end"] == "了" or asked["verb"] == "忘了"
        if tells and (is_verb_first or not is_named):
            is_past = asked["verb"] == "忘了" or is_named or _ZH_FORGOTTEN.fullmatch(named) is not None
            if is_past or CHINESE_MARKED.match(named) is None:
                return None
        elif not is_named and CHINESE_MARKED.match(named) is None:
            return None
    if by:
        return _known(by)
    listed = _ZH_LIST.sub(" ", named) if _ZH_NAMES.fullmatch(named) else named
    return about(both["topic"] if both else listed)


def _known(by: ForgetRequest | None) -> ForgetRequest | None:
    return by if by is not None and by.words else None
