"""What the owner reads in a conversation about forgetting, in English and Chinese, as Markdown."""

import re
from datetime import date

from pikobot.memory.forgetting.preview import MAX_BEGINNING_CHARS, ForgetPreview, PreviewItem
from pikobot.memory.forgetting.receipts import AlreadyErased, Receipt, counted
from pikobot.memory.forgetting.search import NOTHING, Asked, Reach
from pikobot.memory.language.periods import Period
from pikobot.memory.language.questions import Language
from pikobot.memory.recall.answers import spoken_speaker
from pikobot.memory.recall.wording import spoken_period
from pikobot.store.text.segmentation import fold

MAX_SHOWN = 20

# Each is a plain yes, alone or up to three of them one after the other. None has a condition in it.
_YES = frozenset(
    "yes,y,yep,yeah,yup,ok,okay,sure,fine,alright,all right,of course,definitely,absolutely,please do,do so,do it,"
    "go ahead,go for it,confirm,confirmed,i confirm,i agree,agreed,i am sure,i'm sure,erase it,erase them,delete it,"
    "delete them,remove it,remove them,forget them,all of it,all of them,"
    "是,是的,是啊,对,對,对的,對的,好,好的,好吧,好啊,嗯,嗯嗯,行,行吧,行啊,可以,可以的,没问题,沒問題,当然,當然,同意,"
    "确认,確認,确定,確定,确认删除,確認刪除,确定删除,確定刪除,删除,刪除,删除吧,刪除吧,删吧,刪吧,删,刪,删了,刪了,删了吧,刪了吧,"
    "删掉,刪掉,删掉吧,刪掉吧,都删了,都删掉,都删了吧,都删掉吧,都删吧,全删了,全删掉,全部删除,全部删掉,删掉它,把它删了,忘记吧,忘掉吧,"
    "忘了吧,请删除,請刪除,请删掉,請刪掉".split(",")
)
# Beside a consent only.
_COURTESY = frozenset({"please", "thanks", "thank you", "谢谢", "謝謝"})
_NO = frozenset(
    "no,n,nope,no thanks,no thank you,cancel,stop,never mind,keep it,keep them,no keep it,no keep them,don't,do not,"
    "不,不要,不用,不用了,不删,不删了,取消,别,别删,别删了,先别删,算了,算了吧,不是,保留,保留吧,留着,留着吧".split(
        ","
    )
)
MAX_CONSENTS = 3
MAX_ANSWER_CHARS = 100  # what is longer says more than yes or no
_EDGES = " \t\r\n.,!?;:。，！？；：、~～\"'“”‘’「」"


def says_yes(text: str) -> bool:
    """Whether a message is nothing but a yes, in up to three ways: ``ok, go ahead``, ``是的，删吧``."""
    if len(text) > MAX_ANSWER_CHARS:
        return False
    return "?" not in fold(text) and _are_consents(_bare(text), MAX_CONSENTS)


def says_no(text: str) -> bool:
    """Whether a message is nothing but a no."""
    return len(text) <= MAX_ANSWER_CHARS and _bare(text) in _NO


def _are_consents(said: str, at_most: int) -> bool:
    if said in _YES:
        return True
    words = said.split()
    splits = ((" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words)))
    return at_most > 1 and any(
        (first in _YES and (rest in _COURTESY or _are_consents(rest, at_most - 1)))
        or (first in _COURTESY and _are_consents(rest, at_most - 1))
        for first, rest in splits
    )


def _bare(text: str) -> str:
    return " ".join(_SEPARATORS.sub(" ", fold(text).replace("’", "'")).strip(_EDGES).split())


def proposal_text(shown: ForgetPreview, language: Language, asked: Asked = NOTHING) -> str:
    """What would go, and how the owner says so. Names only what is quoted from the sources and facts of the preview.

    Marks what holds only a part of the words that were ``asked`` for, where something else holds them all.
    Names the days that were asked for.
    """
    chinese = language == "zh"
    marked = asked.loose if asked.reach is Reach.SOME else frozenset[str]()
    mark = "（只含部分字词）" if chinese else " (a part of your words)"
    items = [item_text(item, language) + mark * (item.id in marked) for item in shown.items[:MAX_SHOWN]]
    parts = [
        *([_DAYS[language].format(days=spoken_period(asked.period, language))] if asked.period else []),
        *([_REACHES[asked.reach][language]] if asked.reach in _REACHES else []),
        heading_text(shown, language),
        _list(items, shown.told, chinese),
    ]
    if shown.fact_count:
        parts.append("随之删除的事实：" if chinese else "Facts that go with it:")
        facts = [_flat(fact.text) for fact in shown.facts[:MAX_SHOWN]]
        parts.append(_list(facts, shown.fact_count, chinese))
    return "\n\n".join(parts) + question_text(language)


def heading_text(shown: ForgetPreview, language: Language) -> str:
    """What is listed below it, with the numbers that the receipt will give."""
    counts = [counted("sources", shown.total + shown.along, language)]
    if of_requests := shown.aside + shown.along:
        counts += [
            f"其中 {of_requests} 条属于删除请求"
            if language == "zh"
            else f"{of_requests} of requests to forget"
        ]
    if shown.exchanges:
        counts += [
            f"其中 {shown.exchanges} 条是提问和引用这些内容的回答，不再列出"
            if language == "zh"
            else f"{shown.exchanges} of questions about this and answers that quote it, not listed"
        ]
    counts += [counted("facts", shown.fact_count, language)] if shown.fact_count else []
    counts += [counted("threads", shown.thread_count, language)] if shown.thread_count else []
    if language == "zh":
        return f"这些会被永久删除，连同由此得出的一切（{'，'.join(counts)}）："
    return f"This would be erased for good, with everything made from it ({', '.join(counts)}):"


def item_text(item: PreviewItem, language: Language) -> str:
    """A statement as answers quote it."""
    day = "日期不明" if language == "zh" else "no date"
    if item.said is not None:
        said_on = date.fromisoformat(item.said[:10])
        day = spoken_period(Period(said_on, said_on), language)
    who = spoken_speaker(item.role, item.speaker, language)
    cut = "…" if len(item.beginning) == MAX_BEGINNING_CHARS else ""
    text = _flat(item.beginning) + cut
    return f"{day}，{who}：“{text}”" if language == "zh" else f"{day}, {who}: “{text}”"


def unheeded_text(language: Language) -> str:
    """Before the answer to a message that came next after a preview and is no plain yes or no."""
    return (
        "什么都没有删除：这不是一个单独的“是”，刚才列出的内容都还保留着。"
        if language == "zh"
        else "Nothing was erased: that was not a plain yes, and all that was shown is still kept."
    )


def question_text(language: Language) -> str:
    """How what is proposed ends, as a paragraph."""
    return "\n\n" + (
        "回复“是”就删除；回复其他内容则保留。"
        if language == "zh"
        else "Answer “yes” to erase it; any other message keeps it."
    )


def changed_text(shown: ForgetPreview, language: Language) -> str:
    """Nothing was erased, because it was not what had been shown; this is it now."""
    first = (
        "没有删除任何内容：要删除的内容刚刚有变化。"
        if language == "zh"
        else "Nothing was erased: what would go has changed meanwhile."
    )
    return f"{first}\n\n{proposal_text(shown, language)}"


def outcome_text(outcome: Receipt | AlreadyErased, language: Language) -> str:
    """The lines of a receipt, its table as a list."""
    text = ""
    for line in outcome.render_lines(language):
        is_item = line.startswith(" ")
        follows_item = text.rpartition("\n")[2].startswith("- ")
        text += "" if not text else "\n" if is_item and follows_item else "\n\n"
        text += f"- {' '.join(line.split())}" if is_item else line
    return text


def nothing_text(language: Language) -> str:
    return (
        "没有找到匹配的内容；什么都没有删除。`/忘记 文字` 可以删除包含某段文字的所有消息。"
        if language == "zh"
        else "Nothing that is kept matches; nothing was erased. `/forget TEXT` erases whatever contains a text."
    )


def kept_text(language: Language) -> str:
    return "什么都没有删除。" if language == "zh" else "Nothing was erased."


def hint_text(language: Language) -> str:
    """For a message that may have been a request to forget, of a form that is not understood."""
    return (
        "什么都没有删除；如果要删除内容：`/忘记 文字` 会先显示、再询问。"
        if language == "zh"
        else "Nothing was erased. If something is to be: `/forget TEXT` shows it first and asks."
    )


def unclear_text(language: Language) -> str:
    """For a message that is nothing but a request to forget, of something that can't be told."""
    return (
        "什么都没有删除：不清楚要删除什么。`/忘记 文字` 会先显示包含该文字的消息、再询问。"
        if language == "zh"
        else "Nothing was erased: it is not clear what is meant. `/forget TEXT` shows what contains a text and asks."
    )


def nothing_waits_text(language: Language) -> str:
    """For a bare yes or no where nothing that was shown waits for one."""
    return (
        "没有等待确认的内容；什么都没有删除，这条回答也没有保存。"
        if language == "zh"
        else "Nothing was waiting for your yes or no: nothing was erased, and this answer is not kept."
    )


def ephemeral_text(language: Language) -> str:
    return (
        "临时对话不能删除记忆：请在普通对话中用 `/忘记 文字`。"
        if language == "zh"
        else "An ephemeral conversation can't erase what is kept: use `/forget TEXT`."
    )


def _list(items: list[str], total: int, chinese: bool) -> str:
    more = total - len(items)
    if more > 0:
        items = [
            *items,
            f"… 还有 {more} 条：`/忘记 文字 --all` 或 `/忘记 起..止 --all` 会全部列出"
            if chinese
            else f"… and {more} more: `/forget TEXT --all` or `/forget FROM..TO --all` lists every one",
        ]
    return "\n".join(f"- {item}" for item in items)


def _flat(text: str) -> str:
    return " ".join(text.split())


_SEPARATORS = re.compile("[,、;；.。!！~～\\s]+")
_DAYS: dict[Language, str] = {"en": "The days that are meant: {days}.", "zh": "所指的日期：{days}。"}
_REACHES: dict[Reach, dict[Language, str]] = {
    Reach.SOME: {
        "en": "Some of this holds only a part of your words; with a yes it goes along. `/forget TEXT` takes only what "
        "contains a text.",
        "zh": "其中有些只含有你所说的一部分字词，回复“是”会一并删除；`/忘记 文字` 只删除包含该文字的消息。",
    },
    Reach.NEAREST: {
        "en": "Nothing is certainly what you mean. This comes nearest:",
        "zh": "没有找到确定是你所指的内容，最接近的是：",
    },
}
