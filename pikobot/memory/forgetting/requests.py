"""Requests to forget in the owner's own words, in English and Chinese. Pure; nothing is erased on its account.

`asks_to_forget` is the wide gate before a model may propose to forget: whether the message itself tells somebody to.
What is quoted, denied, told about the past or asked about does not. `read_request` is narrow: only a message that is
nothing but a request is one, and only of a form whose object can be told; no model is asked about it. Where there is
none, it takes a short object that nothing marks as one for words as well ("delete Melanie"). Between them
`means_to_forget` knows a message that can be nothing else than a request, whatever its object: it states nothing.
"""

import re
from collections.abc import Iterator
from datetime import date

from pikobot.memory.forgetting.chinese import CHINESE_MARKED, bare_chinese, is_chinese_meant, read_chinese
from pikobot.memory.forgetting.english import bare_english, is_english_meant, read_english
from pikobot.memory.forgetting.words import CHINESE_VERB, VERB, ForgetRequest
from pikobot.store.text.segmentation import fold

MAX_REQUEST_CHARS = 400

_QUOTED = re.compile(
    "```.*?```|“[^”]*”|‘[^’]*’|「[^」]*」|『[^』]*』|《[^》]*》|\"[^\"\n]*\"|(?<!\\w)'[^'\n]*'(?!\\w)|^[ \t]*>.*$",
    re.DOTALL | re.MULTILINE,
)
_SENTENCE_END = re.compile("(?:(?<!\\d)\\.|\\.(?!\\d)|[!?。！？;；\n])+")
_RANGE = re.compile("(?<=\\d)\\s*\\.\\.+\\s*(?=\\d)")
_CLAUSE_END = re.compile("[,，、]+")
_COURTESY = re.compile(
    "(?:hi|hey|hello|ok|okay|please|pls|thanks|thank you|many thanks|谢谢|謝謝|麻烦了|你好|好吗|拜托)?(?: *pikobot)?"
)

_MIND = re.compile("^(?:please )?(?:would|do) you mind (forget|delet|remov|eras)t?ing\\b")
_BASE = {"delet": "delete", "remov": "remove", "eras": "erase", "forg": "forget", "forget": "forget"}
_WISH = re.compile(
    "^(?:it(?: would|'d) be (?:\\w+ ){1,2}if you|i(?: would|'d) (?:be (?:\\w+ ){1,2}|"
    "(?:appreciate|like|love|prefer) it )if you|"
    "i(?: would|'d) (?:rather|prefer(?: that)?) you|i wish(?: that)? you)(?:'d)? (?:would |could |can |just )*"
    "(forg|forget|delet|eras)(?:ot|ed|e)?\\b"
)
_STOP = re.compile(
    "^((?:please |pikobot |can you |could you )*)stop (?:remember|keep|stor)ing\\b|"
    "^(please )(?:do not|don't|no longer) (?:remember|keep|store)\\b|"
    "^(?:do not|don't) (?:remember|store)(?= (?:that|my|what (?:i|we)|[^ ]+(?: [^ ]+)?'s)\\b)|"
    "^(?:i(?: would|'d) (?:rather|prefer(?: it if| that)?) you (?:did not|didn't|do not|don't|no longer)|"
    "i (?:do not|don't) want you to) (?:(?:remember|store)(?:ed|d)?\\b|"
    "(?:keep|kept|retain|save)d?(?= (?:that|my|what)\\b))|"
    "^(?:you (?:do not|don't|no longer)(?: need| have) to|(?:there is |there's )?no need to) remember\\b"
)
_CHINESE_STOP = re.compile(
    "(?:(?P<polite>(?:请|請|你|麻烦|麻煩|以后|以後)*)(?:别|別|不要)(?P<again>再)?|"
    "(?P<asked>你?(?:不用|不必|不需要|没必要|沒必要|无需|無需)再|你(?:不用|不必|不需要|没必要|沒必要)|"
    "我?(?:不想让[你您]|不想讓[你您]|不要[你您]|不希望[你您])再?(?P<keeping>保留|保存|储存|儲存|[记記](?:录|錄|下))?))"
    "(?(keeping)|(?:记得|記得|记着|記著|记住|記住|[记記](?=[^得着著住错錯性仇恨]{1,12}的)))(?P<object>.+?)(?P<end>了)?吧?"
)
_CHINESE_WISH = re.compile(
    "(?:要是|如果|最好)[你您]能?(?P<wished>.+?)就(?:好|行|可以|太好|更好)了|(?:最好[你您]|[你您]最好)能?(?P<best>.+)"
)
# What it is about comes first: 那四十块的事你可以忘了. "我妈说你可以忘了" tells what somebody said.
_CHINESE_TOPIC_FIRST = re.compile(
    "(?P<object>[^你您,，]{1,60})(?<![说說讲講为為得诉訴])[,，]?[你您](?:现在|現在|就)?(?:可以|能|最好|应该|應該|该|該)"
    f"(?:现在|現在|就|都|全)*(?P<verb>{CHINESE_VERB}|忘)[了掉吧]*"
)
# What says no more than that all else stays, or why.
_REST_STAYS = re.compile(
    "(?:^|,? (?:and |but )?)(?:(?:not|keep|leave) (?:all )?the (?:rest|others?)(?: alone| as (?:it|they) (?:is|are))?|"
    "(?:(?:and |but )?nothing|not anything) else|only that|just that)$|"
    "(?:^|[,，]?(?:但是?)?)(?:(?:其他|其它|其余|其餘|别的|別的|剩下)的?(?:都|就|全|也)?(?:不要|别|別|不用|不)"
    "(?:动|動|删|刪|忘|碰|改|管)(?:了|掉)?|(?:其他|其它|其余|其餘|别的|別的|剩下)的?(?:都|就|全)?(?:保留|留着|留下|不变|不變))$"
)
_REASON = re.compile(
    "^(?P<asked>(?:(?:please|pls|pikobot|can you|could you) )*"
    + VERB
    + " .+?), (?:because )?(?:it|that|this)(?:'s| is| was) "
    "(?:(?:just|only|all|a|an|my|her|his|their|our|supposed to be) )*"
    "(?:secret|private|confidential|joke|lie|mistake|wrong|not true|untrue|personal|outdated)$|"
    "^(?P<chinese>(?:请|請|你|麻烦|帮我)*+(?:[把将將].{1,60}?)?" + CHINESE_VERB + ".*?)[,，](?:因为|因為)?"
    "(?:这|這|那|它)(?:只|都|还|還)?(?:是|不是)(?:一?个|一?個)?(?:我的|她的|他的)?"
    "(?:秘密|隐私|隱私|私事|机密|機密|玩笑|开玩笑的?|假的|真的|错的|錯的)$"
)

_BEFORE_VERB = (
    "(?:please|pls|kindly|just|and|then|now|also|ok|okay|so|pikobot|go ahead and|you|to|you to|should|must|let's|lets|"
    "let us|maybe|perhaps|possibly|"
    "all|completely|permanently)"
)
_ENGLISH_REQUEST = re.compile(
    f"(?:(?:^|^(?:hey |hi )?pikobot: *|{_BEFORE_VERB}\\s+){VERB}|"
    "^you (?:can|may|could|might) (?:now |just |also |safely )*(?:forget|"
    "(?:delete|erase|remove)(?= (?:my|what i|everything i)\\b))|"
    f"^(?:from \\w+ on|starting \\w+|as of \\w+) {VERB})\\b(?!-|\\s+to\\b)"
)
_NOT_A_REQUEST = re.compile(
    "^(?:how|what|why|when|where|who|which|does|did|do|is|are|was|were|has|have|had|if)\\b|"
    "\\b(?:don't|dont|do not|never|not|won't|can't|cannot|didn't|doesn't|without)\\s+(?:ever\\s+|you\\s+|just\\s+)*"
    f"{VERB}\\b|"
    "\\b(?:i|we|he|she|they|people|who)\\s+(?:\\w+ly\\s+|always\\s+|often\\s+|just\\s+|tend to\\s+|want to\\s+)*"
    f"{VERB}\\b|, (?:said|says) "
)
# Every message is looked at, so that this may read the same characters in one way only.
_CHINESE_REQUEST = re.compile(
    "^(?:请|請|麻烦|麻煩|帮我|幫我|帮忙|你好|你|您|现在|現在|那|就|再|也|都|全部|全|彻底|永久|给我|給我|助手|"
    "我要|我想|我希望|希望|让|讓|能不能|可不可以|可以|可否|能否|能|好|行|吧|pikobot|一下|马上|立刻|最好|以后|以後|"
    "[从從][^从從]{1,4}?(?:起|开始|開始)|(?:其他|其它|其余|其餘|别的|別的|剩下)的?|[:\\s])*+"
    "(?:(?:[把将將]|(?:除|只?保留|只?留下).{0,80}?(?:都|全|其|别|別|剩)).*)?" + CHINESE_VERB
)
_CHINESE_NOT = re.compile(
    "(?<![能可])[别別莫勿未没沒不](?:要|会|會|能|可|想|准|许)?(?:再)?(?:把.{0,80})?"
    + CHINESE_VERB
    + "|^(?!.*[能可]).*了[吗嗎]$"
)


_EXCEPTION = re.compile(
    "\\b(?:except|excluding|apart from|aside from|other than|besides|but (?:not|keep|for|only))\\b|"
    "\\b(?:everything|everyone|everybody|anything|all)(?: [^ ]+){0,6} (?:but|else)\\b|\\bthe (?:rest|others?)$"
    "|除了|除.+外|以外|之外|[但只]保留|其他|其它|其余|其餘|别的|別的|剩下"
)
# Something else is asked for in the same breath; of the first kind, something is told as well.
_TELLS_ELSE = re.compile(
    "(?:\\b(?:and|but|then|instead)|,) (?:please |also |then |instead |just )*(?:remember|note|keep in mind|save|store|"
    "write down|add)\\b|, (?:i|we|it|he|she|they|because)(?:'\\w+)? |"
    ", (?:my|our) (?:[^ ,]+ ){1,3}(?:is|are|was|were|has|have) |"
    "(?:请|請|并且?|並且?|然后|然後|再|而|同时|同時|但是?|[,，、])(?:请|請|要)?(?:记住|記住|记得|記得|记下|記下|记着|保存)|"
    "[,，](?:因为|因為|我(?!.*的))"
)
_ASKS_ELSE = re.compile(
    "(?:\\b(?:and|but|then)|,) (?:please |also |then |just )*(?:tell|show|remind|give|find|list|sing|write)\\b|"
    "(?:并且?|並且?|然后|然後|再|[,，])(?:请|請|要)?(?:告诉|告訴|提醒|列出|显示|顯示|写|寫)"
)


def asks_to_forget(text: str) -> bool:
    """Whether the message, apart from what it quotes, tells somebody to forget or delete something."""
    return any(map(_is_request, _sentences(_QUOTED.sub(" ", text))))


def read_request(text: str, today: date, *, is_alone: bool = False) -> ForgetRequest | None:
    """What a message asks to forget when it asks for nothing else, and that can be told; otherwise None.

    ``is_alone``: there is no model that could tell more.
    """
    sentences = _asking(text[: MAX_REQUEST_CHARS + 1])
    if len(text) > MAX_REQUEST_CHARS or len(sentences) != 1 or not _is_request(sentences[0]):
        return None
    asked = sentences[0]
    if any(other.search(asked) for other in (_EXCEPTION, _TELLS_ELSE, _ASKS_ELSE)):
        return None  # what is to be kept is no word to look for, and half of what is asked for would be lost
    request = read_english(asked, today) or read_chinese(asked, today)
    if request is None and is_alone:
        return bare_english(asked) or bare_chinese(asked)
    return request


def means_to_forget(text: str) -> bool:
    """Whether a message is nothing but a request to forget, of whatever, and so states nothing."""
    if len(text) > MAX_REQUEST_CHARS or not asks_to_forget(text):
        return False
    return all(
        _is_request(each)
        and not _TELLS_ELSE.search(each)
        and (is_english_meant(each) or is_chinese_meant(each))
        for each in _asking(text)
    )


def _asking(text: str) -> list[str]:
    """The sentences that are no mere courtesy, nor say only that all else stays."""
    return [
        each for each in _sentences(text) if not _COURTESY.fullmatch(each) and not _REST_STAYS.fullmatch(each)
    ]


def _sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE_END.split(_RANGE.sub(" to ", fold(text).replace("’", "'"))):
        if part.strip():
            yield _in_plain_verbs(part.strip())


def _in_plain_verbs(sentence: str) -> str:
    """The sentence with the verbs that are looked for, where it asks by other ones."""
    sentence = _MIND.sub(lambda mind: f"please {_BASE[mind[1]]}", sentence)
    sentence = _WISH.sub(lambda wish: f"please {_BASE[wish[1]]}", sentence)
    sentence = _STOP.sub(
        lambda stop: f"{stop[1] or stop[2] or ('please ' if stop[1] is None else '')}forget", sentence
    )
    sentence = _REST_STAYS.sub("", sentence.replace("get rid of", "remove")) or sentence
    if reason := _REASON.fullmatch(sentence):
        sentence = f"please {reason['asked']}" if reason["asked"] else f"请{reason['chinese']}"
    if first := _CHINESE_TOPIC_FIRST.fullmatch(sentence):
        return f"请把{first['object']}{first['verb']}掉"
    if wished := _CHINESE_WISH.fullmatch(sentence):
        sentence = f"请{wished['wished'] or wished['best']}"
    stop = _CHINESE_STOP.fullmatch(sentence)
    if stop and (
        stop["polite"]
        or stop["asked"]
        or stop["again"]
        or stop["end"]
        or CHINESE_MARKED.match(stop["object"])
    ):
        return f"请忘记{stop['object']}"
    return sentence


def _is_request(sentence: str) -> bool:
    sentence = _QUOTED.sub(" ", sentence).strip()
    clauses = [clause.strip() for clause in _CLAUSE_END.split(sentence)]
    for position, clause in enumerate(clauses):
        is_asked_about = _NOT_A_REQUEST.search(clause if position else sentence)
        if _ENGLISH_REQUEST.search(clause) and not is_asked_about:
            return True
        if _CHINESE_REQUEST.search(clause) and not _CHINESE_NOT.search(clause):
            return True
    return False
