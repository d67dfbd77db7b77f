"""Import of conversations, JSONL: each line becomes a source in the owner's scope of its workspace.

    {"thread": "t1", "role": "user|assistant|participant", "text": "…",
     "speaker": "name", "time": ISO 8601, "id": "stable id", "workspace": "main"}    these may be left out

The stream is read a line at a time and stored in batches, each one transaction: killed anywhere, the import
has stored whole batches, and running it again completes them. A record is recognised by (workspace, thread,
id), or without an id by all that it says; once stored it is kept as it is, once erased it stays out. A bad
line stops nothing. A time without an offset is in this machine's time zone, a record without a time has no
date.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, get_args

from pikobot.clock import Clock, local_utc_offset_min
from pikobot.errors import UsageError
from pikobot.memory.extract import queue_sources
from pikobot.memory.moments import Moment, parse_moment
from pikobot.memory.params import named_key
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing.erasures import identity_is_erased
from pikobot.store.listing import StoredRecord, find_record
from pikobot.store.prepare import identity_key
from pikobot.store.scopes import MAIN_WORKSPACE, ScopeId, ensure_scope, owner_scope
from pikobot.store.sources import (
    NewSource,
    Role,
    SourceId,
    content_hash,
    insert_source,
    load_sources,
    record_identity,
    revision_identity,
)
from pikobot.store.threads import ThreadId, ensure_thread
from pikobot.text import clean_text, parse_json

BATCH_RECORDS = 500
# A batch ends early when its lines are long, so that memory stays flat.
BATCH_BYTES = 4 * 1024 * 1024
MAX_LINE_BYTES = 8 * 1024 * 1024
SKIP_BYTES = 64 * 1024
MAX_TEXT_CHARS = 1_000_000
MAX_NAME_CHARS = 512
DAY_MS = 86_400_000
CHANGED = "changed since it was imported: kept the first"

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
KEYS = ("thread", "role", "speaker", "text", "time", "id", "workspace")
ROLES: tuple[Role, ...] = get_args(Role)
DEFAULT_SPEAKERS: dict[Role, str] = {"user": "owner", "assistant": "assistant", "participant": "participant"}


@dataclass(frozen=True)
class ImportRecord:
    """One line, validated."""

    line: int
    workspace: str
    thread: str
    role: Role
    speaker: str
    text: str
    moment: Moment | None  # None: nobody knows when
    external_id: str | None


@dataclass(frozen=True)
class Problem:
    line: int
    reason: str


@dataclass
class ImportReport:
    """What became of the lines, counted."""

    added: int = 0
    already_there: int = 0
    erased: int = 0
    expired: int = 0
    changed: int = 0
    bad: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.bad and not self.changed


def import_jsonl(
    db: Database,
    stream: BinaryIO,
    *,
    message_days: int = 0,
    learns: bool = False,
    on_problem: Callable[[Problem], None] = lambda problem: None,
    on_progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Store every record of the stream; not from the event loop or the writer thread.

    ``message_days`` is the retention: older records are left out, newer ones expire (0: keep). ``learns`` queues
    what is added for extraction, with the records in one transaction.
    ``on_problem`` gets every line that is bad or changed, in order, once its batch is stored: nothing keeps them.
    ``on_progress`` gets the number of bytes read so far, about once a batch.
    """
    report = ImportReport()

    def store(lines: list[ImportRecord | Problem]) -> None:
        for problem in db.perform(_store_batch, lines, report, message_days, learns):
            on_problem(problem)

    batch: list[ImportRecord | Problem] = []
    batch_start = consumed = 0
    for number, line, size in _lines(stream):
        consumed += size
        try:
            record = _record(number, line)
            if record is not None:
                batch.append(record)
        except UsageError as error:
            batch.append(Problem(number, str(error)))
        if len(batch) >= BATCH_RECORDS or consumed - batch_start >= BATCH_BYTES:
            store(batch)
            batch, batch_start = [], consumed
            if on_progress is not None:
                on_progress(consumed)
    store(batch)
    if on_progress is not None:
        on_progress(consumed)
    return report


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None, int]]:
    """Number, content (None: too long, skipped unread) and size of every line."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        size = len(line)
        if size <= MAX_LINE_BYTES or line.endswith(b"\n"):
            yield number, line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line, size
            continue
        while not line.endswith(b"\n") and (line := stream.readline(SKIP_BYTES)):
            size += len(line)
        yield number, None, size


def _record(number: int, line: bytes | None) -> ImportRecord | None:
    """The record of a line, None for an empty one; raises `UsageError` that says why it can't be stored."""
    if line is None:
        raise UsageError(f"the line is longer than {MAX_LINE_BYTES} bytes")
    stripped = line.strip()
    if not stripped:
        return None
    fields = parse_json(stripped, "the line")
    if not isinstance(fields, dict):
        raise UsageError("the line must be an object")
    unknown = [key for key in fields if key not in KEYS]
    if unknown:
        raise UsageError(f"{named_key(unknown[0])}: unknown key; known are {', '.join(KEYS)}")
    role = _role(fields.get("role"))
    return ImportRecord(
        line=number,
        workspace=_name(fields, "workspace") or MAIN_WORKSPACE,
        thread=_required(fields, "thread", MAX_NAME_CHARS),
        role=role,
        speaker=_name(fields, "speaker") or DEFAULT_SPEAKERS[role],
        text=_required(fields, "text", MAX_TEXT_CHARS),
        moment=_moment(fields.get("time")),
        external_id=_name(fields, "id"),
    )


def _required(fields: dict[str, object], key: str, max_chars: int) -> str:
    if fields.get(key) is None:
        raise UsageError(f"{key} is missing")
    text = clean_text(key, fields[key], max_chars=max_chars)
    if not text or text.isspace():
        raise UsageError(f"{key} is empty")
    return text


def _name(fields: dict[str, object], key: str) -> str | None:
    """An optional name; null is as good as leaving it out."""
    return None if fields.get(key) is None else _required(fields, key, MAX_NAME_CHARS)


def _role(value: object) -> Role:
    for role in ROLES:
        if value == role:
            return role
    raise UsageError(f"role must be one of {', '.join(ROLES)}")


def _moment(value: object) -> Moment | None:
    if value is None:
        return None
    try:
        return parse_moment(clean_text("time", value, max_chars=64))
    except ValueError as error:
        raise UsageError(f"time: {error}") from None


@dataclass(frozen=True)
class _Batch:
    """A transaction of the import and what it has found out so far."""

    tx: Connection
    clock: Clock
    key: bytes
    message_days: int
    counted: ImportReport
    places: dict[tuple[str, str], tuple[ScopeId, ThreadId]] = field(default_factory=dict)
    added: dict[ThreadId, list[SourceId]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def _store_batch(
    db: Database, lines: list[ImportRecord | Problem], report: ImportReport, message_days: int, learns: bool
) -> list[Problem]:
    """One transaction; counts into the report only what it has committed. Returns the lines that are not stored."""
    counted = ImportReport()
    with db.write("import records") as tx:
        batch = _Batch(tx, db.clock, identity_key(tx), message_days, counted)
        for line in lines:
            if isinstance(line, Problem):
                counted.bad += 1
                batch.problems.append(line)
            else:
                _store_record(batch, line)
        for source_ids in batch.added.values() if learns else ():
            sources = load_sources(tx, source_ids, now_ms=db.clock.now_ms())
            queue_sources(tx, sources.values(), run_id=None, clock=db.clock)
    report.added += counted.added
    report.already_there += counted.already_there
    report.erased += counted.erased
    report.expired += counted.expired
    report.changed += counted.changed
    report.bad += counted.bad
    return batch.problems


def _store_record(batch: _Batch, record: ImportRecord) -> None:
    now_ms = batch.clock.now_ms()
    moment = record.moment or Moment(now_ms, local_utc_offset_min(now_ms))
    expires_at_ms = moment.at_ms + batch.message_days * DAY_MS if batch.message_days else None
    identity = _identity(batch.key, record)
    stored = find_record(batch.tx, identity)
    if stored == StoredRecord(content_hash(record.text), record.role, record.speaker):
        batch.counted.already_there += 1
    elif stored is not None:
        batch.counted.changed += 1
        batch.problems.append(Problem(record.line, CHANGED))
    elif any(
        identity_is_erased(batch.tx, each)
        for each in (identity, revision_identity(batch.key, identity, record.text))
    ):
        batch.counted.erased += 1
    elif expires_at_ms is not None and expires_at_ms <= now_ms:
        batch.counted.expired += 1
    else:
        new = _source(batch, record, moment, identity, expires_at_ms)
        source_id = insert_source(batch.tx, new, batch.clock)
        batch.added.setdefault(new.thread_id, []).append(source_id)
        batch.counted.added += 1


def _source(
    batch: _Batch, record: ImportRecord, moment: Moment, identity: bytes, expires_at_ms: int | None
) -> NewSource:
    scope_id, thread_id = _place(batch, record.workspace, record.thread)
    return NewSource(
        role=record.role,
        speaker=record.speaker,
        scope_id=scope_id,
        thread_id=thread_id,
        text=record.text,
        origin="imported",
        said_at_ms=None if record.moment is None else moment.at_ms,
        utc_offset_min=moment.utc_offset_min,
        external_id=record.external_id,
        identity=identity,
        expires_at_ms=expires_at_ms,
    )


def _place(batch: _Batch, workspace: str, thread: str) -> tuple[ScopeId, ThreadId]:
    place = batch.places.get((workspace, thread))
    if place is None:
        scope_id = ensure_scope(batch.tx, owner_scope(workspace))
        place = scope_id, ensure_thread(batch.tx, scope_id, thread, batch.clock).id
        batch.places[workspace, thread] = place
    return place


def _identity(key: bytes, record: ImportRecord) -> bytes:
    if record.external_id is not None:
        return record_identity(key, record.workspace, record.thread, record.external_id)
    said_at = "" if record.moment is None else str(record.moment.at_ms)
    return record_identity(
        key, record.workspace, record.thread, record.role, record.speaker, said_at, record.text
    )
