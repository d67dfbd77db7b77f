from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.store.connection import Connection, Database
from pikobot.store.history import ContextEntry, HistoryQuery, conversation_before, search_history
from pikobot.store.runs import RunId
from pikobot.store.sources import SourceId, insert_source
from pikobot.store.text.literal import folded
from pikobot.store.threads import Thread
from tests.clock import NOW_MS
from tests.store import rows
from tests.store.rows import GROUP


def search(db: Database, thread: Thread, literal: str | None = None, **changes: Any) -> list[SourceId]:
    fields: dict[str, Any] = {
        "scope_id": thread.scope_id,
        "thread_id": None,
        "folded": None if literal is None else folded(literal),
        "before_ms": None,
        "after": None,
        "without_run": None,
        "now_ms": NOW_MS,
        "limit": 100,
    }
    return rows.read(db, search_history, HistoryQuery(**(fields | changes)))


def context(db: Database, thread: Thread, run_id: RunId, *, now_ms: int = NOW_MS) -> list[ContextEntry]:
    return rows.read(db, conversation_before, thread.id, run_id, now_ms=now_ms)


# Literal search


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("修改youer服务端", "youer"),
        ("修改youer服务端", "服务"),
        ("修改youer服务端", "端"),
        ("修改youer服务端", "改"),
        ("修改youer服务端", "改YOU"),
        ("Straße", "STRASSE"),
        ("STRASSE", "straße"),
        ("İstanbul", "i\u0307stanbul"),
        ("ΟΔΟΣ", "οδος"),
        ("100% of a_b", "% of a_"),
        ('say "it\'s" OR not*', '"it\'s" or NOT*'),
    ],
)
def test_a_literal_is_found_inside_words_whatever_its_case(db: Database, text: str, literal: str) -> None:
    thread = rows.thread(db)
    wanted = rows.source(db, thread, text)
    rows.source(db, thread, "something else 别的")
    assert search(db, thread, literal) == [wanted]


@pytest.mark.parametrize(
    ("text", "literal"),
    [("resume", "résumé"), ("服 务", "服务"), ("abc", "abcd"), ("İ", "ı"), ("a%b", "a_b")],
)
def test_what_is_not_the_same_letters_is_not_found(db: Database, text: str, literal: str) -> None:
    thread = rows.thread(db)
    rows.source(db, thread, text)
    assert search(db, thread, literal) == []


@dataclass(frozen=True)
class Said:
    text: str
    thread: int
    at: int
    expires: int | None


LETTERS = st.text(st.sampled_from("aAbßSsİiıΣσς改修服务 \0é"), max_size=6)
SAID = st.builds(Said, LETTERS, st.integers(0, 2), st.integers(0, 3), st.sampled_from([None, 1, 2]))
NOW = 1


@given(
    said=st.lists(SAID, max_size=12),
    literal=st.none() | LETTERS.filter(bool),
    thread=st.none() | st.integers(0, 1),
    before=st.none() | st.integers(0, 4),
    limit=st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_paging_gives_what_a_naive_scan_finds(
    shared_db: Database,
    said: list[Said],
    literal: str | None,
    thread: int | None,
    before: int | None,
    limit: int,
) -> None:
    db = shared_db
    threads = [rows.thread(db, "t0"), rows.thread(db, "t1"), rows.thread(db, "t0", GROUP)]

    def say(tx: Connection) -> list[SourceId]:
        tx.execute("DELETE FROM sources")
        return [
            insert_source(
                tx,
                rows.new_source(threads[one.thread], one.text, said_at_ms=one.at, expires_at_ms=one.expires),
                db.clock,
            )
            for one in said
        ]

    ids = rows.write(db, say)
    expected = sorted(
        (
            (one.at, source_id)
            for source_id, one in zip(ids, said, strict=True)
            if one.thread in ((0, 1) if thread is None else (thread,))
            and (literal is None or folded(literal) in folded(one.text))
            and (before is None or one.at < before)
            and (one.expires is None or one.expires > NOW)
        ),
        reverse=True,
    )
    fields = {"thread_id": None if thread is None else threads[thread].id, "before_ms": before, "now_ms": NOW}
    assert list(pages(db, threads[0], literal, limit, fields)) == expected


def pages(
    db: Database, thread: Thread, literal: str | None, limit: int, fields: dict[str, Any]
) -> Iterator[tuple[int, SourceId]]:
    after: tuple[int, SourceId] | None = None
    while ids := search(db, thread, literal, after=after, limit=limit, **fields):
        assert len(ids) <= limit
        for source_id in ids:
            (at_ms,) = rows.rows(db, "SELECT said_at_ms FROM sources WHERE id = ?", source_id)[0]
            after = (at_ms, source_id)
            yield after


def test_pages_through_one_moment_lose_and_repeat_nothing(db: Database) -> None:
    thread = rows.thread(db)
    stored = [rows.source(db, thread, f"same {number}") for number in range(7)]
    found = [source_id for _, source_id in pages(db, thread, "SAME", 3, {})]
    assert found == stored[::-1]


def test_a_page_goes_on_where_it_was_while_messages_come_and_go(db: Database) -> None:
    thread = rows.thread(db)
    stored = [rows.source(db, thread, "note", said_at_ms=NOW_MS + number) for number in range(4)]
    assert search(db, thread, "note", limit=2) == stored[:1:-1]
    rows.source(db, thread, "note", said_at_ms=NOW_MS + 9)
    rows.execute(db, "DELETE FROM sources WHERE id = ?", stored[2])
    assert search(db, thread, "note", limit=2, after=(NOW_MS + 2, stored[2])) == stored[1::-1]


def test_no_scope_sees_another_also_by_its_threads_id(db: Database) -> None:
    mine, theirs = rows.thread(db), rows.thread(db, of=GROUP)
    own, other = rows.source(db, mine, "secret"), rows.source(db, theirs, "secret")
    assert search(db, mine, "secret") == [own]
    assert search(db, theirs, "secret") == [other]
    assert search(db, mine, "secret", thread_id=theirs.id) == []


def test_the_running_run_and_everything_but_messages_is_left_out(db: Database) -> None:
    thread = rows.thread(db)
    run, earlier = rows.run(db, thread.id), rows.run(db, thread.id)
    rows.message(db, thread, run.id, "word")
    kept = [rows.message(db, thread, earlier.id, "word"), rows.source(db, thread, "word")]
    rows.source(db, thread, "word", kind="document")
    rows.source(db, thread, "word", kind="attachment")
    assert search(db, thread, "word", without_run=run.id) == kept[::-1]


def test_a_message_is_searched_until_the_millisecond_it_expires(db: Database) -> None:
    thread = rows.thread(db)
    stored = rows.source(db, thread, "word", expires_at_ms=NOW_MS)
    assert search(db, thread, "word", now_ms=NOW_MS - 1) == [stored]
    assert search(db, thread, "word") == []


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({}, "SEARCH s USING INDEX sources_by_scope_time (scope_id=? AND said_at_ms<?)"),
        ({"thread_id": 1}, "SEARCH s USING INDEX sources_by_thread (thread_id=? AND said_at_ms<?)"),
    ],
)
def test_a_search_walks_its_index_from_the_page_on_and_sorts_nothing(
    db: Database, changes: dict[str, int], step: str
) -> None:
    query = HistoryQuery(
        scope_id=rows.scope(db),
        folded="x",
        before_ms=NOW_MS,
        after=(NOW_MS, SourceId(3)),
        without_run=None,
        now_ms=NOW_MS,
        limit=5,
        **({"thread_id": None} | changes),  # type: ignore[arg-type]  # a table of plans, not of values
    )
    assert rows.plan(db, search_history, query) == [step]


# The conversation before a run


def test_a_conversation_is_imports_by_time_then_runs_by_insertion(db: Database) -> None:
    thread = rows.thread(db)
    runs = [rows.run(db, thread.id) for _ in range(3)]

    def say(run: int, text: str, role: str, at_ms: int) -> SourceId:
        origin = "said" if role == "user" else "model"
        return rows.source(db, thread, text, role=role, run_id=runs[run].id, said_at_ms=at_ms, origin=origin)

    # Stored in an order, and at times, that say nothing about the runs' order.
    second_request = say(1, "二", "user", NOW_MS - 90)
    first_request = say(0, "one", "user", NOW_MS)
    late_import = rows.source(db, thread, "later", origin="imported", said_at_ms=NOW_MS + 70)
    second_answer = say(1, "two!", "assistant", NOW_MS - 80)
    first_answer = say(0, "one!", "assistant", NOW_MS + 99)
    early_import = rows.source(
        db, thread, "earlier", origin="imported", role="assistant", said_at_ms=NOW_MS - 99
    )
    say(2, "three", "user", NOW_MS - 100)
    first, second = runs[0].id, runs[1].id
    assert context(db, thread, runs[2].id) == [
        ContextEntry(early_import, 7, False, None),
        ContextEntry(late_import, 5, False, None),
        ContextEntry(first_request, 3, False, first),
        ContextEntry(first_answer, 4, True, first),
        ContextEntry(second_request, 3, False, second),
        ContextEntry(second_answer, 4, True, second),
    ]
    assert [entry.source_id for entry in context(db, thread, runs[0].id)] == [early_import, late_import]


def test_messages_queued_later_and_those_of_other_threads_are_left_out(db: Database) -> None:
    thread, other = rows.thread(db, "this"), rows.thread(db, "other")
    first, elsewhere, current, later = (rows.run(db, one.id) for one in (thread, other, thread, thread))
    request = rows.message(db, thread, first.id, "first")
    rows.message(db, other, elsewhere.id, "elsewhere")
    rows.message(db, thread, current.id, "current")
    rows.message(db, thread, later.id, "later")
    assert context(db, thread, current.id) == [ContextEntry(request, 5, False, first.id)]
    assert len(context(db, thread, later.id)) == 2


def test_expired_messages_and_attachments_are_no_conversation(db: Database) -> None:
    thread = rows.thread(db)
    run, current = rows.run(db, thread.id), rows.run(db, thread.id)
    request = rows.source(db, thread, "你好 a", run_id=run.id, expires_at_ms=NOW_MS)
    rows.source(db, thread, "photo", run_id=run.id, kind="attachment")
    assert context(db, thread, current.id) == []
    assert context(db, thread, current.id, now_ms=NOW_MS - 1) == [ContextEntry(request, 8, False, run.id)]


def test_an_answer_stored_before_its_request_still_follows_it(db: Database) -> None:
    thread = rows.thread(db)
    run, current = rows.run(db, thread.id), rows.run(db, thread.id)
    answer = rows.message(db, thread, run.id, "answer", role="assistant")
    request = rows.message(db, thread, run.id, "request")
    assert [entry.source_id for entry in context(db, thread, current.id)] == [request, answer]


def test_only_the_models_own_answers_depend_on_the_conversation(db: Database) -> None:
    thread = rows.thread(db)
    run, current = rows.run(db, thread.id), rows.run(db, thread.id)
    rows.source(db, thread, "imported", role="assistant", origin="imported")
    rows.source(db, thread, "a quote", role="assistant", origin="recall", run_id=run.id)
    assert [entry.is_answer for entry in context(db, thread, current.id)] == [False, False]


def test_a_conversation_is_read_from_its_thread_alone(db: Database) -> None:
    steps = rows.plan(db, conversation_before, rows.thread(db).id, RunId(1), now_ms=NOW_MS)
    assert steps[0] == "SEARCH s USING INDEX sources_by_thread (thread_id=?)"
