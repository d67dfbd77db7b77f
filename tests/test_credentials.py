import copy
import os
import pickle
import stat
import tomllib
from pathlib import Path

import pytest

from pikobot.credentials import (
    Credentials,
    Secret,
    check_secret,
    create_credentials,
    load_credentials,
    save_credential,
)
from pikobot.errors import ConfigError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "credentials.toml"


def write(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def load(
    path: Path, environ: dict[str, str] | None = None, *, chat: str = "deepseek", embedding: str = "openai"
) -> Credentials:
    return load_credentials(path, chat_provider=chat, embedding_provider=embedding, environ=environ or {})


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("sk-hunter2")
    assert secret.reveal() == "sk-hunter2"
    assert "hunter2" not in f"{secret} {secret!r} {[secret]} {Credentials(chat_api_key=secret)}"
    assert secret == Secret("sk-hunter2")
    assert secret != "sk-hunter2"
    assert len({secret, Secret("sk-hunter2"), Secret("other")}) == 2


def test_a_secret_is_compared_with_any_text() -> None:
    secret = Secret("sk-hunter2")
    candidates = ["sk-hunter2", "", "sk-hunter", "密钥", "\ud800"]
    assert [secret.matches(candidate) for candidate in candidates] == [True, False, False, False, False]


def test_a_secret_is_not_serialised() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Secret("sk-hunter2"))
    with pytest.raises(TypeError):
        copy.copy(Secret("sk-hunter2"))


def test_without_file_and_environment_nothing_is_set(path: Path) -> None:
    credentials = load(path)
    assert credentials == Credentials()
    assert credentials.describe() == {
        "chat_api_key": None,
        "embedding_api_key": None,
        "telegram_token": None,
        "operator_token": None,
    }


def test_a_new_file_has_a_random_operator_token_and_is_private(path: Path) -> None:
    assert create_credentials(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = load(path).operator_token
    assert token is not None
    assert len(token.reveal()) == 43
    assert not create_credentials(path)
    assert load(path).operator_token == token
    other = path.with_name("other.toml")
    create_credentials(other)
    assert load(other).operator_token != token


def test_the_environment_wins_and_an_empty_variable_is_unset(path: Path) -> None:
    write(
        path,
        'chat_api_key = "file"\ntelegram_token = "file"\nembedding_api_key = ""\noperator_token = "file"\n',
    )
    environ = {"PIKOBOT_CHAT_API_KEY": "env", "PIKOBOT_TELEGRAM_TOKEN": "", "PIKOBOT_OPERATOR_TOKEN": "env"}
    credentials = load(path, environ)
    assert credentials == Credentials(
        chat_api_key=Secret("env"),
        telegram_token=Secret("file"),
        operator_token=Secret("env"),
        origins={
            "chat_api_key": "PIKOBOT_CHAT_API_KEY",
            "telegram_token": "credentials.toml",
            "operator_token": "PIKOBOT_OPERATOR_TOKEN",
        },
    )
    assert credentials.describe()["embedding_api_key"] is None


@pytest.mark.parametrize(
    ("chat", "embedding", "environ", "origins"),
    [
        ("deepseek", "openai", {"DEEPSEEK_API_KEY": "d"}, ("DEEPSEEK_API_KEY", None)),
        ("deepseek", "openai", {"OPENAI_API_KEY": "o"}, (None, "OPENAI_API_KEY")),
        ("openai", "e5", {"OPENAI_API_KEY": "o", "DEEPSEEK_API_KEY": "d"}, ("OPENAI_API_KEY", None)),
        ("custom", "disabled", {"OPENAI_API_KEY": "o", "DEEPSEEK_API_KEY": "d"}, (None, None)),
        ("none", "sentence-transformers", {"OPENAI_API_KEY": "o", "DEEPSEEK_API_KEY": "d"}, (None, None)),
        (
            "openai",
            "openai",
            {"OPENAI_API_KEY": "o", "PIKOBOT_CHAT_API_KEY": "c", "PIKOBOT_EMBEDDING_API_KEY": "e"},
            ("PIKOBOT_CHAT_API_KEY", "PIKOBOT_EMBEDDING_API_KEY"),
        ),
        ("deepseek", "e5", {"DEEPSEEK_API_KEY": "d", "PIKOBOT_CHAT_API_KEY": ""}, ("DEEPSEEK_API_KEY", None)),
    ],
)
def test_a_providers_own_variable_counts_for_that_provider_alone(
    path: Path, chat: str, embedding: str, environ: dict[str, str], origins: tuple[str | None, str | None]
) -> None:
    described = load(path, environ, chat=chat, embedding=embedding).describe()
    assert (described["chat_api_key"], described["embedding_api_key"]) == origins


def test_a_providers_own_variable_wins_over_the_file(path: Path) -> None:
    write(path, 'chat_api_key = "file"\n')
    assert load(path, {"DEEPSEEK_API_KEY": "env"}).chat_api_key == Secret("env")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o604, 0o666])
def test_a_file_that_others_can_read_is_refused_with_the_command(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "我的 instance" / "credentials.toml"
    path.parent.mkdir()
    write(path, 'chat_api_key = "hunter2"\n', mode)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"run `chmod 600 '{path}'`" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, "")
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        load(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('chat_key = "hunter2"', "chat_key is not a credential; known are chat_api_key, "),
        ('[chat]\napi_key = "hunter2"', "chat is not a credential"),
        ('sk-hunter2 = "x"', "a name in it is not a credential"),
        ("chat_api_key = 5", "chat_api_key must be text in quotes"),
        ("chat_api_key = hunter2", "line 1: not valid TOML"),
        ('chat_api_key = "hunter2\\n"', "chat_api_key contains a space or line break"),
        ('chat_api_key = "hunter2 "', "chat_api_key contains a space or line break"),
        ('chat_api_key = "hun ter2"', "chat_api_key contains a space or line break"),
        ('chat_api_key = "hunter2密"', "chat_api_key contains a character that no key has"),
        ('chat_api_key = "hunter2\\u0007"', "chat_api_key contains a character that no key has"),
    ],
)
def test_a_wrong_file_is_refused_without_showing_the_secret(path: Path, text: str, problem: str) -> None:
    write(path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_all_wrong_names_are_reported_at_once(path: Path) -> None:
    write(path, "a = 1\nb = 2\ntelegram_token = 3\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert len(str(caught.value).splitlines()) == 3


def test_a_wrong_variable_is_named_without_showing_it(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path, {"DEEPSEEK_API_KEY": "hunter2\n"})
    assert (
        str(caught.value)
        == "DEEPSEEK_API_KEY contains a space or line break; copy the key again, without them"
    )


@pytest.mark.parametrize("value", ["", " ", "a" * 5_000, "a\udc80"])
def test_what_cannot_be_a_key_is_refused(value: str) -> None:
    with pytest.raises(ConfigError):
        check_secret("chat_api_key", value)


def test_saving_a_key_keeps_the_rest_and_saving_again_replaces_it(path: Path) -> None:
    write(path, '# mine\noperator_token = "op"  # 口令\n')
    save_credential(path, "chat_api_key", "first")
    save_credential(path, "chat_api_key", "second")
    assert path.read_text() == '# mine\noperator_token = "op"  # 口令\nchat_api_key = "second"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_saving_into_no_file_makes_one_with_an_operator_token(path: Path) -> None:
    save_credential(path, "telegram_token", "12:ab")
    assert set(tomllib.loads(path.read_text())) == {"operator_token", "telegram_token"}


@pytest.mark.parametrize(("name", "value"), [("password", "x"), ("chat_api_key", "a b")])
def test_a_refused_key_changes_nothing(path: Path, name: str, value: str) -> None:
    write(path, 'operator_token = "op"\n')
    with pytest.raises(ConfigError):
        save_credential(path, name, value)
    assert path.read_text() == 'operator_token = "op"\n'
