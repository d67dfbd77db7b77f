import subprocess
import sys

import numpy as np
import pytest

from pikobot.adapters.embedding.hosted import (
    BATCH,
    MAX_REQUEST_BYTES,
    MAX_TEXT_BYTES,
    PROBE,
    HostedTimeouts,
)
from pikobot.adapters.embedding.vocabulary import EmbeddingFailed, EmbeddingProfile
from tests.adapters.calls import API_KEY
from tests.adapters.embedding.calling import embedded, failure, hosted_at, rows
from tests.servers.openai_embeddings import made_vector
from tests.servers.openai_server import ScriptedOpenAI, Step, embeddings, status, vectors

IMPATIENT = HostedTimeouts(passages_s=1.0, query_s=1.0)


def _outcome(failed: EmbeddingFailed) -> tuple[str, bool, bool]:
    return str(failed.code), failed.may_have_charged, failed.is_about_text


def _inputs(server: ScriptedOpenAI) -> list[list[str]]:
    return [request.body["input"] for request in server.requests()]


def test_importing_it_imports_neither_client_nor_numpy() -> None:
    code = (
        "import sys, pikobot.adapters.embedding.making;"
        "print(sorted({'openai', 'httpx2', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


@pytest.mark.parametrize("as_floats", [False, True])
def test_a_batch_is_one_request_with_a_vector_for_each_text(
    openai_server: ScriptedOpenAI, as_floats: bool
) -> None:
    openai_server.push(vectors([2, 0, 0], [0, 0, 3], usage={"prompt_tokens": 9}, as_floats=as_floats))
    found = embedded(hosted_at(openai_server.base_url), ["Hello", "你好"])
    assert np.array_equal(rows(found), [[1, 0, 0], [0, 0, 1]])
    assert found.input_tokens == 9
    [request] = openai_server.requests()
    assert (request.method, request.path) == ("POST", "/v1/embeddings")
    assert request.body == {"model": "scripted", "input": ["Hello", "你好"], "encoding_format": "base64"}
    assert request.headers["authorization"] == f"Bearer {API_KEY}"


def test_a_question_is_embedded_as_it_is(openai_server: ScriptedOpenAI) -> None:
    found = embedded(hosted_at(openai_server.base_url, dimension=1536), ["我的牙医是谁？"], is_query=True)
    np.testing.assert_allclose(rows(found), [made_vector("我的牙医是谁？", 1536)], atol=1e-6)
    assert _inputs(openai_server) == [["我的牙医是谁？"]]


@pytest.mark.parametrize(
    ("model", "sent"),
    [("text-embedding-3-small", 256), ("text-embedding-3-large", 256), ("text-embedding-ada-002", None)],
)
def test_only_models_that_can_are_asked_for_a_dimension(
    openai_server: ScriptedOpenAI, model: str, sent: int | None
) -> None:
    if sent is None:
        openai_server.push(vectors([1.0] * 256))
    embedder = hosted_at(openai_server.base_url, model=model, dimension=256)
    assert rows(embedded(embedder, ["text"])).shape == (1, 256)
    assert openai_server.requests()[0].body.get("dimensions") == sent
    assert embedder.profile == EmbeddingProfile(
        provider="openai@localhost", model=model, dimension=256, prefix_rule="none; first 8000 bytes"
    )


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://models.example.com:8443/openai/v1", "openai@models.example.com"),
        ("http://127.0.0.1:11434/v1", "openai@localhost"),
        ("http://[::1]:8080/v1", "openai@localhost"),
        ("http://localhost:8080/v1", "openai@localhost"),
    ],
)
def test_vectors_are_of_the_host_that_made_them(base_url: str, provider: str) -> None:
    assert hosted_at(base_url).profile.provider == provider


def test_no_texts_are_no_request(openai_server: ScriptedOpenAI) -> None:
    found = embedded(hosted_at(openai_server.base_url), [])
    assert (list(found.vectors), found.input_tokens) == ([], 0)
    assert openai_server.requests() == []


def test_a_long_text_is_cut_between_characters(openai_server: ScriptedOpenAI) -> None:
    embedded(hosted_at(openai_server.base_url, dimension=1536), ["a" + "长" * 5_000, "b" * 10_000])
    [[chinese, english]] = _inputs(openai_server)
    assert chinese == "a" + "长" * ((MAX_TEXT_BYTES - 1) // 3)
    assert english == "b" * MAX_TEXT_BYTES


def test_what_no_request_can_carry_is_replaced(openai_server: ScriptedOpenAI) -> None:
    embedded(hosted_at(openai_server.base_url, dimension=1536), ["a\0b\ud800c\ud83d\ude00"])
    assert _inputs(openai_server) == [["a b\ufffdc😀"]]


def test_a_call_of_very_long_texts_takes_several_requests(openai_server: ScriptedOpenAI) -> None:
    texts = [f"{number}" + "x" * MAX_TEXT_BYTES for number in range(50)]
    found = embedded(hosted_at(openai_server.base_url, dimension=1536), texts)
    sent = _inputs(openai_server)
    assert [len(inputs) for inputs in sent] == [MAX_REQUEST_BYTES // MAX_TEXT_BYTES, 14]
    assert [text for inputs in sent for text in inputs] == [text[:MAX_TEXT_BYTES] for text in texts]
    assert found.input_tokens == sum(len(text) for inputs in sent for text in inputs)
    expected = [made_vector(text[:MAX_TEXT_BYTES], 1536) for text in texts]
    np.testing.assert_allclose(rows(found), expected, atol=1e-6)


def test_no_request_has_more_texts_than_a_batch(openai_server: ScriptedOpenAI) -> None:
    embedded(hosted_at(openai_server.base_url, dimension=1536), ["x"] * (BATCH + 1))
    assert [len(inputs) for inputs in _inputs(openai_server)] == [BATCH, 1]


def test_after_a_part_was_charged_the_whole_call_was(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(vectors(), embeddings(status(429)))
    failed = failure(hosted_at(openai_server.base_url, dimension=1536), ["x"] * (BATCH + 1))
    assert _outcome(failed) == ("rate_limited", True, False)


@pytest.mark.parametrize(
    ("step", "outcome", "remedy"),
    [
        (status(401), ("unauthorized", False, False), "PIKOBOT_EMBEDDING_API_KEY"),
        (status(402), ("payment_required", False, False), "top up"),
        (status(404), ("not_found", False, False), "embedding.base_url and embedding.model"),
        (status(429), ("rate_limited", False, False), "wait"),
        (
            status(429, {"error": {"code": "insufficient_quota"}}),
            ("payment_required", False, False),
            "top up",
        ),
        (status(500), ("server_error", True, False), "not repeated"),
        ({"hang": "accept"}, ("timed_out", True, False), "within 1 s"),
        ({"hang": "headers"}, ("timed_out", True, False), "not repeated"),
        ({"cut": True}, ("truncated", True, False), "broke"),
        ({"malformed": "html"}, ("malformed", True, False), "embedding.base_url"),
        ({"document": {"data": []}}, ("malformed", True, False), "0 vectors for 1 text, or not each once"),
        ({"document": "x" * 2_000_000}, ("too_large", True, False), "more than"),
        (vectors([1, 2]), ("wrong_dimension", True, False), "embedding.dimension to 2"),
        (vectors([0, 0, 0]), ("unusable_vector", True, True), "zeros"),
        (vectors([1, 2, 3], indexes=[1]), ("malformed", True, False), "once"),
    ],
)
def test_a_failure_says_what_follows_from_it(
    openai_server: ScriptedOpenAI, step: Step, outcome: tuple[str, bool, bool], remedy: str
) -> None:
    openai_server.push(embeddings(step))
    timeouts = IMPATIENT if "hang" in step else None
    failed = failure(hosted_at(openai_server.base_url, timeouts=timeouts))
    assert _outcome(failed) == outcome
    assert remedy in str(failed)
    assert len(openai_server.requests()) == 1


def test_an_unreachable_endpoint_cost_nothing(openai_server: ScriptedOpenAI) -> None:
    openai_server.stop()
    failed = failure(hosted_at(openai_server.base_url))
    assert _outcome(failed) == ("unreachable", False, False)
    assert "embedding.base_url" in str(failed)


def test_a_rate_limit_says_how_long(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(embeddings(status(429, None, retry_after="7")))
    assert failure(hosted_at(openai_server.base_url)).retry_after_s == 7


@pytest.mark.parametrize(("probe", "is_about_text"), [(vectors([1, 0, 0]), True), (status(400), False)])
def test_a_refused_batch_is_about_a_text_if_another_text_is_taken(
    openai_server: ScriptedOpenAI, probe: Step, is_about_text: bool
) -> None:
    openai_server.push(embeddings(status(400)), embeddings(probe))
    failed = failure(hosted_at(openai_server.base_url))
    assert _outcome(failed) == ("refused_request", False, is_about_text)
    assert _inputs(openai_server) == [["my diary"], [PROBE]]


def test_an_error_of_a_free_server_is_no_charge_and_may_be_about_a_text(
    openai_server: ScriptedOpenAI,
) -> None:
    openai_server.push(embeddings(status(500, {"error": "input is too large"})), vectors([1, 0, 0]))
    failed = failure(hosted_at(openai_server.base_url, can_charge=False))
    assert _outcome(failed) == ("server_error", False, True)
    assert "charged" not in str(failed)


def test_a_silent_server_on_this_machine_is_asked_again_later(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(embeddings({"hang": "accept"}))
    failed = failure(hosted_at(openai_server.base_url, can_charge=False, timeouts=IMPATIENT))
    assert _outcome(failed) == ("timed_out", False, False)


def test_a_redirect_is_not_followed(openai_server: ScriptedOpenAI) -> None:
    openai_server.push(
        *(
            embeddings(status(308, {}, location=f"{openai_server.base_url}/elsewhere/embeddings"))
            for _ in range(2)
        )
    )
    assert _outcome(failure(hosted_at(openai_server.base_url))) == ("refused_request", False, False)
    assert {request.path for request in openai_server.requests()} == {"/v1/embeddings"}


def test_a_key_that_no_header_can_carry_names_its_variable() -> None:
    failed = failure(hosted_at("http://127.0.0.1:1", api_key="密钥"))
    assert _outcome(failed) == ("unauthorized", False, False)
    assert "PIKOBOT_EMBEDDING_API_KEY" in str(failed)
