import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pikobot.memory import imports
from pikobot.memory.imports import ImportReport, Problem, import_jsonl
from pikobot.memory.params import validated
from pikobot.memory.recall.answers import answer_from_memory
from pikobot.memory.search import ListParams, ReadParams, SearchParams, list_memory, read_source, search
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from pikobot.store.scopes import find_scope, owner_scope
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, erase

REPOSITORY = Path(__file__).parents[2]

# Imports a file and is killed, as by a power cut, when the given number of batches is stored.
KILLED_IMPORT = """
import os, signal, sys
from pathlib import Path
from pikobot.clock import SystemClock
from pikobot.memory.imports import import_jsonl
from pikobot.store.prepare import open_database
batches = int(sys.argv[3])
def on_progress(consumed):
    global batches
    batches -= 1
    if not batches:
        os.kill(os.getpid(), signal.SIGKILL)
import_jsonl(open_database(Path(sys.argv[1]), SystemClock()), open(sys.argv[2], "rb"), on_progress=on_progress)
"""


def line(**fields: object) -> bytes:
    record = {"thread": "t1", "role": "user", "text": "我搬到了波尔图"} | fields
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def load(db: Database, *lines: bytes, message_days: int = 0) -> ImportReport:
    return import_jsonl(db, io.BytesIO(b"".join(lines)), message_days=message_days)


def load_reporting(db: Database, *lines: bytes) -> tuple[ImportReport, list[Problem]]:
    problems: list[Problem] = []
    return import_jsonl(db, io.BytesIO(b"".join(lines)), on_problem=problems.append), problems


def texts(db: Database) -> list[str]:
    with db.read() as conn:
        page = list_memory(conn, validated(ListParams, {"limit": 50}), allowed_scopes=None, now_ms=NOW_MS)
    return [record.text for record in page.records]


def test_a_record_comes_back_with_its_id_speaker_time_and_thread(db: Database) -> None:
    report = load(
        db,
        line(id="m1", role="participant", speaker="阿明", time="2024-02-01T08:00:00+08:00", workspace="work"),
    )
    assert report == ImportReport(added=1)
    with db.read() as conn:
        source = read_source(
            conn,
            validated(ReadParams, {"externalId": "m1", "thread": "t1"}),
            allowed_scopes=None,
            now_ms=NOW_MS,
        )
    assert (source.role, source.speaker, source.text, source.thread_key, source.time) == (
        "participant",
        "阿明",
        "我搬到了波尔图",
        "t1",
        "2024-02-01T08:00:00+08:00",
    )
    assert (source.origin, source.scope) == ("imported", "private:work:local:terminal:owner")


def test_what_may_be_left_out_has_a_default(db: Database) -> None:
    load(db, line(speaker=None, time=None, id=None, workspace=None), line(role="assistant"))
    with db.read() as conn:
        params = validated(ListParams, {})
        records = list_memory(conn, params, allowed_scopes=None, now_ms=NOW_MS).records
    assert [(r.source.speaker, r.scope, r.source.external_id) for r in records] == [
        ("assistant", "private:main:local:terminal:owner", None),
        ("owner", "private:main:local:terminal:owner", None),
    ]


def test_a_record_without_a_time_has_no_date_and_none_is_made_up(db: Database) -> None:
    load(
        db,
        line(text="I moved to Porto in March 2023", id="1"),
        line(text="昨天去了医院", id="2"),
        line(text="dated", time="2024-03-01T00:00:00Z"),
    )
    with db.read() as conn:
        params = validated(ListParams, {})
        records = list_memory(conn, params, allowed_scopes=None, now_ms=NOW_MS).records
        read = read_source(
            conn,
            validated(ReadParams, {"externalId": "2", "thread": "t1"}),
            allowed_scopes=None,
            now_ms=NOW_MS,
        )
        asked = {
            question: answer_from_memory(
                conn, question, scope_id=find_scope(conn, owner_scope()), request_id=None, now_ms=NOW_MS
            ).text
            for question in (
                "When did I move?",
                "我什么时候去的医院？",
                "What did I do in March 2023?",
                "What did I say today?",
                "昨天我去了哪里？",
            )
        }
        params = validated(ListParams, {"from": "2000-01-01"})
        in_range = list_memory(conn, params, allowed_scopes=None, now_ms=NOW_MS).records
        found = search(
            conn,
            validated(SearchParams, {"query": "Porto 医院 dated", "to": "2100-01-01"}),
            allowed_scopes=None,
            now_ms=NOW_MS,
        ).records
    assert [(record.text, record.time, record.source.time) for record in records] == [
        ("昨天去了医院", None, None),
        ("I moved to Porto in March 2023", None, None),
        ("dated", "2024-03-01T00:00:00Z", "2024-03-01T00:00:00Z"),
    ]
    assert read.time is None
    assert [record.text for record in in_range] == [record.text for record in found] == ["dated"]
    assert list(asked.values()) == [
        "This is what was said:\n- no date, you: “I moved to Porto in March 2023”",
        "找到这些原话：\n- 日期不明，你：“昨天去了医院”",
        "From March 2023, or about it:\n- no date, you: “I moved to Porto in March 2023”",
        "From 1 March 2024, or about it:\n- 1 March 2024, you: “dated”",
        "没有找到2024年2月29日说的原话，也没有关于那段时间的。换个时间说法，或说出主题，也许能找到。",
    ]


@pytest.mark.parametrize("query", ["youer", "服务", "端", "改", "Porto"])
def test_imported_statements_are_found_at_once(db: Database, query: str) -> None:
    load(db, line(text="修改youer服务端 in Porto"))
    with db.read() as conn:
        page = search(conn, validated(SearchParams, {"query": query}), allowed_scopes=None, now_ms=NOW_MS)
    assert [record.text for record in page.records] == ["修改youer服务端 in Porto"]


def test_a_second_import_adds_nothing(db: Database) -> None:
    lines = [line(id="1"), line(id="2"), line(text="no id"), line(text="no id", time="2024-01-01T00:00Z")]
    assert load(db, *lines) == ImportReport(added=4)
    assert load(db, *lines) == ImportReport(already_there=4)
    assert load(db, lines[0], lines[0], line(id="1", thread="t2")) == ImportReport(added=1, already_there=2)


def test_a_record_that_changed_is_kept_as_it_was_and_reported(db: Database) -> None:
    load(db, line(id="1", text="first"))
    report, problems = load_reporting(db, line(id="1", text="second"), line(id="2", text="third"))
    assert report == ImportReport(added=1, changed=1)
    assert problems == [Problem(1, "changed since it was imported: kept the first")]
    assert not report.is_clean
    assert texts(db) == ["third", "first"]


def test_what_was_erased_stays_out(db: Database) -> None:
    lines = [line(id="1", text="secret"), line(text="no id, secret too"), line(id="3", text="kept")]
    load(db, *lines)
    with db.read() as conn:
        params = validated(ListParams, {})
        records = list_memory(conn, params, allowed_scopes=None, now_ms=NOW_MS).records
    for record in records:
        if "secret" in record.text:
            erase(db, record.id)
    assert load(db, *lines) == ImportReport(already_there=1, erased=2)
    assert texts(db) == ["kept"]


def test_retention_leaves_out_what_has_expired_and_dates_the_rest(db: Database) -> None:
    report = load(
        db,
        line(text="old", time="2024-02-20T13:33:20Z"),
        line(text="newer", time="2024-02-20T13:33:21Z"),
        message_days=10,
    )
    assert report == ImportReport(added=1, expired=1)
    with db.read() as conn:
        assert conn.execute("SELECT text, expires_at_ms FROM sources").fetchall() == [
            ("newer", NOW_MS + 1_000)
        ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{", "the line is not valid JSON at column 2"),
        (b"[]", "the line must be an object"),
        (b"\xff{}", "the line is not UTF-8 text: invalid byte at position 0"),
        (b'{"thread":"a","thread":"b"}', "the line has the key thread twice"),
        (line(mood="good"), "mood: unknown key; known are thread, role, speaker, text, time, id, workspace"),
        (line(role="owner"), "role must be one of user, assistant, participant"),
        (line(role=None), "role must be one of"),
        (line(role=["user"]), "role must be one of"),
        (line(text=5), "text must be text, not a number"),
        (line(text=None), "text is missing"),
        (line(text=" \n\u3000"), "text is empty"),
        (line(text="x" * 1_000_001), "text has 1000001 characters; at most 1000000 are accepted"),
        (line(text="a\0b"), "text has a NUL character at position 1"),
        (
            b'{"thread":"a","role":"user","text":"\\ud800"}',
            "the line has half a surrogate pair in a string at $.text",
        ),
        (line(thread=""), "thread is empty"),
        (line(thread={"a": 1}), "thread must be text, not an object"),
        (line(id=7), "id must be text, not a number"),
        (line(speaker=" "), "speaker is empty"),
        (line(time="last week"), "time: expected ISO 8601"),
        (line(time=1709300000), "time must be text, not a number"),
        (line(workspace="w" * 600), "workspace has 600 characters"),
    ],
)
def test_a_bad_line_is_reported_with_its_number_and_stops_nothing(
    db: Database, bad: bytes, reason: str
) -> None:
    lines = line(text="before"), bad.rstrip(b"\n") + b"\n", line(text="之后")
    report, [problem] = load_reporting(db, *lines)
    assert (report.added, report.bad, report.is_clean) == (2, 1, False)
    assert problem.line == 2
    assert problem.reason.startswith(reason)
    assert sorted(texts(db)) == ["before", "之后"]


def test_a_line_that_never_ends_is_skipped_unread(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_LINE_BYTES", 1_000)
    monkeypatch.setattr(imports, "SKIP_BYTES", 64)
    exact = line(text="x" * (999 - len(line(text=""))) + "y")
    assert len(exact) == 1_000
    lines = line(text="x" * 5_000), exact, line(text="x" * 1_000).rstrip(b"\n")
    report, problems = load_reporting(db, *lines)
    assert (report.added, [problem.line for problem in problems]) == (1, [1, 3])


def test_marks_line_ends_and_empty_lines_of_other_systems_are_taken(db: Database) -> None:
    report = load(
        db, b"\xef\xbb\xbf", line(text="a").rstrip(b"\n"), b"\r\n", b"\r\n  \n", line(text="b").rstrip()
    )
    assert report == ImportReport(added=2)


def test_every_problem_is_told_in_order_after_its_batch(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "BATCH_RECORDS", 7)
    load(db, line(id="1", text="first"))
    report, problems = load_reporting(db, *[b"{\n"] * 25, line(id="1", text="changed"), *[b"{\n"] * 25)
    assert (report.bad, report.changed) == (50, 1)
    assert [problem.line for problem in problems] == list(range(1, 52))


def test_progress_is_told_in_bytes_and_ends_with_all(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "BATCH_RECORDS", 2)
    stream = b"".join(line(text=str(number)) for number in range(5))
    told: list[int] = []
    import_jsonl(db, io.BytesIO(stream), on_progress=told.append)
    assert told == [len(stream) * 2 // 5, len(stream) * 4 // 5, len(stream)]


def test_a_batch_ends_early_when_its_lines_are_long(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "BATCH_BYTES", 1_000)
    told: list[int] = []
    lines = [line(text=f"{number}" + "x" * 600) for number in range(4)]
    import_jsonl(db, io.BytesIO(b"".join(lines)), on_progress=told.append)
    assert len(told) == 3
    assert len(texts(db)) == 4


def test_a_killed_import_has_stored_whole_batches_and_the_next_one_completes_it(tmp_path: Path) -> None:
    path, file = tmp_path / "pikobot.sqlite3", tmp_path / "chat.jsonl"
    file.write_bytes(b"".join(line(id=str(number), text=f"第{number}句 note") for number in range(1_700)))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_IMPORT, str(path), str(file), "2"],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    db = open_database(path, StillClock())
    try:
        with db.read() as conn:
            assert conn.execute("SELECT count(*) FROM sources").fetchall() == [(1_000,)]
        with file.open("rb") as stream:
            assert import_jsonl(db, stream) == ImportReport(added=700, already_there=1_000)
        with db.read() as conn:
            hits = conn.execute(
                "SELECT count(*) FROM sources_text WHERE sources_text MATCH 'note'"
            ).fetchall()
            assert hits == [(1_700,)]
            assert conn.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        db.close()


def test_two_identical_records_a_day_apart_are_two(db: Database) -> None:
    report = load(db, line(time="2024-01-01T08:00:00Z"), line(time="2024-01-02T08:00:00Z"))
    assert report == ImportReport(added=2)
    with db.read() as conn:
        rows = conn.execute("SELECT max(said_at_ms) - min(said_at_ms) FROM sources").fetchall()
    assert rows == [(DAY_MS,)]
