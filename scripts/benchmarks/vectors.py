"""The exact vector scan against sqlite-vec, FAISS and qdrant's local mode, in the same run.

Synthetic vectors shaped like embeddings: a large common part, clusters, noise. Ours and sqlite-vec read a database
file in the page cache; ours keeps blocks of it in memory, FAISS and qdrant hold everything there. FAISS and
sqlite-vec use one thread, ours has a second one where a core is free. Every answer of every store is checked.
The stores take turns, and every query is asked once before it is measured. ``PIKOBOT_BENCH_MAX_VECTORS`` leaves
larger cases out.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw
import faiss
import numpy as np
import numpy.typing as npt
import sqlite_vec
from qdrant_client import QdrantClient, models

from pikobot.clock import SystemClock
from pikobot.store import schema
from pikobot.store.connection import PAGE_SIZE, Connection, Database
from pikobot.store.scopes import ScopeId
from pikobot.store.vectors.eligibility import EVERYTHING, Eligibility
from pikobot.store.vectors.kernel import choose_kernel
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.placing import put_vectors
from pikobot.store.vectors.profiles import Profile, SetId, create_set
from pikobot.store.vectors.rebuild import refresh_block
from pikobot.store.vectors.records import Float32s, NewVector
from pikobot.store.vectors.scan import scan
from scripts.benchmarks.patience import Patience, measure_patience
from scripts.benchmarks.report import Figure, Report

K = 20
QUERIES = 15
ROUNDS = 3
SLOW_QUERIES = 3  # of qdrant, which takes hundreds of milliseconds
BATCH = 5_000
QDRANT_UP_TO = 100_000
CASES = ((100_000, 384), (1_000_000, 384), (100_000, 1536))
TARGETS = {  # how many times faster than each peer
    (100_000, 384): {"sqlite-vec": 5.0, "FAISS": 1.25, "qdrant": 20.0},
    (1_000_000, 384): {"sqlite-vec": 8.0, "FAISS": 1.4},
    (100_000, 1536): {"sqlite-vec": 8.0, "FAISS": 1.7, "qdrant": 20.0},
}
# Which share of the vectors is in each scope: readers of 1 %, 10 % or all of them are compared.
SCOPE_SHARES = (0.01, 0.09, 0.90)

Search = Callable[[Float32s], list[int]]


@dataclass(frozen=True)
class Data:
    vectors: Float32s
    queries: Float32s


def run(_shared: Path) -> Report:
    most = int(os.environ.get("PIKOBOT_BENCH_MAX_VECTORS", "1000000"))
    cases = []
    for count, dimension in CASES:
        if count <= most:
            with tempfile.TemporaryDirectory() as scratch:
                cases.append(_case(Path(scratch), count, dimension))
    lines = [
        f"k = {K}, medians of {ROUNDS * QUERIES} queries, kernel {choose_kernel().__name__}, "
        f"{os.cpu_count()} cores.\n",
        "| n × dim | pikobot ms | vs sqlite-vec vec0 | vs FAISS IndexFlatIP | vs qdrant local |",
        "|---|---|---|---|---|",
        *(_row(case) for case in cases),
        "\n| n × dim | eligible | ms | of the scan of all |",
        "|---|---|---|---|",
        *(line for case in cases for line in case.selective),
        "\nWhile scans run on another thread of the process:\n",
        "| n × dim | the event loop is late by, median | at most | stops after, median | at most |",
        "|---|---|---|---|---|",
        *(f"| {case.count:,} × {case.dimension} | {case.patience} |" for case in cases),
    ]
    return Report("\n".join(lines), [figure for case in cases for figure in _figures(case)])


@dataclass(frozen=True)
class _Case:
    count: int
    dimension: int
    medians: dict[str, float]
    selective: list[str]
    patience: Patience


def _case(scratch: Path, count: int, dimension: int) -> _Case:
    data = synthetic(count, dimension)
    db = Database(scratch / "ours.sqlite3", SystemClock())
    try:
        schema.migrate(db)
        set_id = db.perform(_fill, data)
        db.perform(Database.truncate_wal)
        with db.read() as conn, closing(_vec0(scratch / "vec0.sqlite3", data)) as vec0:
            medians = _medians(_stores(conn, set_id, vec0, data), data)
            selective = _selectivity(conn, set_id, data)
        patience = measure_patience(db, set_id, data.queries)
    finally:
        db.close()
    return _Case(count, dimension, medians, selective, patience)


def synthetic(count: int, dimension: int) -> Data:
    generator = np.random.default_rng(7)
    common = generator.standard_normal(dimension, np.float32)
    clusters = 0.4 * generator.standard_normal((500, dimension), np.float32)

    def some(number: int) -> Float32s:
        made = common + clusters[generator.integers(0, len(clusters), number)]
        made += 0.4 * generator.standard_normal((number, dimension), np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        return made

    return Data(np.concatenate([some(min(BATCH, count - i)) for i in range(0, count, BATCH)]), some(QUERIES))


def _fill(db: Database, data: Data) -> SetId:
    count, dimension = data.vectors.shape
    ends = np.cumsum([int(share * count) for share in SCOPE_SHARES])
    scopes = np.searchsorted(ends, np.arange(count), side="right") + 1
    times = np.random.default_rng(8).permutation(count)
    with db.write("make the set") as tx:
        for scope_id in range(1, len(SCOPE_SHARES) + 1):
            tx.execute(
                "INSERT INTO scopes VALUES (?, 'private', 'main', 'b', 'c', ?)", (scope_id, str(scope_id))
            )
        profile = Profile(provider="bench", model="synthetic", dimension=dimension, prefix_rule="none")
        set_id = create_set(tx, profile, now_ms=0).id
    for begin in range(0, count, BATCH):
        with db.write("fill the set") as tx:
            put_vectors(
                tx,
                set_id,
                [
                    NewVector(
                        Owner(OwnerKind.SOURCE, i + 1),
                        ScopeId(int(scopes[i])),
                        int(times[i]),
                        data.vectors[i],
                    )
                    for i in range(begin, min(begin + BATCH, count))
                ],
            )
    while _refresh(db, set_id):  # what the worker does in its idle time
        pass
    return set_id


def _refresh(db: Database, set_id: SetId) -> bool:
    with db.write("refresh a block") as tx:
        return refresh_block(tx, set_id)


def _vec0(path: Path, data: Data) -> Connection:
    conn = apsw.Connection(str(path))
    conn.enable_load_extension(True)
    conn.load_extension(sqlite_vec.loadable_path())
    conn.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    conn.execute("PRAGMA mmap_size = 1099511627776")
    conn.execute(
        f"CREATE VIRTUAL TABLE peer USING vec0(unit float[{data.vectors.shape[1]}] distance_metric=cosine)"
    )
    with conn:
        rows = ((i + 1, unit.tobytes()) for i, unit in enumerate(data.vectors))
        conn.executemany("INSERT INTO peer (rowid, unit) VALUES (?, ?)", rows)
    return conn


def _stores(conn: Connection, set_id: SetId, vec0: Connection, data: Data) -> dict[str, Search]:
    faiss.omp_set_num_threads(1)
    flat = faiss.IndexFlatIP(data.vectors.shape[1])
    flat.add(data.vectors)

    def search_vec0(query: Float32s) -> list[int]:
        sql = "SELECT rowid FROM peer WHERE unit MATCH ? AND k = ? ORDER BY distance"
        return [row[0] for row in vec0.execute(sql, (query.tobytes(), K))]

    stores: dict[str, Search] = {
        "pikobot": lambda query: _ours(conn, set_id, query, EVERYTHING),
        "sqlite-vec": search_vec0,
        "FAISS": lambda query: [int(i) + 1 for i in flat.search(query[None, :], K)[1][0]],
    }
    if len(data.vectors) <= QDRANT_UP_TO:
        stores["qdrant"] = _qdrant(data)
    return stores


def _ours(conn: Connection, set_id: SetId, query: Float32s, eligibility: Eligibility) -> list[int]:
    hits = scan(conn, set_id, query, k=K, eligibility=eligibility)
    return [hit.owner.id for hit in hits or []]


def _qdrant(data: Data) -> Search:
    client = QdrantClient(":memory:")
    size = data.vectors.shape[1]
    parameters = models.VectorParams(size=size, distance=models.Distance.COSINE)
    client.create_collection("peer", vectors_config=parameters)
    for begin in range(0, len(data.vectors), BATCH):
        part = data.vectors[begin : begin + BATCH]
        ids = list(range(begin + 1, begin + len(part) + 1))
        client.upsert("peer", models.Batch(ids=ids, vectors=part.tolist()))

    def search(query: Float32s) -> list[int]:
        return [int(point.id) for point in client.query_points("peer", query=query.tolist(), limit=K).points]

    return search


def _medians(stores: dict[str, Search], data: Data) -> dict[str, float]:
    """Median milliseconds of each store; the stores take turns, so that the machine's mood meets all alike."""
    elapsed: dict[str, list[float]] = {name: [] for name in stores}
    exact = [_exact_scores(data, query) for query in data.queries]  # before: its threads would disturb
    for is_measured in (False, *[True] * ROUNDS):
        for number, query in enumerate(data.queries):
            for name, search in stores.items():
                if name == "qdrant" and number >= SLOW_QUERIES:
                    continue
                started = time.perf_counter()
                found = search(query)
                if is_measured:
                    elapsed[name].append((time.perf_counter() - started) * 1000)
                else:
                    _check(name, found, exact[number])
    return {name: statistics.median(values) for name, values in elapsed.items()}


def _exact_scores(data: Data, query: Float32s) -> npt.NDArray[np.float64]:
    wide = query.astype(np.float64)
    parts = [
        data.vectors[begin : begin + BATCH].astype(np.float64) @ wide
        for begin in range(0, len(data.vectors), BATCH)
    ]
    return np.concatenate(parts)


def _check(name: str, found: list[int], exact: npt.NDArray[np.float64]) -> None:
    """Ours finds exactly the k best; float32 peers may swap what differs by less than their rounding."""
    best = np.argsort(-exact, kind="stable")[:K]
    if name == "pikobot":
        assert [i - 1 for i in found] == best.tolist(), "pikobot's answer is not exact"
    else:
        assert np.abs(exact[[i - 1 for i in found]] - exact[best]).max() < 1e-5, f"{name} is not exact"


def _row(case: _Case) -> str:
    ours = case.medians["pikobot"]
    cells = []
    for peer in ("sqlite-vec", "FAISS", "qdrant"):
        target = TARGETS[case.count, case.dimension].get(peer)
        wanted = f", wanted {target:g} ×" if target else ""
        theirs = case.medians.get(peer)
        cells.append("–" if theirs is None else f"{theirs / ours:.2f} × ({theirs:.1f} ms{wanted})")
    return f"| {case.count:,} × {case.dimension} | {ours:.2f} | {' | '.join(cells)} |"


def _figures(case: _Case) -> Iterator[Figure]:
    for peer, theirs in case.medians.items():
        if peer != "pikobot":
            yield Figure(
                what=f"{K} nearest of {case.count:,} × {case.dimension}",
                peer=peer,
                ours=case.medians["pikobot"],
                theirs=theirs,
                unit="ms",
                wanted=TARGETS[case.count, case.dimension].get(peer),
            )


def _selectivity(conn: Connection, set_id: SetId, data: Data) -> list[str]:
    count, dimension = data.vectors.shape
    cases = {
        "100 %": EVERYTHING,
        "10 % by scope": Eligibility(scope_ids=(1, 2)),
        "1 % by scope": Eligibility(scope_ids=(1,)),
        "10 % scattered in time": Eligibility(from_ms=0, to_ms=count // 10),
        "1 % scattered in time": Eligibility(from_ms=0, to_ms=count // 100),
    }
    elapsed: dict[str, list[float]] = {name: [] for name in cases}
    for query in data.queries:
        for name, eligibility in cases.items():
            started = time.perf_counter()
            _ours(conn, set_id, query, eligibility)
            elapsed[name].append((time.perf_counter() - started) * 1000)
    medians = {name: statistics.median(values) for name, values in elapsed.items()}
    return [
        f"| {count:,} × {dimension} | {name} | {median:.2f} | {median / medians['100 %']:.2f} |"
        for name, median in medians.items()
    ]
