"""What goes with a source: everything that was made from it, and everything that is being made from it now.

`rules` says for each column of each table what forgetting does to it.

    source ──▶ sources that depend on it, transitively      removed, a tombstone each
           ──▶ everything else of the run that it asks for  removed, a tombstone each
           ──▶ text index, media, dependencies, citations   removed with their source
           ──▶ runs that it asks for, unfinished            cancelled, 'forgotten'
           ──▶ runs that have read it, under way            lose their lease and are queued again without it
           ──▶ transcripts of both kinds of runs            removed, with what they have proposed to forget
           ──▶ which facts such runs and answers have read      removed
           ──▶ facts that quote it or need it as context        removed with tags, index rows, unused entities
           ──▶ facts that such a fact has replaced              stand again, or follow its own successor
           ──▶ vectors of such sources and facts, in every set      removed, their slots overwritten
           ──▶ batches of texts to be embedded                  go on without it
           ──▶ extraction jobs over it                          lose their lease; cancelled without other sources
           ──▶ threads without any source left              removed with their content-free runs; a tombstone
                                                                for those that were to be forgotten as a whole
           ──▶ attempts                                     stay: amounts only

A source whose text changes stays (`dependants_of`, `detach`): what was made from the old text goes the same way.

Everything is found through indexes, and no statement runs for an empty list of runs, facts or threads. Nothing here
begins or commits; removing twice removes nothing more.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pikobot.store.connection import Connection
from pikobot.store.embedding_jobs import leave_batches
from pikobot.store.erasing.erasures import Erasure, Tombstone
from pikobot.store.erasing.rules import RULES, Rule
from pikobot.store.extraction_jobs import cancel_emptied_jobs, fence_jobs
from pikobot.store.facts import FactId, delete_facts, facts_resting_on
from pikobot.store.sources import SourceId, delete_sources
from pikobot.store.threads import ThreadId, find_thread_by_public_id
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.removal import forget_owners

NONE = "[]"
MIN_NAME_CHARS = 3  # a shorter name of a speaker, file or thread tells nothing

CLOSURE_SQL = """
    WITH RECURSIVE gone (id) AS (
        SELECT value FROM json_each(:ids)
        UNION
        SELECT d.source_id FROM gone CROSS JOIN source_dependencies AS d ON d.depends_on_id = gone.id
        UNION
        SELECT other.id FROM gone
        CROSS JOIN sources AS request ON request.id = gone.id
        CROSS JOIN sources AS other ON other.run_id = request.run_id
        WHERE request.role = 'user' AND request.kind = 'message'
    )
    SELECT s.id FROM gone CROSS JOIN sources AS s ON s.id = gone.id ORDER BY s.id
"""


_NAMES_IN_FACTS = """
    WITH gone (id) AS (SELECT value FROM json_each(?))
    SELECT subject FROM facts WHERE id IN gone
    UNION SELECT attribute FROM facts WHERE id IN gone
    UNION SELECT value FROM facts WHERE id IN gone
    UNION SELECT tag FROM fact_tags WHERE fact_id IN gone
    UNION SELECT n.name FROM fact_entities AS fe JOIN entities AS n ON n.id = fe.entity_id WHERE fe.fact_id IN gone
    UNION SELECT n.folded FROM fact_entities AS fe JOIN entities AS n ON n.id = fe.entity_id WHERE fe.fact_id IN gone
    UNION SELECT folded FROM entity_aliases WHERE fact_id IN gone
"""


# Of many vectors a few tell whether they are overwritten.
_UNITS = """
    SELECT d.unit FROM json_each(?) AS gone
    CROSS JOIN vectors AS v ON v.owner_kind = '{kind}' AND v.owner_id = gone.value
    CROSS JOIN vector_values AS d ON d.vector_id = v.id LIMIT 32
"""


# Runs that lost what they had read, and have no answer to show for it.
_BEGIN_AGAIN = """
    SELECT id FROM runs
    WHERE id IN (SELECT value FROM json_each(:runs)) AND state IN ('queued', 'leased', 'cancelled')
"""


@dataclass(frozen=True)
class Removed:
    """What went: rows by table in the order of removal, what became of runs, and the marks to be left."""

    tombstones: tuple[Tombstone, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)
    runs_cancelled: int = 0
    runs_requeued: int = 0

    def plus(self, other: "Removed") -> "Removed":
        """What went in both, one after the other."""
        tables = {**self.rows, **other.rows}
        return Removed(
            (*self.tombstones, *other.tombstones),
            {table: self.rows.get(table, 0) + other.rows.get(table, 0) for table in tables},
            self.runs_cancelled + other.runs_cancelled,
            self.runs_requeued + other.runs_requeued,
        )


@dataclass(frozen=True)
class _Runs:
    asked: list[int]  # their request goes
    cited: list[int]  # they have read something that goes


def closure_of(conn: Connection, source_ids: Iterable[SourceId]) -> list[SourceId]:
    """The sources themselves and all that must go with them, those that exist, in order of their ids."""
    rows = conn.execute(CLOSURE_SQL, {"ids": _json(source_ids)})
    return [SourceId(row[0]) for row in rows]


def sources_of_thread(conn: Connection, thread_id: ThreadId) -> list[SourceId]:
    """All sources of a thread, expired ones too."""
    return [
        SourceId(row[0])
        for row in conn.execute("SELECT id FROM sources WHERE thread_id = ? ORDER BY id", (thread_id,))
    ]


def find_erased(conn: Connection, erasures: Iterable[Erasure]) -> tuple[list[SourceId], list[ThreadId]]:
    """What is here although it was erased: sources by id or identity, threads and facts with what they rest on."""
    sources: list[SourceId] = []
    threads: list[ThreadId] = []
    for erasure in erasures:
        if erasure.entity == "source":
            rows = conn.execute(
                "SELECT id FROM sources WHERE public_id = ? UNION SELECT id FROM sources WHERE identity = ?",
                (erasure.public_id, erasure.identity),
            )
            sources += [SourceId(row[0]) for row in rows]
        elif erasure.entity == "fact":
            rows = conn.execute(
                """
                SELECT DISTINCT e.source_id FROM facts AS f CROSS JOIN fact_evidence AS e ON e.fact_id = f.id
                WHERE f.public_id = ? ORDER BY e.source_id
                """,
                (erasure.public_id,),
            )
            sources += [SourceId(row[0]) for row in rows]
        elif (thread := find_thread_by_public_id(conn, erasure.public_id)) is not None:
            threads.append(thread.id)
            sources += sources_of_thread(conn, thread.id)
    return sources, threads


def contents_of(
    conn: Connection, closed: Iterable[SourceId], *, thread_ids: Iterable[ThreadId] = ()
) -> Iterator[str | bytes]:
    """Everything with the rule CONTENT that `remove` would take for this closure.

    Texts and bytes whole, names only when they are long enough to tell something.
    """
    source_ids = list(closed)
    ids, facts = _json(source_ids), _json(facts_resting_on(conn, source_ids))
    touched = _json({*thread_ids, *_threads_of(conn, ids)})
    for sql, of, least_chars in (
        ("SELECT text FROM sources WHERE id IN (SELECT value FROM json_each(?))", ids, 1),
        ("SELECT data FROM media WHERE source_id IN (SELECT value FROM json_each(?))", ids, 1),
        (
            "SELECT message FROM run_transcript WHERE run_id IN (SELECT value FROM json_each(?))",
            _json(_all(_runs_of(conn, ids))),
            1,
        ),
        (
            "SELECT DISTINCT speaker FROM sources WHERE id IN (SELECT value FROM json_each(?))",
            ids,
            MIN_NAME_CHARS,
        ),
        ("SELECT name FROM media WHERE source_id IN (SELECT value FROM json_each(?))", ids, MIN_NAME_CHARS),
        ("SELECT key FROM threads WHERE id IN (SELECT value FROM json_each(?))", touched, MIN_NAME_CHARS),
        ("SELECT text FROM facts WHERE id IN (SELECT value FROM json_each(?))", facts, 1),
        (_UNITS.format(kind=OwnerKind.SOURCE), ids, 1),
        (_UNITS.format(kind=OwnerKind.FACT), facts, 1),
        (_NAMES_IN_FACTS, facts, MIN_NAME_CHARS),
    ):
        for (value,) in conn.execute(sql, (of,)) if of != NONE else ():
            if isinstance(value, str | bytes) and len(value) >= least_chars:
                yield value


def remove(
    conn: Connection, closed: Iterable[SourceId], *, thread_ids: Iterable[ThreadId] = (), now_ms: int
) -> Removed:
    """Remove a whole closure (`closure_of`), fence the runs that are at work on it, drop threads left empty.

    ``thread_ids`` are dropped as well if no source of theirs is left, and they alone are buried: what else is left
    empty may hold other things in an older database, which nobody has forgotten. Caller holds write and appends the
    tombstones in the same transaction.
    """
    source_ids, asked = list(closed), list(thread_ids)
    ids = _json(source_ids)
    tombstones = [
        Tombstone("source", row[0], row[1])
        for row in conn.execute(
            "SELECT public_id, identity FROM sources WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
            (ids,),
        )
    ]
    threads = {*asked, *_threads_of(conn, ids)}
    runs = _runs_of(conn, ids)
    cancelled, requeued = _fence(conn, runs, now_ms)
    rows = _remove_what_was_made(conn, source_ids, runs)
    rows["source_dependencies"] = _delete(conn, "source_dependencies", "source_id", ids) + _delete(
        conn, "source_dependencies", "depends_on_id", ids
    )
    rows["media"] = _delete(conn, "media", "source_id", ids)
    fence_jobs(conn, ids)
    cancel_emptied_jobs(conn, ids, now_ms=now_ms)
    rows["extraction_job_sources"] = _delete(conn, "extraction_job_sources", "source_id", ids)
    rows["sources"] = len(tombstones)
    delete_sources(conn, source_ids)
    dropped, rows["runs"] = _drop_empty_threads(conn, threads)
    rows["threads"] = len(dropped)
    buried = [Tombstone("thread", dropped[thread_id]) for thread_id in asked if thread_id in dropped]
    return Removed((*tombstones, *buried), rows, cancelled, requeued)


def dependants_of(conn: Connection, source_id: SourceId) -> list[SourceId]:
    """What goes when the text of a source changes: all that was made from it, not what came along with it."""
    rows = conn.execute(
        """
        SELECT source_id FROM source_dependencies WHERE depends_on_id = :id
        UNION
        SELECT answer.id FROM sources AS request JOIN sources AS answer ON answer.run_id = request.run_id
        WHERE request.id = :id AND request.role = 'user' AND request.kind = 'message' AND answer.role = 'assistant'
        """,
        {"id": source_id},
    )
    return [each for each in closure_of(conn, [SourceId(row[0]) for row in rows]) if each != source_id]


def detach(conn: Connection, source_id: SourceId, *, now_ms: int) -> Removed:
    """Remove what was made from the text of a source that stays itself, its dependants being gone.

    Runs that it asks for or that have read it, and jobs over it, begin again. Caller holds write.
    """
    ids = _json([source_id])
    found = _runs_of(conn, ids)
    runs = _Runs([], _all(found))
    _, requeued = _fence(conn, runs, now_ms)
    rows = _remove_what_was_made(conn, [source_id], runs)
    rows["forget_proposals"] = _delete(conn, "forget_proposals", "run_id", _json(found.asked))
    fence_jobs(conn, ids)
    return Removed((), rows, 0, requeued)


def _remove_what_was_made(conn: Connection, source_ids: list[SourceId], runs: _Runs) -> dict[str, int]:
    """Remove what stands in other tables because of sources: what runs have read of them, facts, vectors."""
    ids = _json(source_ids)
    _delete(conn, "forget_proposals", "run_id", _json(_all(runs)))
    rows = {
        "run_transcript": _delete(conn, "run_transcript", "run_id", _json(_all(runs))),
        "run_sources": _delete_citations(conn, runs, ids),
    }
    readings = _delete_readings(conn, runs, ids)
    facts = facts_resting_on(conn, source_ids)
    rows["vectors"] = forget_owners(conn, _owners(source_ids, facts))
    leave_batches(conn, _owners(source_ids, facts))
    rows |= delete_facts(conn, facts)
    rows["run_facts"] += readings
    return rows


def _owners(source_ids: Iterable[SourceId], fact_ids: Iterable[FactId]) -> Iterator[Owner]:
    yield from (Owner(OwnerKind.SOURCE, source_id) for source_id in source_ids)
    yield from (Owner(OwnerKind.FACT, fact_id) for fact_id in fact_ids)


def _runs_of(conn: Connection, ids: str) -> _Runs:
    asked = [
        row[0]
        for row in conn.execute(
            """
            SELECT run_id FROM sources
            WHERE id IN (SELECT value FROM json_each(?)) AND role = 'user' AND kind = 'message'
              AND run_id IS NOT NULL
            ORDER BY run_id
            """,
            (ids,),
        )
    ]
    cited = conn.execute(
        """
        SELECT DISTINCT run_id FROM run_sources WHERE source_id IN (SELECT value FROM json_each(?)) ORDER BY run_id
        """,
        (ids,),
    )
    known = set(asked)
    return _Runs(asked, [row[0] for row in cited if row[0] not in known])


def _fence(conn: Connection, runs: _Runs, now_ms: int) -> tuple[int, int]:
    """Take the leases away; a provider call under way may charge and its outcome can't be known."""
    if not runs.asked and not runs.cited:
        return 0, 0
    conn.execute(
        """
        UPDATE attempts SET state = 'unknown', error_code = 'interrupted', finished_at_ms = :now
        WHERE run_id IN (SELECT value FROM json_each(:runs)) AND run_id IS NOT NULL AND state = 'started'
        """,
        {"runs": _json(_all(runs)), "now": now_ms},
    )
    conn.execute(
        """
        UPDATE runs SET state = 'cancelled', error_code = 'forgotten', finished_at_ms = :now,
            lease_token = NULL, lease_expires_at_ms = NULL
        WHERE id IN (SELECT value FROM json_each(:runs)) AND state IN ('queued', 'leased')
        """,
        {"runs": _json(runs.asked), "now": now_ms},
    )
    cancelled = conn.changes()
    conn.execute(
        """
        UPDATE runs SET state = 'queued', not_before_ms = 0, error_code = NULL, claims = max(claims - 1, 0),
            lease_token = NULL, lease_expires_at_ms = NULL
        WHERE id IN (SELECT value FROM json_each(:runs)) AND state = 'leased'
        """,
        {"runs": _json(runs.cited)},
    )
    return cancelled, conn.changes()


def _delete_citations(conn: Connection, runs: _Runs, ids: str) -> int:
    """Citations of what goes; and all of a run that begins again or never ends, for it has read nothing now."""
    if not runs.asked and not runs.cited:
        return 0
    conn.execute(f"DELETE FROM run_sources WHERE run_id IN ({_BEGIN_AGAIN})", {"runs": _json(_all(runs))})
    return conn.changes() + _delete(conn, "run_sources", "source_id", ids)


def _delete_readings(conn: Connection, runs: _Runs, ids: str) -> int:
    """The facts that such a run has read, and those that an answer which goes is explained by."""
    conn.execute(
        f"""
        DELETE FROM run_facts WHERE run_id IN ({_BEGIN_AGAIN}) OR run_id IN (
            SELECT run_id FROM sources WHERE id IN (SELECT value FROM json_each(:ids)) AND role = 'assistant'
        )
        """,
        {"runs": _json(_all(runs)), "ids": ids},
    )
    return conn.changes()


def _delete(conn: Connection, table: str, column: str, ids: str) -> int:
    if RULES[table][column] is not Rule.FOLLOWS:
        raise ValueError(f"{table}.{column} follows nothing")
    if ids == NONE:
        return 0
    conn.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (ids,))
    return conn.changes()


def _threads_of(conn: Connection, ids: str) -> list[ThreadId]:
    rows = conn.execute(
        """
        SELECT DISTINCT thread_id FROM sources WHERE id IN (SELECT value FROM json_each(?)) ORDER BY thread_id
        """,
        (ids,),
    )
    return [ThreadId(row[0]) for row in rows]


def _drop_empty_threads(conn: Connection, thread_ids: Iterable[ThreadId]) -> tuple[dict[ThreadId, str], int]:
    """Threads without source and without unfinished run go with their runs; their attempts stay.

    Returns their public ids, and how many runs went.
    """
    dropped, runs = {}, 0
    for thread_id in sorted(thread_ids):
        row = conn.execute(
            """
            SELECT public_id FROM threads AS t
            WHERE id = ? AND NOT EXISTS (SELECT 1 FROM sources WHERE thread_id = t.id)
              AND NOT EXISTS (SELECT 1 FROM runs WHERE thread_id = t.id AND state IN ('queued', 'leased'))
            """,
            (thread_id,),
        ).fetchone()
        if row is not None:
            _delete(conn, "extraction_jobs", "thread_id", _json([thread_id]))
            runs += _delete(conn, "runs", "thread_id", _json([thread_id]))
            conn.execute("DELETE FROM threads WHERE id = ?", (thread_id,))
            dropped[thread_id] = str(row[0])
    return dropped, runs


def _all(runs: _Runs) -> list[int]:
    return [*runs.asked, *runs.cited]


def _json(ids: Iterable[int]) -> str:
    return json.dumps(list(ids))
