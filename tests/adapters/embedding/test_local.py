"""The child process and its embedder, with a child that obeys its texts."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from pikobot.adapters.embedding.frames import LENGTH, request_frame
from pikobot.adapters.embedding.local import LONGEST_PAUSE_MS, LocalEmbedder, LocalTimeouts
from pikobot.adapters.embedding.process import WorkerCommand
from pikobot.adapters.embedding.vectors import Float32s
from pikobot.adapters.embedding.vocabulary import EmbeddingFailed, EmbeddingProfile
from tests.adapters.embedding.calling import embedded, failure, rows
from tests.memory.remembering import StillClock

WORKER = "tests.adapters.embedding.scripted_worker"
PROFILE = EmbeddingProfile(provider="scripted", model="scripted", dimension=3, prefix_rule="none")


def local(
    how: str = "",
    *,
    dimension: int = 3,
    clock: StillClock | None = None,
    timeouts: LocalTimeouts | None = None,
) -> LocalEmbedder:
    command = WorkerCommand(WORKER, (str(dimension), how))
    return LocalEmbedder(PROFILE, command, clock=clock or StillClock(), timeouts=timeouts)


def vector(length: int, *, is_query: bool = False) -> Float32s:
    row = np.array([length + 1, is_query, 0], np.float32)
    return row / np.linalg.norm(row)


def run(embedder: LocalEmbedder, story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        try:
            await story()
        finally:
            await embedder.aclose()

    asyncio.run(whole())


async def failed_code(call: Awaitable[object]) -> tuple[str, bool, float | None]:
    with pytest.raises(EmbeddingFailed) as failed:
        await call
    return failed.value.code, failed.value.is_about_text, failed.value.retry_after_s


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2] if Path("/proc/self").exists() else True
    )


def test_vectors_come_in_the_order_of_the_texts() -> None:
    texts = ["x" * (number % 7) for number in range(40)]
    found = rows(embedded(local(), texts))
    np.testing.assert_allclose(found, [vector(len(text)) for text in texts], atol=1e-6)


def test_a_question_is_told_from_a_passage() -> None:
    found = rows(embedded(local(), ["你好"], is_query=True))
    np.testing.assert_allclose(found, [vector(2, is_query=True)], atol=1e-6)


def test_no_texts_start_no_process() -> None:
    embedder = local()
    assert list(embedded(embedder, []).vectors) == []
    assert embedder.pid is None


def test_what_native_code_prints_is_no_answer() -> None:
    np.testing.assert_allclose(rows(embedded(local("noisy"), ["a"])), [vector(1)], atol=1e-6)


def test_the_child_gets_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIKOBOT_CHAT_API_KEY", "OPENAI_API_KEY", "PIKOBOT_OPERATOR_TOKEN"):
        monkeypatch.setenv(name, "secret")
    np.testing.assert_allclose(rows(embedded(local(), ["environment"])), [vector(0)], atol=1e-6)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("refuse", "the scripted model is missing; install it"),
        ("break", "RuntimeError"),
        ("die", "ended while it was loading"),
    ],
)
def test_a_model_that_can_not_be_loaded_is_said(how: str, message: str) -> None:
    failed = failure(local(how))
    assert (failed.code, failed.is_about_text, failed.may_have_charged) == ("not_started", False, False)
    assert message in str(failed)


def test_a_child_that_never_gets_ready_is_given_up() -> None:
    failed = failure(local("mute", timeouts=LocalTimeouts(start_s=0.5)))
    assert failed.code == "not_started"


def test_a_model_of_another_dimension_is_refused() -> None:
    assert failure(local(dimension=4)).code == "wrong_dimension"


@pytest.mark.parametrize("text", ["nan", "raise"])
def test_a_text_without_a_vector_blames_the_text(text: str) -> None:
    failed = failure(local(), ["fine", text])
    assert (failed.code, failed.is_about_text) == ("unusable_vector", True)


@pytest.mark.parametrize("is_query", [False, True])
def test_a_text_that_kills_the_process_twice_blames_itself_only(is_query: bool) -> None:
    embedder = local()

    async def story() -> None:
        embed = embedder.embed_queries if is_query else embedder.embed_passages
        assert await failed_code(embed(["die"])) == ("crashed", True, None)
        others = await asyncio.gather(
            *(embed(["x" * length]) for length in range(5)), embed(["die"]), return_exceptions=True
        )
        *fine, dead = others
        assert isinstance(dead, EmbeddingFailed)
        for length, one in enumerate(fine):
            assert not isinstance(one, BaseException)
            np.testing.assert_allclose(rows(one), [vector(length, is_query=is_query)], atol=1e-6)

    run(embedder, story)


def test_a_text_that_never_ends_is_ended() -> None:
    failed = failure(local(timeouts=LocalTimeouts(passage_s=0.5)), ["sleep"])
    assert (failed.code, failed.is_about_text) == ("crashed", True)


def test_a_process_killed_from_outside_is_started_again() -> None:
    embedder = local()

    async def story() -> None:
        await embedder.embed_passages(["a"])
        first = embedder.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        found = await embedder.embed_passages(["bb", "ccc"])
        np.testing.assert_allclose(rows(found), [vector(2), vector(3)], atol=1e-6)
        while embedder.pid is None:
            await embedder.embed_passages(["d"])
        assert embedder.pid != first

    run(embedder, story)


def test_a_process_that_can_not_start_is_tried_after_growing_pauses() -> None:
    clock = StillClock()
    embedder = local("die", clock=clock)

    async def story() -> None:
        pauses: list[float] = []
        for _ in range(9):
            assert await failed_code(embedder.embed_queries(["a"])) == ("not_started", False, None)
            code, is_about_text, retry_after_s = await failed_code(embedder.embed_queries(["a"]))
            if code == "not_started":  # the second try is made at once
                code, is_about_text, retry_after_s = await failed_code(embedder.embed_queries(["a"]))
            assert (code, is_about_text) == ("crashed", False)
            assert retry_after_s is not None
            pauses.append(retry_after_s)
            clock.now += int(retry_after_s * 1000)
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        clock.now -= 10 * LONGEST_PAUSE_MS  # a clock that was set back delays nothing
        assert (await failed_code(embedder.embed_queries(["a"])))[0] == "not_started"

    run(embedder, story)


def test_many_callers_start_one_process_and_leaving_stops_none_of_the_others() -> None:
    embedder = local()

    async def story() -> None:
        calls = [asyncio.create_task(embedder.embed_queries(["a"])) for _ in range(5)]
        await asyncio.sleep(0)
        calls[0].cancel()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert not any(isinstance(one, BaseException) for one in found[1:])
        pid = embedder.pid
        await embedder.embed_queries(["a"])
        assert embedder.pid == pid

    run(embedder, story)


def test_a_question_does_not_wait_for_passages() -> None:
    embedder = local(timeouts=LocalTimeouts(passage_s=60))

    async def story() -> None:
        passages = asyncio.create_task(embedder.embed_passages(["sleep"] * 5))
        await asyncio.sleep(0)
        np.testing.assert_allclose(
            rows(await embedder.embed_queries(["a"])), [vector(1, is_query=True)], atol=1e-6
        )
        passages.cancel()
        with pytest.raises(asyncio.CancelledError):
            await passages

    run(embedder, story)


def test_closing_ends_the_process_and_whoever_waits() -> None:
    embedder = local()

    async def story() -> None:
        await embedder.embed_queries(["a"])
        pid = embedder.pid
        assert pid is not None
        waiting = asyncio.create_task(embedder.embed_passages(["sleep"]))
        await asyncio.sleep(0.05)
        await embedder.aclose()
        assert not is_running(pid)
        assert (await failed_code(waiting))[:2] == ("not_started", False)
        assert (await failed_code(embedder.embed_queries(["a"])))[0] == "not_started"

    run(embedder, story)


def test_closing_while_it_starts_leaves_no_process() -> None:
    embedder = local("mute")

    async def story() -> None:
        waiting = asyncio.create_task(embedder.embed_queries(["a"]))
        await asyncio.sleep(0.2)
        await embedder.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(embedder, story)


def test_the_child_ends_with_its_parent() -> None:
    command = WorkerCommand(WORKER, ("3",))
    with subprocess.Popen(
        command.argv, env=command.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        child.stdin.write(request_frame(1, "sleep", is_query=False))
        child.stdin.write(LENGTH.pack(1000) + b"{")  # cut off, as by a parent that was killed
        child.stdin.close()
        assert child.wait(timeout=60) == 0


def test_the_parent_needs_no_numpy_to_have_an_embedder() -> None:
    code = "import sys, pikobot.adapters.embedding.local; print('numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
