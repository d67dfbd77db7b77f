"""Requests to forget in English: what their object names. Pure."""

import re
from dataclasses import replace
from datetime import date

from pikobot.memory.forgetting.words import ANY_DAY, UNCLEAR_DAY, VERB, ForgetRequest, about, said_in
from pikobot.memory.language.periods import find_period
from pikobot.memory.language.questions import keywords

MAX_BARE_WORDS = (
    3  # of an object that nothing marks as one: "forget Melanie", but "forget Paris is a film" tells
)

_POLITE = re.compile(
    "^(?:(?:hey|hi|ok|okay|let's|lets|let us|from (?:now|today) on|starting (?:now|today)|as of (?:now|today)|you may|"
    "you could|you might|i think|i guess|maybe|perhaps|possibly|"
    "pikobot|please|pls|kindly|now|just|go ahead and|can you|could you|would you|will you|"
    "you can|you should|you must|i want you to|i'd like you to|i would like you to|i need you to|completely|"
    "permanently)[ ,:]+)*"
)
# A suggestion, which a note may begin with too: "Perhaps remove the rust with vinegar".
_SUGGESTED = re.compile(
    "^(?:maybe|perhaps|possibly|i think|i guess|let's|lets|let us|you (?:can|could|may|might|should))\\b"
)
_ENDING = re.compile(
    "[ ,]+(?:please|pls|thanks|thank you|for good|forever|permanently|completely|again|now|ok|okay|"
    "any ?more|any longer|from (?:now|today) on|from (?:your |my |the )?(?:memory|records|database|notes))$"
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
_WHEN = re.compile(
    "^(?:from|starting|as of) \\w+(?: on)?[ ,]+"
)  # "from tomorrow on": nothing waits until then
_EVERYTHING = re.compile(
    "everything|all|all of it|it all|everything (?:about me|you know|you remember|you(?:'ve| have) (?:learned|stored))"
    "(?: about me)?|"
    "(?:everything|all|all that) (?:i|we)(?:'ve| have)?(?: ever)? (?:said|told you|talked about|discussed)|"
    "(?:all|all of)(?: (?:my|your|our|the))? (?:data|memory|memories|messages|conversations|chats)|"
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
_KEEP = re.compile(
    "(?:only )?keep .+?[, ](?:and |but )?(?:forget|delete|erase|remove) (?:everything|all|the rest|the others?)\\b.*"
)
_LIST = re.compile(",? and |, ?")
_ABOUT_SAID = re.compile(
    "(?:everything|anything|all|whatever|what|something)?(?:that )?\\s*(?:about|on|regarding|concerning) "
    "(?P<topic>.+?) (?:that )?(?P<who>i|we)(?:'ve| have)?(?: ever)? "
    "(?:said|told you|wrote|mentioned|talked about|discussed)"
)
_ABOUT = re.compile(
    "(?:(?:everything|all|anything|whatever|what)\\s*(?:that )?(?:(?:you|i|we)(?: have|'ve)? "
    "(?:know|knew|learned|remember|said|told you|mentioned|stored)\\s*)?(?:to you )?)?"
    "(?:about|on|regarding|concerning|of) (?P<topic>.+)"
)
_SAID_BY = re.compile(
    "(?:everything|anything|all|what|whatever)(?: that)? (?P<name>(?:[^ ]+ ){1,3}?)"
    "(?:has |have |had |ever )*(?:said|told (?:me|us|you)|wrote|written|mentioned)(?: to (?:me|us|you))?"
    "(?: (?:about|on|regarding) (?P<topic>.+))?|"
    "(?:(?:all|the|any) )*(?P<whose>[^ ]+(?: [^ ]+)?)'s? (?:words|messages|statements)|"
    "(?:(?:all of|all|the|any) )*(?:words|messages?|statements?) (?:from|by|of) (?P<by>.+)|"
    "(?:everything|all|anything) (?:from|by) (?P<of>.+)"
)
_I_SAID_ABOUT = re.compile(
    "(?:that )?i(?:'ve| have)?(?: ever)? (?:said|told you|mentioned)(?: anything| something)?"
    "(?: (?:about|on|regarding))? (?P<topic>.+)"
)
_AND_SAID = re.compile(
    "(?P<topic>.+) and (?:everything|anything|all|what|whatever)(?: that)? (?:she|he|they|it) .+"
)
_PRONOUNS = frozenset("i we you he she they it him her them me us my our your his their who".split())
_MARKED = re.compile(
    "(?:that|my|our|the|his|her|their|this|these|those|what|whatever|when|where|who|why|which|how) (?P<topic>.+)"
)
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
_ASKED = re.compile(f"(?P<verb>{VERB})(?:\\s+(?P<object>.+))?")


def is_english_meant(sentence: str) -> bool:
    """With these verbs a note may begin too: "Remove the stains with vinegar"."""
    rest = _POLITE.sub("", _WHEN.sub("", sentence)).strip()
    asked = _ASKED.fullmatch(rest)
    if asked is None:
        return _KEEP.fullmatch(rest) is not None
    named = _without_ending(asked["object"] or "")
    is_polite = rest != sentence and not _SUGGESTED.match(sentence)
    return (
        is_polite
        or (asked["verb"] == "forget" and rest != sentence)
        or asked["verb"] in _MEANT_VERBS
        or not named
        or named in _IDIOM
        or (asked["verb"] in _OF_MEMORY and not keywords(named))
        or (asked["verb"] in _OF_MEMORY and _MEANT_OBJECT.fullmatch(named) is not None)
        or read_english(sentence, ANY_DAY) is not None
    )


def read_english(sentence: str, today: date) -> ForgetRequest | None:
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
    if UNCLEAR_DAY.search(named) and _SAID_THEN.fullmatch(" ".join(UNCLEAR_DAY.sub(" ", named).split())):
        return _english_period(named, today)
    return _english_period(named, today) or _english_topic(asked["verb"], named)


def bare_english(sentence: str) -> ForgetRequest | None:
    """Of a verb that a note does not begin with, or asked politely: an object of few words, all of which name it."""
    asked = _ASKED.fullmatch(_POLITE.sub("", sentence.strip()).strip())
    if asked is None or asked["verb"] not in _OF_MEMORY or not is_english_meant(sentence):
        return None
    named = _ARTICLE.sub("", _without_ending(asked["object"] or ""))
    words = named.split()
    is_name = 0 < len(words) <= MAX_BARE_WORDS and not _NAMES_NOTHING.intersection(words)
    return about(named) if is_name else None


def _is_list_of_names(named: str) -> bool:
    things = [_ARTICLE.sub("", thing).split() for thing in _LIST.split(named)]
    return len(things) > 1 and all(
        0 < len(thing) <= MAX_BARE_WORDS and not _NAMES_NOTHING.intersection(thing) for thing in things
    )


def _without_ending(named: str) -> str:
    named = named.strip()
    while (shorter := _ENDING.sub("", named)) != named:
        named = shorter
    return named


def _english_period(named: str, today: date) -> ForgetRequest | None:
    understood = find_period(named, today)
    if understood is None:
        return None
    period = said_in(understood)
    rest = " ".join(understood.rest.split())
    if (said := _SAID_THEN.fullmatch(rest)) is not None:
        return ForgetRequest(period=period, owner_only=said["who"] == "i")
    if by := _english_said_by(rest):
        return replace(by, period=period)
    if (topic := _ABOUT_SAID.fullmatch(rest)) is not None:
        return about(topic["topic"], period=period, owner_only=topic["who"] == "i")
    topic = _SAID_ABOUT.fullmatch(rest)
    said = None if topic is None else _SAID_THEN.fullmatch(topic["said"])
    if topic is None or said is None:
        return None
    return about(topic["topic"], period=period, owner_only=said["who"] == "i")


def _english_said_by(named: str) -> ForgetRequest | None:
    """What somebody has said; about something only what holds both the name and that."""
    found = _SAID_BY.fullmatch(named)
    name = "" if found is None else (found["name"] or found["whose"] or found["by"] or found["of"]).strip()
    words = () if name in _PRONOUNS else tuple(keywords(name))
    if found is None or not words:
        return None
    if found["topic"]:
        return about(f"{name} {found['topic']}")
    return ForgetRequest(words=words, is_said_by=True)


def _english_topic(verb: str, named: str) -> ForgetRequest | None:
    if verb in _OF_MEMORY:
        if by := _english_said_by(named):
            return by
        if (both := _AND_SAID.fullmatch(named)) is not None:
            return about(both["topic"])
    found = _I_SAID_ABOUT.fullmatch(named) if verb == "forget" else None
    found = found or _ABOUT.fullmatch(named) or _MEMORIES.fullmatch(named) or _THING.fullmatch(named)
    if found is None and verb != "forget" and verb in _OF_MEMORY:
        found = _MY.fullmatch(named)
    if found is None and verb == "forget":
        found = _MARKED.fullmatch(named)
        if found is None and (len(named.split()) <= MAX_BARE_WORDS or _is_list_of_names(named)):
            return about(named)
    return None if found is None else about(found["topic"])
