"""Whole instances: made in a directory, asked inside this process or by the real command."""

import asyncio
import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
from typer.testing import CliRunner

from pikobot.channels.terminal.once import answer_once
from pikobot.channels.terminal.services import ChatOptions
from pikobot.cli.app import app
from pikobot.config_file import default_config_text, set_values
from pikobot.instance import Instance, create_instance
from pikobot.supervisor import serving, terminal_services
from tests.servers.openai_server import REPOSITORY, ScriptedOpenAI

COMMAND_TIMEOUT_S = 60


@dataclass(frozen=True)
class Outcome:
    """What a command left behind for whoever called it."""

    code: int
    out: str
    err: str


def make_instance(root: Path, server: ScriptedOpenAI | None = None, **settings: object) -> Instance:
    """With a server its model answers; settings are written as ``chat_timeout_s=1`` for chat.timeout_s.

    Nothing is learned in the background: every request that the server sees belongs to an answer.
    """
    changes = [("extraction.enabled", "false")]
    if server is not None:
        changes += [
            ("chat.provider", "custom"),
            ("chat.base_url", server.base_url),
            ("chat.model", "scripted"),
        ]
    changes += [(name.replace("_", ".", 1), str(value)) for name, value in settings.items()]
    return create_instance(root, set_values(default_config_text(), changes))


def ask(instance: Instance, text: str, *, thread: str | None = None, is_ephemeral: bool = False) -> Outcome:
    """`pikobot run -m TEXT` without a process of its own; a new start of the instance all the same."""
    out, err = io.StringIO(), io.StringIO()
    options = ChatOptions(thread=thread, is_ephemeral=is_ephemeral, environ={})

    async def answer() -> int:
        async with asyncio.timeout(COMMAND_TIMEOUT_S), serving(instance, serves_all=False) as service:
            return await answer_once(terminal_services(service), text, options, out, err)

    return Outcome(int(asyncio.run(answer())), out.getvalue(), err.getvalue())


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    """The real command, under way."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8"}
    command = [sys.executable, "-m", "pikobot", *arguments]
    return subprocess.Popen(command, cwd=REPOSITORY, env=environ, text=True, **{**pipes, **options})


def command(*arguments: str, stdin: str | None = None) -> Outcome:
    """The command inside this process: quicker, and patched as this process is."""
    done = CliRunner().invoke(app, arguments, input=stdin)
    return Outcome(done.exit_code, done.stdout, done.stderr)


def run(*arguments: str, stdin: str | None = None) -> Outcome:
    """The real command, to its end."""
    with start(*arguments, stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE) as process:
        out, err = process.communicate(stdin, timeout=COMMAND_TIMEOUT_S)
    return Outcome(process.returncode, out, err)


def finish(process: subprocess.Popen[str]) -> Outcome:
    out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
    return Outcome(process.returncode, out, err)


def rows(instance: Instance, sql: str) -> list[tuple[Any, ...]]:
    """What stands in the database, read by another connection."""
    connection = apsw.Connection(str(instance.database_path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def run_states(instance: Instance) -> list[tuple[str, str | None]]:
    return rows(instance, "SELECT state, error_code FROM runs ORDER BY id")


def attempt_states(instance: Instance) -> list[str]:
    return [state for (state,) in rows(instance, "SELECT state FROM attempts ORDER BY id")]


def answers(instance: Instance) -> list[tuple[str, int]]:
    return rows(instance, "SELECT text, is_partial FROM sources WHERE role = 'assistant' ORDER BY id")


def files_with(instance: Instance, *needles: str) -> list[str]:
    """Names of the instance's files that hold one of the texts, as UTF-8 or UTF-16."""
    wanted = [needle.encode(encoding) for needle in needles for encoding in ("utf-8", "utf-16-le")]
    files = [path for path in instance.root.rglob("*") if path.is_file()]
    return [path.name for path in files if any(each in path.read_bytes() for each in wanted)]
