"""What recall mode says around its quotations, in English and Chinese: one text for each language."""

from datetime import date, timedelta

from pikobot.memory.language.periods import EveryYear, Period
from pikobot.memory.language.questions import Language
from pikobot.memory.recall.times import day_said

_MONTHS = """January February March April May June July August September October November December""".split()


def spoken_date(at_ms: int, utc_offset_min: int, language: Language) -> str:
    """The calendar day where it was said: ``2 March 2024`` or ``2024年3月2日``."""
    return _spoken_day(day_said(at_ms, utc_offset_min), language)


def spoken_today(day: date, language: Language) -> str:
    """The sentence that tells the day, with its weekday."""
    weekday = f"星期{_ZH_WEEKDAYS[day.weekday()]}" if language == "zh" else _WEEKDAYS[day.weekday()]
    return _TODAY[language].format(weekday=weekday, day=_spoken_day(day, language))


def spoken_period(period: Period, language: Language) -> str:
    """The days of a period in few words: ``March 2024``, ``4 March 2024 to 10 March 2024``, ``2024年``."""
    first, last = period.first, period.last
    if first is None:
        return _UNTIL[language].format(day=_spoken_day(last, language))
    if isinstance(period, EveryYear):
        return _EVERY_YEAR[language].format(days=_spoken_days(first, last, language))
    if first == last:
        return _spoken_day(first, language)
    is_to_months_end = (last + timedelta(days=1)).day == 1
    if first.day == 1 and is_to_months_end and (first.year, first.month) == (last.year, last.month):
        return (
            f"{last.year}年{last.month}月" if language == "zh" else f"{_MONTHS[last.month - 1]} {last.year}"
        )
    if (first.month, first.day, last.month, last.day) == (1, 1, 12, 31) and first.year == last.year:
        return f"{last.year}年" if language == "zh" else str(last.year)
    return _RANGE[language].format(first=_spoken_day(first, language), last=_spoken_day(last, language))


def _spoken_day(day: date, language: Language) -> str:
    if language == "zh":
        return f"{day.year}年{day.month}月{day.day}日"
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _spoken_days(first: date, last: date, language: Language) -> str:
    """The days of every year: ``March``, ``5 March``, ``March to May``; whole months where they are whole."""
    is_whole = first.day == 1 and (last + timedelta(days=1)).day == 1
    spoken = []
    for day in (first, last):
        if language == "zh":
            spoken.append(f"{day.month}月" if is_whole else f"{day.month}月{day.day}日")
        else:
            spoken.append(_MONTHS[day.month - 1] if is_whole else f"{day.day} {_MONTHS[day.month - 1]}")
    if spoken[0] == spoken[1]:
        return spoken[0]
    return _RANGE[language].format(first=spoken[0], last=spoken[1])


SMALL = {
    "greeting": {
        "en": "Hello. Tell me something, or ask about what was said: I answer by quoting it. "
        "In a chat /help lists the commands.",
        "zh": "你好。可以告诉我一些事，或者问说过的话：我用原话回答。聊天时输入 /帮助 可以看到所有命令。",
    },
    "thanks": {"en": "You're welcome.", "zh": "不客气。"},
    "help": {
        "en": "In a chat /help lists the commands. Tell me something and I keep it; ask, or type a few words, and I "
        "quote what was said; “forget …” erases, after you have seen what.",
        "zh": "聊天时输入 /帮助 可以看到所有命令。告诉我一些事，我会保存；提问或输入几个词，我用原话回答；"
        "“忘掉……”会先给你看内容，再删除。",
    },
    "leave": {"en": "Goodbye. In a chat /quit leaves.", "zh": "再见。聊天时输入 /退出 离开。"},
    "undo": {
        "en": "I can't undo anything: what was erased is gone for good, and everything else is still there. "
        "To correct something, say what is right now.",
        "zh": "我不能撤销：删除的内容无法恢复，其他内容都还在。要更正什么，直接说现在正确的即可。",
    },
    "erase": {
        "en": "Say what to erase: “forget that I moved to Porto”, “forget what I said yesterday”, or in a chat "
        "/forget TEXT. You see what would go, and nothing is erased before you say yes.",
        "zh": "直接说要删除什么：“忘掉我搬家的事”“忘掉我昨天说的话”，聊天时也可以输入 /忘记 文字。"
        "我会先给你看内容，你同意后才删除。",
    },
    "abilities": {
        "en": "Without a model I keep what you say and answer questions by quoting it, with its date: "
        "“Where did I move?”, “What did I say last week?”, or a few words to look up. “Forget …” erases, "
        "after you have seen what. In a chat /help lists the commands.",
        "zh": "没有模型时，我保存你说的话，并用带日期的原话回答问题：“我搬到哪里了？”“上周我说了什么？”，"
        "或者只输入几个词来查找。"
        "“忘掉……”会先给你看内容，再删除。聊天时输入 /帮助 可以看到所有命令。",
    },
}
TOLD = {
    "en": "I have {messages} from you, questions included{since}. What you told about yourself or last:",
    "zh": "我存有你的{messages}消息（包括提问）{since}。你说过的关于自己的话，或最近的话：",
}
SINCE = {"en": ", the first of {day}", "zh": "，最早的是{day}"}
_TODAY = {"en": "Today is {weekday}, {day}.", "zh": "今天是{day}，{weekday}。"}
_WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_ZH_WEEKDAYS = "一二三四五六日"
NOTHING_TOLD = {"en": "You have told me nothing yet.", "zh": "你还没有告诉过我什么。"}
NOTED = {"en": "Noted.", "zh": "已记下。"}
NOT_KEPT = {"en": "Understood, and not kept.", "zh": "知道了，没有保存。"}
NOTHING = {
    "en": "I found no statement about that. That does not mean that it was never said: other words may find it.",
    "zh": "没有找到相关的原话。这不表示从未说过，换个说法也许能找到。",
}
NOTHING_IN = {
    "en": "I found no statement from {period}, nor about it. Other words for the time, or a subject, may find it.",
    "zh": "没有找到{period}说的原话，也没有关于那段时间的。换个时间说法，或说出主题，也许能找到。",
}
NOTHING_EVER = {
    "en": "I found no statement about that, neither from {period} nor from another time. "
    "That does not mean that it was never said: other words may find it.",
    "zh": "没有找到相关的原话，{period}没有，其他时间也没有。这不表示从未说过，换个说法也许能找到。",
}
FOUND = {"en": "This is what was said:", "zh": "找到这些原话："}
PERHAPS = {
    "en": "No statement answers that in these words. Perhaps this does:",
    "zh": "没有原话用这些词回答。也许是这些：",
}
NEAREST = {
    "en": "No statement answers that as it is asked. The nearest:",
    "zh": "没有原话直接回答这个问题。最接近的是：",
}
NEAREST_WITHOUT = {
    "en": "No statement speaks of {names}. The nearest:",
    "zh": "没有原话提到{names}。最接近的是：",
}
FOUND_SINCE = {"en": "Said later, perhaps about the same:", "zh": "之后又说过，也许是同一件事："}
FOUND_OF_DAY = {
    "en": "No statement is about that. From {period}, or about it:",
    "zh": "没有相关的原话。{period}说的，或关于那段时间的原话：",
}
FOUND_BESIDE = {"en": "About {period} this was said:", "zh": "关于{period}说过："}
FOUND_BY = {"en": "This is what {who} said:", "zh": "{who}说过："}
FOUND_BY_IN = {"en": "From {period}, this is what {who} said:", "zh": "{period}，{who}说过："}
FOUND_OF = {
    "en": "{who} has said nothing here. Of {who} this was said:",
    "zh": "这里没有{who}自己说的话。关于{who}说过：",
}
FOUND_BY_OF = {"en": "About {period}, this is what {who} said:", "zh": "关于{period}，{who}说过："}
MORE_BY = {
    "en": "There is more; name a subject or a time to find it.",
    "zh": "还有更多原话；说出主题或时间可以找到。",
}
YOU = {"en": "you", "zh": "你"}
NOT_BY = {
    "en": "I found no such statement by {who}.",
    "zh": "没有找到{who}说的相关原话。",
}
NOT_BY_BUT = {
    "en": "I found no such statement by {who}. Said by others, or at other times:",
    "zh": "没有找到{who}说的相关原话。别人说的，或其他时间说的：",
}
CANNOT = {
    "reminder": {
        "en": "I can't remind you: without being asked I say nothing. Ask for it when you need it.",
        "zh": "我不能提醒你：没人问，我不会主动说话。需要时可以来问。",
    },
    "work": {
        "en": "Without a model I can only quote: “What did I say last week?” shows what was said.",
        "zh": "没有模型时，我只能引用原话：可以问“上周我说了什么？”",
    },
}
FOUND_BY_MEANING = {
    "en": "No statement answers that in these words; in meaning these are the nearest:",
    "zh": "没有原话用这些词回答，意思最接近的是：",
}
FOUND_IN = {"en": "From {period}, or about it:", "zh": "{period}说的，或关于那段时间的原话："}
FOUND_OF_EARLIER = {
    "en": "From {period}, but it names an earlier time:",
    "zh": "{period}说的，但提到的是更早的时间：",
}
FOUND_ELSEWHERE = {
    "en": "Nothing about that is from {period}. At other times this was said:",
    "zh": "{period}没有相关的原话。其他时间说过：",
}
MORE = {
    "en": "There is more from that time; name a subject to find it.",
    "zh": "那段时间还有更多原话；说出主题可以找到。",
}
_UNTIL = {"en": "the time until {day}", "zh": "{day}及以前"}
_RANGE = {"en": "{first} to {last}", "zh": "{first}至{last}"}
_EVERY_YEAR = {"en": "{days} of any year", "zh": "历年{days}"}
NO_DATE = {"en": "no date", "zh": "日期不明"}
WHO = {"en": {"user": "you", "assistant": "assistant"}, "zh": {"user": "你", "assistant": "助手"}}
