"""Requests to forget what somebody said, or what is the matter with them."""

from dataclasses import replace
from datetime import date

import pytest

from pikobot.memory.forgetting.requests import means_to_forget, read_request
from pikobot.memory.forgetting.words import ForgetRequest
from pikobot.memory.language.periods import Period
from tests.memory.test_forget_requests import EVERYTHING, TODAY, words


def said_by(*named: str) -> ForgetRequest:
    return ForgetRequest(words=named, is_said_by=True)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("忘记牙医的事", words("牙医")),
        ("把牙医的事忘了", words("牙医")),
        ("把牙医那件事都忘了吧", words("牙医")),
        ("forget Gina and everything she said", words("gina")),
        ("忘掉小美和她说过的一切", words("小美")),
        ("删掉我妈的生日", words("妈", "生日")),
        ("把我家的备用钥匙删掉", words("家", "备用钥匙")),
        ("forget where the spare key is", words("spare", "key")),
        ("please forget I said anything about tea", words("tea")),
        ("forget that I told you about tea", words("tea")),
        ("forget what my doctor told me about my knee", words("doctor", "knee")),
        ("forget the words of Gina", said_by("gina")),
        ("forget the message from my landlord", said_by("landlord")),
        ("forget all messages", EVERYTHING),
        ("忘掉我说的关于茶的话", words("茶")),
        ("忘掉医生跟我说的关于膝盖的话", words("医生", "膝盖")),
        ("删除小美发的消息", said_by("小美")),
        ("忘掉我跟小美聊的内容", words("小美")),
        ("忘掉我们和小美说过的话", words("小美")),
        ("please forget when my exam is", words("exam")),
        ("forget what Gina said", said_by("gina")),
        ("delete everything that my sister told me", said_by("sister")),
        ("please forget all messages from Uncle Bob", said_by("uncle", "bob")),
        ("delete James' words", said_by("james")),
        ("忘掉小美说的话", said_by("小美")),
        ("忘掉小美的话", said_by("小美")),
        ("忘掉小美说过的一切", said_by("小美")),
        ("请忘记小美跟我说的事", said_by("小美")),
        ("把小美告诉我的都忘了", said_by("小美")),
        ("删掉我妈说的话", said_by("妈")),
        (
            "忘掉小美昨天说的话",
            replace(said_by("小美"), period=Period(date(2026, 11, 29), date(2026, 11, 29))),
        ),
        (
            "forget what Gina said yesterday",
            replace(said_by("gina"), period=Period(date(2026, 11, 29), date(2026, 11, 29))),
        ),
    ],
)
def test_what_is_the_matter_with_somebody_or_was_said_is_read(text: str, request_: ForgetRequest) -> None:
    assert read_request(text, TODAY) == request_
    assert means_to_forget(text)


@pytest.mark.parametrize(
    "text",
    [
        "忘了牙医的事",
        "忘记牙医的事了",
        "我忘了小美说的话",
        "忘了小美说的话",
        "忘掉她说的话",
        "忘掉你昨天说的话",
        "forget what she said",
    ],
)
def test_what_tells_of_having_forgotten_or_names_nobody_is_not_read(text: str) -> None:
    assert read_request(text, TODAY, is_alone=True) is None


@pytest.mark.parametrize("text", ["忘记我说的话", "忘掉你说的话", "忘掉她昨天说的话"])
def test_what_a_pronoun_said_is_unclear_and_no_statement(text: str) -> None:
    assert read_request(text, TODAY, is_alone=True) is None
    assert means_to_forget(text)


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("delete Melanie", words("melanie")),
        ("Please delete Melanie!", words("melanie")),
        ("erase the garage code", words("garage", "code")),
        ("please remove Melanie", words("melanie")),
        ("把小红删了", words("小红")),
        ("删掉小红", words("小红")),
        ("忘记小红", words("小红")),
        ("忘记河马和香菜", words("河马", "香菜")),
        ("忘记河马、香菜和牙医", words("河马", "香菜", "牙医")),
        ("把密码提示删掉", words("密码提示")),
        ("帮我删掉密码提示", words("密码提示")),
    ],
)
def test_where_there_is_no_model_a_name_alone_is_looked_for(text: str, request_: ForgetRequest) -> None:
    assert read_request(text, TODAY) is None
    assert read_request(text, TODAY, is_alone=True) == request_


@pytest.mark.parametrize(
    "text",
    [
        "delete that, please",
        "delete the last one",
        "delete Ana and Bob",
        "delete the file on my desktop",
        "Delete key is broken",
        "erase me from your memory",
        "Remove stains",
        "remove Melanie",
        "Clear skies",
        "把它删了",
        "删掉那些",
        "把第一条删了",
        "删除最后三条",
        "把小红和安娜删了",
        "从明天起忘记海豚",
        "忘记她",
        "删除桌面上的文件",
        "请忘记这件事",
        "把垃圾清除了",
        "把钥匙忘了",
    ],
)
def test_without_a_model_either_what_names_nothing_alone_is_not_looked_for(text: str) -> None:
    assert read_request(text, TODAY, is_alone=True) is None
