"""How fast conversations go in, and how flat memory stays: `pikobot import` beside plain SQLite.

The peer does the least that a searchable store can do: `executemany` of the parsed lines into one table and one
FTS5 table (unicode61, so a run of Chinese is a single word), 500 rows a transaction, synchronous=FULL. It checks
nothing, keeps no identities, hashes or threads, and can't find a Chinese word. Each side runs in a process of its
own, in turns, and its best of three runs counts.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import apsw

from scripts.benchmarks.report import Figure, Report

ROUNDS = 3
BATCH = 500
WANTED_PER_S = 3_000
FILES = ("leimingxuan.jsonl", "lumingqiang.jsonl")
REPOSITORY = Path(__file__).resolve().parents[2]


def run(data: Path) -> Report:
    """The Markdown table for the LifeBench records in the directory of shared conversations."""
    files = [data / "lifebench-zh" / name for name in FILES]
    missing = [file for file in files if not file.is_file()]
    if missing:
        return Report(f"import: skipped, {missing[0]} is missing")
    measured: dict[str, list[dict[str, float]]] = {"pikobot": [], "peer": []}
    for _ in range(ROUNDS):
        for side, results in measured.items():
            results.append(_in_child(side, files))
    best = {side: max(results, key=lambda r: r["per_s"]) for side, results in measured.items()}
    ours, peer = best["pikobot"], best["peer"]
    ratio = ours["per_s"] / peer["per_s"]
    verdict = "yes" if ours["per_s"] >= WANTED_PER_S else "no"
    lines = [
        "| import | records | records/s | peak RSS growth |",
        "|---|---:|---:|---:|",
        f"| pikobot, text index and identities | {ours['records']:.0f} | {ours['per_s']:.0f} | {ours['mb']:.1f} MB |",
        f"| plain table + FTS5 unicode61 | {peer['records']:.0f} | {peer['per_s']:.0f} | {peer['mb']:.1f} MB |",
        f"| ratio (pikobot / plain) |  | {ratio:.2f} |  |",
        "",
        f"At least {WANTED_PER_S} records/s: {verdict}.",
    ]
    rate = Figure(
        what="records imported",
        peer="plain table + FTS5",
        ours=ours["per_s"],
        theirs=peer["per_s"],
        unit="records/s",
        is_less_better=False,
    )
    return Report("\n".join(lines), [rate])


def _in_child(side: str, files: list[Path]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks.import_", side, *map(str, files)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _measure(side: str, files: list[Path]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "bench.sqlite3"
        load = _Pikobot(path) if side == "pikobot" else _Peer(path)
        before = _peak_rss_mb()
        start = time.perf_counter()
        records = 0
        for file in files:
            with file.open("rb") as stream:
                records += load(stream)
        elapsed = time.perf_counter() - start
        load.close()
        return {"records": records, "per_s": records / elapsed, "mb": _peak_rss_mb() - before}


class _Pikobot:
    def __init__(self, path: Path) -> None:
        sys.path.insert(0, str(REPOSITORY))
        from pikobot.clock import SystemClock
        from pikobot.memory.imports import import_jsonl
        from pikobot.store.prepare import open_database

        self._import = import_jsonl
        self._db = open_database(path, SystemClock())

    def __call__(self, stream: BinaryIO) -> int:
        report = self._import(self._db, stream)
        return report.added + report.already_there

    def close(self) -> None:
        self._db.close()


class _Peer:
    def __init__(self, path: Path) -> None:
        self._conn = apsw.Connection(str(path))
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, thread, external_id, role, speaker, text, time)",
            "CREATE VIRTUAL TABLE messages_text USING fts5 (text, content = 'messages', content_rowid = 'id')",
        ):
            self._conn.execute(statement)
        self._next_id = 1

    def __call__(self, stream: BinaryIO) -> int:
        before = self._next_id
        records = map(json.loads, stream)
        for batch in _batches(records):
            rows = [
                (number, r["thread"], r["id"], r["role"], r["speaker"], r["text"], r["time"])
                for number, r in enumerate(batch, self._next_id)
            ]
            self._next_id += len(rows)
            with self._conn:
                self._conn.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                self._conn.executemany(
                    "INSERT INTO messages_text (rowid, text) VALUES (?, ?)",
                    [(row[0], row[5]) for row in rows],
                )
        return self._next_id - before

    def close(self) -> None:
        self._conn.close()


def _batches(records: Iterator[Any]) -> Iterator[list[Any]]:
    while batch := list(islice(records, BATCH)):
        yield batch


def _peak_rss_mb() -> float:
    """Kilobytes on Linux, bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(sys.argv[1], [Path(name) for name in sys.argv[2:]])))
