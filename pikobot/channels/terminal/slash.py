"""What was typed: a message, or a command with its argument. Pure.

A command is one line that begins with a slash, the full-width one included, and has an English or a Chinese name;
what stands behind the name as it does behind a word in a sentence (/why?) is no part of it.
A message that begins with a slash is written with two; a path such as /etc/hosts is a message as it stands.
"""

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum

from pikobot.memory.forgetting.requests import asks_to_forget

CONFIRMED_FLAG = "--yes"
ALL_FLAG = "--all"

_COMMAND = re.compile(r"[/／](?P<word>[^\W\d_][\w-]*|)[?!.,:;…~？！。，、：；～]*(?:\s+(?P<argument>.*))?\Z")


class CommandName(StrEnum):
    HELP = "help"
    STATUS = "status"
    THREADS = "threads"
    NEW = "new"
    STOP = "stop"
    WHY = "why"
    FORGET = "forget"
    QUIT = "quit"


CHINESE: dict[CommandName, str] = {
    CommandName.HELP: "帮助",
    CommandName.STATUS: "状态",
    CommandName.THREADS: "话题",
    CommandName.NEW: "新话题",
    CommandName.STOP: "停止",
    CommandName.WHY: "为什么",
    CommandName.FORGET: "忘记",
    CommandName.QUIT: "退出",
}
NAMES: dict[str, CommandName] = {
    **{name.value: name for name in CommandName},
    "exit": CommandName.QUIT,
    **{chinese: name for name, chinese in CHINESE.items()},
}


@dataclass(frozen=True)
class Message:
    text: str


@dataclass(frozen=True)
class Command:
    name: CommandName
    argument: str = ""
    is_confirmed: bool = False  # --yes stood at its end
    shows_all: bool = False  # --all did


@dataclass(frozen=True)
class UnknownCommand:
    word: str
    nearest: str | None


def parse(typed: str) -> Message | Command | UnknownCommand:
    """Read one submitted text. The text of a message is kept as it is, but for the doubled slash."""
    line = typed.strip()
    if line.startswith(("//", "／／")):
        return Message(typed.lstrip()[1:])
    found = None if "\n" in line else _COMMAND.match(line)
    if found is None:
        return Message(typed)
    word = found["word"].casefold()
    name = NAMES.get(word)
    if name is None:
        return UnknownCommand(found["word"], nearest_name(word))
    argument, flags = _without_flags(found["argument"] or "")
    return Command(name, argument, CONFIRMED_FLAG in flags, ALL_FLAG in flags)


def _without_flags(argument: str) -> tuple[str, set[str]]:
    """The argument without what it ends with of --yes and --all, and these."""
    words, flags = argument.strip(), set[str]()
    while (last := words.rpartition(" ")[2]) in (CONFIRMED_FLAG, ALL_FLAG):
        flags.add(last)
        words = words.removesuffix(last).strip()
    return words, flags


def without_confirmation(text: str) -> tuple[str, bool]:
    """A message without the --yes at its end, and whether it had one; only a request to forget can have one."""
    request = text.rstrip().removesuffix(f" {CONFIRMED_FLAG}")
    is_confirmed = request != text.rstrip() and asks_to_forget(request)
    return (request, True) if is_confirmed else (text, False)


def nearest_name(word: str) -> str | None:
    """The name that was probably meant: one it begins, or else one that looks alike."""
    if not word:
        return None
    begun = [name for name in NAMES if name.startswith(word) or word.startswith(name)]
    close = begun or difflib.get_close_matches(word, NAMES, n=1, cutoff=0.5)
    return close[0] if close else None
