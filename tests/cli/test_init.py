import os
import stat
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pikobot.cli.init import Dialog, init
from pikobot.config import Config
from pikobot.config_file import default_config_text
from pikobot.errors import ConfigError, ExitCode, UsageError
from pikobot.instance import Instance, create_instance
from pikobot.serving import acquire_serving_lock


class Person:
    """Answers questions from a list, and keeps what was said and asked."""

    def __init__(self, answers: Sequence[str] = ()) -> None:
        self.answers = list(answers)
        self.said: list[str] = []
        self.unseen: list[str] = []
        self.dialog = Dialog(ask=self._ask, ask_secret=self._ask_secret, say=self.said.append)

    def _ask(self, question: str) -> str:
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    def _ask_secret(self, question: str) -> str:
        self.unseen.append(question)
        return self._ask(question)


def run(root: Path, *settings: str, person: Person | None = None, **options: Any) -> list[str]:
    person = person or Person()
    options = {"environ": {}, **options}
    assert init(root, settings, dialog=person.dialog, **options) == ExitCode.DONE
    assert person.answers == []
    return person.said


def loaded(root: Path) -> dict[str, Any]:
    """What config.toml sets itself, without defaults."""
    data = tomllib.loads((root / "config.toml").read_text())
    return {section: keys for section, keys in data.items() if keys}


def secrets(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "credentials.toml").read_text())


@pytest.fixture(params=["i", "我的 助手"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


def test_a_new_instance_says_what_it_lacks_and_what_comes_next(root: Path) -> None:
    option = Instance(root).option
    assert run(root) == [
        f"Made the instance {root}",
        "No model answers yet (recall mode): set PIKOBOT_CHAT_API_KEY or DEEPSEEK_API_KEY, "
        f"or chat_api_key in {root}/credentials.toml",
        f"Next: pikobot run {option}",
    ]
    assert (root / "config.toml").read_text() == default_config_text()
    assert list(secrets(root)) == ["operator_token"]


def test_with_a_key_in_the_environment_nothing_is_lacking(root: Path) -> None:
    said = run(root, environ={"DEEPSEEK_API_KEY": "sk-1"})
    assert said == [f"Made the instance {root}", f"Next: pikobot run {Instance(root).option}"]


def test_a_second_run_without_flags_changes_nothing(root: Path) -> None:
    run(root, "chat.model=x")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for interactive in (False, True):
        said = run(root, interactive=interactive)
        assert said[0] == f"{root} is an instance already; nothing was changed"
        assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_lost_file_is_made_again_and_said_so(root: Path) -> None:
    run(root, "chat.model=x")
    (root / "credentials.toml").unlink()
    assert run(root)[0] == f"Added to the instance {root} what was missing: credentials.toml"
    assert loaded(root) == {"chat": {"model": "x"}}


def test_settings_change_an_existing_instance_and_keep_its_comments(root: Path) -> None:
    run(root)
    path = root / "config.toml"
    path.write_text("# mine 我的\n[chat]\nmodel = 'a'  # why\n")
    said = run(root, "chat.model=b", "budget.run_usd = 1", "chat.model=c")
    assert said[0] == f"Changed chat.model, budget.run_usd in {path}"
    assert path.read_text() == '# mine 我的\n[chat]\nmodel = "c"  # why\n\n[budget]\nrun_usd = 1\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_same_settings_again_change_nothing_and_say_so(root: Path) -> None:
    run(root, "chat.model=b", offline=True)
    text = (root / "config.toml").read_text()
    said = run(root, "chat.model=b", offline=True)
    assert (
        said[0]
        == "chat.provider, embedding.provider, chat.model are set to that already; nothing was changed"
    )
    assert not any("To change a setting" in line for line in said)
    assert (
        run(root, "embedding.provider=e5")[0]
        == "embedding.provider is set to that already; nothing was changed"
    )
    assert (root / "config.toml").read_text() == text
    assert run(root, "chat.model=c", offline=True)[0] == f"Changed chat.model in {root / 'config.toml'}"


def test_days_after_which_messages_go_are_said_before_anything_goes(root: Path) -> None:
    run(root)
    said = run(root, "retention.message_days=30")
    assert said[1] == (
        "What was said more than 30 days ago can't be read from now on, and is erased when pikobot works next; "
        f"to keep it: pikobot init {Instance(root).option} --set retention.message_days=0"
    )
    assert "erased" not in " ".join(run(root, "retention.message_days=0"))


def test_a_process_that_serves_is_to_be_restarted(root: Path) -> None:
    run(root)
    with acquire_serving_lock(Instance(root)):
        said = run(root, "chat.model=b")
    assert said[1].startswith(f"The instance is served by process {os.getpid()} since ")


def test_offline_chooses_no_model_and_local_search(root: Path) -> None:
    said = run(root, offline=True)
    assert loaded(root) == {"chat": {"provider": "none"}, "embedding": {"provider": "e5"}}
    assert said[1] == "No model answers yet (recall mode): set chat.provider to turn a model on"


def test_settings_win_over_flags(root: Path) -> None:
    run(root, "embedding.provider=disabled", offline=True)
    assert loaded(root) == {"chat": {"provider": "none"}, "embedding": {"provider": "disabled"}}


def test_a_server_on_this_machine_needs_no_key(root: Path) -> None:
    said = run(root, "chat.provider=custom", "chat.base_url=http://localhost:11434/v1", "chat.model=qwen")
    assert said == [f"Made the instance {root}", f"Next: pikobot run {Instance(root).option}"]


def test_telegram_needs_its_owner_and_says_so(root: Path) -> None:
    with pytest.raises(ConfigError, match=r"--set telegram\.owner_id=123456789"):
        run(root, telegram=True)
    assert not root.exists()
    said = run(root, "telegram.owner_id=7", telegram=True)
    assert loaded(root) == {"telegram": {"enabled": True, "owner_id": 7}}
    assert f"Telegram needs a bot token: set PIKOBOT_TELEGRAM_TOKEN, or telegram_token in {root}" in said[2]


def test_telegram_asks_a_person_for_owner_and_token(root: Path) -> None:
    person = Person(["me", "0", "7", "12:abc"])
    said = run(root, person=person, telegram=True, interactive=True)
    assert loaded(root) == {"telegram": {"enabled": True, "owner_id": 7}}
    assert secrets(root)["telegram_token"] == "12:abc"
    assert said[:2] == ["please type the number, such as 123456789"] * 2
    assert not any("12:abc" in line for line in said)


def test_telegram_on_an_instance_with_an_owner_asks_nothing(root: Path) -> None:
    run(root, "telegram.owner_id=7")
    run(root, telegram=True, interactive=True)
    assert loaded(root) == {"telegram": {"enabled": True, "owner_id": 7}}


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("chat.api_key=hunter2", "PIKOBOT_CHAT_API_KEY"),
        ("telegram.token=hunter2", "credentials.toml"),
        ("operator_token=hunter2", "credentials.toml"),
        ("hunter2", "--set needs section.key=value"),
        ("chat.modle=hunter2", "did you mean chat.model?"),
        ("chat.timeout_s=hunter2", "must be a number"),
        ("=hunter2", "is not a setting"),
    ],
)
def test_a_wrong_setting_is_refused_unseen_and_nothing_is_made(
    root: Path, setting: str, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run(root, "chat.model=good", setting)
    assert problem in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert not root.exists()


def test_a_wrong_setting_leaves_an_existing_instance_as_it_was(root: Path) -> None:
    run(root)
    with pytest.raises(ConfigError):
        run(root, "chat.model=good", "memory.basics=perhaps")
    assert (root / "config.toml").read_text() == default_config_text()


def test_a_directory_with_other_files_is_left_alone(root: Path) -> None:
    root.mkdir()
    (root / "notes").write_text("mine")
    with pytest.raises(UsageError, match="holds other files"):
        run(root)
    assert os.listdir(root) == ["notes"]


def test_an_instance_open_to_others_is_not_edited(root: Path) -> None:
    run(root)
    root.chmod(0o755)
    with pytest.raises(ConfigError, match="chmod 700"):
        run(root, "chat.model=x")
    assert (root / "config.toml").read_text() == default_config_text()


# Questions


def test_the_default_answer_is_deepseek_and_its_key_is_kept_unseen(root: Path) -> None:
    person = Person(["", "sk-hunter2"])
    said = run(root, person=person, interactive=True)
    assert (root / "config.toml").read_text() == default_config_text()
    assert secrets(root)["chat_api_key"] == "sk-hunter2"
    assert stat.S_IMODE((root / "credentials.toml").stat().st_mode) == 0o600
    assert len(person.unseen) == 1
    assert said == [
        f"Made the instance {root}",
        f"Saved chat_api_key in {root}/credentials.toml",
        f"Next: pikobot run {Instance(root).option}",
    ]


def test_a_key_can_be_left_for_later(root: Path) -> None:
    said = run(root, person=Person(["1", ""]), interactive=True)
    assert "recall mode" in said[1]
    assert list(secrets(root)) == ["operator_token"]


def test_a_key_in_the_environment_is_not_asked_for(root: Path) -> None:
    person = Person(["openai", "gpt-x"])
    run(root, person=person, interactive=True, environ={"OPENAI_API_KEY": "sk-1"})
    assert loaded(root) == {"chat": {"provider": "openai", "model": "gpt-x"}}
    assert person.unseen == []


def test_a_local_server_is_asked_for_address_and_model(root: Path) -> None:
    person = Person(["3", "http://10.0.0.1/v1", "http://localhost:1/v1", "", "通义 qwen"])
    said = run(root, person=person, interactive=True)
    assert loaded(root) == {
        "chat": {"provider": "custom", "base_url": "http://localhost:1/v1", "model": "通义 qwen"}
    }
    assert "travel in clear" in said[0]
    assert said[1] == "please type a name"
    assert person.unseen == []


def test_no_model_means_offline(root: Path) -> None:
    run(root, person=Person(["4"]), interactive=True)
    assert loaded(root) == {"chat": {"provider": "none"}, "embedding": {"provider": "e5"}}


def test_a_mistyped_key_is_asked_for_again_without_showing_it(root: Path) -> None:
    said = run(root, person=Person(["1", "hunter2 x", "sk-1"]), interactive=True)
    assert secrets(root)["chat_api_key"] == "sk-1"
    assert not any("hunter2" in line for line in said)


@pytest.mark.parametrize("answers", [[], ["1"], ["3", "http://localhost:1/v1"]])
def test_leaving_in_the_middle_writes_nothing(root: Path, answers: list[str]) -> None:
    with pytest.raises(UsageError, match="nothing was written"):
        run(root, person=Person(answers), interactive=True)
    assert not root.exists()


def test_a_person_who_never_answers_well_is_not_asked_for_ever(root: Path) -> None:
    with pytest.raises(ConfigError, match="1, 2, 3 or 4"):
        run(root, person=Person(["9"] * 5), interactive=True)
    assert not root.exists()


def test_with_flags_a_person_is_asked_nothing(root: Path) -> None:
    run(root, "chat.model=x", interactive=True)
    assert loaded(root) == {"chat": {"model": "x"}}


def test_an_instance_without_a_database_yet_keeps_its_settings(root: Path) -> None:
    create_instance(root, "[chat]\nprovider = 'none'\n")
    run(root)
    assert Instance(root).load_config() == Config.model_validate({"chat": {"provider": "none"}})
