"""The group of all commands; of a word that is none of them it says what was probably meant."""

from typing import Any

from typer.core import TyperGroup


class Commands(TyperGroup):
    """Knows what the chat and the operator call by other means; a slip of the pen is typer's to find."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and (meant := _said_elsewhere(args[0])):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(meant)}?")
        return super().resolve_command(ctx, args)


def _said_elsewhere(word: str) -> list[str]:
    """The command lines for a method of `pikobot rpc` or a command of the chat."""
    from pikobot.channels.operator.methods import METHODS  # lazily: loads much
    from pikobot.channels.terminal.slash import NAMES, CommandName

    lines = [f"`pikobot rpc {word}`"] if word in METHODS else []
    name = word.removeprefix("/").casefold()
    match NAMES.get(name):
        case None:
            pass
        case CommandName.HELP:
            lines.append("`pikobot --help`")
        case CommandName.NEW | CommandName.QUIT:
            lines.append("`pikobot run`")
        case _:
            lines.append(f"`pikobot run -m /{name}`")
    return lines
