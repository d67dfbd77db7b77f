"""One request, one answer: `pikobot run -m TEXT`, and text from a pipe. Loads no line editor, and for a pipe no rich.

On stdout stands the answer and one newline, nothing else; Markdown is rendered only when stdout is a terminal.
"""

import time
from dataclasses import dataclass
from typing import BinaryIO, TextIO

from pikobot.channels.terminal.answering import Outcome, Unasked, follow, report
from pikobot.channels.terminal.commands import Session, perform, unknown_command_hint
from pikobot.channels.terminal.control_sequences import strip_control_sequences
from pikobot.channels.terminal.failures import spoken_failure
from pikobot.channels.terminal.interrupts import Interrupts
from pikobot.channels.terminal.services import Answering, ChatOptions, TerminalServices
from pikobot.channels.terminal.slash import Command, Message, UnknownCommand, parse, without_confirmation
from pikobot.channels.terminal.views import (
    AnswerView,
    Notices,
    PlainView,
    is_rich_terminal,
    silence,
)
from pikobot.channels.terminal.wrapping import columns_of, wrapped
from pikobot.errors import ExitCode, PikobotError, UsageError
from pikobot.streams import make_forgiving

MAX_STDIN_BYTES = 4_000_000


def read_request(stdin: BinaryIO) -> str:
    """All of a pipe as text. UsageError for what is not UTF-8 or longer than MAX_STDIN_BYTES."""
    data = stdin.read(MAX_STDIN_BYTES + 1)
    if len(data) > MAX_STDIN_BYTES:
        raise UsageError(
            f"stdin has more than {MAX_STDIN_BYTES} bytes; load long documents with `pikobot import jsonl FILE`"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"stdin is not UTF-8 text: invalid byte at position {error.start}") from None


async def answer_once(
    services: TerminalServices, text: str, options: ChatOptions, stdout: TextIO, stderr: TextIO
) -> int:
    """Answer one text, or carry it out as a command; the exit code.

    Without a thread's name the request stands alone. 130 when Ctrl-C stopped it, the error's code when it failed
    (what there is of the answer has been printed), 0 when the reader of stdout has gone.
    Raises PikobotError for what failed before there was a run.
    """
    before = [] if options.thread is None else await services.recently_said(options.thread)
    session = Session.begin(options, before)
    typed = parse(text)
    session.hear(typed, text)
    if not text.strip():
        raise UsageError(session.words.empty_message)
    make_forgiving(stdout)
    notices = Notices(stderr, options.environ, services.completed)
    try:
        match typed:
            case UnknownCommand() as unknown:
                raise UsageError(unknown_command_hint(unknown, session.words))
            case Command() as command:
                return await perform(command, session, services, _PrintedDialog(stdout, notices, options))
            case Message(message):
                return await _answer(services, message, options, session, stdout, notices)
    except PikobotError as error:
        error.args = (spoken_failure(str(error), session.words.language),)
        raise
    except BrokenPipeError:
        silence(stdout)
        return ExitCode.DONE


async def _answer(
    services: TerminalServices,
    text: str,
    options: ChatOptions,
    session: Session,
    stdout: TextIO,
    notices: Notices,
) -> int:
    text, is_confirmed = without_confirmation(text)

    async def ask(message: str, *, is_answered: bool = False) -> Outcome:
        async def start() -> Answering:
            if options.is_ephemeral:
                return await services.runner.ask_ephemeral(message)
            answering = await services.runner.ask(
                message, thread_key=options.thread, is_standalone=options.thread is None
            )
            return Unasked(answering) if is_answered else answering

        return await follow(start, _open_view(stdout, notices, options), session.words, interrupts)

    if await services.is_new_mode() and services.runner.mode == "recall":
        notices.say(session.words.recall_notice)
    if options.is_ephemeral:
        notices.say(session.words.ephemeral_notice)
    interrupts = Interrupts()
    with interrupts.installed():
        outcome = await ask(text, is_answered=is_confirmed)
        ended = outcome.ended
        if is_confirmed and ended is not None and ended.proposes_erasure and not ended.must_be_seen:
            outcome = await ask(session.words.confirmation)
    if outcome.ended is not None and outcome.ended.proposes_erasure:
        words, must_be_seen = session.words, outcome.ended.must_be_seen
        notices.say(words.forget_must_be_seen if must_be_seen else words.forget_proposed)
    return report(outcome, notices, session.words)


def _open_view(stdout: TextIO, notices: Notices, options: ChatOptions) -> AnswerView:
    if not is_rich_terminal(stdout, options.environ):
        return PlainView(stdout, notices)
    from pikobot.channels.terminal.live_view import LiveView, open_console  # rich: for terminals only

    return LiveView(open_console(stdout, options.environ), notices, time.monotonic)


@dataclass(frozen=True)
class _PrintedDialog:
    """A command without a conversation: answers to stdout, complaints to stderr, nobody to ask."""

    stdout: TextIO
    notices: Notices
    options: ChatOptions
    is_interactive: bool = False

    def say(self, line: str) -> None:
        columns = columns_of(self.stdout, self.options.environ)
        self.stdout.write(wrapped(strip_control_sequences(line), columns) + "\n")
        self.stdout.flush()

    def complain(self, line: str) -> None:
        self.notices.fail(line)

    async def confirm(self, question: str) -> bool:
        raise AssertionError("only an interactive dialog asks")
