"""`verify`: everything that can be checked of an instance or of a backup, changing nothing and collecting all.

    permissions   the directory and what is private in it are its owner's alone
    settings      config.toml is one that pikobot takes
    database      structure, references, indexes, erased rows (`store.inspection`)
    ledger        the chain of hashes, and agreement of file and database both ways
    erased ids    nothing in the directory names what was erased but the ledger: a copy of an old database would, and
                  so would copies of rows that SQLite has left in the database outside of rows, and rows of a text
                  index that are out of use
    left files    what a crash has left: copies, stages, temporary files

A database that nobody serves is locked and read as it lies there, on a read-only file system too; of one that is
served a snapshot is read.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pikobot import identity, replacing
from pikobot.backup.encryption import Keys
from pikobot.backup.ledgers import chain_at
from pikobot.backup.manifest import DATABASE_NAME
from pikobot.backup.reading import Progress, no_progress, read_backup
from pikobot.clock import Clock
from pikobot.errors import DamagedData, ExitCode, InstanceBusy, PikobotError
from pikobot.files import check_private, copy_remedy, is_read_only, os_failure
from pikobot.instance import Instance
from pikobot.memory.forgetting import ledger
from pikobot.serving import InstanceLock, ServedBy, acquire_serving_lock, acquire_visitor_lock
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import erasures
from pikobot.store.erasing.outside import pages_of, remains_in
from pikobot.store.inspection import inspect
from pikobot.store.schema import known_migrations
from pikobot.store.snapshot import Description, describe, open_unchanging
from pikobot.store.text.index_pages import INDEXES, count_traces
from pikobot.text import Count
from pikobot.workspace import abandoned

State = Literal["ok", "exposed", "damaged"]

LEDGER_TRIES = 5
LEDGER_WAIT_S = 0.2
CHUNK_BYTES = 4 << 20
MAX_ID_BYTES = 256


@dataclass(frozen=True)
class Finding:
    """What one check has found. ``damaged``: data can't be trusted; ``exposed``: private or left where it shouldn't."""

    check: str
    state: State
    detail: str


def exit_code(findings: list[Finding]) -> ExitCode:
    """6 when something is damaged, 1 when something is exposed, else 0."""
    states = {finding.state for finding in findings}
    if "damaged" in states:
        return ExitCode.DAMAGED
    return ExitCode.FAILED if "exposed" in states else ExitCode.DONE


def verify_backup(path: Path, keys: Keys, progress: Progress = no_progress) -> list[Finding]:
    """Every damage of a backup by the member that it is in, or one finding that says that it is whole.

    Raises `UsageError` when it is no backup or its key is missing, `NotAllowed` for a wrong key.
    """
    try:
        read = read_backup(path, keys, progress=progress)
    except DamagedData as error:
        return [Finding("backup", "damaged", str(error))]
    if read.damages or read.manifest is None:
        return [Finding("backup", "damaged", damage) for damage in read.damages]
    manifest = read.manifest
    detail = (
        f"{Count(len(manifest.members)):member}, schema {manifest.schema_version}, made {manifest.created_at} by "
        f"pikobot {manifest.pikobot}, of {manifest.instance}, {Count(manifest.ledger.position):erasure}"
    )
    return [Finding("backup", "ok", detail)]


def verify_instance(instance: Instance, clock: Clock) -> list[Finding]:
    """Every finding about an instance, one that says "ok" for each check without any.

    Raises `InstanceBusy` while other commands use it.
    """
    return [
        *_check_permissions(instance),
        _check_settings(instance),
        *_check_data(instance, clock),
        *_check_left_files(instance),
    ]


def _check_data(instance: Instance, clock: Clock) -> list[Finding]:
    findings: list[Finding] = []
    lock: InstanceLock | ServedBy | None = None
    try:
        lock = acquire_visitor_lock(instance)
        instance.refuse_lost(only_reads=True)
        if not instance.database_path.exists() or not instance.database_path.stat().st_size:
            findings.append(Finding("database", "ok", "not made yet"))
        elif isinstance(lock, ServedBy):
            _refuse_served_elsewhere(instance, lock)
            with closing(Database(instance.database_path, clock)) as db:
                _check_served(db, instance, findings)
        else:
            lock.release()
            with acquire_serving_lock(instance, clock), open_unchanging(instance.database_path) as conn:
                if _check_database(conn, instance, findings):
                    findings.append(_check_ledger(conn, instance))
    except InstanceBusy:
        raise
    except PikobotError as error:
        state: State = "damaged" if isinstance(error, DamagedData) else "exposed"
        detail, remedy = str(error), copy_remedy(instance.root)
        if state == "exposed" and is_read_only(instance.root) and remedy not in detail:
            detail += (
                f"; the file system is read-only: {remedy}"  # a log that was not emptied can't be read there
            )
        findings.append(Finding("database", state, detail))
    finally:
        if isinstance(lock, InstanceLock):
            lock.release()
    is_compared = any(finding.check == "ledger" for finding in findings)
    if not is_compared and any(finding.state != "ok" for finding in findings):
        findings += _check_ledger_alone(instance)
    return findings


def _refuse_served_elsewhere(instance: Instance, holder: ServedBy) -> None:
    """Beside a process that writes one can't only read."""
    if is_read_only(instance.root):
        raise InstanceBusy(
            f"{instance.root} is served by {holder} under another path, where it can be written: verify it there"
        )


def _check_served(db: Database, instance: Instance, findings: list[Finding]) -> None:
    with db.read() as conn:
        if not _check_database(conn, instance, findings):
            return
    for left in reversed(range(LEDGER_TRIES)):  # between the commit of an erasure and its line the two differ
        with db.read() as conn:
            checked = _check_ledger(conn, instance)
        if checked.state == "ok" or not left:
            findings.append(checked)
            return
        time.sleep(LEDGER_WAIT_S)


def _check_database(conn: Connection, instance: Instance, findings: list[Finding]) -> bool:
    """Whether the database is one of pikobot's; what is wrong with it is added to the findings."""
    description = describe(conn)
    if description is None:
        detail = f"{instance.database_path} is not a database of pikobot"
        findings.append(Finding("database", "damaged", detail))
        return False
    recorded = identity.recorded_id(instance.database_path)
    if recorded not in (None, description.instance):
        detail = f"belongs to another instance ({description.instance}; this one is {recorded})"
        findings.append(Finding("database", "damaged", f"{instance.database_path} {detail}"))
        return False
    problems = inspect(conn)
    findings += [Finding("database", "damaged", problem) for problem in problems]
    if not problems:
        findings.append(Finding("database", "ok", _schema(description)))
    if erasures.is_unfinished(conn):
        findings.append(
            Finding("erasures", "exposed", "an erasure was cut off: the next start of pikobot finishes it")
        )
    findings += _check_erased_ids(conn, instance)
    return True


def _check_text_indexes(conn: Connection) -> list[Finding]:
    """What FTS5 may have kept of something erased; in an index of an older schema it may be what a merge has left."""
    findings = []
    for index in INDEXES:
        has_index = conn.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
        count = count_traces(conn, index) if has_index else 0
        if count:
            detail = f"{Count(count):row} of {index} may hold what was erased: run `pikobot reindex`"
            findings.append(Finding("erased ids", "exposed", detail))
    return findings


def _schema(description: Description) -> str:
    newest = known_migrations()[-1].version
    if description.schema_version == newest:
        return f"schema {newest}, {description.instance}"
    return f"schema {description.schema_version}; this pikobot migrates it to {newest} at the next start"


def _check_ledger(conn: Connection, instance: Instance) -> Finding:
    try:
        count = ledger.check(conn, instance.ledger_path)
    except DamagedData as error:
        return Finding("ledger", "damaged", str(error))
    return Finding("ledger", "ok", f"{Count(count):erasure}, in file and database")


def _check_ledger_alone(instance: Instance) -> list[Finding]:
    """The chain of the file, where the database can't be compared with it."""
    try:
        chain = chain_at(instance.ledger_path)
    except PikobotError as error:
        return [Finding("ledger", "damaged" if isinstance(error, DamagedData) else "exposed", str(error))]
    if chain is None:
        return []
    detail = f"{Count(len(chain.erasures)):erasure} in the file, not compared with the database"
    return [Finding("ledger", "ok", detail)]


def _check_erased_ids(conn: Connection, instance: Instance) -> list[Finding]:
    """What names what was erased beside rows of the ledger and its file."""
    ids = frozenset(erasure.public_id.encode() for erasure in erasures.read_after(conn, 0))
    findings: list[Finding] = []
    if ids and not erasures.is_unfinished(conn):
        findings = [*_check_outside_of_rows(conn, instance, ids), *_check_text_indexes(conn)]
    for path in _other_files(instance) if ids else ():
        try:
            count = len(_ids_in(path, ids))
        except OSError as error:
            findings.append(Finding("erased ids", "exposed", str(os_failure("read", path, error))))
            continue
        if count:
            detail = f"{path} names {Count(count):erased id}: an old copy of the database? Delete it"
            findings.append(Finding("erased ids", "exposed", detail))
    return findings or [Finding("erased ids", "ok", f"{Count(len(ids)):id is|ids are} nowhere else")]


def _check_outside_of_rows(conn: Connection, instance: Instance, ids: frozenset[bytes]) -> list[Finding]:
    """The database's own bytes. Twice, for whoever serves it may have written to a page while it was read."""
    found = ids
    for _ in range(2):
        remains = remains_in(conn, instance.database_path, without=pages_of(conn, "erasures"))
        found &= _ids_in_data(b"\0".join(remains.left.values()), ids)
        if not found:
            return []
    detail = (
        f"{instance.database_path} names {Count(len(found)):erased id} outside of rows: run `pikobot reindex`"
    )
    return [Finding("erased ids", "exposed", detail)]


def _other_files(instance: Instance) -> Iterator[Path]:
    own = _own_files(instance)
    for directory, _, files in os.walk(instance.root):
        for name in sorted(files):
            path = Path(directory, name)
            if path not in own and stat.S_ISREG(path.lstat().st_mode):
                yield path


def _own_files(instance: Instance) -> tuple[Path, ...]:
    database = str(instance.database_path)
    return (instance.ledger_path, *(Path(database + end) for end in ("", "-wal", "-shm")))


def _ids_in(path: Path, ids: frozenset[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    kept = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            data = kept + chunk
            found |= _ids_in_data(data, ids)
            kept = data[-MAX_ID_BYTES:]
    return found


def _ids_in_data(data: bytes, ids: frozenset[bytes]) -> set[bytes]:
    """Which of the ids stand there. In a record of SQLite the next value follows without a gap."""
    starts = re.compile(b"|".join(sorted({re.escape(one.partition(b"_")[0]) + b"_" for one in ids})))
    lengths = sorted({len(one) for one in ids})
    return {
        data[match.start() : match.start() + length]
        for match in starts.finditer(data)
        for length in lengths
        if data[match.start() : match.start() + length] in ids
    }


def _check_settings(instance: Instance) -> Finding:
    try:
        instance.load_config()
    except PikobotError as error:
        return Finding("settings", "exposed", str(error))
    return Finding("settings", "ok", str(instance.config_path))


def _check_permissions(instance: Instance) -> list[Finding]:
    findings = []
    for path in (instance.root, instance.run_dir, *_own_files(instance), instance.credentials_path):
        try:
            found = path.stat()
            if path == instance.ledger_path and not stat.S_ISREG(found.st_mode):
                continue  # that is damage, whatever its mode
            check_private(path, found)
        except FileNotFoundError:
            continue
        except PikobotError as error:
            findings.append(Finding("permissions", "exposed", str(error)))
    return findings or [
        Finding("permissions", "ok", "the directory and what is private in it are yours alone")
    ]


def _check_left_files(instance: Instance) -> list[Finding]:
    """What was cut off; the next start or the next backup removes it."""
    root = instance.root
    left = [*root.glob(f"{DATABASE_NAME}.before-*"), *root.glob(".*.toml.*"), *root.glob(".erasures.jsonl.*")]
    left += root.glob(f".{identity.NAME}.*")
    left += [root / name for name in sorted(replacing.NAMES) if os.path.lexists(root / name)]
    left += abandoned(instance.run_dir, replacing.SNAPSHOT_NAME)
    findings = [
        Finding(
            "left files",
            "exposed",
            f"{path} was left by something cut off: start pikobot once, then delete it",
        )
        for path in sorted(left)
    ]
    return findings or [Finding("left files", "ok", "none")]
