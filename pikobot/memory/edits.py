"""Editing what somebody has said: the new text takes the place of the old one, which is erased like what is forgotten.

    one commit: answers made from it, facts, vectors and index rows removed, runs and jobs at work on it fenced,
        the id of the old revision buried, the new text stored and queued for learning and embedding
        ─▶ every file read for the old text ─▶ receipt

A public id names one revision: the source has a new one afterwards, and the old one stands in the ledger, so that
neither an old backup nor an old copy of the database nor a second import brings the old text back. Everything else of
the source stays: its place in the thread, its run, its attachments, its expiry, the record that it was imported from.
A run that asks with it is answered from the new text, unless its provider call was under way: that may have charged,
and is not repeated.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.extract import queue_sources
from pikobot.memory.forgetting.byte_scan import collect
from pikobot.memory.forgetting.forget import Committed, erase, remove_closure
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.memory.params import Name, Params
from pikobot.store import embedding_jobs
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import closure, erasures
from pikobot.store.erasing.erasures import Tombstone
from pikobot.store.extraction_jobs import waits_for_extraction
from pikobot.store.leases import State
from pikobot.store.prepare import identity_key
from pikobot.store.runs import RunId, find_run
from pikobot.store.scopes import load_scope
from pikobot.store.sources import (
    Source,
    SourceId,
    content_hash,
    find_source,
    load_sources,
    revise_source,
    revision_identity,
)
from pikobot.store.vectors.owners import Owner, OwnerKind
from pikobot.store.vectors.profiles import SetState, list_sets
from pikobot.text import clean_text, shown_name

MAX_EDIT_CHARS = 4_000_000  # as long as a message may be


@dataclass(frozen=True)
class Learning:
    """What is learned from: what is said, and what was imported."""

    said: bool = False
    imported: bool = False

    def covers(self, source: Source) -> bool:
        return self.imported if source.origin == "imported" else self.said


@dataclass(frozen=True)
class Edited:
    """The source's new public id, and the receipt of what went with the old text."""

    public_id: str
    receipt: Receipt

    def as_json(self) -> dict[str, object]:
        return {"status": "edited", "id": self.public_id, "receipt": self.receipt.as_json()}


@dataclass(frozen=True)
class Unchanged:
    """It says so already: an expected outcome."""

    public_id: str

    def as_json(self) -> dict[str, object]:
        return {"status": "unchanged", "id": self.public_id}


class EditParams(Params):
    """Parameters of ``source.edit``."""

    id: Name
    text: str


def edit_source(
    db: Database, ledger_path: Path, public_id: str, text: str, learning: Learning | None = None
) -> Edited | Unchanged:
    """Give what somebody has said another text; blocks until the old one is proved to be gone.

    Raises `InvalidParams` for a text that can't be stored and for what nobody has said, `NotFound` for what never was,
    has expired, was forgotten, or is an older revision; nothing has changed then.
    """
    clean = clean_text("text", text, max_chars=MAX_EDIT_CHARS)
    if not clean.strip():
        raise InvalidParams("text: is empty; forget the source instead")
    new_ids: list[str] = []

    def commit() -> Committed | None:
        edited = db.perform(_edit, public_id, clean, learning or Learning())
        if edited is None:
            return None
        done, new_id = edited
        new_ids.append(new_id)
        return done

    receipt = erase(db, ledger_path, commit)
    return Unchanged(public_id) if receipt is None else Edited(new_ids[0], receipt)


def _edit(db: Database, public_id: str, text: str, learning: Learning) -> tuple[Committed, str] | None:
    """The one commit, and the new public id; None when the source says so already."""
    now_ms = db.clock.now_ms()
    with db.write("edit a source") as tx:
        source = _editable(tx, public_id, now_ms)
        if content_hash(source.text) == content_hash(text):
            return None
        erased = collect(closure.contents_of(tx, [source.id]))
        dependants = closure.dependants_of(tx, source.id)
        done = remove_closure(tx, dependants, now_ms=now_ms, erased=erased)
        detached = closure.detach(tx, source.id, now_ms=now_ms)
        new_id = revise_source(tx, source.id, text, db.clock)
        old = Tombstone("source", source.public_id, _identity_of_revision(tx, source))
        [buried] = erasures.append(tx, [old], at_ms=now_ms)
        _queue(tx, db, source.id, learning)
        removed = done.removed.plus(replace(detached, tombstones=(old,)))
        return replace(done, removed=removed, position=buried.position), new_id


def _editable(tx: Connection, public_id: str, now_ms: int) -> Source:
    source = find_source(tx, public_id, now_ms=now_ms)
    if source is None:
        shown = shown_name(public_id)
        if erasures.is_erased(tx, public_id):
            raise NotFound(
                f"source {shown} was forgotten, or edited since and has another id; nothing was changed"
            )
        raise NotFound(f"source {shown} does not exist; `pikobot rpc memory.list` lists sources")
    if source.kind != "message" or source.role == "assistant":
        raise InvalidParams("id: only what a person has said can be edited")
    return source


def _identity_of_revision(tx: Connection, source: Source) -> bytes | None:
    """What a second import of the old text is recognised by; None for what was not imported."""
    row = tx.execute("SELECT identity FROM sources WHERE id = ?", (source.id,)).fetchone()
    identity = None if row is None else row[0]
    return None if identity is None else revision_identity(identity_key(tx), bytes(identity), source.text)


def _queue(tx: Connection, db: Database, source_id: SourceId, learning: Learning) -> None:
    """Learn from the new text and embed it, where the old one was or would have been."""
    [source] = load_sources(tx, [source_id], now_ms=db.clock.now_ms()).values()
    workspace = load_scope(tx, source.scope_id).workspace
    for vector_set in list_sets(tx):
        if vector_set.state is not SetState.RETIRED:
            owner = Owner(OwnerKind.SOURCE, source_id)
            embedding_jobs.insert_batch(tx, vector_set.id, [owner], workspace=workspace, clock=db.clock)
    run = None if source.run_id is None else find_run(tx, RunId(source.run_id))
    is_told = run is None or run.state is State.SUCCEEDED  # a run queues what was said when it succeeds
    if learning.covers(source) and is_told and not waits_for_extraction(tx, source_id):
        queue_sources(tx, [source], run_id=None if run is None else run.id, clock=db.clock)


def edit_rpc(db: Database, ledger_path: Path, given: EditParams, learning: Learning) -> dict[str, object]:
    """``source.edit`` for the operator, who may edit in every scope. Raises what `edit_source` raises."""
    return edit_source(db, ledger_path, given.id, given.text, learning).as_json()
