"""`memory.search` by words and meaning in one instance of many messages, for readers of all, 10 % and 1 % of them.

The texts are made up from the shared conversations, the questions are theirs, the vectors synthetic. Each search is
measured from the parsed parameters to ten records, in turns with its scan alone, its words alone, and a peer that is
made of the same parts elsewhere: FTS5 (unicode61) and sqlite-vec's vec0 with the scope as partition key, a hundred of
each, fused by places, ten texts read. ``PIKOBOT_BENCH_SEARCHED`` changes the number of messages.
"""

import os
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median

import apsw
import sqlite_vec

from pikobot.clock import SystemClock
from pikobot.memory.embedding.contract import QueryVector
from pikobot.memory.search import RANKED_POOL, SearchParams, search
from pikobot.store.connection import PAGE_SIZE, Connection, Database
from pikobot.store.prepare import open_database
from pikobot.store.scopes import Scope, ScopeId, ensure_scope
from pikobot.store.similarity import SPARE
from pikobot.store.sources import NewSource, insert_source
from pikobot.store.threads import ThreadId, ensure_thread
from pikobot.store.vectors.eligibility import Eligibility
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import Profile, SetId, active_set, create_set
from pikobot.store.vectors.rebuild import refresh_block
from pikobot.store.vectors.records import Float32s, NewVector
from pikobot.store.vectors.scan import scan
from scripts.benchmarks.made_up import made_up_texts
from scripts.benchmarks.report import Figure, Report
from scripts.benchmarks.shared_data import FOLDERS, load_conversations
from scripts.benchmarks.vectors import Data, synthetic

MESSAGES = 100_000
DIMENSION = 384
SHARES = (0.01, 0.09, 0.90)
THREADS = 100
TURN = 20  # messages of a thread in a row
BATCH = 2_000
QUESTIONS = 40
ROUNDS = 3
POOL = 100
RESULTS = 10
RANK_OFFSET = 10
FIRST_MS = 1_600_000_000_000
PROFILE = Profile(provider="bench", model="synthetic", dimension=DIMENSION, prefix_rule="none")
WANTED_OF_SCAN = 1.5
WANTED_FASTER = 5.0

SEARCH, SCAN, WORDS, PEER = "search", "its scan alone", "its words alone", "FTS5 + vec0"


@dataclass(frozen=True)
class _Reader:
    """Who reads: the share of the messages, and the scopes."""

    name: str
    scope_ids: tuple[ScopeId, ...]


def run(data: Path) -> Report:
    if not all((data / folder / "questions.jsonl").is_file() for folder in FOLDERS):
        return Report(f"search: skipped, {data} does not hold {' and '.join(FOLDERS)}")
    count = int(os.environ.get("PIKOBOT_BENCH_SEARCHED", MESSAGES))
    chance = random.Random(7)
    texts = list(islice(made_up_texts(data, chance), count))
    asked = [
        question.text
        for folder in FOLDERS
        for conversation in load_conversations(data, folder)
        for question in conversation.questions
    ]
    vectors = synthetic(count, DIMENSION)
    with tempfile.TemporaryDirectory() as directory:
        db = open_database(Path(directory, "ours.sqlite3"), SystemClock())
        try:
            scope_ids = _fill(db, texts, vectors)
            with closing(_Peer(Path(directory, "peer.sqlite3"), texts, vectors, scope_ids)) as peer:
                measured = _measure(db, peer, chance.sample(asked, QUESTIONS), vectors, scope_ids)
        finally:
            db.close()
    return _report(count, measured)


def _scope_of(at: int, count: int) -> int:
    """The number of the scope of a message: the shares follow one another."""
    return 0 if at < SHARES[0] * count else 1 if at < (SHARES[0] + SHARES[1]) * count else 2


def _fill(db: Database, texts: Sequence[str], vectors: Data) -> list[ScopeId]:
    scope_ids, threads, set_id = db.perform(_make_scopes)

    def add(db: Database, begin: int) -> None:
        new = []
        with db.write("fill") as tx:
            for at in range(begin, min(begin + BATCH, len(texts))):
                of = _scope_of(at, len(texts))
                at_ms = FIRST_MS + at * 60_000
                source = NewSource(
                    role="user",
                    speaker="owner",
                    scope_id=scope_ids[of],
                    thread_id=threads[of][at // TURN % THREADS],
                    text=texts[at],
                    origin="said",
                    said_at_ms=at_ms,
                )
                owner = Owner(OwnerKind.SOURCE, insert_source(tx, source, db.clock))
                new.append(NewVector(owner, scope_ids[of], at_ms, vectors.vectors[at]))
            put_vectors(tx, set_id, new)

    def refresh(db: Database) -> bool:
        with db.write("refresh a block") as tx:
            return refresh_block(tx, set_id)

    for begin in range(0, len(texts), BATCH):
        db.perform(add, begin)
    while db.perform(refresh):
        pass
    db.perform(_mark_as_embedded, set_id)
    db.perform(Database.truncate_wal)
    return scope_ids


def _make_scopes(db: Database) -> tuple[list[ScopeId], list[list[ThreadId]], SetId]:
    with db.write("make scopes") as tx:
        scope_ids = [
            ensure_scope(tx, Scope("shared", "main", "bot", str(number), "1")) for number in range(3)
        ]
        threads = [
            [ensure_thread(tx, scope_id, f"t{number}", db.clock).id for number in range(THREADS)]
            for scope_id in scope_ids
        ]
        return scope_ids, threads, create_set(tx, PROFILE, now_ms=0).id


def _mark_as_embedded(db: Database, set_id: SetId) -> None:
    with db.write("mark") as tx:
        tx.execute(
            """
            INSERT INTO embedding_marks (set_id, owner_kind, up_to_id) SELECT ?, 'source', max(id) FROM sources
            """,
            (set_id,),
        )


Measured = dict[tuple[str, str], list[float]]


def _measure(
    db: Database, peer: "_Peer", questions: Sequence[str], vectors: Data, scope_ids: list[ScopeId]
) -> Measured:
    """Milliseconds of each reader and side."""
    readers = [
        _Reader("100 %", tuple(scope_ids)),
        _Reader("10 %", tuple(scope_ids[:2])),
        _Reader("1 %", tuple(scope_ids[:1])),
    ]
    elapsed: Measured = defaultdict(list)
    for is_measured in (False, *[True] * ROUNDS):
        for number, question in enumerate(questions):
            vector = vectors.queries[number % len(vectors.queries)]
            for reader in readers:
                with db.read() as conn:
                    for side, ask in _sides(conn, peer, question, vector, reader):
                        started = time.perf_counter()
                        ask()
                        if is_measured:
                            elapsed[reader.name, side].append((time.perf_counter() - started) * 1000)
    return elapsed


def _sides(
    conn: Connection, peer: "_Peer", question: str, vector: Float32s, reader: _Reader
) -> Iterator[tuple[str, Callable[[], object]]]:
    params = SearchParams(query=question, limit=RESULTS)
    now_ms = SystemClock().now_ms()
    serving = active_set(conn)
    assert serving is not None

    def searched(query_vector: QueryVector | None) -> None:
        page = search(conn, params, allowed_scopes=reader.scope_ids, now_ms=now_ms, query_vector=query_vector)
        assert page.degraded is None

    eligibility = Eligibility(scope_ids=reader.scope_ids, kinds=[OwnerKind.SOURCE])
    yield SEARCH, lambda: searched(QueryVector(PROFILE, vector))
    yield SCAN, lambda: scan(conn, serving.id, vector, k=RANKED_POOL + SPARE, eligibility=eligibility)
    yield WORDS, lambda: searched(None)
    if len(reader.scope_ids) != 2:  # vec0 takes one partition or all
        yield PEER, lambda: peer.search(question, vector, reader.scope_ids)


class _Peer:
    """The same messages and vectors in an FTS5 table and a vec0 table."""

    def __init__(self, path: Path, texts: Sequence[str], vectors: Data, scope_ids: list[ScopeId]) -> None:
        self._conn = apsw.Connection(str(path))
        self._conn.enable_load_extension(True)
        self._conn.load_extension(sqlite_vec.loadable_path())
        for statement in (
            f"PRAGMA page_size = {PAGE_SIZE}",
            "PRAGMA mmap_size = 1099511627776",
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, scope_id INTEGER, text TEXT)",
            "CREATE VIRTUAL TABLE texts USING fts5 (text, content = 'messages', content_rowid = 'id')",
            f"CREATE VIRTUAL TABLE units USING vec0(scope_id integer partition key, "
            f"unit float[{DIMENSION}] distance_metric=cosine)",
        ):
            self._conn.execute(statement).fetchall()
        with self._conn:
            for at, (text, unit) in enumerate(zip(texts, vectors.vectors, strict=True)):
                scope_id = scope_ids[_scope_of(at, len(texts))]
                self._conn.execute("INSERT INTO messages VALUES (?, ?, ?)", (at + 1, scope_id, text))
                self._conn.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (at + 1, text))
                self._conn.execute(
                    "INSERT INTO units (rowid, scope_id, unit) VALUES (?, ?, ?)",
                    (at + 1, scope_id, unit.tobytes()),
                )

    def search(self, question: str, vector: Float32s, scope_ids: Sequence[ScopeId]) -> list[str]:
        scope_id = scope_ids[0] if len(scope_ids) == 1 else None
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        by_words = self._conn.execute(
            """
            SELECT texts.rowid FROM texts CROSS JOIN messages AS m ON m.id = texts.rowid
            WHERE texts MATCH ? AND (?2 IS NULL OR m.scope_id = ?2) ORDER BY bm25(texts) LIMIT ?3
            """
            if scope_id is not None
            else "SELECT rowid FROM texts WHERE texts MATCH ?1 AND ?2 IS NULL ORDER BY bm25(texts) LIMIT ?3",
            (words, scope_id, POOL),
        ).fetchall()
        in_scope = "" if scope_id is None else "AND scope_id = ?3"
        by_meaning = self._conn.execute(
            f"SELECT rowid FROM units WHERE unit MATCH ?1 AND k = ?2 {in_scope} ORDER BY distance",
            (vector.tobytes(), POOL) if scope_id is None else (vector.tobytes(), POOL, scope_id),
        ).fetchall()
        scores: dict[int, float] = defaultdict(float)
        for ranking in (by_words, by_meaning):
            for place, (row_id,) in enumerate(ranking):
                scores[int(str(row_id))] += 1 / (RANK_OFFSET + place)
        best = sorted(scores, key=lambda row_id: -scores[row_id])[:RESULTS]
        return [
            str(self._conn.execute("SELECT text FROM messages WHERE id = ?", (row_id,)).fetchall()[0][0])
            for row_id in best
        ]

    def close(self) -> None:
        self._conn.close()


def _report(count: int, measured: Measured) -> Report:
    ms = {key: median(values) for key, values in measured.items()}
    readers = list(dict.fromkeys(reader for reader, _ in ms))
    lines = [
        f"{count:,} messages with vectors of {DIMENSION} dimensions; medians of {ROUNDS * QUESTIONS} questions, ms.",
        "",
        f"| may read | {SEARCH} | {SCAN} | {WORDS} | {PEER} |",
        "|---|---:|---:|---:|---:|",
    ]
    for reader in readers:
        cells = [
            f"{ms[reader, side]:.2f}" if (reader, side) in ms else "–" for side in (SEARCH, SCAN, WORDS, PEER)
        ]
        lines.append(f"| {reader} | {' | '.join(cells)} |")
    of_scan = ms["100 %", SEARCH] / ms["100 %", SCAN]
    faster = ms["100 %", SEARCH] / ms["1 %", SEARCH]
    lines += [
        "",
        f"Search of all takes {of_scan:.2f} × its scan, wanted at most {WANTED_OF_SCAN:g}; "
        f"of 1 % it is {faster:.2f} × faster, wanted {WANTED_FASTER:g}.",
    ]
    figures = [
        Figure(
            what=f"search of {reader} of {count:,} messages",
            peer=PEER,
            ours=ms[reader, SEARCH],
            theirs=ms[reader, PEER],
            unit="ms",
        )
        for reader in readers
        if (reader, PEER) in ms
    ]
    return Report("\n".join(lines), figures)
