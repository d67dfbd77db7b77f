"""The chat: prompt, answer, prompt, until the owner leaves.

The terminal is given back as it was found, whatever ends the chat. Failures of a message or a command are shown
and the chat goes on; only leaving, or being cancelled from outside, ends it.
"""

import asyncio
import contextlib
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from prompt_toolkit.input import Input
from prompt_toolkit.output import Output, create_output

from pikobot.channels.terminal.answering import follow, report
from pikobot.channels.terminal.commands import Session, open_named, perform, unknown_command_hint
from pikobot.channels.terminal.control_sequences import strip_control_sequences
from pikobot.channels.terminal.failures import spoken_failure
from pikobot.channels.terminal.interrupts import Interrupts
from pikobot.channels.terminal.live_view import LiveView, open_console
from pikobot.channels.terminal.prompt import LineEditor
from pikobot.channels.terminal.services import Answering, ChatOptions, TerminalServices
from pikobot.channels.terminal.slash import Command, CommandName, Message, UnknownCommand, parse
from pikobot.channels.terminal.views import (
    AnswerView,
    Notices,
    PlainView,
    is_rich_terminal,
)
from pikobot.channels.terminal.wrapping import columns_of, wrapped
from pikobot.errors import ExitCode, PikobotError
from pikobot.memory.forgetting.wording import says_yes
from pikobot.streams import OutputFailed, make_forgiving


@dataclass(frozen=True)
class Streams:
    """Where the chat reads and writes; ``source`` and ``sink`` replace the line editor's terminal."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    source: Input | None = None
    sink: Output | None = None


async def chat(services: TerminalServices, options: ChatOptions, streams: Streams | None = None) -> int:
    """Talk until the owner leaves; the exit code. stdin is a terminal; answers may go into a file."""
    if streams is None:
        sink = None if sys.stdout.isatty() else create_output(sys.stderr)
        streams = Streams(sys.stdin, sys.stdout, sys.stderr, sink=sink)
    return await _Chat(services, options, streams).run()


class _Chat:
    """One conversation at a terminal; also the dialog in which its commands speak."""

    is_interactive = True

    def __init__(self, services: TerminalServices, options: ChatOptions, streams: Streams) -> None:
        make_forgiving(streams.stdout)
        self._services = services
        self._options = options
        self._streams = streams
        self._session = Session.begin(options)
        self._notices = Notices(streams.stderr, options.environ, services.completed)
        self._editor = LineEditor(self._toolbar, options.environ, source=streams.source, sink=streams.sink)
        self._interrupts = Interrupts()

    async def run(self) -> int:
        with self._interrupts.installed(), _without_echo(self._streams.stdin):
            self._session = Session.begin(self._options, await self._services.recently_said(None))
            await self._greet()
            presses = 0  # of Ctrl-C on an empty line, one after the other
            while True:
                typed = await self._read()
                if typed is not None:
                    presses = 0
                    if not await self._handle(typed):
                        return ExitCode.DONE
                    continue
                presses += 1
                if presses > 1:
                    return ExitCode.DONE
                self._notices.say(self._session.words.leave_hint)

    async def _read(self) -> str | None:
        """What was typed; None for Ctrl-C, and /quit for the end of input."""
        if self._interrupts.take_missed():
            return None
        try:
            with self._interrupts.to(self._editor.interrupt):
                return await self._editor.read()
        except KeyboardInterrupt:
            return None
        except EOFError:
            return f"/{CommandName.QUIT}"

    def say(self, line: str) -> None:
        columns = columns_of(self._streams.stdout, self._options.environ)
        self._streams.stdout.write(wrapped(strip_control_sequences(line), columns) + "\n")
        self._streams.stdout.flush()

    def complain(self, line: str) -> None:
        self._notices.fail(line)

    async def confirm(self, question: str) -> bool:
        try:
            with self._interrupts.to(self._editor.interrupt):
                answer = await self._editor.ask(question)
        except (EOFError, KeyboardInterrupt):
            return False
        return says_yes(answer)

    async def _greet(self) -> None:
        words, runner = self._session.words, self._services.runner
        is_new_mode = await self._services.is_new_mode()
        if runner.mode == "recall":
            self._notices.say(words.greeting_recall)
            if is_new_mode:
                self._notices.say(words.recall_notice)
        else:
            self._notices.say(words.greeting_model.format(model=runner.model))
        if self._options.is_ephemeral:
            self._notices.say(words.ephemeral_notice)
        elif self._options.thread is not None:
            await open_named(self._options.thread, self._session, self._services, self)

    async def _handle(self, text: str) -> bool:
        """Answer a message or carry out a command, failures included; False when it ends the chat."""
        typed = parse(text)
        self._session.hear(typed, text)
        try:
            match typed:
                case Message(message):
                    return not message.strip() or await self._answer(message)
                case UnknownCommand() as unknown:
                    self.complain(unknown_command_hint(unknown, self._session.words))
                case Command(name=CommandName.QUIT):
                    return False
                case Command() as command:
                    await self._perform(command)
        except OutputFailed:
            raise
        except PikobotError as error:
            words = self._session.words
            self.complain(words.error.format(reason=spoken_failure(str(error), words.language)))
        return True

    async def _perform(self, command: Command) -> None:
        """A command under way is cancelled by Ctrl-C; what it has committed stays."""
        performing = asyncio.create_task(perform(command, self._session, self._services, self))
        try:
            with self._interrupts.to(performing.cancel):
                await asyncio.wait({performing})
        finally:
            performing.cancel()
            if command.name is CommandName.FORGET:
                self._editor.forget_history()
        if performing.cancelled():
            self._notices.say(self._session.words.stopped)
        else:
            performing.result()

    async def _answer(self, text: str) -> bool:
        view = self._open_view()
        outcome = await follow(lambda: self._ask(text), view, self._session.words, self._interrupts)
        if outcome.thread_id:
            self._session.move(thread_id=outcome.thread_id, name=self._session.thread_name)
        if outcome.ended is not None and outcome.ended.has_erased:
            self._editor.forget_history()
            self._notices.say(self._session.words.scrollback)
        report(outcome, self._notices, self._session.words)
        return outcome.ended is not None

    async def _ask(self, text: str) -> Answering:
        if self._options.is_ephemeral:
            return await self._services.runner.ask_ephemeral(text)
        return await self._services.runner.ask(
            text, thread_key=self._session.thread_key, thread_id=self._session.thread_id
        )

    def _open_view(self) -> AnswerView:
        if not is_rich_terminal(self._streams.stdout, self._options.environ):
            return PlainView(self._streams.stdout, self._notices)
        console = open_console(self._streams.stdout, self._options.environ)
        return LiveView(console, self._notices, time.monotonic)

    def _toolbar(self) -> str:
        words = self._session.words
        thread = self._session.thread_name or words.thread_without_name
        runner = self._services.runner
        return words.toolbar.format(thread=thread, model=runner.model or words.status_terms[runner.mode])


@contextlib.contextmanager
def _without_echo(stdin: TextIO) -> Iterator[None]:
    """Between prompts, keep what is typed ahead out of the answer, and leave it to the next prompt.

    Enter stays Enter instead of becoming Ctrl-J; Ctrl-C still interrupts. The line editor has modes of its own
    and comes back to these.
    """
    try:
        descriptor = stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):  # not a terminal
        yield
        return
    quiet = [before[0] & ~termios.ICRNL, *before[1:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
