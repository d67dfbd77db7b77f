import asyncio
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.chat import CallFailure, Message
from pikobot.adapters.prices import Prices
from pikobot.agent import runs
from pikobot.agent.accounting import RunJournal, Tariff
from pikobot.agent.runs import Claimed, Limits
from pikobot.agent.tool import RunFenced
from pikobot.errors import BudgetExceeded
from pikobot.memory.spending import month_start_ms
from pikobot.store.attempts import AttemptId
from pikobot.store.connection import Database
from pikobot.store.leases import State
from tests.agent.playing import fails, says
from tests.agent.running import accept, attempts, claim, rows
from tests.memory.remembering import NOW_MS, StillClock, opened

MESSAGES = (Message("user", "x" * 184),)  # 200 bytes with their overhead: 100 tokens
RESERVED = 100 * 1 + 50 * 2


def journal(db: Database, claimed: Claimed | None, **limits: Any) -> RunJournal:
    tariff = Tariff(
        model="m",
        prices=limits.pop("prices", Prices.per_million(1, 0.5, 2)),
        price_remedy="set chat.price_input",
        limits=Limits(**{"run_microusd": 10_000, "workspace_month_microusd": 10_000, **limits}),
        max_output_tokens=50,
    )
    return RunJournal(db, tariff, None if claimed is None else claimed.lease, "main")


def begin(book: RunJournal) -> AttemptId:
    return asyncio.run(book.begin_call(MESSAGES, ()))


def claimed_run(db: Database) -> Claimed:
    accept(db, "hello")
    return claim(db)


def test_a_call_is_reserved_before_and_priced_after(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        book = journal(db, claimed_run(db))
        ticket = begin(book)
        columns = "state, purpose, model, reserved_microusd, cost_microusd, input_tokens, output_tokens"
        sql = f"SELECT {columns} FROM attempts"
        assert rows(db, sql) == [("started", "chat", "m", RESERVED, None, None, None)]
        asyncio.run(book.end_call(ticket, says("hi")))  # 60 fresh, 40 cached, 10 out
        assert rows(db, sql) == [("succeeded", "chat", "m", RESERVED, 60 + 20 + 20, 100, 10)]


def test_a_call_without_reported_usage_counts_for_all_that_was_reserved(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        book = journal(db, claimed_run(db))
        asyncio.run(book.end_call(begin(book), says("hi", usage=None)))
        assert attempts(db) == [("succeeded", RESERVED, None)]


@pytest.mark.parametrize("code", list(CallFailure))
def test_a_failed_call_costs_nothing_only_when_it_certainly_was_not_charged(
    tmp_path: Path, code: CallFailure
) -> None:
    with opened(tmp_path) as db:
        book = journal(db, claimed_run(db))
        asyncio.run(book.fail_call(begin(book), fails(code)))
        assert attempts(db) == [("unknown" if code.may_have_charged else "failed", None, code)]


@pytest.mark.parametrize(
    ("limits", "key"),
    [
        ({"run_microusd": 2 * RESERVED - 1}, "budget.run_usd"),
        ({"workspace_month_microusd": 2 * RESERVED - 1}, "budget.workspace_usd_per_month"),
    ],
)
@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_a_call_that_does_not_fit_the_budget_is_refused_before_it_is_made(
    tmp_path: Path, limits: dict[str, int], key: str, is_ephemeral: bool
) -> None:
    with opened(tmp_path) as db:
        book = journal(db, None if is_ephemeral else claimed_run(db), **limits)
        begin(book)
        with pytest.raises(BudgetExceeded, match=rf"of {key} .* raise {key} with"):
            begin(book)
        assert attempts(db) == [("started", None, None)]


@pytest.mark.parametrize("is_ephemeral", [False, True])
def test_what_a_call_did_not_use_can_be_spent_again(tmp_path: Path, is_ephemeral: bool) -> None:
    with opened(tmp_path) as db:
        book = journal(db, None if is_ephemeral else claimed_run(db), run_microusd=100 + RESERVED)
        asyncio.run(book.fail_call(begin(book), fails(CallFailure.RATE_LIMITED)))
        asyncio.run(book.end_call(begin(book), says("hi")))
        asyncio.run(book.fail_call(begin(book), fails(CallFailure.TIMED_OUT)))
        with pytest.raises(BudgetExceeded):
            begin(book)


def test_unknown_outcomes_keep_their_reservation_across_runs_until_the_month_ends(tmp_path: Path) -> None:
    clock = StillClock()
    with opened(tmp_path, clock) as db:
        book = journal(db, None, workspace_month_microusd=RESERVED)
        asyncio.run(book.fail_call(begin(book), fails(CallFailure.SERVER_ERROR)))
        with pytest.raises(BudgetExceeded):
            begin(journal(db, claimed_run(db), workspace_month_microusd=RESERVED))
        clock.now = month_start_ms(NOW_MS + 31 * 86_400_000)
        begin(journal(db, None, workspace_month_microusd=RESERVED))


def test_without_known_prices_no_call_is_made(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        with pytest.raises(BudgetExceeded, match=r"set chat\.price_input"):
            begin(journal(db, claimed_run(db), prices=None))
        assert attempts(db) == []


def test_a_lost_run_begins_no_call_and_keeps_no_message_but_its_account(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        claimed = claimed_run(db)
        book = journal(db, claimed)
        ticket = begin(book)
        db.perform(_steal, claimed)
        with pytest.raises(RunFenced):
            asyncio.run(book.end_call(ticket, says("hi")))
        with pytest.raises(RunFenced):
            asyncio.run(book.keep_results([Message("tool", "{}", tool_call_id="c")]))
        with pytest.raises(RunFenced):
            begin(book)
        assert attempts(db) == [("succeeded", 100, None)]
        assert rows(db, "SELECT count(*) FROM run_transcript") == [(0,)]
        assert db.perform(runs.finish, claimed, State.SUCCEEDED, None) is None


def _steal(db: Database, claimed: Claimed) -> None:
    with db.write("take over") as tx:
        tx.execute("UPDATE runs SET lease_token = 'other' WHERE id = ?", (claimed.run.id,))


@pytest.mark.parametrize(
    ("now", "start"),
    [
        (1_709_300_000_000, 1_709_251_200_000),  # 2024-03-01T13:33:20Z
        (1_709_251_200_000, 1_709_251_200_000),
        (1_709_251_199_999, 1_706_745_600_000),  # the last millisecond of a leap February
    ],
)
def test_a_month_begins_on_its_first_day_in_utc(now: int, start: int) -> None:
    assert month_start_ms(now) == start
