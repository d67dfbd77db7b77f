"""How long forgetting takes beside remembering: one source and a thousand of a hundred thousand, proof included.

The texts are sentences of the shared conversations, English and Chinese, put together anew with words exchanged, so
that each says something that no other says. Every fifth source has a vector, every twentieth a fact that quotes it.
Remembering is: insert a source, commit, truncate the WAL. The peer is a plain table with FTS5 (unicode61), both with
secure delete: INSERT and DELETE, commit, truncate the WAL; it looks for nothing afterwards. What an idle instance does
in the background is done before: the text index is merged, the peer's too, and the database looked at. Both sides take
turns in this process, on files of their own, and the medians count. ``PIKOBOT_BENCH_SOURCES`` changes the number of
sources.
"""

import io
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import apsw
import numpy as np

from pikobot.clock import SystemClock
from pikobot.memory.forgetting import forget as forgetting
from pikobot.memory.forgetting import ledger, proof
from pikobot.memory.forgetting.forget import forget, prepare
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.memory.imports import import_jsonl
from pikobot.memory.opening import open_memory
from pikobot.store.connection import PAGE_SIZE, Connection, Database
from pikobot.store.facts import NewFact, Quote, store_fact
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import NewSource, SourceId, insert_source
from pikobot.store.text.merging import merge_step
from pikobot.store.threads import ensure_thread
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import Profile, create_set
from pikobot.store.vectors.records import NewVector
from scripts.benchmarks.made_up import made_up_texts
from scripts.benchmarks.report import Figure, Report
from scripts.benchmarks.shared_data import FOLDERS

SOURCES = 100_000
THREADS = 400
BATCH = 1_000
VECTOR_EVERY = 5
FACT_EVERY = 20
DIMENSION = 384
ROUNDS = 25
MANY = 1_000
MANY_ROUNDS = 3
WANTED_RATIO = 2.0
WANTED_MANY_S = 5.0

# What the parts of forgetting are called here, and the functions that do them. Meanwhile: while the WAL is truncated,
# which the time of that includes.
_PARTS: dict[str, tuple[Any, str]] = {
    "commit": (forgetting, "_erase"),
    "append to the ledger": (ledger, "append_missing"),
    "wait for the ledger, meanwhile": (ledger, "sync"),
    "truncate the WAL and look at the pages": (proof, "settle_and_find_remains"),
    "choose what to look for, meanwhile": (proof, "needles_of"),
    "overwrite": (proof, "overwrite_remains"),
    "look through the files": (proof, "scan"),
    "note that it is done, after the receipt": (forgetting, "_finish"),
}


def run(data: Path) -> Report:
    """The Markdown tables over the texts in the directory of shared conversations."""
    if not all((data / folder / "questions.jsonl").is_file() for folder in FOLDERS):
        return Report(f"forget: skipped, {data} does not hold {' and '.join(FOLDERS)}")
    count = int(os.environ.get("PIKOBOT_BENCH_SOURCES", SOURCES))
    texts = list(islice(made_up_texts(data, random.Random(7)), count + 2 * ROUNDS))
    with tempfile.TemporaryDirectory() as directory, _opened(Path(directory, "ours"), texts[:count]) as ours:
        peer = _Peer(Path(directory, "peer.sqlite3"), texts[:count])
        try:
            return _tables(ours, peer, texts[count:])
        finally:
            peer.close()


@dataclass
class _Times:
    """Milliseconds of every round, by what was done."""

    elapsed: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.elapsed.setdefault(what, []).append((time.perf_counter() - started) * 1000)

    def ms(self, what: str) -> float:
        return median(self.elapsed[what])

    def worst(self, what: str) -> float:
        return max(self.elapsed[what])


def _tables(ours: "_Ours", peer: "_Peer", new_texts: Sequence[str]) -> Report:
    chance = random.Random(8)
    chosen = chance.sample(range(1, ours.count + 1), ROUNDS + MANY * MANY_ROUNDS)
    times = _Times()
    rewritten = 0
    with _timed_parts(times):
        for number, text in enumerate(new_texts[:ROUNDS]):
            with times.of("remember one"):
                ours.remember(text)
            with times.of("peer: insert one"):
                peer.insert(text)
            with times.of("forget one"):
                rewritten += ours.forget([chosen[number]]).is_rewritten
            ours.wait()
            with times.of("peer: delete one"):
                peer.delete([chosen[number]])
    many = _Times()
    scanned = 0
    for begin in range(ROUNDS, len(chosen), MANY):
        with many.of("forget"), _timed_parts(many):
            receipt = ours.forget(chosen[begin : begin + MANY])
        rewritten += receipt.is_rewritten
        scanned = receipt.scan.bytes
        ours.wait()
        with many.of("peer"):
            peer.delete(chosen[begin : begin + MANY])
    figures = [
        Figure(
            what="forget one, proof included",
            peer="DELETE",
            ours=times.ms("forget one"),
            theirs=times.ms("peer: delete one"),
            unit="ms",
        ),
        Figure(
            what="forget one, proof included",
            peer="remember one",
            ours=times.ms("forget one"),
            theirs=times.ms("remember one"),
            unit="ms",
            wanted=1 / WANTED_RATIO,
        ),
        Figure(
            what=f"forget {MANY:,}, proof included",
            peer="DELETE",
            ours=many.ms("forget"),
            theirs=many.ms("peer"),
            unit="ms",
        ),
    ]
    return Report(_markdown(times, many, scanned, rewritten), figures)


def _markdown(times: _Times, many: _Times, scanned: int, rewritten: int) -> str:
    ratio = times.ms("forget one") / times.ms("remember one")
    lines = [
        f"{scanned / 1e6:.0f} MB are looked through; the database was rewritten {rewritten} times.",
        "",
        "| one source | median ms | worst ms |",
        "|---|---:|---:|",
        *(f"| {what} | {times.ms(what):.1f} | {times.worst(what):.1f} |" for what in times.elapsed),
        "",
        f"Forgetting takes {ratio:.2f} × as long as remembering, wanted {WANTED_RATIO:g}.",
        "",
        f"| {MANY:,} sources | median ms | worst ms |",
        "|---|---:|---:|",
        *(f"| {what} | {many.ms(what):.0f} | {many.worst(what):.0f} |" for what in many.elapsed),
        "",
        f"At most {WANTED_MANY_S:g} s: {'yes' if many.worst('forget') <= WANTED_MANY_S * 1000 else 'no'}.",
    ]
    return "\n".join(lines)


@contextmanager
def _timed_parts(times: _Times) -> Iterator[None]:
    real = {part: getattr(module, name) for part, (module, name) in _PARTS.items()}
    for part, (module, name) in _PARTS.items():
        setattr(module, name, _timed(times, part, real[part]))
    try:
        yield
    finally:
        for part, (module, name) in _PARTS.items():
            setattr(module, name, real[part])


def _timed(times: _Times, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with times.of(part):
            return function(*args, **kwargs)

    return call


class _Ours:
    """An instance with the texts in it."""

    def __init__(self, db: Database, count: int) -> None:
        self.db = db
        self.count = count

    def remember(self, text: str) -> None:
        self.db.perform(_insert, text)
        self.db.perform(Database.truncate_wal)

    def forget(self, ids: Sequence[int]) -> Receipt:
        with self.db.read() as conn:
            rows = conn.execute(
                "SELECT public_id FROM sources WHERE id IN (SELECT value FROM json_each(?))",
                (json.dumps(ids),),
            )
            names = [str(row[0]) for row in rows]
        receipt = forget(self.db, _ledger(self.db), names)
        assert isinstance(receipt, Receipt)
        assert receipt.is_clean
        return receipt

    def wait(self) -> None:
        """Until the note that the last erasure is finished has been written, for which nobody waits else."""
        self.db.perform(lambda _: None)


@contextmanager
def _opened(root: Path, texts: Sequence[str]) -> Iterator[_Ours]:
    root.mkdir()
    path = root / "pikobot.sqlite3"
    db = open_memory(path, root / "erasures.jsonl", SystemClock())
    try:
        _fill(db, texts)
        yield _Ours(db, len(texts))
    finally:
        db.close()


def _ledger(db: Database) -> Path:
    return db.path.with_name("erasures.jsonl")


def _fill(db: Database, texts: Sequence[str]) -> None:
    lines = (
        json.dumps({"thread": f"t{at % THREADS}", "id": f"r{at}", "role": "user", "text": text})
        for at, text in enumerate(texts)
    )
    import_jsonl(db, io.BytesIO("\n".join(lines).encode()))
    for begin in range(1, len(texts) + 1, BATCH):
        db.perform(_add_facts, range(begin, min(begin + BATCH, len(texts) + 1)))
        db.perform(_add_vectors, range(begin, min(begin + BATCH, len(texts) + 1)))
    while db.perform(merge_step):
        pass
    prepare(db)


def _insert(db: Database, text: str) -> None:
    with db.write("remember") as tx:
        scope_id = ensure_scope(tx, owner_scope())
        new = NewSource(
            role="user",
            speaker="owner",
            scope_id=scope_id,
            thread_id=ensure_thread(tx, scope_id, "t0", db.clock).id,
            text=text,
            origin="said",
            said_at_ms=db.clock.now_ms(),
        )
        insert_source(tx, new, db.clock)


def _add_facts(db: Database, ids: Sequence[int]) -> None:
    with db.write("add facts") as tx:
        scope_id = ensure_scope(tx, owner_scope())
        for source_id in ids:
            if source_id % FACT_EVERY:
                continue
            [(text,)] = tx.execute("SELECT text FROM sources WHERE id = ?", (source_id,)).fetchall()
            quote = str(text)[:40]
            fact = NewFact(
                scope_id=scope_id,
                text=f"The owner said: {quote}",
                evidence=(Quote(SourceId(source_id), 0, len(quote.encode())),),
                kind="fact",
                basis="inferred",
                entities=(quote[:5],),
                tags=("said",),
            )
            store_fact(tx, fact, db.clock)


def _add_vectors(db: Database, ids: Sequence[int]) -> None:
    generator = np.random.default_rng(ids[0])
    with db.write("add vectors") as tx:
        scope_id = ensure_scope(tx, owner_scope())
        profile = Profile(provider="bench", model="random", dimension=DIMENSION, prefix_rule="none")
        new = [
            NewVector(
                Owner(OwnerKind.SOURCE, source_id), scope_id, source_id, generator.standard_normal(DIMENSION)
            )
            for source_id in ids
            if source_id % VECTOR_EVERY == 0
        ]
        put_vectors(tx, create_set(tx, profile, now_ms=0).id, new)


class _Peer:
    """One table and one FTS5 table."""

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        self._conn: Connection = apsw.Connection(str(path))
        for statement in (
            f"PRAGMA page_size = {PAGE_SIZE}",
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "PRAGMA secure_delete = ON",
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, text TEXT)",
            "CREATE VIRTUAL TABLE messages_text USING fts5 (text, content = 'messages', content_rowid = 'id')",
            "INSERT INTO messages_text (messages_text, rank) VALUES ('secure-delete', 1)",
        ):
            self._conn.execute(statement).fetchall()
        for begin in range(0, len(texts), BATCH):
            with self._conn:
                for text in texts[begin : begin + BATCH]:
                    self._add(text)
        self._conn.execute("INSERT INTO messages_text (messages_text) VALUES ('optimize')")
        self._truncate_wal()

    def insert(self, text: str) -> None:
        with self._conn:
            self._add(text)
        self._truncate_wal()

    def delete(self, ids: Sequence[int]) -> None:
        with self._conn:
            for row_id in ids:
                self._conn.execute(
                    """
                    INSERT INTO messages_text (messages_text, rowid, text)
                    SELECT 'delete', id, text FROM messages WHERE id = ?
                    """,
                    (row_id,),
                )
                self._conn.execute("DELETE FROM messages WHERE id = ?", (row_id,))
        self._truncate_wal()

    def close(self) -> None:
        self._conn.close()

    def _add(self, text: str) -> None:
        self._conn.execute("INSERT INTO messages (text) VALUES (?)", (text,))
        self._conn.execute(
            "INSERT INTO messages_text (rowid, text) VALUES (?, ?)", (self._conn.last_insert_rowid(), text)
        )

    def _truncate_wal(self) -> None:
        self._conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
