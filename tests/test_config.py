import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.config import (
    Config,
    TokenPrices,
    config_keys,
    is_loopback_url,
    load_config,
    parse_config,
)
from pikobot.config_file import default_config_text, set_values, update_config_file
from pikobot.errors import ConfigError, PikobotError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "config.toml")
    return str(caught.value)


def test_an_empty_file_is_the_defaults_of_the_contract() -> None:
    assert parse_config("", "config.toml").model_dump() == {
        "chat": {
            "provider": "deepseek",
            "base_url": "https://api.deepseek.com",
            "model": "deepseek-v4-flash",
            "context_tokens": 128_000,
            "max_output_tokens": 8_192,
            "timeout_s": 120,
            "run_timeout_s": 600,
            "price_input": None,
            "price_cached_input": None,
            "price_output": None,
        },
        "extraction": {"enabled": True, "base_url": "", "model": "", "max_jobs_per_hour": 60},
        "embedding": {
            "provider": "openai",
            "base_url": "https://api.openai.com/v1",
            "model": "text-embedding-3-small",
            "dimension": 1536,
            "path": "",
            "price_input": None,
        },
        "budget": {"run_usd": 0.25, "workspace_usd_per_month": 10, "background_usd_per_day": 0.5},
        "memory": {"idle_minutes": 30, "extract_imports": False, "basics": True},
        "retention": {"message_days": 0, "max_sources": 0},
        "telegram": {
            "enabled": False,
            "base_url": "https://api.telegram.org",
            "owner_id": 0,
            "allowed_users": (),
            "allowed_groups": (),
            "media_max_mb": 20,
        },
    }


def test_every_default_is_valid_where_it_is_written_out() -> None:
    dumped = Config().model_dump(exclude_none=True)
    assert Config.model_validate(dumped) == Config()


def test_every_setting_has_a_line_of_documentation() -> None:
    assert [key for key, field in config_keys().items() if not field.description] == []


def test_all_findings_are_reported_at_once_without_their_values() -> None:
    message = refusal(
        '[chat]\nmodle = "x"\ntimeout_s = "hunter2"\nprovider = "hunter2"\nprice_input = -1\n'
        "[telegram]\nallowed_users = [1, true]\nenabled = 1\n[nope]\na = 1\n[budget]\nrun_usd = nan\n"
    )
    assert message.splitlines() == [
        "config.toml: chat.provider must be one of 'deepseek', 'openai', 'custom' or 'none'",
        "config.toml: chat.timeout_s must be a number: "
        "Longest silence of the provider before a call counts as lost, seconds.",
        "config.toml: chat.price_input must be at least 0: Dollars per million input tokens. Without it: the "
        "list price if pikobot knows it, 0 for a server on this machine, else calls are refused.",
        "config.toml: chat.modle is not a setting; did you mean chat.model?",
        "config.toml: budget.run_usd must be a finite number: "
        "Most that one answer may cost, in dollars; 0: spend nothing.",
        "config.toml: telegram.enabled must be true or false: "
        "Talk on Telegram too; needs owner_id and a bot token.",
        "config.toml: telegram.allowed_users, item 2, must be a whole number: "
        "Numeric ids of other users who may talk to the bot.",
        "config.toml: nope is not a setting; remove it",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("chat = 3", "config.toml: chat must be a section, written [chat]"),
        ('modle = "x"', "config.toml: modle is not a setting; did you mean chat.model?"),
        ("[chatt]\nmodel = 'x'", "config.toml: chatt is not a setting; did you mean [chat]?"),
        (
            "[budget]\ntimeout_s = 1",
            "config.toml: budget.timeout_s is not a setting; did you mean chat.timeout_s?",
        ),
        ("[chat]\nprovider = 'openai'", "config.toml: chat.model must be set when chat.provider is openai"),
        (
            "[chat]\nprovider = 'custom'",
            "config.toml: chat.base_url and chat.model must be set when chat.provider is custom",
        ),
        (
            "[chat]\ncontext_tokens = 8192",
            "config.toml: chat.max_output_tokens must be smaller than chat.context_tokens",
        ),
        (
            "[embedding]\nprovider = 'e5'\ndimension = 1536",
            "config.toml: embedding.dimension must be 384 when embedding.provider is e5",
        ),
        (
            "[embedding]\nprovider = 'sentence-transformers'",
            "config.toml: embedding.path must be set when embedding.provider is sentence-transformers",
        ),
        (
            '[embedding]\npath = "models/mine"\n',
            "config.toml: embedding.path must be absolute or begin with ~: pikobot is started from many directories",
        ),
        (
            "[chat]\nmodel = 'a'\n\nmodel = 'b'",
            "config.toml line 4: this key or section is there twice; remove one",
        ),
        (
            "[chat]\nmodel = gpt",
            'config.toml line 2: not valid TOML; a setting is written key = "text", key = 12 or key = true',
        ),
    ],
)
def test_a_mistake_is_named_with_its_remedy(text: str, message: str) -> None:
    assert refusal(text) == message


@pytest.mark.parametrize("key", ["api_key", "key", "token", "bot-token", "ApiKey", "password"])
def test_a_secret_among_the_settings_is_refused_without_showing_it(key: str) -> None:
    message = refusal(f'[chat]\n{key} = "sk-12345"')
    assert "credentials.toml" in message
    assert "PIKOBOT_CHAT_API_KEY" in message
    assert "12345" not in message


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://192.168.1.5:11434/v1", "over plain http, keys and messages would travel in clear"),
        ("http://localhost.example.org", "plain http"),
        ("ftp://host/v1", "must begin with https://"),
        ("api.deepseek.com", "must be a URL"),
        ("https://", "must be a URL"),
        ("https://host:99999/v1", "must be a URL"),
        ("http://[::1", "must be a URL"),
        ("https://a b/", "must be a URL"),
        ("https://me:hunter2@host/v1", "must not contain a user name or password"),
        ("https://host/v1?key=hunter2", "must not contain '?'"),
        ("", "must be a URL"),
    ],
)
def test_an_address_that_is_unsafe_or_none_is_refused(url: str, problem: str) -> None:
    message = refusal(f'[chat]\nbase_url = "{url}"')
    assert message.startswith("config.toml: chat.base_url ")
    assert problem in message
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("url", "is_local"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.1:8080", True),
        ("http://127.9.9.9", True),
        ("http://[::1]:1/v1", True),
        ("http://0.0.0.0:1", False),
        ("https://127.0.0.1.example.org", False),
        ("https://api.deepseek.com", False),
    ],
)
def test_loopback_is_told_from_the_address_alone(url: str, is_local: bool) -> None:
    assert is_loopback_url(url) is is_local


def test_openai_brings_its_own_address_and_e5_its_profile() -> None:
    config = parse_config("[chat]\nprovider='openai'\nmodel='m'\n[embedding]\nprovider='e5'", "config.toml")
    assert config.chat.base_url == "https://api.openai.com/v1"
    assert (config.embedding.model, config.embedding.dimension) == ("multilingual-e5-small", 384)


@pytest.mark.parametrize(
    ("chat", "has_key", "is_on"),
    [
        ("", False, False),
        ("", True, True),
        ("provider = 'none'", True, False),
        ("base_url = 'http://localhost:1/v1'", False, True),
        ("provider = 'custom'\nbase_url = 'https://h/v1'\nmodel = 'm'", False, False),
    ],
)
def test_a_model_is_on_with_a_key_or_on_this_machine(chat: str, has_key: bool, is_on: bool) -> None:
    assert parse_config(f"[chat]\n{chat}", "c").chat.is_model_on(has_key=has_key) is is_on


CUSTOM = "provider = 'custom'\nbase_url = 'https://h/v1'\nmodel = 'deepseek-v4-flash'\n"


@pytest.mark.parametrize(
    ("chat", "prices"),
    [
        ("", TokenPrices(0.14, 0.028, 0.28)),
        ("price_output = 1", TokenPrices(0.14, 0.028, 1)),
        ("price_input = 1", TokenPrices(1, 1, 0.28)),
        ("price_input = 0\nprice_cached_input = 0\nprice_output = 0", TokenPrices(0, 0, 0)),
        ("model = 'deepseek-v9'", None),
        (CUSTOM, None),
        (CUSTOM + "price_input = 1", None),
        (CUSTOM + "price_output = 1", None),
        (CUSTOM + "price_input = 1\nprice_output = 2", TokenPrices(1, 1, 2)),
        ("base_url = 'http://127.0.0.1:1/v1'\nmodel = 'any'", TokenPrices(0, 0, 0)),
        ("base_url = 'http://127.0.0.1:1/v1'\nprice_output = 3", TokenPrices(0, 0, 3)),
    ],
)
def test_prices_are_as_set_else_listed_else_unknown(chat: str, prices: TokenPrices | None) -> None:
    config = parse_config(f"[chat]\n{chat}", "c")
    assert config.chat.prices() == prices
    assert "`pikobot init --set chat.price_input=… --set chat.price_output=…`" in config.chat.price_remedy()


def test_a_missing_file_names_the_command_that_writes_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is missing; `pikobot init"):
        load_config(tmp_path / "config.toml")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[chat]\n\nmodel = '\xff'", "line 3: not UTF-8 text; save the file as UTF-8"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
        (b"[retention]\nmessage_days = " + b"9" * 5_000, "a number is too long"),
        (b"#" * 1_000_001, "larger than 1000000 bytes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_file_with_a_byte_order_mark_and_windows_line_ends_loads(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes('\ufeff[chat]\r\nmodel = "小模型"\r\n'.encode())
    assert load_config(path).chat.model == "小模型"


def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory"):
        load_config(tmp_path)


# The file that init writes, and changes to it


def uncommented(text: str) -> str:
    return "\n".join(
        line.removeprefix("# ")
        if line.startswith(tuple(f"# {key.split('.')[1]} =" for key in config_keys()))
        else line
        for line in text.splitlines()
    )


def test_the_default_file_sets_nothing_and_shows_every_default() -> None:
    text = default_config_text()
    assert parse_config(text, "c").model_dump(exclude_unset=True) == {
        section: {} for section in Config.model_fields
    }
    written_out = tomllib.loads(uncommented(text))
    assert [f"{section}.{key}" for section, keys in written_out.items() for key in keys] == list(
        config_keys()
    )
    examples = {"price_input": 0.14, "price_cached_input": 0.028, "price_output": 0.28}
    defaults = Config().model_dump(mode="json")
    shown = {"chat": examples, "embedding": {"price_input": 0.02}}
    assert written_out == {name: {**keys, **shown.get(name, {})} for name, keys in defaults.items()}


def test_a_setting_goes_below_its_documentation_and_nothing_else_moves() -> None:
    before = default_config_text()
    after = set_values(before, [("budget.run_usd", "1"), ("chat.base_url", "http://localhost:1/v1")])
    assert after.replace("\nrun_usd = 1", "").replace('\nbase_url = "http://localhost:1/v1"', "") == before
    assert '# base_url = "https://api.deepseek.com"\nbase_url = "http://localhost:1/v1"\n' in after


def test_a_second_change_replaces_the_first_and_keeps_comments() -> None:
    text = "# mine\n[chat] # 聊天\nmodel = 'a'   # why\n\n[budget]\nrun_usd = 1\n# tail\n"
    once = set_values(text, [("chat.model", "b"), ("chat.model", "c"), ("memory.basics", "false")])
    assert once == (
        '# mine\n[chat] # 聊天\nmodel = "c"   # why\n\n[budget]\nrun_usd = 1\n# tail\n'
        "\n[memory]\nbasics = false\n"
    )
    assert set_values(once, [("chat.model", "c"), ("memory.basics", "false")]) == once


def test_dotted_and_inline_sections_can_be_edited() -> None:
    text = 'chat.model = "x"\nembedding = { provider = "e5" } # in\n'
    changed = set_values(text, [("chat.timeout_s", "5"), ("embedding.provider", "disabled")])
    assert tomllib.loads(changed) == {
        "chat": {"model": "x", "timeout_s": 5},
        "embedding": {"provider": "disabled"},
    }
    assert "# in" in changed


def test_windows_line_ends_stay() -> None:
    text = default_config_text().replace("\n", "\r\n")
    changed = set_values(text, [("chat.timeout_s", "5")])
    assert changed.count("\n") == changed.count("\r\n") == text.count("\r\n") + 1


@pytest.mark.parametrize(
    ("key", "written", "value"),
    [
        ("chat.model", "qwen2.5:1.5b", "qwen2.5:1.5b"),
        ("chat.model", '"quoted"', "quoted"),
        ("chat.model", "123", "123"),
        ("chat.model", "true", "true"),
        ("chat.model", "小模型 \\ '引'", "小模型 \\ '引'"),
        ("embedding.path", "", ""),
        ("chat.timeout_s", "1.5", 1.5),
        ("memory.basics", "false", False),
        ("telegram.allowed_users", "[1, 2]", [1, 2]),
        ("telegram.allowed_users", "1,2", [1, 2]),
        ("telegram.allowed_groups", "-100", [-100]),
        ("telegram.allowed_groups", "[]", []),
    ],
)
def test_values_are_toml_or_bare_words(key: str, written: str, value: object) -> None:
    section, _, name = key.partition(".")
    assert tomllib.loads(set_values(default_config_text(), [(key, written)]))[section] == {name: value}


@pytest.mark.parametrize(
    ("key", "written", "problem"),
    [
        ("chat.modle", "x", "chat.modle is not a setting; did you mean chat.model?"),
        ("model", "x", "model is not a setting; did you mean chat.model?"),
        ("", "x", "is not a setting"),
        ("chat", "x", "is not a setting"),
        ("chat.api_key", "sk-1", "chat.api_key is a secret"),
        ("memory.basics", "yes", "must be true or false"),
        ("chat.timeout_s", "1\n[chat]", "must be a number"),
        ("chat.timeout_s", "nan", "must be a finite number"),
        ("chat.timeout_s", "2024-01-01", "must be a number"),
        ("chat.timeout_s", "", "must be a number"),
        ("chat.model", "a\nb", "must be one line"),
        ("chat.model", "a\udc80", "must be valid Unicode text"),
        ("chat.model", "", "must not be empty"),
        ("telegram.allowed_users", "a b", "must be a list of whole numbers"),
        ("telegram.allowed_users", "[[1]]", "must be a whole number"),
        ("telegram.enabled", "true", "telegram.owner_id must be set"),
        ("chat.base_url", "http://example.org", "travel in clear"),
    ],
)
def test_a_bad_change_leaves_the_file_as_it_was(tmp_path: Path, key: str, written: str, problem: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(default_config_text())
    with pytest.raises(ConfigError) as caught:
        update_config_file(path, [("chat.model", "good"), (key, written)])
    assert problem in str(caught.value)
    assert path.read_text() == default_config_text()
    assert os.listdir(tmp_path) == ["config.toml"]


def test_a_broken_setting_can_be_mended_by_a_change() -> None:
    broken = "[telegram]\nenabled = true\n"
    mended = set_values(broken, [("telegram.owner_id", "7")])
    assert parse_config(mended, "c").telegram.owner_id == 7


def test_a_line_that_only_looks_like_a_comment_is_not_built_upon() -> None:
    text = '[chat]\nmodel = """\n# timeout_s = 5 \\\n"""\n'
    with pytest.raises(ConfigError):
        set_values(text, [("chat.timeout_s", "5")])


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["chat.model", "embedding.model", "extraction.model"]),
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=20),
    ),
    st.booleans(),
)
def test_what_was_set_is_what_loads(values: dict[str, str], in_default_file: bool) -> None:
    written = [(key, f"'{value}'" if "'" not in value else value) for key, value in values.items()]
    expected: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        parsed = value
        if "'" in value:
            parsed = _as_toml_string(value)
        expected.setdefault(section, {})[name] = parsed
    loaded = tomllib.loads(set_values(default_config_text() if in_default_file else "", written))
    assert {section: keys for section, keys in loaded.items() if keys} == expected


def _as_toml_string(written: str) -> str:
    try:
        value = tomllib.loads(f"value = {written}")["value"]
    except tomllib.TOMLDecodeError:
        return written
    return value if isinstance(value, str) else written


def test_the_file_is_replaced_private_and_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "点 files" / "my.toml"
    target.parent.mkdir()
    target.write_text("[chat]\n")
    link = tmp_path / "config.toml"
    link.symlink_to(target)
    update_config_file(link, [("chat.model", "x")])
    assert link.is_symlink()
    assert target.read_text() == '[chat]\nmodel = "x"\n'
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(target.parent) == ["my.toml"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str, step: str
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[chat]\n")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(PikobotError, match=remedy):
        update_config_file(path, [("chat.model", "x")])
    monkeypatch.undo()
    assert path.read_text() == "[chat]\n"
    assert os.listdir(tmp_path) == ["config.toml"]
