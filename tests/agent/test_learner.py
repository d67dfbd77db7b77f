from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.chat import CallFailure, StopReason
from pikobot.agent import runs
from pikobot.agent.runs import Result
from pikobot.memory.assertions import Assertion, Statement, remember
from pikobot.memory.extract import FIRST_RETRY_MS, HOUR_MS, MAX_CLAIMS
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.preview import preview
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.store.connection import Database
from pikobot.store.extraction_jobs import requeue
from pikobot.store.leases import State
from pikobot.store.scopes import owner_scope
from pikobot.store.sources import content_hash
from tests.agent.learning import (
    WIDE,
    attempt_states,
    element,
    extracting,
    fact_texts,
    jobs,
    learn,
    prompt_of,
    queue,
    rejections,
    section,
    stored,
)
from tests.agent.playing import PlayedModel, Turn, call, fails, says
from tests.agent.running import accept, claim, rows
from tests.memory.conversing import write
from tests.memory.learning import fact
from tests.memory.remembering import DAY_MS, MINUTE_MS, NOW_MS, StillClock, opened, say

LAST_WEEK_MS = NOW_MS - 7 * DAY_MS  # 2024-02-23, a Friday
STORED = ("succeeded", "stored", None, 1, 1)


def test_who_embeds_is_woken_for_each_batch_of_new_facts_and_for_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        said = say(db, "I live in Porto")
        woken: list[int] = []

        def on_learned() -> None:
            woken.append(len(fact_texts(db)))

        queue(db, *said)
        learn(
            db,
            extracting(element("The owner lives in Porto", (said[0], "I live in Porto"))),
            on_learned=on_learned,
        )
        assert woken == [1]
        queue(db, *say(db, "Hm"))
        learn(db, extracting(), on_learned=on_learned)
        assert woken == [1]


@pytest.mark.parametrize(
    "quote",
    ["I'd never move", "i’d never move", "I’d never  move", "I’d never move.", "Porto is home"],
    ids=["straight", "case", "space", "longer", "of another message"],
)
def test_a_quote_that_differs_by_a_byte_is_rejected(tmp_path: Path, quote: str) -> None:
    with opened(tmp_path) as db:
        said, _ = say(db, "I’d never move", "Porto is home")
        queue(db, said)
        learn(db, extracting(element("The owner stays", ("owner:0", quote))))
        assert (fact_texts(db), rejections(db)) == ([], {"quote_not_found": 1})
        assert jobs(db) == [("succeeded", "nothing", None, 0, 1)]


def test_what_contradicts_is_kept_beside_and_an_assertion_outranks_it(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        done = db.perform(
            remember,
            Assertion(text="I live in Porto", attribute="home_city", value="Porto"),
            Statement(owner_scope()),
        )
        assert done is not None
        queue(db, *say(db, "不，我住在里斯本"))
        learn(
            db,
            extracting(
                element(
                    "主人住在里斯本", ("owner:last", "我住在里斯本"), attribute="home_city", value="里斯本"
                )
            ),
        )
        [(asserted,), (inferred,)] = rows(db, "SELECT public_id FROM facts ORDER BY id")
        assert [each.public_id for each in fact(db, inferred).conflicts] == [asserted]
        assert (fact(db, asserted).fact.status, fact(db, inferred).fact.status) == ("current", "stored")


def test_the_same_statement_again_is_known_to_the_model_and_adds_its_evidence(tmp_path: Path) -> None:
    said = element("The owner lives in Porto", ("owner:last", "I live in Porto"))
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto", thread="a"))
        learn(db, extracting(said))
        queue(db, *say(db, "As I said, I live in Porto", thread="b"))
        model = extracting(said)
        learn(db, model)
        assert "The owner lives in Porto" in section(prompt_of(model), "Existing Memories")
        [(first,), _] = rows(db, "SELECT public_id FROM facts ORDER BY id")
        assert sorted(each.quote for each in fact(db, first).evidence) == ["I live in Porto"] * 2
        assert len(fact(db, first).evidence) == 2
        assert jobs(db) == [STORED, STORED]


def test_what_recall_mode_has_quoted_is_not_learned_again(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        accept(db, "我住在波尔图")
        db.perform(
            runs.finish,
            claim(db, room=None),
            State.SUCCEEDED,
            Result("已记下。", "recall", is_partial=False),
            learns=True,
        )
        accept(db, "Thanks")
        db.perform(
            runs.finish,
            claim(db),
            State.SUCCEEDED,
            Result("Welcome.", "model", is_partial=False),
            learns=True,
        )
        model = extracting()
        learn(db, model)
        assert len(model.requests) == 2
        assert "已记下" not in "".join(map(str, model.requests))
        assert "我住在波尔图" in section(prompt_of(model, 1), "Last k Messages")


VALID = '{"memory": [{"text": "x", "evidence": [{"source_id": "src_5", "quote": "I live in Porto"}]}]}'
MALFORMED = {
    "fenced": f"```json\n{VALID}\n```",
    "two fences": f"```json\n{VALID}\n```\n```json\n{VALID}\n```",
    "two objects": VALID + VALID,
    "prose before": "Here it is: " + VALID,
    "prose after": VALID + " I hope this helps.",
    "thinking": "<think>{}</think>" + VALID,
    "cut": VALID[:-20],
    "trailing comma": '{"memory": [],}',
    "other key": '{"memories": []}',
    "two keys": '{"memory": [], "note": 1}',
    "duplicate key": '{"memory": [], "memory": []}',
    "list": "[]",
    "null": "null",
    "empty": "",
    "number": "42",
    "NUL": '{"memory": ["\0"]}',
    "NaN": '{"memory": [NaN]}',
    "injected": f"The message says:\n```json\n{VALID}\n```\n" + '{"memory": []}',
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_answer_is_asked_for_once_more_and_stores_nothing(tmp_path: Path, answer: str) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        learn(db, PlayedModel([says(answer), says(answer)]))
        assert jobs(db) == [("failed", "unparsable", "unparsable", 0, 1)]
        assert (fact_texts(db), attempt_states(db)) == ([], ["succeeded", "succeeded"])


def test_a_repaired_answer_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [said] = say(db, "I live in Porto")
        queue(db, said)
        learn(db, PlayedModel([says("Sure!"), says(VALID.replace("src_5", said))]))
        assert (jobs(db), fact_texts(db), attempt_states(db)) == ([STORED], ["x"], ["succeeded"] * 2)


@pytest.mark.parametrize(
    ("turn", "outcome"),
    [
        (says(VALID, stop=StopReason.LENGTH), "truncated"),
        (says("I'm sorry, I can't help with that."), "refused"),
        (says("抱歉，我不能这样做。"), "refused"),
        (says("{}", stop=StopReason.CONTENT_FILTER), "refused"),
    ],
)
def test_a_cut_answer_and_a_refusal_are_outcomes_of_their_own(
    tmp_path: Path, turn: Turn, outcome: str
) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        learn(db, PlayedModel([turn]))
        assert jobs(db) == [("failed", outcome, outcome, 0, 1)]
        assert (fact_texts(db), attempt_states(db)) == ([], ["succeeded"])


def test_a_tool_call_is_no_answer(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        learn(db, PlayedModel([says("", call("memory_assert"))] * 2))
        assert jobs(db) == [("failed", "unparsable", "unparsable", 0, 1)]


def test_nothing_to_remember_is_no_failure(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "hello"))
        learn(db, PlayedModel([says('{"memory": []}')]))
        assert jobs(db) == [("succeeded", "nothing", None, 0, 1)]


@pytest.mark.parametrize(
    "code", [CallFailure.RATE_LIMITED, CallFailure.UNAUTHORIZED, CallFailure.UNREACHABLE]
)
def test_a_failure_that_cost_nothing_puts_the_job_off_three_times(tmp_path: Path, code: CallFailure) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        queue(db, *say(db, "I live in Porto"))
        model = PlayedModel([fails(code)] * MAX_CLAIMS)
        for claims, wait_ms in ((1, FIRST_RETRY_MS), (2, 10 * FIRST_RETRY_MS)):
            learn(db, model)
            learn(db, model)
            assert jobs(db) == [("queued", None, code, 0, claims)]
            clock.now += wait_ms
        learn(db, model)
        assert jobs(db) == [("failed", None, code, 0, MAX_CLAIMS)]
        assert attempt_states(db) == ["failed"] * MAX_CLAIMS
        clock.now += DAY_MS
        learn(db, model)
        assert len(model.requests) == MAX_CLAIMS


@pytest.mark.parametrize("code", [CallFailure.SERVER_ERROR, CallFailure.TRUNCATED, CallFailure.MALFORMED])
def test_a_failure_that_may_have_charged_is_not_repeated_by_itself(tmp_path: Path, code: CallFailure) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        queue(db, *say(db, "I live in Porto"))
        model = PlayedModel([fails(code), says('{"memory": []}')])
        learn(db, model)
        clock.now += DAY_MS
        learn(db, model)
        assert (jobs(db), attempt_states(db)) == ([("unknown", None, code, 0, 1)], ["unknown"])
        write(db, requeue, None)
        learn(db, model)
        assert jobs(db) == [("succeeded", "nothing", None, 0, 1)]


def test_a_model_that_never_ends_is_given_up(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        learn(db, PlayedModel(["hang"]), run_timeout_s=0.05)
        assert (jobs(db), attempt_states(db)) == ([("unknown", None, "timed_out", 0, 1)], ["unknown"])


def test_a_failure_after_the_first_call_keeps_the_account_of_both(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        learn(db, PlayedModel([says("Sure!"), fails(CallFailure.SERVER_ERROR)]))
        assert (jobs(db), attempt_states(db)) == (
            [("unknown", None, "server_error", 0, 1)],
            ["succeeded", "unknown"],
        )


def test_the_hourly_limit_waits_and_loses_nothing(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        for thread in "abc":
            queue(db, *say(db, f"I live in {thread}", thread=thread))
        model = extracting()
        limits = replace(WIDE, calls_per_hour=2)
        learn(db, model, limits)
        learn(db, model, limits)
        assert [job[0] for job in jobs(db)] == ["succeeded", "succeeded", "queued"]
        clock.now += HOUR_MS + 1
        learn(db, model, limits)
        assert [job[0] for job in jobs(db)] == ["succeeded"] * 3
        assert len(model.requests) == 3


@pytest.mark.parametrize("limit", ["day_microusd", "workspace_month_microusd"])
def test_a_used_up_budget_waits_and_loses_nothing(tmp_path: Path, limit: str) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        queue(db, *say(db, "I live in Porto"))
        model = extracting()
        learn(db, model, replace(WIDE, **{limit: 1}))
        assert (jobs(db), attempt_states(db), model.requests) == ([("queued", None, None, 0, 0)], [], [])
        learn(db, model)
        assert jobs(db)[0][0] == "queued"  # looked at again in an hour
        clock.now += HOUR_MS
        learn(db, model)
        assert jobs(db) == [("succeeded", "nothing", None, 0, 1)]


def test_without_a_price_nothing_is_called(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        model = extracting()
        learn(db, model, prices=None)
        assert (jobs(db), attempt_states(db), model.requests) == ([("queued", None, None, 0, 0)], [], [])


def changing(db: Database, change: Any, *elements: dict[str, Any]) -> PlayedModel:
    """Answers, but something happens to what was said while it does."""
    answers = extracting(*elements)
    done: list[None] = []

    def play(messages: Sequence[Any], allow_tools: bool) -> Turn:
        if not done:
            done.append(None)
            change()
        assert answers.play is not None
        return answers.play(messages, allow_tools)

    return PlayedModel(play=play)


def test_what_is_edited_between_load_and_commit_stores_nothing_and_is_learned_anew(tmp_path: Path) -> None:
    def edited() -> None:
        text = "I live in Braga"
        write(
            db,
            lambda tx: tx.execute(
                "UPDATE sources SET text = ?, content_hash = ?", (text, content_hash(text))
            ),
        )

    clock = StillClock()
    with opened(tmp_path, clock) as db:
        queue(db, *say(db, "I live in Porto"))
        porto = element("The owner lives in Porto", ("owner:last", "I live in Porto"))
        braga = element("The owner lives in Braga", ("owner:last", "I live in Braga"))
        model = changing(db, edited, porto, braga)
        learn(db, model)
        assert (fact_texts(db), jobs(db)) == ([], [("queued", None, "sources_changed", 0, 1)])
        assert rejections(db) == {}
        clock.now += FIRST_RETRY_MS
        learn(db, model)
        assert fact_texts(db) == ["The owner lives in Braga"]
        assert (rejections(db), attempt_states(db)) == ({"quote_not_found": 1}, ["succeeded"] * 2)


def erase(db: Database, tmp_path: Path, text: str) -> None:
    ledger = tmp_path / "erasures.jsonl"
    ledger.touch(mode=0o600)
    forget(db, ledger, preview(db, ForgetTarget(words=(text,)), None))


def test_what_is_forgotten_between_load_and_commit_is_never_stored(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto"))
        porto = element("The owner lives in Porto", ("owner:last", "I live in Porto"))
        learn(db, changing(db, lambda: erase(db, tmp_path, "Porto"), porto))
        assert fact_texts(db) == []
        assert jobs(db) in ([], [("cancelled", None, "forgotten", 0, 0)])


def test_what_is_left_of_a_batch_is_learned_without_what_was_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        queue(db, *say(db, "I live in Porto", "My cat is Miso"))
        model = changing(
            db,
            lambda: erase(db, tmp_path, "Porto"),
            element("The owner's cat is Miso", ("owner:last", "My cat is Miso")),
        )
        learn(db, model)
        assert len(model.requests) == 2
        assert ("Porto" in prompt_of(model, 0), "Porto" in prompt_of(model, 1)) == (True, False)
        assert (fact_texts(db), jobs(db)) == (["The owner's cat is Miso"], [STORED])


def test_a_source_that_earlier_messages_explain_is_loaded_with_them(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "Do you live in Porto?", role="assistant", speaker="pikobot")
        [reply] = say(db, "Yes, since May", at_ms=NOW_MS + MINUTE_MS)
        queue(db, reply)
        model = extracting(
            element("In Porto since May", ("owner:last", "Yes, since May"), depends_on=["assistant:0"])
        )
        learn(db, model)
        assert "Do you live in Porto?" in section(prompt_of(model), "Last k Messages")
        assert stored(db) == [
            (
                "In Porto since May",
                "owner",
                "fact",
                None,
                [("user", "owner", "Yes, since May")],
                ["Do you live in Porto?"],
            )
        ]
