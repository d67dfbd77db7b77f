"""What fails is said in the language of the chat: every sentence is taken from where it is made."""

import asyncio
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import httpx2
import openai
import pytest

from pikobot.adapters.openai_chat import ChatEndpoint
from pikobot.adapters.openai_client import ProviderClient
from pikobot.agent.events import Notice, Retrying, RunEnded
from pikobot.agent.runs import CRASHED, CUT_OFF
from pikobot.channels.terminal.failures import spoken_failure
from pikobot.channels.terminal.once import MAX_STDIN_BYTES, read_request
from pikobot.channels.terminal.services import ChatOptions
from pikobot.clock import SystemClock
from pikobot.config import ChatConfig, EmbeddingConfig
from pikobot.errors import InstanceBusy, InvalidParams, PikobotError, ProviderError
from pikobot.instance import Instance
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.spending import check_budget
from pikobot.serving import ServedBy, _served_sentence
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.text import clean_text
from tests.memory.remembering import opened, say

from .fakes import Script, scripted
from .test_chat import CTRL_D, ENTER, talk
from .test_once import run

INSTANCE = Instance(Path("/a b"))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as db:
        say(db, "I moved to Porto", thread="a")
        yield db


def message_of(work: Callable[[], object]) -> str:
    with pytest.raises(PikobotError) as raised:
        work()
    return str(raised.value)


def is_chinese(sentence: str) -> bool:
    """No two English words follow each other outside of commands and names."""
    bare = re.sub(r"`[^`]*`|\(HTTP \d+\).*", "", sentence)
    return bool(re.search("[\u4e00-\u9fff]", bare)) and not re.search(r"[a-z]{2,} [a-z]{2,}", bare)


TARGETS: list[Callable[[], ForgetTarget]] = [
    lambda: ForgetTarget(sources=("src_AAAAAAAAAAAAAAAAAAAAAA",)),
    lambda: ForgetTarget(sources=tuple(f"src_{n:022}" for n in range(12))),
    lambda: ForgetTarget(facts=("fact_AAAAAAAAAAAAAAAAAAAAAA",)),
    lambda: ForgetTarget(thread="thr_AAAAAAAAAAAAAAAAAAAAAA"),
    lambda: ForgetTarget(workspace="nowhere"),
    lambda: ForgetTarget(from_="2024-03-02", to="2024-03-01"),
    lambda: ForgetTarget(words=(" ",)),
    lambda: ForgetTarget(words=("not there",)),
]


@pytest.mark.parametrize("target", TARGETS)
def test_what_cannot_be_forgotten_is_said_in_chinese(
    db: Database, tmp_path: Path, target: Callable[[], ForgetTarget]
) -> None:
    english = message_of(lambda: forget(db, tmp_path / "erasures.jsonl", target()))
    chinese = spoken_failure(english, "zh")
    assert spoken_failure(english, "en") == english
    assert is_chinese(chinese), chinese
    for name in re.findall(r"`[^`]*`|'[^']*'", english):
        assert name in chinese


@pytest.mark.parametrize(
    "english",
    [
        _served_sentence(INSTANCE, ServedBy(7, 0)),
        _served_sentence(INSTANCE, ServedBy(None, None)),
        "the instance /a b is in use by another command: try again when it has ended",
        "the instance /a b is being restored: try again when that has ended",
        "the database is damaged (read: malformed); copy the instance directory, then see RECOVERY.md",
        message_of(lambda: read_request(BytesIO(b"x" * (MAX_STDIN_BYTES + 1)))),
        message_of(lambda: read_request(BytesIO(b"\xff"))),
    ],
)
def test_what_stands_in_the_way_of_a_chat_is_said_in_chinese(english: str) -> None:
    chinese = spoken_failure(english, "zh")
    assert is_chinese(chinese.replace("/a b", "")), chinese
    assert re.findall(r"`[^`]*`", chinese) == re.findall(r"`[^`]*`", english)


@pytest.mark.parametrize("text", ["x" * 11, "a\0b", "\ud800"])
@pytest.mark.parametrize("name", ["the message", "the thread's name"])
def test_a_text_that_is_refused_is_explained_in_chinese(name: str, text: str) -> None:
    assert is_chinese(spoken_failure(message_of(lambda: clean_text(name, text, max_chars=10)), "zh"))


def too_dear() -> str:
    return message_of(lambda: check_budget("budget.run_usd", 5, 9, 10))


@pytest.mark.parametrize(
    "english",
    [
        CUT_OFF,
        CRASHED,
        ChatConfig().price_remedy(),
        EmbeddingConfig().price_remedy(),
        too_dear(),
        "the model's answer broke off before its end; it may have been charged",
    ],
)
def test_what_no_answer_is_made_under_is_said_in_chinese(english: str) -> None:
    chinese = spoken_failure(english, "zh")
    assert is_chinese(chinese), chinese
    assert re.findall(r"`[^`]*`", chinese) == re.findall(r"`[^`]*`", english)


@pytest.mark.parametrize("can_charge", [True, False])
def test_what_a_provider_does_is_said_in_chinese(can_charge: bool) -> None:
    endpoint = ChatEndpoint(
        base_url="https://api.example.org/v1", model="m", api_key="sk-1", can_charge=can_charge
    )
    client = ProviderClient(endpoint, silence_timeout_s=1, clock=SystemClock())
    request = httpx2.Request("POST", endpoint.base_url)
    failures = [
        client._status_failure(
            openai.APIStatusError("x", response=httpx2.Response(status, request=request), body=None)
        )
        for status in (302, 400, 401, 402, 404, 429, 500)
    ]
    failures += map(
        client._connection_failure,
        (ConnectionResetError(), httpx2.ConnectError("x"), httpx2.UnsupportedProtocol("x")),
    )
    asyncio.run(client.aclose())
    for failure in failures:
        chinese = spoken_failure(str(failure), "zh")
        assert is_chinese(chinese), chinese
        assert ("可能已经计费" in chinese) == ("may have charged" in str(failure))
        for name in re.findall(r"chat\.\w+|[A-Z_]{9,}|\(HTTP \d+\)", str(failure)):
            assert name in chinese


def test_a_sentence_that_is_not_known_stays_as_it_is() -> None:
    assert spoken_failure("the disk is nearly full", "zh") == "the disk is nearly full"
    assert spoken_failure("there is no workspace '{0} to: is before from'", "zh") == (
        "没有工作区 '{0} to: is before from'"
    )


def test_a_chinese_chat_says_all_of_it_in_chinese() -> None:
    busy = "another process is writing to the database (forget); try again"
    ended: Script = [
        Notice("2 messages are not shown to the model, the oldest"),
        Retrying("the model gave an empty answer; ask again", 2),
        RunEnded(State.FAILED, "", False, ProviderError(CUT_OFF)),
    ]
    instance = scripted(ended)
    keys = ["我在哪里？", ENTER, "/忘记 2024-03-02..2024-03-01", ENTER, CTRL_D]
    stderr = talk(instance, keys, ChatOptions(environ={"LANG": "zh_CN.UTF-8"}))[2]
    assert "最早的 2 条消息没有给模型看" in stderr
    assert "模型给出了空的回答：请再问一次；2 秒后重试" in stderr
    assert f"错误：{spoken_failure(CUT_OFF, 'zh')}" in stderr
    assert "错误：结束日期早于开始日期" in stderr
    instance = scripted()
    instance.runner.error = InstanceBusy(busy)
    stderr = talk(instance, ["我在哪里？", ENTER, CTRL_D], ChatOptions(environ={"LANG": "C"}))[2]
    assert "错误：另一个进程正在写入数据库；请再试一次" in stderr
    instance.runner.error = InstanceBusy(busy)
    assert f"error: {busy}" in talk(instance, ["where was I?", ENTER, CTRL_D])[2]


def test_a_single_request_fails_in_its_own_language() -> None:
    for text, message in (
        ("/忘记 2024-03-02..2024-03-01", "^结束日期早于开始日期$"),
        ("/forget 2024-03-02..2024-03-01", "^to: is before from$"),
    ):
        with pytest.raises(InvalidParams, match=message):
            run(scripted(), text)
