"""A run is killed before each of its steps in turn; what is left must be before or after, never between.

After each kill the instance is opened again and asked in the same thread: what is due there comes first.
"""

import asyncio
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pikobot.agent.events import RunEnded
from pikobot.clock import SystemClock
from pikobot.instance import Instance
from pikobot.store.connection import Database
from pikobot.store.text.index import check_text_index
from pikobot.supervisor import serving
from tests.end_to_end.instances import make_instance, rows
from tests.servers.openai_server import REPOSITORY, ScriptedOpenAI, text, tool_calls

TEXT = "Where did I move? 我搬到哪里了？"
NEVER = 10**9
SAMPLES = 6  # kills in the default suite, for each mode
WORKERS = 2  # in the whole sweep
REOPEN_TIMEOUT_S = 60
# Between fork and exec a child has every descriptor of this process, the lock of an instance in use here included.
FORKING = threading.Lock()


@dataclass(frozen=True)
class Place:
    """Where one worker crashes: a template instance to copy, and its own provider, or none in recall mode."""

    directory: Path
    template: Instance
    server: ScriptedOpenAI | None

    def crash(self, step: int) -> tuple[Instance, int, int]:
        """Kill a run before that step; gives the instance, the exit code, and the steps when it was not killed."""
        instance = Instance(self.directory / f"{step}")
        shutil.copytree(self.template.root, instance.root, symlinks=True)
        if self.server is not None:
            self.server.reset()
            self.server.push(tool_calls(("memory_search", '{"query": "Porto"}')), text("To Porto."))
        command = [sys.executable, "-m", "tests.crash.child", str(step), str(instance.root), "t", TEXT]
        with FORKING:
            child = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        _, notices = child.communicate(timeout=REOPEN_TIMEOUT_S)
        assert child.returncode in (0, -signal.SIGKILL), notices
        return instance, child.returncode, 0 if child.returncode else int(notices.splitlines()[-1])


@contextmanager
def place(directory: Path, *, has_model: bool) -> Iterator[Place]:
    with ExitStack() as stack:
        server = stack.enter_context(ScriptedOpenAI()) if has_model else None
        template = make_instance(directory / "template", server)
        if server is not None:
            server.push(text("Noted."))
        asyncio.run(_reopen(template, "I moved to Porto in March 2024"))
        yield Place(directory, template, server)


async def _reopen(instance: Instance, message: str) -> None:
    """Start again and ask in the same thread: what is due there is answered before."""
    async with asyncio.timeout(REOPEN_TIMEOUT_S), serving(instance, serves_all=True) as service:
        answering = await service.runner.ask(message, thread_key="t")
        last = [event async for event in answering.events()][-1]
        assert isinstance(last, RunEnded)
        assert last.error is None


def check(place: Place, step: int) -> str:
    """Crash before the step, reopen, and hold the invariants; how the run ended, '' when it was never there."""
    instance, code, _ = place.crash(step)
    if place.server is not None:
        place.server.push(text("the next answer", match="the next message"))
    with FORKING:
        asyncio.run(_reopen(instance, "the next message"))
    runs = rows(
        instance,
        f"""
        SELECT r.id, r.state, (SELECT count(*) FROM sources WHERE run_id = r.id AND role = 'assistant')
        FROM sources AS s LEFT JOIN runs AS r ON r.id = s.run_id WHERE s.text = '{TEXT}' AND s.role = 'user'
        """,
    )
    where = f"killed before step {step}: {runs}"
    assert len(runs) <= 1, where
    state, answers = runs[0][1:] if runs else ("", 0)
    assert (state, answers) in [("", 0), ("succeeded", 1), ("unknown", 0)], where
    assert code or state == "succeeded", where
    _check_whole(instance, where)
    if place.server is not None:
        _check_account(instance, place.server, runs[0][0] if runs else None, state, where)
    shutil.rmtree(instance.root)
    return str(state)


def _check_whole(instance: Instance, where: str) -> None:
    assert rows(instance, "PRAGMA integrity_check") == [("ok",)], where
    assert rows(instance, "PRAGMA foreign_key_check") == [], where
    assert rows(instance, "SELECT state FROM runs WHERE state IN ('queued', 'leased')") == [], where
    assert rows(instance, "SELECT id FROM attempts WHERE state = 'started'") == [], where
    left = "SELECT run_id FROM run_transcript UNION ALL SELECT run_id FROM run_sources"
    assert rows(instance, left) == [], where
    asked = "SELECT run_id FROM sources WHERE role = 'user' AND run_id IS NOT NULL"
    lonely = f"SELECT id FROM runs WHERE id NOT IN ({asked})"
    assert rows(instance, lonely) == [], where
    assert _index_findings(instance) == [], where


def _index_findings(instance: Instance) -> list[str]:
    def find(db: Database) -> list[str]:
        with db.write("check the text index") as tx:
            return check_text_index(tx)

    db = Database(instance.database_path, SystemClock())
    try:
        return db.perform(find)
    finally:
        db.close()


def _check_account(
    instance: Instance, server: ScriptedOpenAI, run_id: int | None, state: str, where: str
) -> None:
    """Every request that the provider saw is in the account, and no finished call was made again."""
    requests = [one for one in server.requests() if "the next message" not in str(one.body)]
    found = [row[0] for row in rows(instance, f"SELECT state FROM attempts WHERE run_id = {run_id or 0}")]
    assert len(requests) <= len(found), where
    assert set(found) <= {"succeeded", "unknown"}, where
    if state == "succeeded":
        assert (len(requests), found) == (2, ["succeeded", "succeeded"]), where
    else:
        assert found.count("unknown") == (1 if state == "unknown" else 0), where
        assert len(found) <= 2, where


@pytest.mark.parametrize("has_model", [True, False], ids=["model", "recall"])
def test_a_run_killed_at_some_of_its_steps_is_done_once_or_not_repeated(
    tmp_path: Path, has_model: bool
) -> None:
    with place(tmp_path, has_model=has_model) as here:
        _, _, steps = here.crash(NEVER)
        ends = {check(here, step) for step in range(1, steps, -(-steps // SAMPLES))}
        assert "succeeded" in ends


@pytest.mark.crash
@pytest.mark.parametrize("has_model", [True, False], ids=["model", "recall"])
def test_a_run_killed_at_any_of_its_steps_is_done_once_or_not_repeated(
    tmp_path: Path, has_model: bool
) -> None:
    with ExitStack() as stack:
        free: queue.SimpleQueue[Place] = queue.SimpleQueue()
        for number in range(WORKERS):
            free.put(stack.enter_context(place(tmp_path / f"worker{number}", has_model=has_model)))
        first = free.get()
        _, _, steps = first.crash(NEVER)
        free.put(first)

        def check_at(step: int) -> str:
            here = free.get()
            try:
                return check(here, step)
            finally:
                free.put(here)

        with ThreadPoolExecutor(WORKERS) as pool:
            ends = list(pool.map(check_at, range(steps + 1)))
    assert ends[0] == ""
    assert ends[-1] == "succeeded"
    assert set(ends) == ({"", "unknown", "succeeded"} if has_model else {"", "succeeded"})
