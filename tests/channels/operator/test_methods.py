import contextlib
from collections.abc import Iterator

import pytest

from pikobot import __version__
from pikobot.channels.operator import methods
from pikobot.channels.operator.methods import METHODS, OperatorContext, create_context
from pikobot.config import parse_config
from pikobot.credentials import Credentials, Secret
from pikobot.errors import InvalidParams, NotFound, UnknownMethod
from pikobot.instance import Instance
from pikobot.store import leases
from pikobot.store.attempts import AttemptOutcome, AttemptState, NewAttempt, finish_attempt, insert_attempt
from pikobot.store.connection import Database
from pikobot.store.leases import State
from pikobot.store.prepare import open_database
from pikobot.store.runs import insert_run, set_model
from pikobot.store.schema import known_migrations
from pikobot.store.scopes import Scope, ensure_scope, owner_scope
from pikobot.store.threads import ensure_thread
from tests.memory.remembering import NOW_MS, StillClock, say

GROUP = Scope("shared", "main", "bot", "-5", "0")
NO_EMBEDDING_KEY = (
    "text search only: no key for text-embedding-3-small; set PIKOBOT_EMBEDDING_API_KEY, "
    "or embedding.provider=e5 for a local model"
)
OFF = '[chat]\nprovider = "none"\n[embedding]\nprovider = "disabled"\n'


@pytest.fixture
def context(instance: Instance) -> Iterator[OperatorContext]:
    clock = StillClock()
    clock.tokens = 1_000
    with contextlib.closing(open_database(instance.database_path, clock)) as db:
        yield create_context(db, instance, parse_config(OFF, "config.toml"), Credentials(), is_served=False)


def ask(context: OperatorContext, method: str, **params: object) -> dict[str, object]:
    return methods.call(context, method, params)


def make_runs(db: Database, key: str, *states: State, scope: Scope | None = None) -> None:
    """Runs of a thread that ended in those states; each has called the model twice."""

    def make(db: Database) -> None:
        with db.write("make runs") as tx:
            thread = ensure_thread(tx, ensure_scope(tx, scope or owner_scope()), key, db.clock)
            for state in states:
                run = insert_run(tx, thread.id, is_standalone=False, clock=db.clock)
                set_model(tx, run.id, "m")
                for outcome in (
                    AttemptOutcome(state=AttemptState.UNKNOWN, error_code="timeout"),
                    AttemptOutcome(
                        state=AttemptState.SUCCEEDED,
                        cost_microusd=70,
                        input_tokens=9,
                        cached_input_tokens=4,
                        output_tokens=3,
                    ),
                ):
                    attempt = insert_attempt(
                        tx,
                        NewAttempt(
                            run_id=run.id,
                            workspace="main",
                            purpose="chat",
                            model="m",
                            reserved_microusd=100,
                        ),
                        now_ms=NOW_MS,
                    )
                    finish_attempt(tx, attempt, outcome, now_ms=NOW_MS)
                lease = leases.claim(tx, "runs", run.id, token="t", now_ms=NOW_MS, lease_ms=1)
                assert lease is not None
                leases.finish(tx, lease, state, now_ms=NOW_MS + 5_000, error_code="timeout")

    db.perform(make)


def test_status_counts_and_says_what_is_degraded(context: OperatorContext) -> None:
    make_runs(context.db, "chat", State.SUCCEEDED, State.FAILED)
    status = ask(context, "status")
    assert str(status.pop("instanceId")).startswith("ins_")
    assert status == {
        "version": __version__,
        "schemaVersion": known_migrations()[-1].version,
        "served": False,
        "mode": "recall",
        "model": None,
        "counts": {
            "facts": 0,
            "sources": 2,
            "threads": 2,
            "runs": {
                "queued": 0,
                "leased": 0,
                "succeeded": 1,
                "failed": 1,
                "cancelled": 0,
                "unknown": 0,
            },
        },
        "extraction": {"queued": 0, "failed": 0, "unknown": 0},
        "unknownOutcomes": 2,
        "spend": {
            "since": "2024-03-01T00:00:00Z",
            "workspaces": [{"workspace": "main", "spentMicroUsd": 140, "reservedMicroUsd": 200}],
            "workspaceBudgetMicroUsd": 10_000_000,
        },
        "embedding": {
            "provider": "disabled",
            "profile": None,
            "serving": None,
            "building": None,
            "problem": None,
        },
        "retention": {
            "messageDays": 0,
            "maxSources": 0,
            "expiredWaiting": 0,
            "waitingSince": None,
            "beyondCapacity": 0,
            "lastSweep": None,
        },
        "degraded": ["no chat model: recall mode; set chat.provider to turn one on"],
    }


def test_a_key_turns_the_model_on_and_a_missing_one_is_named(context: OperatorContext) -> None:
    config = parse_config("", "config.toml")
    at = Instance(context.ledger_path.parent)
    on = create_context(context.db, at, config, Credentials(chat_api_key=Secret("k")), is_served=True)
    off = create_context(context.db, at, config, Credentials(), is_served=True)
    status = ask(on, "status")
    assert (status["mode"], status["model"], status["served"]) == ("model", "deepseek-v4-flash", True)
    assert status["degraded"] == [NO_EMBEDDING_KEY]
    assert "PIKOBOT_CHAT_API_KEY" in str(ask(off, "status")["degraded"])


def test_a_search_without_embeddings_says_so_unless_they_are_turned_off(context: OperatorContext) -> None:
    at = Instance(context.ledger_path.parent)
    wanted = create_context(context.db, at, parse_config("", "config.toml"), Credentials(), is_served=False)
    assert ask(context, "memory.search", query="Porto")["degraded"] is None
    degraded = ask(wanted, "memory.search", query="Porto")["degraded"]
    assert degraded == NO_EMBEDDING_KEY


def test_threads_are_listed_newest_first_and_paged(context: OperatorContext) -> None:
    say(context.db, "a", "b", thread="工作", scope=GROUP)
    first = ask(context, "threads.list", limit=1)
    say(context.db, "c", thread="later")
    rest = ask(context, "threads.list", cursor=first["cursor"])
    assert isinstance(first["threads"], list)
    [thread] = first["threads"]
    assert str(ident := thread.pop("id")).startswith("thr_")
    assert thread == {
        "key": "工作",
        "scope": "shared:main:bot:-5:0",
        "createdAt": "2024-03-01T13:33:20Z",
        "lastSaidAt": "2024-03-01T13:34:20Z",
        "messages": 2,
        "beginning": "a",
    }
    assert ask(context, "threads.list", key="工作") == {"threads": [{"id": ident, **thread}], "cursor": None}
    assert ask(context, "threads.list", key="no such") == {"threads": [], "cursor": None}
    assert isinstance(rest["threads"], list)
    assert [each["key"] for each in rest["threads"]] == ["t1"]
    assert rest["cursor"] is None
    assert ask(context, "threads.list", scope="shared:main:bot:-6:0") == {"threads": [], "cursor": None}
    with pytest.raises(InvalidParams, match=r"^cursor: "):
        ask(context, "threads.list", scope=str(GROUP), cursor=first["cursor"])


def test_runs_are_listed_with_what_they_cost(context: OperatorContext) -> None:
    make_runs(context.db, "chat", State.SUCCEEDED, State.FAILED, State.SUCCEEDED)
    make_runs(context.db, "group", State.CANCELLED, scope=GROUP)
    found = ask(context, "runs.list", state="failed")
    assert isinstance(found["runs"], list)
    [run] = found["runs"]
    thread = run.pop("thread")
    assert thread["key"] == "chat"
    assert str(run.pop("id")).startswith("run_")
    assert run == {
        "state": "failed",
        "model": "m",
        "errorCode": "timeout",
        "claims": 1,
        "createdAt": "2024-03-01T13:33:20Z",
        "finishedAt": "2024-03-01T13:33:25Z",
        "attempts": 2,
        "costMicroUsd": 70,
        "tokens": {"input": 9, "cachedInput": 4, "output": 3},
    }
    first = ask(context, "runs.list", thread=thread["id"], limit=2)
    rest = ask(context, "runs.list", thread=thread["id"], limit=2, cursor=first["cursor"])
    states = [run["state"] for page in (first, rest) for run in _listed(page)]
    assert states == ["succeeded", "failed", "succeeded"]
    assert [run["state"] for run in _listed(ask(context, "runs.list", scope=str(GROUP)))] == ["cancelled"]
    assert _listed(ask(context, "runs.list", scope="shared:main:bot:-6:0")) == []


def test_runs_of_an_unknown_thread_are_not_found(context: OperatorContext) -> None:
    with pytest.raises(NotFound, match=r"there is no thread 'thr_none'"):
        ask(context, "runs.list", thread="thr_none")


def test_an_unknown_method_is_refused_with_the_known_ones(context: OperatorContext) -> None:
    with pytest.raises(UnknownMethod, match=r"^there is no method 'm{80}'; known are memory.search, "):
        ask(context, "m" * 1_000)
    with pytest.raises(
        UnknownMethod, match=r"^there is no method 'memory.serch'; did you mean memory.search\? known"
    ):
        ask(context, "memory.serch")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_names_an_unknown_key(context: OperatorContext, method: str) -> None:
    with pytest.raises(InvalidParams, match="colour: unknown key"):
        ask(context, method, colour="red")


def _listed(page: dict[str, object]) -> list[dict[str, object]]:
    assert isinstance(page["runs"], list)
    return page["runs"]


def test_the_operator_forgets_and_gets_a_receipt(context: OperatorContext) -> None:
    say(context.db, "I keep a spare key under the fig tree")
    shown = ask(context, "memory.forget", query="fig tree", dryRun=True)
    assert (shown["status"], shown["total"]) == ("preview", 1)
    receipt = ask(context, "memory.forget", query="fig tree", token=shown["token"])
    assert (receipt["status"], receipt["erasedIds"], receipt["clean"]) == ("erased", 1, True)
    assert ask(context, "memory.search", query="fig tree")["results"] == []
    assert context.ledger_path.read_text(encoding="utf-8").count("\n") == 2
