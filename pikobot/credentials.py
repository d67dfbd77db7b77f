"""Secrets of an instance: credentials.toml (0600, never in a backup), overlaid by the environment.

Invariants: a secret is wrapped so that no repr, log line or error can print it; a message about a secret
gives its name and origin, never a part of it. An environment variable wins over the file; an empty one
counts as unset.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from pikobot.errors import ConfigError
from pikobot.files import parse_toml, read_text, write_private_file

OPERATOR_TOKEN_BYTES = 32
MAX_SECRET_CHARS = 4_096

_ENVIRONMENT = {
    "chat_api_key": "PIKOBOT_CHAT_API_KEY",
    "embedding_api_key": "PIKOBOT_EMBEDDING_API_KEY",
    "telegram_token": "PIKOBOT_TELEGRAM_TOKEN",
    "operator_token": "PIKOBOT_OPERATOR_TOKEN",
}
_PROVIDERS_OWN = {
    ("chat_api_key", "deepseek"): "DEEPSEEK_API_KEY",
    ("chat_api_key", "openai"): "OPENAI_API_KEY",
    ("embedding_api_key", "openai"): "OPENAI_API_KEY",
}
_DOCUMENTATION = {
    "chat_api_key": "Key of the chat provider.",
    "embedding_api_key": "Key of the embedding provider.",
    "telegram_token": "Token of the Telegram bot, from @BotFather.",
    "operator_token": "Token that `pikobot rpc` shows to the process that serves this instance.",
}


class Secret:
    """A secret string that prints as ``Secret(…)`` and is compared in constant time."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself, for the one call that must send it."""
        return self._value

    def matches(self, candidate: str) -> bool:
        """Whether the candidate is the secret; the time it takes does not even tell the length."""
        return hmac.compare_digest(_digest(self._value), _digest(candidate))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.matches(other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __repr__(self) -> str:
        return "Secret(…)"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not serialised")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


@dataclass(frozen=True)
class Credentials:
    """The secrets; None is not set. ``origins`` has the variable or file that each one came from."""

    chat_api_key: Secret | None = None
    embedding_api_key: Secret | None = None
    telegram_token: Secret | None = None
    operator_token: Secret | None = None
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def describe(self) -> dict[str, str | None]:
        """Per secret the name of the environment variable or file that sets it, or None; never the secret."""
        return {name: self.origins.get(name) for name in _ENVIRONMENT}


def load_credentials(
    path: Path,
    *,
    chat_provider: str,
    embedding_provider: str,
    environ: Mapping[str, str] | None = None,
) -> Credentials:
    """Secrets from the file and the environment; a missing file has none.

    The providers decide whose customary variables count (``DEEPSEEK_API_KEY``, ``OPENAI_API_KEY``). Raises
    ConfigError for a file that others can read, invalid TOML, unknown names and values that no key can be.
    """
    environ = os.environ if environ is None else environ
    try:
        found = {name: (value, path.name) for name, value in _read_file(path).items() if value}
    except FileNotFoundError:
        found = {}
    providers = {"chat_api_key": chat_provider, "embedding_api_key": embedding_provider}
    for name, variable in _ENVIRONMENT.items():
        own = _PROVIDERS_OWN.get((name, providers.get(name, "")))
        origin = next((each for each in (variable, own) if each and environ.get(each)), None)
        if origin is not None:
            found[name] = (environ[origin], origin)
            check_secret(origin, environ[origin])
    return Credentials(
        **{name: Secret(value) for name, (value, _) in found.items()},
        origins=MappingProxyType({name: origin for name, (_, origin) in found.items()}),
    )


def check_secret(origin: str, value: str) -> None:
    """Raise ConfigError for what cannot be sent as a key: empty, white space, control or non-ASCII."""
    if not value:
        raise ConfigError(f"{origin} is empty")
    if value != value.strip() or any(char.isspace() for char in value):
        raise ConfigError(f"{origin} contains a space or line break; copy the key again, without them")
    if not value.isascii() or not value.isprintable():
        raise ConfigError(f"{origin} contains a character that no key has; copy the key again")
    if len(value) > MAX_SECRET_CHARS:
        raise ConfigError(f"{origin} is longer than {MAX_SECRET_CHARS} characters; this is not a key")


def create_credentials(path: Path) -> bool:
    """Write a new file with a random operator token; False, and nothing written, if there is a file."""
    if path.exists():
        return False
    token = secrets.token_urlsafe(OPERATOR_TOKEN_BYTES)
    write_private_file(path, default_credentials_text(token))
    return True


def default_credentials_text(operator_token: str = "") -> str:
    """A credentials.toml that documents every secret and holds no other one."""
    return _HEADER + "".join(_file_lines(operator_token))


_HEADER = """\
# Secrets of this pikobot instance. Keep this file to yourself: mode 0600, and in no backup.
# Environment variables win over it; their names are in brackets.
"""


def _file_lines(operator_token: str) -> list[str]:
    values = {name: f'# {name} = ""' for name in _DOCUMENTATION}
    values["operator_token"] = f'operator_token = "{operator_token}"'
    return [f"\n# {_DOCUMENTATION[name]} [{_ENVIRONMENT[name]}]\n{line}\n" for name, line in values.items()]


def save_credential(path: Path, name: str, value: str) -> None:
    """Put one secret into the file and keep the rest of it. Raises ConfigError, and the file is as before."""
    import tomlkit  # lazily: most commands only read credentials

    if name not in _ENVIRONMENT:
        raise ConfigError(f"{name} is not a credential; known are {', '.join(_ENVIRONMENT)}")
    check_secret(name, value)
    create_credentials(path)
    _read_file(path)
    document = tomlkit.parse(read_text(path, private=True))
    document[name] = value
    write_private_file(path, tomlkit.dumps(document))


def _read_file(path: Path) -> dict[str, str]:
    data = parse_toml(read_text(path, private=True), path)
    problems = [f"{_shown(name)} is not a credential" for name in data if name not in _ENVIRONMENT]
    problems += [
        f"{name} must be text in quotes"
        for name, value in data.items()
        if name in _ENVIRONMENT and not isinstance(value, str)
    ]
    if problems:
        known = ", ".join(_ENVIRONMENT)
        raise ConfigError("\n".join(f"{path}: {problem}; known are {known}" for problem in problems))
    values = {name: value for name, value in data.items() if isinstance(value, str)}
    for name, value in values.items():
        if value:
            check_secret(f"{path}: {name}", value)
    return values


def _shown(name: str) -> str:
    """A name from the file, but only if it cannot be a secret that slipped to the wrong side of the '='."""
    return name if len(name) <= 24 and name.isidentifier() else "a name in it"
