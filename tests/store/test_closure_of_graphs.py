"""Forgetting in webs of thousands of sources leaves exactly what a walk in plain Python leaves."""

import random

import pytest

from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.closure import Removed, closure_of, dependants_of, remove
from pikobot.store.fact_index import check_fact_index
from pikobot.store.inspection import inspect
from pikobot.store.sources import SourceId
from pikobot.store.text.index import check_text_index
from tests.clock import NOW_MS
from tests.store.graphs import Graph, build
from tests.store.rows import read, rows, write


def stored(db: Database) -> dict[str, object]:
    """What is there, in the terms of the graph."""
    return {
        "nodes": {row[0] for row in rows(db, "SELECT id FROM sources")},
        "edges": set(rows(db, "SELECT source_id, depends_on_id FROM source_dependencies")),
        "statements": dict(rows(db, "SELECT id, superseded_by_id FROM facts")),
        "rests on": set(
            rows(
                db,
                "SELECT fact_id, source_id FROM fact_evidence UNION SELECT fact_id, source_id FROM fact_context",
            )
        ),
        "tags": {row[0] for row in rows(db, "SELECT fact_id FROM fact_tags")},
        "names": {row[0] for row in rows(db, "SELECT name FROM entities")},
        "runs": dict(rows(db, "SELECT id, thread_id FROM runs")),
        "waiting runs": {row[0] for row in rows(db, "SELECT id FROM runs WHERE state = 'queued'")},
    }


def expected(graph: Graph) -> dict[str, object]:
    return {
        "nodes": set(graph.nodes),
        "edges": {(number, other) for number, node in graph.nodes.items() for other in node.depends_on},
        "statements": {number: each.successor for number, each in graph.statements.items()},
        "rests on": {(number, other) for number, each in graph.statements.items() for other in each.rests_on},
        "tags": set(graph.statements),
        "names": graph.names,
        "runs": graph.runs,
        "waiting runs": graph.waiting_runs,
    }


def forget_and_compare(db: Database, graph: Graph, seeds: set[int]) -> int:
    """Forget in both; returns how many sources went."""
    gone = graph.closure(seeds)
    emptied = graph.forget(gone)

    def forget(tx: Connection) -> Removed:
        closed = closure_of(tx, [SourceId(seed) for seed in seeds])
        assert closed == sorted(gone)
        return remove(tx, closed, now_ms=NOW_MS)

    removed = write(db, forget)
    assert (len(removed.tombstones), removed.rows["threads"]) == (len(gone), len(emptied))
    assert stored(db) == expected(graph)
    return len(gone)


def play(db: Database, seed: int, *, count: int, steps: int) -> None:
    chance = random.Random(seed)
    graph = write(db, build, db.clock, chance, count)
    assert stored(db) == expected(graph)
    for _ in range(20):
        number = chance.choice([each for each, node in graph.nodes.items() if not node.depends_on])
        with db.read() as conn:
            assert dependants_of(conn, SourceId(number)) == sorted(graph.dependants(number))
    sizes = []
    for _ in range(steps):
        there = list(graph.nodes)
        seeds = set(chance.sample(there, min(chance.choice((1, 1, 2, 5, len(there) // 20)), len(there))))
        sizes.append(forget_and_compare(db, graph, seeds))
    assert max(sizes) > 1
    assert read(db, inspect) == []
    assert write(db, check_text_index) == write(db, check_fact_index) == []
    forget_and_compare(db, graph, set(graph.nodes))
    assert stored(db)["nodes"] == set()
    assert rows(db, "SELECT count(*) FROM facts") == rows(db, "SELECT count(*) FROM entities") == [(0,)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_web_of_hundreds_of_sources_is_taken_apart_as_the_walk_takes_it(db: Database, seed: int) -> None:
    play(db, seed, count=400, steps=12)


@pytest.mark.stress
@pytest.mark.parametrize("seed", [3, 4])
def test_a_web_of_ten_thousand_sources_is_taken_apart_as_the_walk_takes_it(db: Database, seed: int) -> None:
    play(db, seed, count=10_000, steps=60)
