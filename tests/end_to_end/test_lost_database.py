"""A database that is deleted or replaced while a process serves it: nothing more is taken in, and the process ends."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pikobot import supervisor
from pikobot.channels.operator.methods import call_async
from pikobot.errors import DamagedData, ExitCode
from pikobot.instance import Instance
from pikobot.supervisor import serving
from tests.end_to_end.instances import ask, finish, make_instance, rows, run, start


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    made = make_instance(tmp_path / "i", chat_provider="none", embedding_provider="disabled")
    assert ask(made, "I moved to Porto").code == ExitCode.DONE
    return made


def deleted(instance: Instance) -> None:
    instance.database_path.unlink()


def replaced(instance: Instance) -> None:
    copy = instance.root.with_name("copy")
    shutil.copy(instance.database_path, copy)
    copy.rename(instance.database_path)


def removed_with_its_directory(instance: Instance) -> None:
    shutil.rmtree(instance.root)


@contextmanager
def headless(instance: Instance) -> Iterator[subprocess.Popen[str]]:
    """A process that serves it, as soon as it listens."""
    with start("run", "--headless", "--instance", str(instance.root)) as process:
        try:
            while not instance.socket_path.exists():
                assert process.poll() is None
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("change", [deleted, replaced, removed_with_its_directory])
def test_the_process_ends_with_6_and_says_why(instance: Instance, change: Callable[[Instance], None]) -> None:
    with headless(instance) as process:
        change(instance)
        ended = finish(process)
    assert ended.code == ExitCode.DAMAGED
    became = "replaced by another file" if change is replaced else "deleted or moved"
    assert f"{instance.database_path} was {became} while it was in use" in ended.err
    assert f"`pikobot restore BACKUP {instance.option}`" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("change", [deleted, replaced])
def test_until_it_ends_whatever_is_said_is_refused_and_not_taken_in_silence(
    instance: Instance, change: Callable[[Instance], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "WATCH_EVERY_S", 3600.0)

    async def serve() -> None:
        async with serving(instance, serves_all=False) as service:
            change(instance)
            with pytest.raises(DamagedData, match="while it was in use"):
                await call_async(service.operator, "memory.remember", {"text": "I like tea"})
            with pytest.raises(DamagedData, match="while it was in use"):
                await service.runner.ask("I like coffee")

    asyncio.run(serve())
    if change is deleted:
        assert not instance.database_path.exists()
    else:
        assert [text for (text,) in rows(instance, "SELECT text FROM sources")][:1] == ["I moved to Porto"]
        assert rows(instance, "SELECT count(*) FROM sources WHERE text LIKE '%tea%'") == [(0,)]


def test_a_chat_ends_with_what_has_ended_it(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "WATCH_EVERY_S", 0.01)

    async def chat() -> None:
        async with asyncio.timeout(60), serving(instance, serves_all=True):
            deleted(instance)
            await asyncio.sleep(3600)

    with pytest.raises(DamagedData, match="deleted or moved while it was in use"):
        asyncio.run(chat())


def test_the_next_command_refuses_to_begin_anew(instance: Instance) -> None:
    with headless(instance) as process:
        deleted(instance)
        finish(process)
    refused = run("rpc", "memory.list", "--instance", str(instance.root))
    assert (refused.code, refused.out) == (ExitCode.DAMAGED, "")
    assert "is missing, and this instance had one" in json.loads(refused.err)["error"]["message"]
