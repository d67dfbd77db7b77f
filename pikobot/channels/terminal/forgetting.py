"""`/forget`: shows what would go, asks, erases, prints the receipt. Where nobody can be asked, --yes is the answer."""

import re
from dataclasses import dataclass
from typing import Protocol

from pikobot.channels.terminal.services import ForgetService
from pikobot.channels.terminal.slash import Command
from pikobot.channels.terminal.wording import Wording
from pikobot.errors import ExitCode, UsageError
from pikobot.memory.forget import ForgetPreview, ForgetTarget

MAX_ITEMS_SHOWN = 20

_ID = re.compile(r"(?P<prefix>src|thr)_[A-Za-z0-9_-]{16,}\Z")
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
    target = target_of(command.argument, thread_id, words)
    preview = await service.preview(target)
    if preview.total == 0:
        dialog.say(words.nothing_to_forget)
        return Forgotten(ExitCode.DONE if dialog.is_interactive else ExitCode.NOT_FOUND)
    _show(preview, words, dialog)
    if not dialog.is_interactive and not command.is_confirmed:
        dialog.complain(words.forget_confirm_flag)
        return Forgotten(ExitCode.FAILED)
    if dialog.is_interactive and not await dialog.confirm(words.forget_question):
        dialog.say(words.kept)
        return Forgotten(ExitCode.DONE)
    receipt = await service.forget(preview)
    for line in receipt.render_lines(words.language):
        dialog.say(line)
    if dialog.is_interactive:
        dialog.say(words.scrollback)
    return Forgotten(ExitCode.DONE, True, target.thread)


def target_of(argument: str, thread_id: str | None, words: Wording) -> ForgetTarget:
    """What an argument means; UsageError when it means a thread and there is none."""
    if known := _ID.match(argument):
        is_source = known["prefix"] == "src"
        return ForgetTarget(sources=(argument,)) if is_source else ForgetTarget(thread=argument)
    if argument and argument.casefold() not in _WHOLE_THREAD:
        return ForgetTarget(text=_unquoted(argument))
    if thread_id is None:
        raise UsageError(words.which_thread)
    return ForgetTarget(thread=thread_id) if argument else ForgetTarget(last_exchange=thread_id)


def _unquoted(argument: str) -> str:
    is_quoted = len(argument) > 2 and _QUOTES.get(argument[0]) == argument[-1]
    return argument[1:-1] if is_quoted else argument


def _show(preview: ForgetPreview, words: Wording, dialog: Asking) -> None:
    dialog.say(words.forget_total.format(count=preview.total))
    shown = preview.items[:MAX_ITEMS_SHOWN]
    for _, _, speaker, date, beginning in shown:
        dialog.say(f"  {date}  {speaker}: {' '.join(beginning.split())}")
    if preview.total > len(shown):
        dialog.say("  " + words.forget_more.format(count=preview.total - len(shown)))
