from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pikobot.store import leases
from pikobot.store.connection import Connection, Database
from pikobot.store.embedding_jobs import insert_batch
from pikobot.store.erasing.closure import Removed, closure_of, contents_of, remove
from pikobot.store.erasing.erasures import Tombstone
from pikobot.store.erasing.rules import RULES, Rule
from pikobot.store.leases import State
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import NewSource, SourceId, insert_source, link_dependencies
from pikobot.store.text.index import check_text_index
from pikobot.store.threads import ensure_thread
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.profiles import Profile, create_set
from tests.memory.conversing import attach, exchange, public, read, write
from tests.memory.remembering import NOW_MS, opened
from tests.store.stating import state

INDEX_SHADOWS = ("sources_text_", "facts_text_")
INTERNAL = ("sqlite_",)
# Where a closure is looked for that has one of everything.
EMPTIED = (
    "attempts",
    "embedding_job_owners",
    "embedding_jobs",
    "entities",
    "entity_aliases",
    "extraction_job_sources",
    "fact_context",
    "fact_entities",
    "fact_evidence",
    "fact_tags",
    "forget_proposals",
    "media",
    "run_facts",
    "run_sources",
    "run_transcript",
    "source_dependencies",
    "vectors",
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def take(db: Database, *ids: SourceId | None) -> Removed:
    def run(tx: Connection) -> Removed:
        return remove(tx, closure_of(tx, [i for i in ids if i is not None]), now_ms=NOW_MS)

    return write(db, run)  # type: ignore[no-any-return]  # what it returns


def columns_of(db: Database) -> dict[str, set[str]]:
    """Columns of every table; what an index keeps in tables of its own is the index's matter."""
    tables: dict[str, set[str]] = {}
    for table, column in read(
        db,
        """
        SELECT t.name, c.name FROM pragma_table_list AS t JOIN pragma_table_info(t.name) AS c
        WHERE t.schema = 'main' AND t.type IN ('table', 'virtual') AND t.name NOT LIKE 'sqlite_%'
        """,
    ):
        tables.setdefault(table, set()).add(column)
    return tables


def test_every_column_of_the_schema_has_a_rule(db: Database) -> None:
    assert columns_of(db) == {table: set(rules) for table, rules in RULES.items()}


def test_every_reference_to_something_erasable_follows_it_or_is_cut(db: Database) -> None:
    erasable = {table for table, rules in RULES.items() if Rule.CONTENT in rules.values()} | {"runs"}
    references = [
        (table, row[0], row[1])
        for table in RULES
        for row in read(db, 'SELECT "from", "table" FROM pragma_foreign_key_list(?)', table)
    ]
    wrong = [
        (table, column)
        for table, column, target in references
        if target in erasable and RULES[table][column] not in (Rule.FOLLOWS, Rule.CUT)
    ]
    assert wrong == []
    assert ("sources", "thread_id", "threads") in references


def test_every_column_that_holds_content_of_a_conversation_is_handed_to_the_scan(db: Database) -> None:
    one = exchange(db, "the text", thread="the key", transcript=["the message"], is_leased=True)
    attach(db, one.request, b"the data", "the name")
    with db.read() as conn:
        found = list(contents_of(conn, [one.request]))
    planted = {
        ("sources", "text"): "the text",
        ("sources", "speaker"): "owner",
        ("media", "data"): b"the data",
        ("media", "name"): "the name",
        ("run_transcript", "message"): '{"role": "tool", "content": "the message"}',
        ("threads", "key"): "the key",
    }
    content = {
        (table, column)
        for table in ("sources", "media", "run_transcript", "run_sources", "runs", "threads", "attempts")
        for column, rule in RULES[table].items()
        if rule is Rule.CONTENT
    }
    assert set(planted) == content
    assert sorted(map(str, found)) == sorted(map(str, planted.values()))


def test_an_answer_goes_with_what_it_was_made_from_and_the_rest_stays(db: Database) -> None:
    fact = exchange(db, "my door code is 4711", "noted", thread="door")
    asked = exchange(db, "what is my door code?", "it is 4711", reads=[fact.request])
    after = exchange(db, "thanks", "welcome", reads=[i for i in (asked.request, asked.answer) if i])
    other = exchange(db, "good morning", "hello", thread="other")
    ids = public(db, fact.request, fact.answer, asked.answer, after.answer)

    removed = take(db, fact.request)

    assert removed.tombstones == tuple(Tombstone("source", public_id) for public_id in ids)
    assert {table: count for table, count in removed.rows.items() if count} == {
        "run_sources": 2,
        "source_dependencies": 6,
        "sources": 4,
        "runs": 1,
        "threads": 1,
    }
    left = [row[0] for row in read(db, "SELECT id FROM sources ORDER BY id")]
    assert left == [asked.request, after.request, other.request, other.answer]


def test_forgetting_an_answer_keeps_its_request(db: Database) -> None:
    one = exchange(db, "what is the weather?", "sunny")
    assert len(take(db, one.answer).tombstones) == 1
    assert read(db, "SELECT text FROM sources") == [("what is the weather?",)]


def test_only_a_thread_that_is_to_go_as_a_whole_is_buried(db: Database) -> None:
    one, other = exchange(db, "hello", thread="a"), exchange(db, "你好", thread="b")
    [(_, _), (second, public_id)] = read(db, "SELECT id, public_id FROM threads ORDER BY id")

    def run(tx: Connection) -> Removed:
        return remove(tx, closure_of(tx, [one.request, other.request]), thread_ids=[second], now_ms=NOW_MS)

    removed = write(db, run)
    assert [each for each in removed.tombstones if each.entity == "thread"] == [
        Tombstone("thread", public_id)
    ]
    assert removed.rows["threads"] == 2


def test_a_queued_run_whose_request_goes_is_cancelled_and_its_thread_with_it(db: Database) -> None:
    one = exchange(db, "never mind", thread="a")
    exchange(db, "hello", "hi", thread="b")
    removed = take(db, one.request)
    assert (removed.runs_cancelled, removed.runs_requeued, removed.rows["threads"]) == (1, 0, 1)
    assert read(db, "SELECT key FROM threads") == [("b",)]


def test_a_leased_run_whose_request_goes_can_commit_nothing_afterwards(db: Database) -> None:
    before = exchange(db, "hello", "hi")
    one = exchange(db, "never mind", transcript=["secret"], reads=[before.request], is_leased=True)
    assert one.lease is not None
    take(db, one.request)
    assert write(db, leases.finish, one.lease, State.SUCCEEDED, now_ms=NOW_MS) is False
    assert write(db, leases.holds, one.lease) is False
    assert read(db, "SELECT state, error_code, lease_token FROM runs WHERE id = ?", one.run) == [
        ("cancelled", "forgotten", None)
    ]
    assert read(db, "SELECT state, error_code, reserved_microusd FROM attempts") == [
        ("unknown", "interrupted", 7)
    ]
    assert read(db, "SELECT * FROM run_transcript") == []
    assert read(db, "SELECT * FROM run_sources WHERE run_id = ?", one.run) == []


def test_a_leased_run_that_has_read_what_goes_begins_again_without_it(db: Database) -> None:
    fact = exchange(db, "my door code is 4711", "noted")
    keep = exchange(db, "hello", "hi", thread="b")
    one = exchange(
        db, "door code?", transcript=["4711"], reads=[fact.request, keep.request], is_leased=True, thread="c"
    )
    assert one.lease is not None
    removed = take(db, fact.request)
    assert (removed.runs_cancelled, removed.runs_requeued) == (0, 1)
    assert write(db, leases.finish, one.lease, State.SUCCEEDED, now_ms=NOW_MS) is False
    assert read(db, "SELECT state, lease_token, claims, not_before_ms FROM runs WHERE id = ?", one.run) == [
        ("queued", None, 0, 0)
    ]
    assert read(db, "SELECT state FROM attempts") == [("unknown",)]
    assert read(db, "SELECT * FROM run_transcript") == []
    assert read(db, "SELECT * FROM run_sources WHERE run_id = ?", one.run) == []
    assert read(db, "SELECT id FROM sources WHERE id = ?", one.request) == [(one.request,)]


def test_a_thread_with_an_unfinished_run_stays_even_without_sources(db: Database) -> None:
    one = exchange(db, "hello", "hi")
    waiting = exchange(db, "and now?")
    write(db, lambda tx: tx.execute("UPDATE sources SET run_id = NULL WHERE id = ?", (waiting.request,)))
    removed = take(db, one.request, waiting.request)
    assert removed.rows["threads"] == 0
    assert read(db, "SELECT state FROM runs ORDER BY id") == [("succeeded",), ("queued",)]


def test_attempts_outlive_their_thread_without_pointing_at_it(db: Database) -> None:
    one = exchange(db, "hello", is_leased=True)
    take(db, one.request)
    assert read(db, "SELECT run_id, state FROM attempts") == [(None, "unknown")]
    assert read(db, "SELECT * FROM runs") == []


def test_media_and_index_rows_go_with_their_source(db: Database) -> None:
    one = exchange(db, "照片在这里 zanzibar", "好看")
    attach(db, one.request, b"bytes", "holiday.png")
    assert take(db, one.request).rows["media"] == 1
    assert read(db, "SELECT * FROM media") == []
    assert read(db, "SELECT rowid FROM sources_text WHERE sources_text MATCH 'zanzibar OR \"照片\"'") == []
    assert write(db, check_text_index) == []


def test_removing_twice_removes_nothing_more(db: Database) -> None:
    one = exchange(db, "hello", "hi")
    take(db, one.request)
    again = take(db, one.request)
    assert again == Removed((), dict.fromkeys(again.rows, 0))


@given(
    count=st.integers(1, 12),
    edges=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30),
    start=st.sets(st.integers(0, 11), max_size=4),
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_closure_equals_a_walk_of_the_graph(
    db: Database, count: int, edges: set[tuple[int, int]], start: set[int]
) -> None:
    def build(tx: Connection) -> list[SourceId]:
        scope = ensure_scope(tx, owner_scope())
        thread = ensure_thread(tx, scope, "graph", db.clock).id
        new = NewSource(
            role="assistant",
            speaker="p",
            scope_id=scope,
            thread_id=thread,
            text="x",
            origin="model",
            said_at_ms=0,
        )
        made = [insert_source(tx, new, db.clock) for _ in range(count)]
        for below, above in edges:
            if below < count and above < count:
                link_dependencies(tx, made[below], [made[above]])
        return made

    made = write(db, build)
    expected = {node for node in start if node < count}
    while more := {b for b, a in edges if a in expected and b < count} - expected:
        expected |= more
    wanted = [made[node] for node in sorted(expected)]
    with db.read() as conn:
        assert closure_of(conn, [made[node] for node in start if node < count]) == wanted
    removed = take(db, *[made[node] for node in start if node < count])
    assert len([t for t in removed.tombstones if t.entity == "source"]) == len(expected)
    rest = [row[0] for row in read(db, "SELECT id FROM sources WHERE id >= ? ORDER BY id", made[0])]
    assert rest == [source for source in made if source not in wanted]
    assert read(db, "PRAGMA foreign_key_check") == []


def test_nothing_is_found_by_reading_a_whole_table(db: Database) -> None:
    one = exchange(db, "hello", "hi", transcript=["x"])
    state(db, "says hello", one.request, entities=("Ana",), tags=("greeting",))
    batch = write(
        db, create_set, Profile(provider="test", model="test", dimension=8, prefix_rule="none"), now_ms=NOW_MS
    ).id
    owners = [Owner(OwnerKind.SOURCE, one.request), Owner(OwnerKind.FACT, 1)]
    write(db, insert_batch, batch, owners, workspace="main", clock=db.clock)
    seen: list[tuple[str, Any]] = []

    def watched(tx: Connection) -> None:
        def note(cursor: object, sql: str, bindings: object) -> bool:
            seen.append((sql, bindings))
            return True

        tx.exec_trace = note
        try:
            list(contents_of(tx, [one.request]))
            remove(tx, closure_of(tx, [one.request]), now_ms=NOW_MS)
        finally:
            tx.exec_trace = None

    write(db, watched)
    scans = []
    with db.read() as conn:
        for sql, bindings in seen:
            if "sources_text" not in sql and "facts_text" not in sql:
                steps = [str(row[3]) for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
                scans += [(sql, step) for step in steps if step.startswith("SCAN") and not is_small(step)]
    touched = " ".join(sql for sql, _ in seen)
    assert [table for table in EMPTIED if table not in touched] == []
    assert scans == []


def is_small(step: str) -> bool:
    return step.startswith(("SCAN json_each", "SCAN gone", "SCAN wanted VIRTUAL TABLE"))
