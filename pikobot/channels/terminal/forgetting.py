"""`/forget`: shows what would go, asks, erases, prints the receipt. Where nobody can be asked, --yes is the answer."""

import re
from dataclasses import dataclass
from typing import Protocol

from pikobot.channels.terminal.services import ForgetService, Receipt
from pikobot.channels.terminal.slash import Command
from pikobot.channels.terminal.wording import Wording
from pikobot.errors import ExitCode, UsageError
from pikobot.memory.forgetting.preview import ForgetPreview
from pikobot.memory.forgetting.receipts import Changed, label_lines
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.forgetting.wording import heading_text, item_text
from pikobot.memory.moments import parse_moment
from pikobot.text import Count

_ID = re.compile(r"(?P<prefix>src|thr|fact)_[A-Za-z0-9_-]{16,}\Z")
_DAY = re.compile(r"(?P<year>\d{4})(?P<sign>[-/.])(?P<month>\d{1,2})(?P=sign)(?P<day>\d{1,2})")
_LIKE_A_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:T.*)?\Z")
_RANGE_SIGNS = ("..", "到", "至")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "「": "」", "『": "』", "《": "》"}
_WHOLE_THREAD = frozenset({"thread", "话题", "話題"})


class Asking(Protocol):
    """The part of a dialog that erasing needs."""

    @property
    def is_interactive(self) -> bool: ...

    def say(self, line: str) -> None: ...

    def complain(self, line: str) -> None: ...

    async def confirm(self, question: str) -> bool: ...


@dataclass(frozen=True)
class Forgotten:
    exit_code: int
    is_erased: bool = False
    erased_thread_id: str | None = None


async def forget(
    command: Command, *, thread_id: str | None, words: Wording, service: ForgetService, dialog: Asking
) -> Forgotten:
    """Carry out one `/forget`. Nothing is erased without a yes, or --yes where nobody can be asked."""
    which = words.nothing_said_here if dialog.is_interactive else words.which_thread
    target = target_of(command.argument, thread_id, which)
    receipt: Receipt | Changed = Changed()
    while isinstance(receipt, Changed):
        preview = await service.preview(target, shows_all=command.shows_all)
        if preview.total == 0:
            return _nothing(preview, words, dialog)
        _show(preview, words, dialog)
        if not dialog.is_interactive and not command.is_confirmed:
            dialog.complain(words.forget_confirm_flag)
            return Forgotten(ExitCode.FAILED)
        if dialog.is_interactive and not await dialog.confirm(words.forget_question):
            dialog.say(words.kept)
            return Forgotten(ExitCode.DONE)
        receipt = await service.forget(preview)
        if isinstance(receipt, Changed):
            dialog.say(words.forget_changed)
    for line in receipt.render_lines(words.language):
        dialog.say(line)
    if dialog.is_interactive:
        dialog.say(words.scrollback)
    return Forgotten(ExitCode.DONE if receipt.is_clean else ExitCode.FAILED, True, target.thread)


def target_of(argument: str, thread_id: str | None, which_thread: str) -> ForgetTarget:
    """What an argument means; UsageError for a date that there is none of, and, with ``which_thread`` as its message,
    when it means a thread and there is none."""
    if known := _ID.match(argument):
        match known["prefix"]:
            case "src":
                return ForgetTarget(sources=(argument,))
            case "fact":
                return ForgetTarget(facts=(argument,))
        return ForgetTarget(thread=argument)
    if (span := _range_of(argument)) is not None:
        return ForgetTarget(from_=span[0], to=span[1])
    if argument and argument.casefold() not in _WHOLE_THREAD:
        return _words_of(argument)
    if thread_id is None:
        raise UsageError(which_thread)
    return ForgetTarget(thread=thread_id) if argument else ForgetTarget(last_exchange=thread_id)


def _range_of(argument: str) -> tuple[str | None, str | None] | None:
    """The ends of a range of time such as ``2024-03-01..2024-03-31``, of which one may be left out.

    Raises `UsageError` for an end that is written like a date, and there is none of it.
    """
    for sign in _RANGE_SIGNS:
        ends = [_in_iso(end.strip()) for end in argument.split(sign)]
        if len(ends) != 2 or not any(ends):
            continue
        wrong = [end for end in ends if end and not _is_moment(end)]
        if not wrong:
            return ends[0] or None, ends[1] or None
        if all(_is_moment(end) or _LIKE_A_DATE.match(end) for end in filter(None, ends)):
            raise UsageError(f"there is no such date: {wrong[0]}")
    return None


def _in_iso(end: str) -> str:
    """A day as it is written elsewhere, such as 2026/3/1 or 2026.03.01, in ISO 8601; anything else as it is."""
    day = _DAY.fullmatch(end)
    return end if day is None else f"{day['year']}-{day['month']:0>2}-{day['day']:0>2}"


def _is_moment(text: str) -> bool:
    try:
        parse_moment(text)
    except ValueError:
        return False
    return True


def _nothing(preview: ForgetPreview, words: Wording, dialog: Asking) -> Forgotten:
    if preview.already_erased:
        dialog.say(words.already_forgotten)
        return Forgotten(ExitCode.DONE)
    dialog.say(words.nothing_to_forget)
    _show_what_stays(preview, words, dialog)
    return Forgotten(ExitCode.DONE if dialog.is_interactive else ExitCode.NOT_FOUND)


def _words_of(argument: str) -> ForgetTarget:
    """A text as whole words; in quotes wherever it stands."""
    if len(argument) > 2 and _QUOTES.get(argument[0]) == argument[-1]:
        return ForgetTarget(words=(argument[1:-1],))
    return ForgetTarget(words=(argument,), whole_words=True)


def _show(preview: ForgetPreview, words: Wording, dialog: Asking) -> None:
    dialog.say(heading_text(preview, words.language))
    for item in preview.items:
        by_fact = words.forget_held_by_fact if item.held == "fact" else ""
        dialog.say(f"  {item_text(item, words.language)}{by_fact}")
    if preview.told > len(preview.items):
        dialog.say("  " + words.forget_more_with_all.format(count=preview.told - len(preview.items)))
    if preview.fact_count:
        dialog.say(words.forget_facts.format(count=preview.fact_count))
        for fact in preview.facts:
            dialog.say(f"  {_on_one_line(fact.text)}")
        if preview.fact_count > len(preview.facts):
            dialog.say(
                "  " + words.forget_more_with_all.format(count=preview.fact_count - len(preview.facts))
            )
    names = [f"“{name}”" for _, name in preview.threads if name is not None]
    if names:
        more = preview.thread_count - len(names)
        names += [words.forget_threads_without_name.format(count=more)] if more else []
        between = "、" if words.language == "zh" else ", "
        dialog.say(words.forget_threads.format(names=between.join(names)))
    _show_what_stays(preview, words, dialog)


def _show_what_stays(preview: ForgetPreview, words: Wording, dialog: Asking) -> None:
    count, inside = preview.inside
    if count:
        text, within = preview.target.words[0], ("、" if words.language == "zh" else ", ").join(inside)
        dialog.say(words.forget_inside.format(text=text, words=within, count=Count(count)))
    for line in label_lines(preview.labels, words.language):
        dialog.say(line)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
