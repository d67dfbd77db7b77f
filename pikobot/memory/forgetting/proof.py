"""The proof of an erasure: nothing of it is left in any file of the instance, or it is removed now.

    the erasing commit ─▶ erasures.jsonl appended and fsynced, WAL emptied, meanwhile the database looked at
                       ─▶ overwritten where it holds some of it outside of rows ─▶ all other files read
                       ─▶ the database rewritten if overwriting did not help ─▶ the text indexes looked at

What SQLite leaves outside of rows is searched as long as that is little; more of it is overwritten unsearched. What
had to be looked for is lost with the process, so after a crash all of it is overwritten (`remove_traces`). The write
lock is held while pages are overwritten, not while anything is read; rewriting holds it for the time of a copy.

The rows of a text index are no survivors by being rows: that FTS5 has kept nothing in them that is out of use, or of
what was erased, is looked at by itself (`index_pages.count_traces`). What it finds is named with the index.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pikobot.errors import PikobotError
from pikobot.memory.forgetting import ledger
from pikobot.memory.forgetting.byte_scan import (
    Erased,
    Find,
    Needles,
    ScanReport,
    found_in,
    held_by_index,
    needles_of,
    scan,
)
from pikobot.memory.forgetting.multi_search import MultiSearch
from pikobot.store.connection import Database
from pikobot.store.erasing.outside import Remains, overwrite_remains, settle_and_find_remains
from pikobot.store.erasing.remnants import rewrite
from pikobot.store.text.index_pages import INDEXES, count_traces, tokens_of
from pikobot.store.text.segmentation import segment

MAX_COMPARED = 1 << 20  # fragments times bytes: less than a millisecond
MAX_LOOKED_AHEAD_BYTES = 2 << 30  # a quarter of a second, and some of reading from the disk
MAX_CHARS_IN_INDEX = 20_000  # of erased texts are looked for among separators, in some milliseconds
KEPT_WAL = "a reader keeps the WAL"


@dataclass(frozen=True)
class Proof:
    """``is_wal_empty``: nobody kept it; ``is_rewritten``: the database had to be written anew."""

    is_wal_empty: bool
    is_rewritten: bool
    report: ScanReport
    is_left_in_database: bool


def prove(db: Database, ledger_path: Path, erased: Erased, erased_ids: Iterable[str] = ()) -> Proof:
    """Make what a commit has erased go from the files, and look for it in all of them.

    Ids are looked for in the database outside of rows alone, for the ledger keeps them. Not on the writer thread, not
    from the event loop. Raises what the ledger raises, and what reading the database raises.
    """
    chosen: list[Needles] = []

    def meanwhile() -> None:
        ledger.sync(ledger_path)
        chosen.append(needles_of(erased))

    remains = settle_and_find_remains(
        db, before=lambda db: ledger.append_missing(db, ledger_path, is_synced=False), meanwhile=meanwhile
    )
    [needles] = chosen
    ids = MultiSearch(public_id.encode() for public_id in erased_ids)
    remains = _without(needles, ids, db, remains)
    report = scan(ledger_path.parent, db, needles, remains)
    is_rewritten = False
    if remains.is_settled and _is_left(db, report):
        is_rewritten = db.perform(_rewrite) is None
        report = scan(ledger_path.parent, db, needles)
    is_left = _is_left(db, report)
    report = replace(report, finds=(*report.finds, *_left_in_indexes(db, erased)))
    return Proof(remains.is_settled, is_rewritten, report, is_left)


def look_ahead(db: Database) -> None:
    """Look at the whole database unless it is large, and overwrite what stands outside of rows.

    Afterwards `prove` looks only at what has been written since, as long as no other process writes.
    """
    if db.path.stat().st_size > MAX_LOOKED_AHEAD_BYTES:
        return
    remains = settle_and_find_remains(db)
    if remains.is_settled and remains.left:
        db.perform(overwrite_remains, remains.left)


def remove_traces(db: Database) -> str | None:
    """Overwrite everything that stands outside of rows; returns why that could not be done."""
    remains = settle_and_find_remains(db)
    if remains.is_settled and remains.left:
        db.perform(overwrite_remains, remains.left)
        remains = settle_and_find_remains(db)
    if not remains.is_settled:
        return KEPT_WAL
    return db.perform(_rewrite) if remains.left or not remains.is_complete else None


def _without(needles: Needles, ids: MultiSearch, db: Database, remains: Remains) -> Remains:
    """What is left outside of rows where any of these may still be: nothing, unless it could not be overwritten.

    What surviving sources say as well tells nothing.
    """
    if not remains.is_settled:
        return remains
    shortest = min(needles.shortest, ids.shortest)
    data = b"\0".join(left for left in remains.left.values() if len(left) >= shortest)
    if remains.is_complete and not data:
        return replace(remains, left={})
    is_little = remains.is_complete and len(data) * (needles.count + ids.count) <= MAX_COMPARED
    if is_little and not ids.found_in(data) and _is_held(db, found_in(data, needles)):
        return replace(remains, left={})
    db.perform(overwrite_remains, remains.left)
    return settle_and_find_remains(db)


def _left_in_indexes(db: Database, erased: Erased) -> list[Find]:
    """Rows of the text indexes that may hold what was erased; of long texts a part is looked for."""
    room, tokens = MAX_CHARS_IN_INDEX, set[bytes]()
    with db.read() as conn:
        for text in erased.texts:
            tokens |= tokens_of(conn, segment(text[:room]))
            room -= len(text)
            if room <= 0:
                break
        counts = {index: count_traces(conn, index, tokens) for index in INDEXES}
    return [
        Find(f"{db.path.name}, {index}", count, is_in_index=True) for index, count in counts.items() if count
    ]


def _is_held(db: Database, found: frozenset[str | bytes]) -> bool:
    return found == held_by_index(db, found)


def _is_left(db: Database, report: ScanReport) -> bool:
    names = {db.path.name, f"{db.path.name}-wal"}
    return any(find.file in names for find in report.finds)


def _rewrite(db: Database) -> str | None:
    """Rewrite the database; returns why it could not."""
    try:
        rewrite(db)
    except PikobotError as error:
        return str(error)
    return None if db.truncate_wal() else KEPT_WAL
