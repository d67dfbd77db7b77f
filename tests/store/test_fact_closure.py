"""Forgetting sources that facts rest on."""

from pikobot.store import extraction_jobs, leases
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.closure import closure_of, contents_of, remove
from pikobot.store.extraction_jobs import insert_job, job_sources, load_job
from pikobot.store.fact_index import check_fact_index
from pikobot.store.facts import FactId, supersede_facts
from pikobot.store.leases import State
from pikobot.store.sources import SourceId
from tests.clock import NOW_MS
from tests.store import rows
from tests.store.stating import TABLES, counts, fact, found, state


def forget(db: Database, *source_ids: SourceId) -> dict[str, int]:
    def run(tx: Connection) -> dict[str, int]:
        return remove(tx, closure_of(tx, source_ids), now_ms=NOW_MS).rows

    removed = rows.write(db, run)
    assert rows.write(db, check_fact_index) == []
    assert rows.rows(db, "PRAGMA foreign_key_check") == []
    return removed


def stands(db: Database, *fact_ids: FactId) -> list[bool]:
    return [fact(db, fact_id) is not None for fact_id in fact_ids]


def test_a_fact_goes_with_its_only_source_and_leaves_nothing(db: Database) -> None:
    said = rows.source(db, rows.thread(db), "安娜 is called Ana, she lives in Porto")
    state(db, "Ana lives in Porto", said, subject="Ana", attribute="alias", value="安娜", tags=("friends",))
    with db.read() as conn:
        handed = set(contents_of(conn, [said]))
    assert handed >= {"Ana lives in Porto", "Ana", "alias", "friends"}
    removed = forget(db, said)
    assert (removed["facts"], removed["entities"], removed["fact_tags"]) == (1, 1, 1)
    assert counts(db) == dict.fromkeys(TABLES, 0)


def test_an_independent_statement_of_the_same_stays_with_its_own_words(db: Database) -> None:
    thread = rows.thread(db)
    gone, stays = rows.source(db, thread, "Porto, with Ana"), rows.source(db, thread, "我住在Porto")
    first = state(
        db,
        "lives in Porto with Ana",
        gone,
        attribute="home_city",
        value="Porto",
        entities=("Ana",),
        tags=("love",),
    )
    second = state(db, "住在Porto", stays, attribute="home_city", value="Porto", tags=("home",))
    assert second.is_repeated
    forget(db, gone)
    assert stands(db, first.fact_id, second.fact_id) == [False, True]
    left = fact(db, second.fact_id)
    assert left is not None
    assert (left.text, left.tags, left.entities) == ("住在Porto", ("home",), ())
    assert found(db, "Ana") == []


def test_a_fact_goes_with_any_quote_or_context_that_it_needs(db: Database) -> None:
    thread = rows.thread(db)
    sources = [rows.source(db, thread, text) for text in ("I moved", "to Porto", "Since when?", "五月")]
    by_quotes = state(db, "moved to Porto", sources[0], sources[1])
    by_context = state(db, "since May", sources[3], context=(sources[2],))
    forget(db, sources[1])
    assert stands(db, by_quotes.fact_id, by_context.fact_id) == [False, True]
    forget(db, sources[2])
    assert stands(db, by_context.fact_id) == [False]
    assert counts(db) == dict.fromkeys(TABLES, 0)


def test_what_was_corrected_stands_again_when_the_correction_goes(db: Database) -> None:
    thread = rows.thread(db)
    sources = [rows.source(db, thread, text) for text in ("I live in Lisbon", "No, Porto", "不，布拉加")]
    ids = [
        state(db, text, source, attribute="home_city", value=text, basis="explicit").fact_id
        for text, source in zip(("Lisbon", "Porto", "Braga"), sources, strict=True)
    ]
    rows.write(db, supersede_facts, [ids[0]], ids[1])
    rows.write(db, supersede_facts, [ids[1]], ids[2])
    forget(db, sources[1])
    first = fact(db, ids[0])
    assert first is not None
    assert first.superseded_by_id == ids[2]
    forget(db, sources[2])
    first = fact(db, ids[0])
    assert first is not None
    assert first.status == "current"
    forget(db, sources[0])
    assert counts(db) == dict.fromkeys(TABLES, 0)


def test_jobs_over_what_goes_are_fenced_and_go_with_an_empty_thread(db: Database) -> None:
    kept, emptied = rows.thread(db, "kept"), rows.thread(db, "emptied")
    stays, gone = rows.source(db, kept, "stays"), rows.source(db, kept, "gone")
    last = rows.source(db, emptied, "last")
    jobs = [
        rows.write(
            db,
            insert_job,
            scope_id=thread.scope_id,
            thread_id=thread.id,
            run_id=None,
            source_ids=source_ids,
            clock=db.clock,
        )
        for thread, source_ids in ((kept, [stays, gone]), (emptied, [last]))
    ]
    for job in jobs:
        assert rows.write(db, leases.claim, extraction_jobs.TABLE, job, token="t", now_ms=NOW_MS, lease_ms=9)
    removed = forget(db, gone, last)
    assert removed["extraction_job_sources"] == 2
    assert rows.read(db, load_job, jobs[0]).state == State.QUEUED
    assert rows.read(db, job_sources, jobs[0]) == [stays]
    assert rows.rows(db, "SELECT id FROM extraction_jobs") == [(jobs[0],)]
