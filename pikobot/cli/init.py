"""`pikobot init`: make an instance, or change the settings of one.

With flags, or without a terminal, nothing is asked; otherwise a few questions choose the model and take its
key, which is typed unseen and goes to credentials.toml. Everything is asked and checked before anything is
written. Running it again is safe: without flags an existing instance stays as it is.
"""

import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pikobot.config import Config, parse_config
from pikobot.config_file import default_config_text, set_values
from pikobot.credentials import check_secret, save_credential
from pikobot.errors import ConfigError, ExitCode, UsageError
from pikobot.files import parse_toml, read_text, write_private_file
from pikobot.instance import Instance, create_instance, is_instance
from pikobot.serving import ServedBy, acquire_visitor_lock
from pikobot.streams import emit
from pikobot.text import Count

Changes = list[tuple[str, str]]

OFFLINE: Changes = [("chat.provider", "none"), ("embedding.provider", "e5")]
TELEGRAM: Changes = [("telegram.enabled", "true")]
MAX_ASKED = 5

_PROVIDERS = {"1": "deepseek", "2": "openai", "3": "custom", "4": "none"}
_PROVIDER_QUESTION = """\
Which model shall answer?
  1  DeepSeek
  2  OpenAI
  3  another OpenAI-compatible server (Ollama, llama.cpp, …)
  4  none: recall mode, which quotes what you said, and local search
Choice [1]: """


def _print(line: str) -> None:
    emit(line + "\n")


@dataclass(frozen=True)
class Dialog:
    """How `init` talks: a question and its answer, one whose answer stays unseen, a line of output."""

    ask: Callable[[str], str] = input
    ask_secret: Callable[[str], str] = getpass.getpass
    say: Callable[[str], None] = _print


@dataclass
class _Plan:
    """What will be written once every question is answered."""

    changes: Changes
    is_new: bool
    missing: list[str]  # parts of an existing instance that are lost and will be made again
    secrets: dict[str, str] = field(default_factory=dict)
    set_before: tuple[str, ...] = ()  # keys that were asked for and had their values already


def init(
    root: Path,
    settings: Sequence[str] = (),
    *,
    telegram: bool = False,
    offline: bool = False,
    interactive: bool = False,
    dialog: Dialog | None = None,
    environ: Mapping[str, str] | None = None,
) -> ExitCode:
    """Make the instance at an absolute path, or change its settings; ``settings`` are ``section.key=value``.

    ``interactive`` says that a person is at the terminal. ``--offline`` and ``--telegram`` count as settings
    that come first. Raises UsageError and ConfigError for wrong input, and then nothing was written.
    """
    dialog = dialog or Dialog()
    environ = os.environ if environ is None else environ
    instance = Instance(root)
    is_new = not is_instance(root)
    changes = [*(OFFLINE if offline else []), *(TELEGRAM if telegram else []), *map(_parse_setting, settings)]
    plan = _Plan(changes, is_new, missing=_missing_parts(instance))
    text = default_config_text() if is_new else _existing_text(instance)
    if interactive:
        _ask(plan, dialog, environ, text=text, telegram=telegram)
    if plan.changes:
        before, text = text, set_values(text, plan.changes, name=instance.config_path)
        asked = tuple(dict.fromkeys(key for key, _ in plan.changes))
        plan.changes = [] if is_new else _effective(before, text, plan.changes)
        plan.set_before = () if is_new or plan.changes else asked
    _write(instance, text, plan)
    _report(instance, plan, dialog, environ)
    return ExitCode.DONE


def _effective(before: str, after: str, changes: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The changes of which something is left: a second `init` like the first one changes nothing."""
    old, new = parse_toml(before, "config.toml"), parse_toml(after, "config.toml")

    def value(document: Mapping[str, Any], dotted: str) -> object:
        section, _, key = dotted.partition(".")
        return document.get(section, {}).get(key)

    return [change for change in changes if value(old, change[0]) != value(new, change[0])]


def _parse_setting(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals:  # not shown: it may be a secret
        raise UsageError("--set needs section.key=value, as in --set chat.model=deepseek-v4-flash")
    return key.strip(), value.strip()


def _existing_text(instance: Instance) -> str:
    try:
        return read_text(instance.config_path)
    except FileNotFoundError:
        return default_config_text()


def _missing_parts(instance: Instance) -> list[str]:
    parts = [instance.config_path, instance.credentials_path, instance.run_dir, instance.skills_dir]
    return [part.name for part in parts if not os.path.lexists(part)]


def _ask(plan: _Plan, dialog: Dialog, environ: Mapping[str, str], *, text: str, telegram: bool) -> None:
    try:
        if plan.is_new and not plan.changes:
            _ask_model(plan, dialog, environ)
        if telegram and not _has_owner(text, plan):
            _ask_telegram(plan, dialog, environ)
    except EOFError:
        raise UsageError("the questions were not answered; nothing was written") from None


def _ask_model(plan: _Plan, dialog: Dialog, environ: Mapping[str, str]) -> None:
    provider = _PROVIDERS[_asked(dialog, _PROVIDER_QUESTION, _provider_choice)]
    if provider == "none":
        plan.changes += OFFLINE
        return
    if provider != "deepseek":
        plan.changes.append(("chat.provider", provider))
    if provider == "custom":
        example = "http://localhost:11434/v1"
        plan.changes.append(("chat.base_url", _asked(dialog, f"Address, such as {example}: ", _url)))
    if provider != "deepseek":
        plan.changes.append(("chat.model", _asked(dialog, "Name of the model: ", _required)))
    instance_config = parse_config(set_values(default_config_text(), plan.changes), "config.toml")
    if not instance_config.chat.is_local and not _key_variable(instance_config, environ):
        _ask_for_secret(plan, dialog, "chat_api_key", "API key (unseen; empty: later): ")


def _ask_telegram(plan: _Plan, dialog: Dialog, environ: Mapping[str, str]) -> None:
    question = "Your numeric Telegram user id (@userinfobot tells you): "
    plan.changes.append(("telegram.owner_id", _asked(dialog, question, _user_id)))
    if not environ.get("PIKOBOT_TELEGRAM_TOKEN"):
        _ask_for_secret(plan, dialog, "telegram_token", "Bot token from @BotFather (unseen; empty: later): ")


def _ask_for_secret(plan: _Plan, dialog: Dialog, name: str, question: str) -> None:
    def checked(value: str) -> str:
        if value:
            check_secret(name, value)
        return value

    value = _asked(dialog, question, checked, ask=dialog.ask_secret)
    if value:
        plan.secrets[name] = value


def _asked(
    dialog: Dialog,
    question: str,
    checked: Callable[[str], str],
    ask: Callable[[str], str] | None = None,
) -> str:
    """The first acceptable answer; after MAX_ASKED wrong ones the last objection is raised."""
    for remaining in reversed(range(MAX_ASKED)):
        try:
            return checked((ask or dialog.ask)(question).strip())
        except ConfigError as error:
            if not remaining:
                raise
            dialog.say(str(error))
    raise AssertionError("unreachable")


def _provider_choice(answer: str) -> str:
    choice = answer or "1"
    by_name = {name: number for number, name in _PROVIDERS.items()}
    choice = by_name.get(choice.lower(), choice)
    if choice not in _PROVIDERS:
        raise ConfigError("please answer 1, 2, 3 or 4")
    return choice


def _required(answer: str) -> str:
    if not answer:
        raise ConfigError("please type a name")
    return answer


def _url(answer: str) -> str:
    changes = [("chat.provider", "custom"), ("chat.model", "any"), ("chat.base_url", answer)]
    set_values(default_config_text(), changes, name="that address")
    return answer


def _user_id(answer: str) -> str:
    if not (answer.isascii() and answer.isdigit() and int(answer) > 0):
        raise ConfigError("please type the number, such as 123456789")
    return answer


def _has_owner(text: str, plan: _Plan) -> bool:
    """Whether the settings, with what is planned, would have a Telegram owner."""
    probe = [*plan.changes, ("telegram.enabled", "false")]
    return parse_config(set_values(text, probe), "config.toml").telegram.owner_id != 0


def _write(instance: Instance, text: str, plan: _Plan) -> None:
    create_instance(instance.root, text)
    if plan.changes and not plan.is_new:
        write_private_file(instance.config_path, text)
    for name, value in plan.secrets.items():
        save_credential(instance.credentials_path, name, value)


def _report(instance: Instance, plan: _Plan, dialog: Dialog, environ: Mapping[str, str]) -> None:
    if plan.is_new:
        dialog.say(f"Made the instance {instance.root}")
    elif plan.missing:
        dialog.say(f"Added to the instance {instance.root} what was missing: {', '.join(plan.missing)}")
    elif plan.set_before:
        are = "are" if len(plan.set_before) > 1 else "is"
        dialog.say(f"{', '.join(plan.set_before)} {are} set to that already; nothing was changed")
    elif not plan.changes:
        dialog.say(f"{instance.root} is an instance already; nothing was changed")
        dialog.say(f"To change a setting: pikobot init {instance.option} --set section.key=value")
    if plan.changes and not plan.is_new:
        changed = ", ".join(dict.fromkeys(key for key, _ in plan.changes))
        dialog.say(f"Changed {changed} in {instance.config_path}")
        _report_retention(instance, changed, dialog)
        _report_server(instance, dialog)
    for name in plan.secrets:
        dialog.say(f"Saved {name} in {instance.credentials_path}")
    _report_next(instance, dialog, environ)


def _report_retention(instance: Instance, changed: str, dialog: Dialog) -> None:
    days = instance.load_config().retention.message_days
    if "retention.message_days" in changed and days:
        dialog.say(
            f"What was said more than {Count(days):day} ago can't be read from now on, and is erased when pikobot "
            f"works next; to keep it: pikobot init {instance.option} --set retention.message_days=0"
        )


def _report_server(instance: Instance, dialog: Dialog) -> None:
    lock = acquire_visitor_lock(instance)
    if isinstance(lock, ServedBy):
        dialog.say(f"The instance is served by {lock}: restart it to use the new settings")
    else:
        lock.release()


def _report_next(instance: Instance, dialog: Dialog, environ: Mapping[str, str]) -> None:
    config = instance.load_config()
    credentials = instance.load_credentials(config, environ)
    if not config.chat.is_model_on(has_key=credentials.chat_api_key is not None):
        if config.chat.provider == "none":
            remedy = "set chat.provider to turn a model on"
        else:
            remedy = f"set {_variables(config)}, or chat_api_key in {instance.credentials_path}"
        dialog.say(f"No model answers yet (recall mode): {remedy}")
    if config.telegram.enabled and credentials.telegram_token is None:
        dialog.say(
            f"Telegram needs a bot token: set PIKOBOT_TELEGRAM_TOKEN, or telegram_token in "
            f"{instance.credentials_path}"
        )
    dialog.say(f"Next: pikobot run {instance.option}")


def _variables(config: Config) -> str:
    own = {"deepseek": "DEEPSEEK_API_KEY", "openai": "OPENAI_API_KEY"}.get(config.chat.provider)
    return "PIKOBOT_CHAT_API_KEY" + (f" or {own}" if own else "")


def _key_variable(config: Config, environ: Mapping[str, str]) -> str | None:
    """The environment variable that already has the chat key."""
    return next((name for name in _variables(config).split(" or ") if environ.get(name)), None)
