import socket
import threading
from typing import Any

import pytest

from pikobot.adapters.chat import CallFailure, ChatCallFailed, Message
from pikobot.adapters.chat_chunks import MAX_DETAIL_CHARS
from pikobot.adapters.openai_client import MAX_RETRY_AFTER_S
from tests.adapters.calls import API_KEY, failure, model_at
from tests.servers.openai_server import ScriptedOpenAI, status

HALF = "一二三四 half of it"


def _outcome(failed: ChatCallFailed) -> tuple[str, bool, bool]:
    return failed.code.value, failed.may_have_charged, failed.is_retryable


@pytest.mark.parametrize(
    ("code", "body", "outcome", "remedy"),
    [
        (400, {"error": {"message": "bad stream_options"}}, "refused_request", "chat.model"),
        (401, {"error": {"message": "wrong key"}}, "unauthorized", "PIKOBOT_CHAT_API_KEY"),
        (402, {"error": {"message": "Insufficient Balance"}}, "payment_required", "top up"),
        (403, {}, "unauthorized", "PIKOBOT_CHAT_API_KEY"),
        (404, "not here", "not_found", "chat.base_url and chat.model"),
        (409, {}, "refused_request", "chat.model"),
        (413, {}, "refused_request", "chat.model"),
        (422, {"detail": [{"msg": "too long"}]}, "refused_request", "chat.model"),
        (
            429,
            {"error": {"message": "no credit", "code": "insufficient_quota"}},
            "payment_required",
            "top up",
        ),
    ],
)
def test_a_refused_request_cost_nothing_and_names_the_remedy(
    openai_server: ScriptedOpenAI, code: int, body: object, outcome: str, remedy: str
) -> None:
    openai_server.push(status(code, body))
    failed = failure(model_at(openai_server.base_url))
    assert _outcome(failed) == (outcome, False, False)
    assert remedy in str(failed)
    assert f"HTTP {code}" in str(failed)
    assert len(openai_server.requests()) == 1


@pytest.mark.parametrize("code", [408, 499, 500, 502, 503, 504, 529, 599])
def test_a_server_error_may_have_charged_and_is_not_repeated(
    openai_server: ScriptedOpenAI, code: int
) -> None:
    openai_server.push(status(code, {"error": {"message": "Überlastet"}}, retry_after="1"))
    failed = failure(model_at(openai_server.base_url))
    assert _outcome(failed) == ("server_error", True, False)
    assert failed.retry_after_s is None
    assert str(failed).endswith(": Überlastet")
    assert len(openai_server.requests()) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "1e999"}, MAX_RETRY_AFTER_S),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "Fri, 31 Jul 2026 12:14:00 GMT"}, 40.0),
        (
            {"retry_after": "Sat, 01 Aug 2026 10:00:30 GMT", "date": "Sat, 01 Aug 2026 10:00:00 GMT"},
            30.0,
        ),
        ({"retry_after": "Fri, 31 Dec 2099 12:14:00 GMT"}, MAX_RETRY_AFTER_S),
        ({"retry_after": "Mon, 99999999999999999999 Jan 2020 10:00:00 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
    ],
)
def test_a_rate_limit_is_retryable_after_the_time_it_names(
    openai_server: ScriptedOpenAI, headers: dict[str, str], seconds: float | None
) -> None:
    openai_server.push(status(429, {"error": {"message": "slow down"}}, **headers))
    failed = failure(model_at(openai_server.base_url))
    assert _outcome(failed) == ("rate_limited", False, True)
    assert failed.retry_after_s == seconds


@pytest.mark.parametrize(
    ("step", "outcome", "partial"),
    [
        ({"hang": "accept"}, "timed_out", ""),
        ({"hang": "headers"}, "timed_out", ""),
        ({"hang": "half", "text": HALF}, "timed_out", HALF[:10]),
        ({"keepalive": True}, "timed_out", ""),
        ({"truncate": HALF}, "truncated", HALF[:10]),
        ({"reset": HALF, "delay_ms": 20}, "truncated", HALF[:10]),
        ({"raw": []}, "truncated", ""),
        ({"raw": ['data: {"choices": [{"del']}, "truncated", ""),
        ({"malformed": "json"}, "malformed", ""),
        ({"malformed": "html"}, "malformed", ""),
        ({"malformed": "document"}, "malformed", ""),
        ({"malformed": "types"}, "malformed", ""),
        ({"text": "Fine", "finish_reason": "insufficient_system_resource"}, "server_error", "Fine"),
        ({"raw": [{"error": {"message": "out of memory"}}]}, "server_error", ""),
        ({"big": 2 * 1024 * 1024 + 1}, "too_large", None),
        ({"raw": ["data: " + "x" * (12 * 1024 * 1024 + 1)]}, "too_large", ""),
    ],
)
def test_an_answer_that_ends_wrong_may_have_charged_and_is_not_repeated(
    openai_server: ScriptedOpenAI, step: dict[str, Any], outcome: str, partial: str | None
) -> None:
    openai_server.push(step)
    timeout_s = 1.0 if outcome == "timed_out" else 30
    failed = failure(model_at(openai_server.base_url, silence_timeout_s=timeout_s))
    assert _outcome(failed) == (outcome, True, False)
    assert partial is None or failed.partial_text == partial
    assert len(openai_server.requests()) == 1


def test_an_unreachable_endpoint_is_retryable(openai_server: ScriptedOpenAI) -> None:
    openai_server.stop()
    failed = failure(model_at(openai_server.base_url, section="extraction"))
    assert _outcome(failed) == ("unreachable", False, True)
    assert "extraction.base_url" in str(failed)


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_an_endpoint_that_speaks_no_tls_is_unreachable(reply: bytes) -> None:
    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1024)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        failed = failure(model_at(f"https://127.0.0.1:{listener.getsockname()[1]}"))
        thread.join()
    assert _outcome(failed) == ("unreachable", False, True)


@pytest.mark.parametrize("base_url", ["api.deepseek.com", "ftp://host/v1", "http://[::1", "http://"])
def test_an_impossible_address_names_the_setting(base_url: str) -> None:
    failed = failure(model_at(base_url))
    assert _outcome(failed) == ("refused_request", False, False)
    assert "chat.base_url" in str(failed)


def test_a_redirect_is_not_followed(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(status(308, {}, location=f"{openai_server.base_url}/elsewhere"))
    failed = failure(model_at(openai_server.base_url))
    assert _outcome(failed) == ("refused_request", False, False)
    assert "chat.base_url" in str(failed)
    assert len(openai_server.requests()) == 1


@pytest.mark.parametrize("key", ["sk-abc\n123", "密钥", "with space"])
def test_a_key_that_no_header_can_carry_names_its_variable(key: str) -> None:
    failed = failure(model_at("http://127.0.0.1:1", api_key=key, key_variable="DEEPSEEK_API_KEY"))
    assert _outcome(failed) == ("unauthorized", False, False)
    assert "DEEPSEEK_API_KEY" in str(failed)
    assert key not in str(failed)


def test_a_missing_key_is_asked_for(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(status(401))
    assert "set PIKOBOT_CHAT_API_KEY" in str(failure(model_at(openai_server.base_url, api_key=None)))


@pytest.mark.parametrize("code", [401, 500])
def test_a_message_quotes_little_of_the_body_and_no_secret(openai_server: ScriptedOpenAI, code: int) -> None:
    said = f"key {API_KEY}\x1b[31m\n password=hunter2 " + "长" * 1000
    openai_server.push(status(code, {"error": {"message": said}}))
    message = str(failure(model_at(openai_server.base_url)))
    detail = message.partition(f"(HTTP {code}): ")[2]
    assert detail.startswith("key [redacted] [31m password=[redacted] 长")
    assert len(detail) == MAX_DETAIL_CHARS


def test_an_endless_error_is_cut(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(status(400, "password=hunter2 " + "x" * 50_000_000))
    message = str(failure(model_at(openai_server.base_url)))
    assert message.endswith("…")
    assert message.partition("(HTTP 400): ")[2].startswith("password=[redacted] xxx")


def test_a_message_never_shows_the_password_of_the_address() -> None:
    failed = failure(model_at("http://bob:hunter2@127.0.0.1:1/v1"))
    assert failed.code is CallFailure.UNREACHABLE
    assert "hunter2" not in str(failed)


def test_a_message_never_shows_what_was_said(openai_server: ScriptedOpenAI) -> None:
    for step in ({"truncate": "my diary"}, {"malformed": "types"}, {"hang": "half", "text": "my diary"}):
        openai_server.push(step)
        model = model_at(openai_server.base_url, silence_timeout_s=1.0)
        assert "diary" not in str(failure(model, [Message("user", "my diary")]))
