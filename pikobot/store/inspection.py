"""What can be wrong with a database, found by reading alone: structure, references, indexes, erased rows.

`PRAGMA integrity_check` looks through the full-text indexes as well (SQLite 3.44 and later), so nothing needs a
write lock. Every check is made, whatever the others found. Findings hold counts and names of tables, never content.
"""

import contextlib
import re
from collections.abc import Iterator

import apsw

from pikobot.store.connection import Connection
from pikobot.store.erasing.rules import RULES, Rule
from pikobot.store.text.index import is_index_current
from pikobot.store.vectors.verify import verify_owners, verify_vectors
from pikobot.text import Count

MAX_PROBLEMS = 20
MAX_PROBLEMS_SHOWN = 3
MAX_PROBLEM_CHARS = 200
TEXT_INDEX_DAMAGED = "a text index is damaged: run `pikobot reindex`"
TEXT_INDEXES = ("sources_text", "facts_text")

_SEPARATORS = re.compile(r"\*\*\* in database \w+ \*\*\*\s*|\n")
_COUNTS = (
    (
        "sources",
        "SELECT count(*) FROM sources WHERE id NOT IN (SELECT id FROM sources_text_docsize)",
        "{:source is|sources are} missing in the text index: run `pikobot reindex`",
    ),
    (
        "sources",
        "SELECT count(*) FROM sources_text_docsize WHERE id NOT IN (SELECT id FROM sources)",
        "{:row} of the text index without a source: run `pikobot reindex`",
    ),
    (
        "facts",
        "SELECT count(*) FROM facts WHERE id NOT IN (SELECT id FROM facts_text_docsize)",
        "{:fact is|facts are} missing in the text index: run `pikobot reindex`",
    ),
    (
        "facts",
        "SELECT count(*) FROM facts_text_docsize WHERE id NOT IN (SELECT id FROM facts)",
        "{:row} of the text index without a fact: run `pikobot reindex`",
    ),
    (
        "facts",
        "SELECT count(*) FROM facts WHERE id NOT IN (SELECT fact_id FROM fact_evidence)",
        "{:fact has|facts have} no evidence: restore a backup (RECOVERY.md)",
    ),
)


def inspect_structure(conn: Connection) -> list[str]:
    """What is wrong with the file, its indexes and its references. Takes the time of reading everything."""
    return list(_structure(conn)) or _references(conn)


def inspect(conn: Connection) -> list[str]:
    """Every finding, none when all is sound. ``conn`` may be read-only."""
    findings = list(_structure(conn))
    if findings:
        return findings  # what is asked of a damaged file has no dependable answer
    findings += _references(conn)
    findings += _counted(conn)
    if _has_table(conn, "vectors"):
        findings += verify_vectors(conn) + verify_owners(conn)
    if not is_index_current(conn):
        findings.append("the text index was made by another segmenter: run `pikobot reindex`")
    return findings + list(_erased_rows(conn))


def _structure(conn: Connection) -> Iterator[str]:
    """What is to be done, once each; of what SQLite says in its own words the beginning stands at the end."""
    _search_once(conn)
    problems: list[str] = []
    try:
        for (problem,) in conn.execute(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
            problems += _SEPARATORS.split(problem)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        problems.append(str(error))
    of_index = [problem for problem in problems if "fts5" in problem or "inverted index" in problem]
    of_file = [problem for problem in problems if problem and problem != "ok" and problem not in of_index]
    if of_index:
        yield TEXT_INDEX_DAMAGED
    if of_file:
        shown = "; ".join(problem[:MAX_PROBLEM_CHARS] for problem in of_file[:MAX_PROBLEMS_SHOWN])
        more = f"; and {len(of_file) - MAX_PROBLEMS_SHOWN} more" if len(of_file) > MAX_PROBLEMS_SHOWN else ""
        yield f"the file is damaged: copy its directory, then follow RECOVERY.md (SQLite says: {shown}{more})"


def _search_once(conn: Connection) -> None:
    """Let the connection see how its text indexes are written now.

    FTS5 (SQLite 3.54.1) writes a newer format from the first secure deletion on. A connection that has looked into the
    index before takes that for damage when it is checked, until it has searched there.
    """
    for table in TEXT_INDEXES:
        if _has_table(conn, table):
            with contextlib.suppress(apsw.CorruptError):  # the check that follows says so
                conn.execute(f"SELECT rowid FROM {table} WHERE {table} MATCH 'a' LIMIT 1").fetchall()


def _references(conn: Connection) -> list[str]:
    counts: dict[tuple[str, str], int] = {}
    for table, _rowid, parent, _key in conn.execute("PRAGMA foreign_key_check"):
        counts[table, parent] = counts.get((table, parent), 0) + 1
    return [
        f"{Count(count):row} of {table} without {parent}: restore a backup (RECOVERY.md)"
        for (table, parent), count in sorted(counts.items())
    ]


def _has_table(conn: Connection, name: str) -> bool:
    """Whether the schema has come so far."""
    row = conn.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)).fetchone()
    return row is not None


def _counted(conn: Connection) -> list[str]:
    findings = []
    for table, sql, finding in _COUNTS:
        if not _has_table(conn, table):
            continue
        row = conn.execute(sql).fetchone()
        if row is not None and row[0]:
            findings.append(finding.format(Count(row[0])))
    return findings


def _erased_rows(conn: Connection) -> Iterator[str]:
    """Rows whose public id the ledger names as erased."""
    for table, columns in sorted(RULES.items()):
        named = [column for column, rule in columns.items() if rule is Rule.NAMED]
        if table == "erasures" or not _has_table(conn, table):
            continue
        for column in named:
            row = conn.execute(
                f"SELECT count(*) FROM {table} WHERE {column} IN (SELECT public_id FROM erasures)"
            ).fetchone()
            if row is not None and row[0]:
                yield f"{Count(row[0]):row} of {table}, erased before, there again: start pikobot once"
