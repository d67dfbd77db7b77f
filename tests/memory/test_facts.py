from typing import Any

import pytest

from pikobot.memory.facts import (
    CommitOutcome,
    Committed,
    FactCandidate,
    Quoted,
    SourceSnapshot,
    commit_candidates,
)
from pikobot.store import extraction_jobs, leases
from pikobot.store.connection import Connection, Database
from pikobot.store.extraction_jobs import JobId, insert_job, load_job, rejections_of
from pikobot.store.facts import FactId
from pikobot.store.leases import Lease, State
from pikobot.store.scopes import Scope
from tests.memory.conversing import write
from tests.memory.learning import batch, candidate, commit, fact, learn, quoting, source
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, erase, opened, say

GROUP = Scope("shared", "main", "bot", "-5", "0")


def job(db: Database, *public_ids: str) -> Lease:
    """A leased job over the sources."""

    def make(tx: Connection) -> Lease:
        sources = [source(db, public_id) for public_id in public_ids]
        made = insert_job(
            tx,
            scope_id=sources[0].scope_id,
            thread_id=sources[0].thread_id,
            run_id=None,
            source_ids=[each.id for each in sources],
            clock=db.clock,
        )
        lease = leases.claim(tx, extraction_jobs.TABLE, made, token="t", now_ms=NOW_MS, lease_ms=DAY_MS)
        assert lease is not None
        return lease

    return write(db, make)  # type: ignore[no-any-return]  # what it returns


def stored_rows(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    tables = ("facts", "fact_evidence", "fact_context", "fact_tags", "fact_entities", "facts_text_docsize")
    with db.read() as conn:
        return {table: conn.execute(f"SELECT * FROM {table}").fetchall() for table in tables}


def ended(db: Database, lease: Lease) -> tuple[Any, ...]:
    with db.read() as conn:
        kept = load_job(conn, JobId(lease.row_id))
        return kept.state, kept.outcome, kept.stored_facts, rejections_of(conn, kept.id)


def test_facts_and_the_end_of_their_job_are_one_commit(db: Database) -> None:
    asked, said = say(db, "Do you still live in Porto?", role="assistant", speaker="pikobot") + say(
        db, "对，五月开始", thread="t1", at_ms=NOW_MS + 1
    )
    lease = job(db, asked, said)
    seen: list[tuple[int, int]] = []
    outcome = commit(
        db,
        [
            candidate(
                db,
                "The owner lives in Porto since May",
                said,
                attribute="home_city",
                value="Porto",
                depends_on=(asked,),
                entities=("Porto",),
                tags=("home",),
                event_time="2023-05-01",
            ),
            candidate(db, "bad date", said, event_time="soon"),
        ],
        batch(db, asked, said),
        lease=lease,
        rejections={"malformed": 2},
        also_store=lambda tx, fact_id, position: seen.append((fact_id, position)),
    )
    assert outcome == CommitOutcome(Committed.DONE, (FactId(1),), (), {"malformed": 2, "bad_date": 1})
    assert seen == [(1, 0)]
    assert ended(db, lease) == (State.SUCCEEDED, "stored", 1, {"malformed": 2, "bad_date": 1})
    read = fact(db, _public_id(db))
    assert (read.fact.text, read.fact.tags, read.fact.entities) == (
        "The owner lives in Porto since May",
        ("home",),
        ("Porto",),
    )
    assert [evidence.quote for evidence in read.evidence] == ["对，五月开始"]
    assert [evidence.quote for evidence in read.context] == ["Do you still live in Porto?"]
    assert read.source_ids == (said, asked)


def _public_id(db: Database) -> str:
    with db.read() as conn:
        return str(conn.execute("SELECT public_id FROM facts").fetchall()[0][0])


def test_nothing_found_ends_the_job_as_nothing(db: Database) -> None:
    [said] = say(db, "ok")
    lease = job(db, said)
    assert commit(db, [], batch(db, said), lease=lease).result is Committed.DONE
    assert ended(db, lease) == (State.SUCCEEDED, "nothing", 0, {})
    again = job(db, said)
    commit(db, [], batch(db, said), lease=again, outcome="truncated")
    assert ended(db, again) == (State.FAILED, "truncated", 0, {})


def test_a_lost_lease_changes_nothing(db: Database) -> None:
    [said] = say(db, "I swim")
    lease = job(db, said)
    of, wanted = batch(db, said), [candidate(db, "swims", said)]
    before = stored_rows(db)
    stale = Lease(lease.table, lease.row_id, "other", 1)
    assert commit(db, wanted, of, lease=stale) == CommitOutcome(Committed.LEASE_LOST)
    write(db, leases.finish, lease, State.CANCELLED, now_ms=NOW_MS)
    assert commit(db, wanted, of, lease=lease) == CommitOutcome(Committed.LEASE_LOST)
    assert stored_rows(db) == before


@pytest.mark.parametrize("change", ["erased", "edited", "expired"])
def test_a_batch_that_has_changed_stores_nothing(db: Database, change: str) -> None:
    expires = NOW_MS + 1 if change == "expired" else None
    said, other = say(db, "I swim", "I sing", expires_at_ms=expires)
    lease = job(db, said, other)
    of, wanted = batch(db, said, other), [candidate(db, "swims", said)]
    if change == "erased":
        with db.read() as conn:
            job_sources = conn.execute("SELECT count(*) FROM extraction_job_sources").fetchall()
        assert job_sources == [(2,)]
        write(db, lambda tx: tx.execute("DELETE FROM extraction_job_sources").fetchall())
        erase(db, other)
    elif change == "edited":
        of[1] = SourceSnapshot(of[1].id, bytes(32))
    else:
        assert isinstance(db.clock, StillClock)
        db.clock.now += 1
    assert commit(db, wanted, of, lease=lease) == CommitOutcome(Committed.SOURCES_CHANGED)
    assert not any(stored_rows(db).values())
    assert ended(db, lease)[0] == State.LEASED


def rejected(db: Database, wanted: FactCandidate, *public_ids: str) -> str:
    outcome = commit(db, [wanted], batch(db, *public_ids))
    assert (outcome.stored, outcome.repeated) == ((), ())
    assert not any(stored_rows(db).values())
    [reason] = outcome.rejections
    return reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"text": " "}, "malformed"),
        ({"text": "x" * 4_001}, "malformed"),
        ({"subject": ""}, "malformed"),
        ({"tags": ("Not a tag",)}, "malformed"),
        ({"tags": tuple(f"tag-{n}" for n in range(9))}, "malformed"),
        ({"evidence": ()}, "missing_evidence"),
        ({"evidence": (Quoted("src_unknown", 0, 1),)}, "unknown_source"),
        ({"depends_on": ("src_unknown",)}, "unknown_dependency"),
        ({"event_time": "2024-02-30"}, "bad_date"),
        ({"valid_until": "May"}, "bad_date"),
    ],
)
def test_a_bad_candidate_is_rejected_with_its_reason(
    db: Database, changes: dict[str, Any], reason: str
) -> None:
    [said] = say(db, "我在游泳")
    assert rejected(db, candidate(db, "swims", said, **changes), said) == reason


@pytest.mark.parametrize(("first", "after"), [(0, 2), (1, 3), (0, 14), (3, 3), (6, 3), (-3, 3), (12, 13)])
def test_a_range_that_is_no_quote_is_rejected(db: Database, first: int, after: int) -> None:
    [said] = say(db, "我在游泳 ")
    wanted = candidate(db, "swims", said, evidence=(Quoted(said, first, after),))
    assert rejected(db, wanted, said) == "quote_not_found"


def test_a_quote_of_a_source_outside_of_the_batch_is_rejected(db: Database) -> None:
    said, other = say(db, "I swim", "I sing")
    assert rejected(db, candidate(db, "sings", other), said) == "unknown_source"


def test_only_the_owner_establishes_facts_about_the_owner(db: Database) -> None:
    [guess] = say(db, "You live in Porto", role="assistant", speaker="pikobot")
    [friend] = say(db, "He lives in Porto", role="participant", speaker="Ana")
    [own] = say(db, "Yes")
    wanted = {"attribute": "home_city", "value": "Porto"}
    assert rejected(db, candidate(db, "lives in Porto", guess, **wanted), guess) == "assistant_only_evidence"
    assert rejected(db, candidate(db, "lives in Porto", friend, **wanted), friend) == "wrong_speaker"
    assert rejected(db, candidate(db, "x", guess, friend, **wanted), guess, friend) == "wrong_speaker"
    assert fact(db, learn(db, "lives in Porto", guess, own, **wanted)).evidence[0].quote == "Yes"


def test_what_others_say_and_what_is_said_of_others_names_who_spoke(db: Database) -> None:
    [friend] = say(db, "我住在波尔图", role="participant", speaker="安娜")
    [own] = say(db, "安娜 has a dog")
    read = fact(db, learn(db, "安娜 lives in 波尔图", friend, subject="安娜"))
    assert (read.fact.subject, read.fact.entities) == ("安娜", ("安娜",))
    assert (read.evidence[0].role, read.evidence[0].speaker) == ("participant", "安娜")
    assert fact(db, learn(db, "安娜 has a dog", own, subject="安娜")).evidence[0].role == "user"


def test_nobody_is_the_owner_in_a_group(db: Database) -> None:
    [said] = say(db, "I swim", scope=GROUP)
    assert rejected(db, candidate(db, "swims", said), said) == "wrong_speaker"


def test_sources_of_two_scopes_make_no_fact(db: Database) -> None:
    [own], [shared] = say(db, "I swim"), say(db, "He swims", scope=GROUP)
    wanted = candidate(db, "swims", own, shared, subject="Ana")
    assert rejected(db, wanted, own, shared) == "unknown_source"


def test_the_same_statement_again_adds_its_evidence(db: Database) -> None:
    first, second = say(db, "I live in Porto", "我住在Porto")
    home = {"attribute": "home_city", "value": "Porto"}
    one = learn(db, "lives in Porto", first, **home)
    outcome = commit(db, [candidate(db, "住在Porto", second, **home)], batch(db, second))
    assert (len(outcome.stored), len(outcome.repeated)) == (0, 1)
    assert [evidence.quote for evidence in fact(db, one).evidence] == ["I live in Porto", "我住在Porto"]


def test_a_batch_committed_twice_stores_nothing_more(db: Database) -> None:
    [said] = say(db, "I swim and sing")
    wanted = [
        candidate(db, "swims", said, evidence=(quoting(db, said, "I swim"),)),
        candidate(db, "sings", said, evidence=(quoting(db, said, "sing"),)),
    ]
    first = commit(db, wanted, batch(db, said))
    before = stored_rows(db)
    again = commit(db, wanted, batch(db, said))
    assert (len(first.stored), again.stored, again.repeated) == (2, (), first.stored)
    assert stored_rows(db) == before


class Stopped(Exception):
    pass


def test_stopped_at_any_statement_all_is_there_or_nothing(tmp_path: Any) -> None:
    """Every statement of the commit is the last one of some run; the job is leased or ended accordingly."""
    with opened(tmp_path) as db:
        asked, said = say(db, "Since when?", "五月 in Porto")
        wanted = [
            candidate(
                db,
                f"fact {n}",
                said,
                subject="Ana",
                attribute="alias",
                value="安娜",
                depends_on=(asked,),
                entities=("Porto",),
                tags=("home",),
            )
            for n in range(2)
        ]
        of = batch(db, asked, said)
        lease = job(db, asked, said)
        stop_at = 0
        while True:
            stop_at += 1
            left = stop_at

            def trace(cursor: object, sql: str, bindings: object) -> bool:
                nonlocal left
                left -= 1
                if left == 0 and not sql.lstrip().startswith("ROLLBACK"):
                    raise Stopped
                return True

            def attempt(db: Database) -> CommitOutcome:
                conn = db.maintenance_connection()
                conn.exec_trace = trace
                try:
                    return commit_candidates(db, lease, of, wanted)
                finally:
                    conn.exec_trace = None

            try:
                outcome = db.perform(attempt)
            except Stopped:
                assert not any(stored_rows(db).values())
                assert ended(db, lease)[0] == State.LEASED
                continue
            break
        assert stop_at > 20
        assert outcome.result is Committed.DONE
        rows = stored_rows(db)
        ids = {row[0] for row in rows["facts"]}
        for table in rows:
            assert {row[0] for row in rows[table]} == ids, table
        assert ended(db, lease) == (State.SUCCEEDED, "stored", 2, {})
