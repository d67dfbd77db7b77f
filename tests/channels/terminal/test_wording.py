import re
from dataclasses import asdict

import pytest

from pikobot.channels.operator.methods import NO_MODEL, NO_PROVIDER
from pikobot.channels.terminal.reasons import spoken_reason
from pikobot.channels.terminal.slash import CHINESE, NAMES, CommandName
from pikobot.channels.terminal.status import status_lines
from pikobot.channels.terminal.wording import EN, ZH, Wording, clear_language, locale_language, spelled
from pikobot.memory.embedding import problems as embedding_problems
from pikobot.memory.embedding.embed import NOT_EMBEDDED
from pikobot.memory.embedding.problems import failed

from .fakes import STATUS


def test_both_languages_have_the_same_placeholders() -> None:
    english, chinese = asdict(EN), asdict(ZH)
    for name, text in english.items():
        if isinstance(text, str):
            placeholders = [sorted(re.findall(r"\{(\w*)", each)) for each in (text, chinese[name])]
            assert placeholders[0] == placeholders[1], name
        else:
            assert text.keys() == chinese[name].keys()


def test_help_names_every_command() -> None:
    assert all(f"/{name}" in EN.help + ZH.help for name in NAMES)
    assert set(CHINESE) == set(CommandName)


@pytest.mark.parametrize(
    ("words", "foreign"), [(EN, NAMES.keys() - set(CommandName)), (ZH, set(CommandName))]
)
def test_every_sentence_names_commands_in_its_own_language(words: Wording, foreign: set[str]) -> None:
    assert not foreign & {spelled(name, words.language) for name in CommandName}
    for field, text in asdict(words).items():
        if isinstance(text, str):
            assert not re.findall(rf"/(?:{'|'.join(foreign)})\b", text.replace("/exit", "")), field


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where did I move?", "en"),
        ("我搬到哪里了？", "zh"),
        ("修改youer服务端", "zh"),
        ("好", "zh"),
        ("ok", None),
        ("Porto 2024 !", None),
        ("42 !", None),
        ("", None),
    ],
)
def test_a_language_is_clear_from_any_chinese_character_or_two_english_words(
    text: str, language: str | None
) -> None:
    assert clear_language(text) == language


def test_the_locale_decides_before_the_first_message() -> None:
    assert locale_language({"LANG": "zh_CN.UTF-8"}) == "zh"
    assert locale_language({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}) == "en"
    assert locale_language({}) == "en"


def test_the_status_is_a_short_table_in_both_languages() -> None:
    assert status_lines(STATUS, EN) == [
        "version           0.1.0",
        "mode              model",
        "model             scripted-1",
        "counts            sources 12, threads 3, runs (succeeded 5)",
        "unknown outcomes  1",
        "this month        main: $0.0123 of $5 ($0.0005 reserved)",
        "degraded          no embeddings yet: text search only",
        "                  budget nearly used up",
    ]
    assert status_lines(STATUS | {"mode": "recall", "degraded": [NO_MODEL, NOT_EMBEDDED]}, ZH) == [
        "版本      0.1.0",
        "模式      回忆模式",
        "模型      scripted-1",
        "数量      原话和回答 12，对话 3，请求（成功 5）",
        "结果未知  1",
        "本月花费  main：$0.0123，上限 $5（预留 $0.0005）",
        "受限      没有聊天模型，处于回忆模式；设置 PIKOBOT_CHAT_API_KEY，或在 credentials.toml 中写入 chat_api_key",
        "          还没有生成向量：只按文字搜索",
    ]


def test_without_a_model_the_status_says_that_learning_waits_for_one_and_nothing_of_money() -> None:
    counts = {"facts": 0, "sources": 81, "runs": {"queued": 0}}
    spend = {"workspaces": [{"workspace": "main", "spentMicroUsd": 0, "reservedMicroUsd": 0}]}
    learning = {"queued": 81, "failed": 0}
    status: dict[str, object] = {"mode": "recall", "counts": counts, "extraction": learning, "spend": spend}
    assert status_lines(status, EN) == [
        "mode      recall",
        "counts    sources 81",
        "learning  81 messages wait for a model, which learning needs",
    ]
    assert status_lines(status, ZH)[2] == "学习  81 条消息等待模型；没有模型不能学习"
    assert status_lines(status | {"extraction": {"queued": 0}}, EN)[2:] == []
    assert status_lines(status | {"mode": "model"}, EN)[2:] == [
        "learning    queued 81",
        "this month  main: $0 of $0",
    ]


def test_the_status_tells_how_long_messages_are_kept_and_what_was_removed() -> None:
    last = {"at": "2026-03-01T08:00:00Z", "expired": 3, "overCapacity": 2, "facts": 1, "clean": True}
    state = {
        "messageDays": 30,
        "maxSources": 100,
        "expiredWaiting": 4,
        "beyondCapacity": 1,
        "lastSweep": last,
    }
    assert status_lines({"retention": state}, EN) == [
        "retention  messages are deleted after 30 days",
        "           a workspace keeps at most 100 messages",
        "           5 to be removed",
        "           2026-03-01T08:00:00Z: removed 3 that had expired, 2 beyond the limit, 1 fact with them",
    ]
    assert status_lines({"retention": state}, ZH)[0] == "保留期限  消息保留 30 天"
    assert status_lines({"retention": dict.fromkeys(state, 0) | {"lastSweep": None}}, EN) == []


def test_a_status_with_unknown_and_missing_keys_is_shown_as_it_is() -> None:
    assert status_lines({"mode": "recall", "model": None, "degraded": [], "queue": {"jobs": 2}}, EN) == [
        "mode      recall",
        "degraded  none",
        "queue     jobs 2",
    ]


@pytest.mark.parametrize(
    "reason",
    [
        NO_MODEL,
        NO_PROVIDER,
        NOT_EMBEDDED,
        "text search only: no key for text-embedding-3-small; set PIKOBOT_EMBEDDING_API_KEY, or embedding.provider=e5 "
        "for a local model",
        "the vectors are of e5-small until the new ones are made: text search only",
        "12 texts are embedded and more wait: text search only",
        "1 text is embedded and more wait: text search only",
        *(
            f"text search only: the vectors are of m-small until they are made anew, and {reason}"
            for reason in (
                "embedding.base_url is no longer at api.openai.com, where they were made",
                "embedding.path no longer holds the model that made them",
                "this version of pikobot embeds otherwise than they were embedded",
                "no key for m-small; set PIKOBOT_EMBEDDING_API_KEY",
            )
        ),
        *(
            f"text search only: {failed(code)} (last tried 2026-03-01T08:00:00Z)"
            for code in embedding_problems._WORDS
        ),
    ],
)
def test_what_is_degraded_is_said_in_chinese_with_the_names_of_settings_as_they_are(reason: str) -> None:
    assert spoken_reason(reason, "en") == reason
    chinese = spoken_reason(reason, "zh")
    assert not re.search("[a-z]{2,} [a-z]{2,}", chinese)
    names = re.findall(r"[A-Z_]{9,}|[a-z]+\.(?!env)[a-z_]{2,}", reason)
    assert all(name in chinese for name in names)


def test_a_reason_that_is_not_known_stays_as_it_is() -> None:
    assert spoken_reason("the disk is nearly full", "zh") == "the disk is nearly full"
