"""Carries out slash commands, for the chat and for a single request alike.

A command creates no thread and no source. What it reports goes to the dialog's answer side, so that
`pikobot run -m /status | …` works; its complaints go to the notice side.
"""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from pikobot.channels.terminal.explaining import why_lines
from pikobot.channels.terminal.forgetting import forget
from pikobot.channels.terminal.services import ChatOptions, TerminalServices
from pikobot.channels.terminal.slash import Command, CommandName, Message, UnknownCommand
from pikobot.channels.terminal.status import status_lines
from pikobot.channels.terminal.wording import Wording, clear_language, locale_language, spelled, wording
from pikobot.channels.terminal.wrapping import cells
from pikobot.errors import ExitCode, PikobotError, UsageError

MAX_THREADS_SHOWN = 20
MAX_TITLE_CHARS = 60

_ID = re.compile("(?:src|thr|fact)_")


@dataclass
class Session:
    """Where the conversation stands. With neither id nor key, the next message starts a thread.

    ``words`` are in the language of what was typed last, as far as that has one, else in that of the conversation.
    """

    words: Wording
    conversation_words: Wording
    thread_id: str | None = None
    thread_key: str | None = None
    thread_name: str | None = None  # for show
    listed: list[dict[str, object]] = field(default_factory=list)  # what /threads N counts in

    @classmethod
    def begin(cls, options: ChatOptions, recently_said: Iterable[str] = ()) -> "Session":
        """``recently_said``: the last messages, newest first; without one in a clear language the locale decides."""
        known = (language for text in recently_said if (language := clear_language(text)) is not None)
        words = wording(next(known, locale_language(options.environ)))
        return cls(words, words, thread_key=options.thread, thread_name=options.thread)

    def move(self, *, thread_id: str | None = None, key: str | None = None, name: str | None = None) -> None:
        """Go to a thread, or to none yet."""
        self.thread_id, self.thread_key, self.thread_name = thread_id, key, name

    def hear(self, typed: Message | Command | UnknownCommand, text: str) -> None:
        """Speak the language of what was just typed; of a message from now on, of a command only this time."""
        language = clear_language(text)
        if not isinstance(typed, Message) and text.isascii():  # `/help` alone does not say English
            named = typed.argument if isinstance(typed, Command) else ""
            language = "en" if any(map(str.isalpha, named)) and not _ID.match(named) else None
        self.words = self.conversation_words if language is None else wording(language)
        if isinstance(typed, Message):
            self.conversation_words = self.words


class Dialog(Protocol):
    """Where a command speaks; ``confirm`` is called only where somebody can be asked."""

    @property
    def is_interactive(self) -> bool: ...

    def say(self, line: str) -> None: ...

    def complain(self, line: str) -> None: ...

    async def confirm(self, question: str) -> bool: ...


def unknown_command_hint(command: UnknownCommand, words: Wording) -> str:
    hint = words.unknown_command.format(word=command.word)
    return hint + (words.nearest.format(name=command.nearest) if command.nearest else words.help_hint)


async def perform(command: Command, session: Session, services: TerminalServices, dialog: Dialog) -> int:
    """Carry out a command, `/quit` excepted, which is its caller's. The exit code; raises PikobotError."""
    match command.name:
        case CommandName.HELP:
            dialog.say(session.words.help)
        case CommandName.STATUS:
            for line in status_lines(await services.status(), session.words):
                dialog.say(services.completed(line))
        case CommandName.THREADS:
            await _threads(command.argument, session, services, dialog)
        case CommandName.NEW:
            await _new(command.argument, session, services, dialog)
        case CommandName.STOP:
            await _stop(session, services, dialog)
        case CommandName.WHY:
            await _why(session, services, dialog)
        case CommandName.FORGET:
            return await _forget(command, session, services, dialog)
        case CommandName.QUIT:
            pass
    return ExitCode.DONE


async def _threads(argument: str, session: Session, services: TerminalServices, dialog: Dialog) -> None:
    if argument:
        if not dialog.is_interactive:
            raise _only_in_a_chat(CommandName.THREADS, " N", session.words)
        session.listed = session.listed or (await services.threads())[:MAX_THREADS_SHOWN]
        await resume(_numbered(argument, session), session, services, dialog)
        return
    found = await services.threads()
    session.listed = found[:MAX_THREADS_SHOWN]
    if not session.listed:
        dialog.say(session.words.no_threads)
    counts = [_count(thread, session.words) for thread in session.listed]
    width = max(map(cells, counts), default=0)
    for number, (thread, count) in enumerate(zip(session.listed, counts, strict=True), start=1):
        mark = "*" if thread.get("id") == session.thread_id else " "
        date, padding = _date(thread, session.words), " " * (width - cells(count))
        dialog.say(f"{mark}{number:>3}  {date}  {padding}{count}  {_title(thread, session.words)}")
    if len(found) > MAX_THREADS_SHOWN:
        dialog.say(services.completed(session.words.threads_more))
    if session.listed and dialog.is_interactive:
        dialog.say(session.words.threads_hint)


def _only_in_a_chat(name: CommandName, argument: str, words: Wording) -> UsageError:
    return UsageError(words.interactive_only.format(name=spelled(name, words.language) + argument))


def _numbered(argument: str, session: Session) -> dict[str, object]:
    if argument.isdecimal() and 1 <= int(argument) <= len(session.listed):
        return session.listed[int(argument) - 1]
    raise UsageError(session.words.thread_number.format(count=len(session.listed)))


async def resume(
    thread: dict[str, object], session: Session, services: TerminalServices, dialog: Dialog
) -> None:
    """Continue a listed thread: its name, when it was last used, and what a crash cut off in it."""
    thread_id, key = str(thread["id"]), thread.get("key")
    session.move(thread_id=thread_id, name=None if key is None else str(key))
    title, date = _title(thread, session.words), _date(thread, session.words)
    dialog.say(session.words.resumed.format(title=title, date=date))
    if await services.is_cut_off(thread_id):
        dialog.complain(session.words.cut_off)


async def _new(name: str, session: Session, services: TerminalServices, dialog: Dialog) -> None:
    if not dialog.is_interactive:
        raise _only_in_a_chat(CommandName.NEW, "", session.words)
    if not name:
        session.move()
        dialog.say(session.words.new_thread)
        return
    await open_named(name, session, services, dialog)


async def open_named(name: str, session: Session, services: TerminalServices, dialog: Dialog) -> None:
    """Continue the thread of that name, or have the next message start it."""
    thread = await services.named(name)
    if thread is not None:
        await resume(thread, session, services, dialog)
        return
    session.move(key=name, name=name)
    dialog.say(session.words.resumed_new.format(name=name))


async def _stop(session: Session, services: TerminalServices, dialog: Dialog) -> None:
    thread_id = await _current_thread(session, services)
    stopped = await services.runner.stop_thread(thread_id) if thread_id else 0
    words = session.words
    dialog.say(words.stopped_runs.format(count=stopped) if stopped else words.nothing_to_stop)


async def _why(session: Session, services: TerminalServices, dialog: Dialog) -> None:
    """Explain the last answer of this conversation; of a single request, which has none, the newest of all."""
    thread_id = await _current_thread(session, services)
    is_new = thread_id is None and (dialog.is_interactive or session.thread_key is not None)
    for line in why_lines(None if is_new else await services.why(thread_id), session.words):
        dialog.say(line)


async def _forget(command: Command, session: Session, services: TerminalServices, dialog: Dialog) -> int:
    if services.forget is None:
        raise PikobotError("this terminal cannot erase: nothing was changed")
    thread_id = await _current_thread(session, services)
    outcome = await forget(
        command, thread_id=thread_id, words=session.words, service=services.forget, dialog=dialog
    )
    if outcome.erased_thread_id is not None and outcome.erased_thread_id == session.thread_id:
        session.move()
    return outcome.exit_code


async def _current_thread(session: Session, services: TerminalServices) -> str | None:
    if session.thread_id is None and session.thread_key is not None:
        thread = await services.named(session.thread_key)
        return None if thread is None else str(thread["id"])
    return session.thread_id


def _title(thread: dict[str, object], words: Wording) -> str:
    """Its name, and how it begins."""
    key, beginning = thread.get("key"), " ".join(str(thread.get("beginning") or "").split())
    if len(beginning) > MAX_TITLE_CHARS:
        last_space = beginning.rfind(" ", MAX_TITLE_CHARS // 2, MAX_TITLE_CHARS + 1)
        beginning = beginning[: last_space if last_space > 0 else MAX_TITLE_CHARS] + "…"
    quoted = f"“{beginning}”" if beginning else ""
    return f"{key or ''} {quoted}".strip() or words.thread_without_name


def _count(thread: dict[str, object], words: Wording) -> str:
    count = thread.get("messages", 0)
    return words.one_message if count == 1 else words.messages.format(count=count)


def _date(thread: dict[str, object], words: Wording) -> str:
    """The last message's time, on this machine's clock, to the minute."""
    written = str(thread.get("lastSaidAt") or "")
    with contextlib.suppress(ValueError):
        return datetime.fromisoformat(written).astimezone().strftime("%Y-%m-%d %H:%M")
    return words.never
