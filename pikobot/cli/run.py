"""`pikobot run` and `pikobot work`: serve an instance with a chat, one answer, or no channel at all."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pikobot.channels.operator.methods import call_async
from pikobot.channels.terminal.failures import spoken_failure
from pikobot.channels.terminal.once import answer_once, read_request
from pikobot.channels.terminal.services import ChatOptions
from pikobot.channels.terminal.wording import clear_language, locale_language
from pikobot.cli.making import open_or_make
from pikobot.cli.progress import waiting_work
from pikobot.errors import ExitCode, PikobotError, UsageError
from pikobot.instance import Instance, open_instance
from pikobot.supervisor import Service, serving, terminal_services
from pikobot.text import Count

STDIN = "-"
SHOWN_EVERY_S = 1.0
TERMINATED = 128 + signal.SIGTERM  # as shells have it


@dataclass(frozen=True)
class RunOptions:
    thread: str | None
    message: str | None
    is_ephemeral: bool
    is_headless: bool


def run(root: Path, options: RunOptions) -> int:
    """Chat, answer once, or serve without a channel. A new instance is made with the defaults.

    What is said around a chat is in its language: that of the message, or else of the locale.
    """
    if options.is_headless:
        if options.message is not None or options.thread is not None or options.is_ephemeral:
            raise UsageError("--headless has no chat: leave out -m, --thread and --ephemeral")
        return work(root, until_idle=False)
    language = locale_language(os.environ)
    try:
        if options.is_ephemeral and options.thread is not None:
            raise UsageError("--ephemeral keeps nothing, so it has no --thread: leave one of them out")
        is_chat = options.message is None and sys.stdin.isatty()
        text = None if is_chat else _given_text(options.message)
        language = clear_language(text or "") or language
        instance = open_or_make(root, language)
        chat_options = ChatOptions(thread=options.thread, is_ephemeral=options.is_ephemeral)
        if text is None:
            return _run_until_terminated(_chat(instance, chat_options))
        return _run_until_terminated(_answer_once(instance, text, chat_options))
    except PikobotError as error:
        error.args = (spoken_failure(str(error), language),)
        raise


def work(root: Path, *, until_idle: bool) -> int:
    """Serve the operator and work in the background until a signal, or until nothing is due.

    What is left undone then is told, and is a failure: of a provider or a budget, or of an erasure.
    """
    return asyncio.run(_work(open_instance(root), until_idle=until_idle))


def _run_until_terminated(channel: Coroutine[Any, Any, int]) -> int:
    """Run a channel to its end; SIGTERM cancels it, so that the run under way is recorded and the lock released."""

    async def run_cancellable() -> int:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await channel

    try:
        return asyncio.run(run_cancellable())
    except asyncio.CancelledError:
        return TERMINATED


def _given_text(message: str | None) -> str:
    return message if message is not None and message != STDIN else read_request(sys.stdin.buffer)


async def _chat(instance: Instance, options: ChatOptions) -> int:
    from pikobot.channels.terminal.chat import chat  # loads the line editor

    async with serving(instance, serves_all=True) as service:
        return await chat(terminal_services(service), options)


async def _answer_once(instance: Instance, text: str, options: ChatOptions) -> int:
    async with serving(instance, serves_all=False) as service:
        return await answer_once(terminal_services(service), text, options, sys.stdout, sys.stderr)


async def _work(instance: Instance, *, until_idle: bool) -> int:
    async with serving(instance, serves_all=True, until_idle=until_idle) as service:
        with _stopped_by_signals(service):
            if not until_idle:
                sys.stderr.write(f"serving {instance.root}; Ctrl-C stops\n")
            with waiting_work(until_idle) as show:
                while not (await asyncio.wait({service.worker}, timeout=SHOWN_EVERY_S))[0]:
                    if show is not None:
                        show(await call_async(service.operator, "status", {}))
        if service.sweeper is not None and service.sweeper.totals.sources:
            swept = service.sweeper.totals
            sys.stderr.write(
                f"retention removed {Count(swept.sources):source} and {Count(swept.facts):fact}\n"
            )
        return _told_undone(service, until_idle=until_idle)


def _told_undone(service: Service, *, until_idle: bool) -> ExitCode:
    code = ExitCode.DONE
    learner_problem = None if service.learner is None else service.learner.problem
    for problem, undone, failure in (
        (service.operator.retention_problem(), "not all that is due was removed", ExitCode.FAILED),
        (learner_problem, "not all is learned", ExitCode.PROVIDER),
        (service.operator.indexer_problem(), "not all is embedded", ExitCode.PROVIDER),
    ):
        if problem is not None:
            sys.stderr.write(f"{undone}: {service.instance.completed(problem)}\n")
            code = code or failure
    return code if until_idle else ExitCode.DONE


@contextlib.contextmanager
def _stopped_by_signals(service: Service) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.worker.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
