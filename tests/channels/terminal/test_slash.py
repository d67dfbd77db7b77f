import pytest

from pikobot.channels.terminal.slash import Command, CommandName, Message, UnknownCommand, parse


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("/help", Command(CommandName.HELP)),
        ("  /HELP \n", Command(CommandName.HELP)),
        ("/帮助", Command(CommandName.HELP)),
        ("／状态", Command(CommandName.STATUS)),
        ("/threads 2", Command(CommandName.THREADS, "2")),
        ("/话题\u30002", Command(CommandName.THREADS, "2")),
        ("/new trip to Porto", Command(CommandName.NEW, "trip to Porto")),
        ("/新话题 旅行", Command(CommandName.NEW, "旅行")),
        ("/停止", Command(CommandName.STOP)),
        ("/why", Command(CommandName.WHY)),
        ("/为什么", Command(CommandName.WHY)),
        ("/quit", Command(CommandName.QUIT)),
        ("/exit", Command(CommandName.QUIT)),
        ("/退出", Command(CommandName.QUIT)),
        ("/forget", Command(CommandName.FORGET)),
        ("/forget --yes", Command(CommandName.FORGET, is_confirmed=True)),
        ("/忘记 波尔图 --yes", Command(CommandName.FORGET, "波尔图", is_confirmed=True)),
        ("/忘记 波尔图 --all", Command(CommandName.FORGET, "波尔图", shows_all=True)),
        ("/forget a --all --yes", Command(CommandName.FORGET, "a", is_confirmed=True, shows_all=True)),
        ("/forget --yes --all", Command(CommandName.FORGET, is_confirmed=True, shows_all=True)),
        ("/forget a--all", Command(CommandName.FORGET, "a--all")),
        ("/forget ends in--yes", Command(CommandName.FORGET, "ends in--yes")),
        ("/why?", Command(CommandName.WHY)),
        ("／why？", Command(CommandName.WHY)),
        ("/为什么？！", Command(CommandName.WHY)),
        ("/忘记： 波尔图。", Command(CommandName.FORGET, "波尔图。")),
        ("/wyh?", UnknownCommand("wyh", "why")),
        ("/statsu", UnknownCommand("statsu", "status")),
        ("/忘记搬家", UnknownCommand("忘记搬家", "忘记")),
        ("/xyzzy", UnknownCommand("xyzzy", None)),
        ("/", UnknownCommand("", None)),
        ("hello /help", Message("hello /help")),
        ("/etc/hosts holds what?", Message("/etc/hosts holds what?")),
        ("/help\nme", Message("/help\nme")),
        ("//help me", Message("/help me")),
        ("／／帮助", Message("／帮助")),
        ("3/4", Message("3/4")),
        ("  indented  ", Message("  indented  ")),
    ],
)
def test_what_is_typed_is_a_message_or_a_command(typed: str, expected: object) -> None:
    assert parse(typed) == expected
