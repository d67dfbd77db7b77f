"""What the owner reads in a conversation about forgetting, in English and Chinese, as Markdown."""

from pikobot.memory.forget_preview import ForgetPreview, PreviewItem
from pikobot.memory.questions import Language
from pikobot.memory.receipts import AlreadyErased, Receipt
from pikobot.store.segmentation import fold
from pikobot.text import Count

MAX_SHOWN = 10

_YES = frozenset(
    "yes,y,yes please,yes do,confirm,confirmed,i confirm,do it,yes do it,erase it,yes erase it,"
    "是,是的,对,好,好的,确认,確認,确定,確定,可以,删除,删除吧,刪除吧,删吧,忘记吧,忘掉吧".split(",")
)
_NO = frozenset(
    "no,n,no thanks,cancel,stop,keep it,keep them,don't,do not,不,不要,不用,不用了,取消,别,算了,不是,保留".split(
        ","
    )
)
_ASIDE = "message of earlier requests to forget"
_EDGES = " \t\r\n.,!?;:。，！？；：、~～\"'“”‘’「」"


def says_yes(text: str) -> bool:
    """Whether a message is nothing but a yes."""
    return _bare(text) in _YES


def says_no(text: str) -> bool:
    """Whether a message is nothing but a no."""
    return _bare(text) in _NO


def _bare(text: str) -> str:
    return " ".join(fold(text).replace("’", "'").replace(",", " ").strip(_EDGES).split())


def proposal_text(shown: ForgetPreview, language: Language) -> str:
    """What would go, and how the owner says so. Names only what is quoted from the sources and facts of the preview."""
    chinese = language == "zh"
    counted = _counts(shown, chinese)
    parts = [
        f"这些会被永久删除，连同由此得出的一切（{counted}）："
        if chinese
        else f"This would be erased for good, with everything made from it ({counted}):",
        _list(
            [_item(item) for item in shown.items[:MAX_SHOWN]],
            shown.told,
            chinese,
        ),
    ]
    if shown.fact_count:
        parts.append("随之删除的事实：" if chinese else "Facts that go with it:")
        facts = [_flat(fact.text) for fact in shown.facts[:MAX_SHOWN]]
        parts.append(_list(facts, shown.fact_count, chinese))
    return "\n\n".join(parts) + question_text(language)


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
        "没有找到匹配的内容；什么都没有删除。`/忘记 文字` 可以删除包含某段文字的所有记录。"
        if language == "zh"
        else "Nothing that is kept matches; nothing was erased. `/forget TEXT` erases whatever contains a text."
    )


def kept_text(language: Language) -> str:
    return "什么都没有删除。" if language == "zh" else "Nothing was erased."


def hint_text(language: Language) -> str:
    """For a message that may have been a request to forget, of a form that is not understood."""
    return (
        "如果是要删除内容：`/忘记 文字` 会先显示、再询问。"
        if language == "zh"
        else "If something is to be erased: `/forget TEXT` shows it first and asks."
    )


def unclear_text(language: Language) -> str:
    """For a message that is nothing but a request to forget, of something that can't be told."""
    return (
        "什么都没有删除：不清楚要删除什么。`/忘记 文字` 会先显示包含该文字的记录、再询问。"
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


def _counts(shown: ForgetPreview, chinese: bool) -> str:
    counts = [
        (shown.told, "条记录", "statement"),
        (shown.fact_count, "条事实", "fact"),
        (shown.thread_count, "个完整的话题", "whole conversation"),
        (
            shown.aside,
            "条以前的删除请求和回答",
            "message of earlier requests to forget|messages of earlier requests to forget",
        ),
    ]
    if chinese:
        return "，".join(f"{count} {name}" for count, name, _ in counts if count)
    return ", ".join(f"{Count(count):{nouns}}" for count, _, nouns in counts if count)


def _item(item: PreviewItem) -> str:
    day = "" if item.said is None else f"{item.said[:10]}, "
    return f"{day}{item.speaker}: {_flat(item.beginning)}"


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
