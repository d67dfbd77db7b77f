import asyncio
import io
import json
import shutil
from pathlib import Path

import pytest

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.edits import Edited, EditParams, Learning, Unchanged, edit_rpc, edit_source
from pikobot.memory.embedding import embed
from pikobot.memory.extract import LearningLimits, claim_job, queue_sources
from pikobot.memory.facts import Committed, commit_candidates
from pikobot.memory.forgetting.forget import finish_interrupted, forget
from pikobot.memory.forgetting.ledger import check
from pikobot.memory.imports import import_jsonl
from pikobot.memory.params import validated
from pikobot.memory.search import SearchParams, search
from pikobot.store import embedding_jobs, leases
from pikobot.store.connection import Database
from pikobot.store.facts import FactId, supersede_facts
from pikobot.store.inspection import inspect
from pikobot.store.leases import State
from pikobot.store.sources import SourceId
from tests.memory.conversing import attach, exchange, public, read, write
from tests.memory.learning import batch, candidate, fact, learn, source
from tests.memory.meaning import Meaning, embed_all, engine
from tests.memory.planting import copied_at_every_statement
from tests.memory.remembering import NOW_MS, StillClock, opened, say

OLD = "my code is zanzibarite-7731 紫水晶藏宝图"
NEW = "my code is in the blue folder 在蓝色文件夹里"
MARKS = (b"zanzibarite", "紫水晶藏宝图".encode(), "紫水晶藏宝图".encode("utf-16-le"))
LEARNS = Learning(said=True, imported=True)
WIDE = LearningLimits(day_microusd=10**9, workspace_month_microusd=10**9, calls_per_hour=10**6)


def edited(db: Database, path: Path, public_id: str, text: str = NEW) -> Edited:
    outcome = edit_source(db, path, public_id, text, LEARNS)
    assert isinstance(outcome, Edited)
    assert outcome.receipt.is_clean
    with db.read() as conn:
        assert inspect(conn) == []
        check(conn, path)
    return outcome


def found(db: Database, query: str) -> list[str]:
    with db.read() as conn:
        page = search(conn, validated(SearchParams, {"query": query}), allowed_scopes=None, now_ms=NOW_MS)
    return [record.text for record in page.records]


def marks_below(directory: Path) -> list[str]:
    """Files that hold a mark. Only after the database was closed."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    return [file.name for file in files if any(mark in file.read_bytes() for mark in MARKS)]


def texts(db: Database) -> list[str]:
    return [row[0] for row in read(db, "SELECT text FROM sources ORDER BY id")]


def test_the_new_text_takes_the_place_of_the_old_one_and_of_all_that_was_made_of_it(
    tmp_path: Path, path: Path
) -> None:
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        said = exchange(db, OLD, f"noted: {OLD}")
        attach(db, said.request, b"the attachment", "notes.txt")
        old_id = public(db, said.request)[0]
        learn(db, f"The owner's code: {OLD}", old_id, tags=("codes",), entities=("zanzibarite",))
        assert said.answer is not None
        other = exchange(db, "what was it?", f"it was {OLD}", reads=[said.answer])
        kept = exchange(db, "good morning", "早上好", thread="b")
        before = read(db, "SELECT id, thread_id, run_id, said_at_ms FROM sources WHERE id = ?", said.request)

        outcome = edited(db, path, old_id)

        assert texts(db) == [NEW, "what was it?", "good morning", "早上好"]
        assert (
            read(db, "SELECT id, thread_id, run_id, said_at_ms FROM sources WHERE id = ?", said.request)
            == before
        )
        assert public(db, said.request) == [outcome.public_id] != [old_id]
        assert {table: count for table, count in outcome.receipt.removed.rows.items() if count} == {
            "run_sources": 1,
            "source_dependencies": 3,
            "sources": 2,
            "facts": 1,
            "fact_evidence": 1,
            "fact_tags": 1,
            "fact_entities": 1,
            "entities": 1,
        }
        assert outcome.receipt.erased_ids == 3
        assert read(db, "SELECT data FROM media") == [(b"the attachment",)]
        assert found(db, "blue folder") == found(db, "蓝色文件夹") == [NEW]
        assert found(db, "zanzibarite") == found(db, "藏宝图") == []
        assert [run for (run,) in read(db, "SELECT state FROM runs")] == ["succeeded"] * 3
        assert kept.answer is not None
        assert other.run is not None
    assert marks_below(tmp_path) == []


def test_the_same_text_changes_nothing(db: Database, path: Path) -> None:
    [public_id] = say(db, OLD)
    before = read(db, "SELECT total_changes()")
    for _ in range(2):
        assert edit_source(db, path, public_id, OLD, LEARNS) == Unchanged(public_id)
    assert read(db, "SELECT total_changes()") == before
    outcome = edited(db, path, public_id)
    assert edit_source(db, path, outcome.public_id, NEW, LEARNS) == Unchanged(outcome.public_id)
    assert read(db, "SELECT public_id FROM erasures") == [(public_id,)]


def test_what_was_forgotten_is_edited_before_or_has_expired_is_refused(db: Database, path: Path) -> None:
    forgotten, old = say(db, OLD, "first")
    [expired] = say(db, "过期的", expires_at_ms=NOW_MS)
    forget(db, path, [forgotten])
    edited(db, path, old, "second")
    for public_id, message in (
        (forgotten, "was forgotten, or edited since"),
        (old, "was forgotten, or edited since"),
        (expired, "does not exist"),
        ("src_never", "does not exist"),
    ):
        with pytest.raises(NotFound, match=message):
            edit_source(db, path, public_id, "again", LEARNS)
    assert texts(db) == ["second", "过期的"]


def test_only_what_a_person_has_said_can_be_edited_and_not_into_nothing(db: Database, path: Path) -> None:
    said = exchange(db, "hello", "hi")
    [document] = say(db, "a manual")
    write(db, lambda tx: tx.execute("UPDATE sources SET kind = 'document' WHERE text = 'a manual'"))
    for public_id, text in (
        (*public(db, said.answer), "another"),
        (document, "another"),
        (*public(db, said.request), " \n　"),
        (*public(db, said.request), "a\0b"),
        (*public(db, said.request), "\ud800"),
    ):
        with pytest.raises(InvalidParams):
            edit_source(db, path, public_id, text, LEARNS)
    assert texts(db) == ["hello", "hi", "a manual"]


@pytest.mark.parametrize("of", ["request", "read"])
def test_a_run_under_way_loses_its_lease_and_begins_again(db: Database, path: Path, of: str) -> None:
    old = exchange(db, OLD, "noted")
    running = exchange(db, "code?", transcript=[OLD], reads=[old.request], is_leased=True, thread="b")
    outcome = edited(db, path, *public(db, running.request if of == "request" else old.request))
    assert outcome.receipt.as_json()["runs"] == {"cancelled": 0, "requeued": 1}
    assert running.lease is not None
    assert not write(db, leases.finish, running.lease, State.SUCCEEDED, now_ms=NOW_MS)
    assert read(db, "SELECT state, claims FROM runs WHERE id = ?", running.run) == [("queued", 0)]
    assert read(db, "SELECT * FROM run_transcript") == read(db, "SELECT * FROM run_sources") == []
    assert read(db, "SELECT state FROM attempts") == [("unknown",)]


def test_a_run_that_waits_goes_on_waiting(db: Database, path: Path) -> None:
    waiting = exchange(db, OLD)
    edited(db, path, *public(db, waiting.request))
    assert read(db, "SELECT state FROM runs") == [("queued",)]
    assert texts(db) == [NEW]
    assert read(db, "SELECT * FROM extraction_jobs") == []  # queued when the run succeeds


def job_states(db: Database) -> list[tuple[str, int]]:
    """Of each job its state, and how many sources it has."""
    return read(
        db,
        """
        SELECT state, (SELECT count(*) FROM extraction_job_sources WHERE job_id = j.id)
        FROM extraction_jobs AS j ORDER BY id
        """,
    )


def test_the_new_text_is_queued_for_learning_once(db: Database, path: Path) -> None:
    said = exchange(db, OLD, "noted")
    [imported] = say(db, "imported words")
    write(db, lambda tx: tx.execute("UPDATE sources SET origin = 'imported' WHERE text = 'imported words'"))
    outcome = edited(db, path, *public(db, said.request))
    assert job_states(db) == [("queued", 1)]
    edited(db, path, outcome.public_id, "第三版")
    assert job_states(db) == [("queued", 1)]
    assert isinstance(edit_source(db, path, imported, "导入的话", Learning(said=True)), Edited)
    assert job_states(db) == [("queued", 1)]


def test_extraction_under_way_can_commit_nothing_of_the_old_text(db: Database, path: Path) -> None:
    first, second = say(db, OLD, "and I live in Porto")
    sources = [source(db, public_id) for public_id in (first, second)]
    write(db, lambda tx: queue_sources(tx, sources, run_id=None, clock=db.clock))
    claimed = db.perform(claim_job, WIDE)
    assert not isinstance(claimed, str)
    proposed = [candidate(db, "The owner's code", first), candidate(db, "lives in Porto", second)]
    edited(db, path, first)
    outcome = db.perform(commit_candidates, claimed.lease, claimed.snapshots, proposed)
    assert outcome.result is Committed.LEASE_LOST
    assert job_states(db) == [("queued", 2)]
    again = db.perform(claim_job, WIDE)
    assert not isinstance(again, str)
    assert [turn.text for turn in again.turns] == [NEW, "and I live in Porto"]


def test_what_was_only_context_of_an_extraction_makes_its_answer_stale(db: Database, path: Path) -> None:
    first, second = say(db, OLD, "and I live in Porto")
    snapshots = batch(db, second, first)
    proposed = [candidate(db, "lives in Porto", second)]
    edited(db, path, first)
    outcome = db.perform(commit_candidates, None, snapshots, proposed)
    assert outcome.result is Committed.SOURCES_CHANGED
    assert read(db, "SELECT * FROM facts") == []


def test_the_new_text_is_embedded_instead_of_the_old_one(db: Database, path: Path) -> None:
    [public_id] = say(db, "my puppy")
    meaning = Meaning()
    made = engine(meaning)
    asyncio.run(embed_all(db, made))
    outcome = edited(db, path, public_id, "看大夫")
    assert read(db, "SELECT * FROM vectors") == []
    claimed = db.perform(embed.claim_batch, made.profile, limit=9, lease_ms=60_000)
    assert isinstance(claimed, embed.ClaimedBatch)
    assert [text.text for text in claimed.texts] == ["owner: 看大夫"]
    edited(db, path, outcome.public_id, "another automobile")
    vectors = asyncio.run(meaning.embed_passages([text.text for text in claimed.texts]))
    assert db.perform(embed.commit_batch, claimed, vectors, None) is None
    asyncio.run(embed_all(db, made))
    assert meaning.sent[-1] == ["owner: another automobile"]
    with db.read() as conn:
        assert embedding_jobs.count_batches(conn, claimed.vector_set.id).total == 0
        assert inspect(conn) == []
    assert read(db, "SELECT owner_kind, owner_id FROM vectors") == [("source", 1)]


def test_a_correction_that_is_edited_lets_what_it_replaced_stand_again(db: Database, path: Path) -> None:
    first, second = say(db, "I live in Lisbon", "不，我住在波尔图")
    ids = [learn(db, text, each) for text, each in (("Lisbon", first), ("Porto", second))]
    numbers = [FactId(row[0]) for row in read(db, "SELECT id FROM facts ORDER BY id")]
    write(db, supersede_facts, numbers[:1], numbers[1])
    edited(db, path, second)
    assert read(db, "SELECT public_id FROM facts") == [(ids[0],)]
    assert fact(db, ids[0]).fact.status == "stored"


def test_facts_that_rest_on_other_sources_stay_byte_for_byte(db: Database, path: Path) -> None:
    first, second = say(db, OLD, "我住在Porto")
    kept = learn(db, "lives in Porto", second)
    learn(db, "since May", second, depends_on=(first,))
    before = fact(db, kept)
    edited(db, path, first)
    assert fact(db, kept) == before
    assert read(db, "SELECT public_id FROM facts") == [(kept,)]


def record(text: str) -> io.BytesIO:
    line = {"thread": "t", "role": "participant", "speaker": "安娜", "text": text, "id": "m1"}
    return io.BytesIO(json.dumps(line).encode())


def test_an_imported_record_keeps_its_identity(db: Database, path: Path) -> None:
    import_jsonl(db, record(OLD))
    [(public_id,)] = read(db, "SELECT public_id FROM sources")
    outcome = edited(db, path, public_id)
    report = import_jsonl(db, record(OLD))
    assert (report.added, report.changed) == (0, 1)
    assert (import_jsonl(db, record(NEW)).already_there, texts(db)) == (1, [NEW])
    forget(db, path, [outcome.public_id])
    assert [import_jsonl(db, record(text)).erased for text in (OLD, NEW)] == [1, 1]


def test_an_old_database_that_is_copied_back_does_not_bring_the_old_text_back(
    tmp_path: Path, path: Path
) -> None:
    root, copy = tmp_path / "i", tmp_path / "copy"
    root.mkdir()
    path = root / path.name
    with opened(root) as db:
        finish_interrupted(db, path)
        old = exchange(db, OLD, f"noted: {OLD}")
        [public_id] = public(db, old.request)
    shutil.copy(root / "pikobot.sqlite3", copy)
    clock = StillClock()
    clock.tokens = 100
    with opened(root, clock) as db:
        edited(db, path, public_id)
    copy.replace(root / "pikobot.sqlite3")
    with opened(root, clock) as db:
        finish_interrupted(db, path)
        assert texts(db) == []
        with pytest.raises(NotFound):
            edit_source(db, path, public_id, NEW, LEARNS)
    assert marks_below(tmp_path) == []


def test_the_old_text_of_a_record_is_not_imported_again_where_the_new_one_is_lost(
    tmp_path: Path, path: Path
) -> None:
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
    empty = (tmp_path / "pikobot.sqlite3").read_bytes()
    with opened(tmp_path) as db:
        import_jsonl(db, record(OLD))
        edited(db, path, *public(db, SourceId(1)))
    (tmp_path / "pikobot.sqlite3").write_bytes(empty)
    with opened(tmp_path) as db:
        finish_interrupted(db, path)
        assert import_jsonl(db, record(OLD)).erased == 1
        assert import_jsonl(db, record(NEW)).added == 1
        assert texts(db) == [NEW]


@pytest.mark.crash
def test_killed_at_any_statement_it_says_the_old_or_the_new(tmp_path: Path, path: Path) -> None:
    root = tmp_path / "i"
    root.mkdir()
    path = root / path.name
    with opened(root) as db:
        finish_interrupted(db, path)
        request = exchange(db, OLD, f"noted: {OLD}").request
        [public_id] = public(db, request)
        learn(db, f"The owner said {OLD}", public_id)
        with copied_at_every_statement(db, tmp_path) as snapshots:
            edited(db, path, public_id)
    outcomes = []
    for snapshot in snapshots:
        with opened(snapshot) as db:
            finish_interrupted(db, snapshot / "erasures.jsonl")
            with db.read() as conn:
                assert inspect(conn) == []
                buried = check(conn, snapshot / "erasures.jsonl")
            said_now, facts = texts(db), len(read(db, "SELECT 1 FROM facts"))
        outcomes.append((said_now, facts, buried, bool(marks_below(snapshot))))
    before, after = ([OLD, f"noted: {OLD}"], 1, 0, True), ([NEW], 0, 2, False)
    commit = outcomes.index(after)
    assert outcomes == [before] * commit + [after] * (len(outcomes) - commit)
    assert commit > 20


def test_the_operator_gets_the_new_id_and_the_receipt(db: Database, path: Path) -> None:
    [public_id] = say(db, OLD)
    document = edit_rpc(db, path, EditParams(id=public_id, text=NEW), LEARNS)
    assert (document["status"], document["id"]) == ("edited", public(db, SourceId(1))[0])
    receipt = document["receipt"]
    assert isinstance(receipt, dict)
    assert (receipt["clean"], receipt["erasedIds"]) == (True, 1)
    again = edit_rpc(db, path, EditParams(id=str(document["id"]), text=NEW), LEARNS)
    assert again == {"status": "unchanged", "id": document["id"]}
