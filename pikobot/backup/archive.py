"""`create_backup`: everything of an instance but its secrets, in one file, while it may be in use.

    snapshot of the database ─▶ its manifest ─▶ one pass: container, encrypted or not ─▶ fsync ─▶ rename

When nobody serves the instance it is opened like for any command, erasures finished, and kept locked; when a
process serves it, the snapshot is read beside that process. The ledger file is read after the snapshot, so that
it knows what was erased up to then and after. A snapshot is plain text: it is made beside the destination, or in
the instance's run/ when the backup is to be encrypted. On any failure neither the destination nor a file of
this work is left behind changed.
"""

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pikobot import __version__, replacing
from pikobot.backup import container
from pikobot.backup.encryption import Protection, encrypting
from pikobot.backup.ledgers import chain_in, continues
from pikobot.backup.manifest import (
    CONFIG_NAME,
    DATABASE_NAME,
    FORMAT,
    LEDGER_NAME,
    MANIFEST_NAME,
    SKILLS_NAME,
    SUMS_NAME,
    LedgerHead,
    Manifest,
    Member,
)
from pikobot.backup.reading import CHUNK_BYTES, Progress, no_progress
from pikobot.clock import Clock, iso_time
from pikobot.errors import DamagedData, InstanceBusy, PikobotError, UsageError
from pikobot.files import FILE_MODE, os_failure, read_text, sync_directory
from pikobot.instance import Instance
from pikobot.memory.forgetting import ledger
from pikobot.memory.opening import open_memory
from pikobot.serving import ServedBy, acquire_serving_lock, acquire_visitor_lock
from pikobot.store.connection import Database
from pikobot.store.snapshot import Description, describe, expected_size, open_unchanging, write_snapshot
from pikobot.workspace import workspace


@dataclass(frozen=True)
class BackupReport:
    """What was written. ``left_out``: links and other things among the skills that are no files."""

    path: Path
    size: int
    manifest: Manifest
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Content:
    """A member's bytes: in memory, or in a file that is read again."""

    name: str
    data: bytes | Path
    is_executable: bool = False


def create_backup(
    instance: Instance,
    destination: Path,
    *,
    clock: Clock,
    protection: Protection | None = None,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> BackupReport:
    """Write a backup of the instance to ``destination``, mode 0600.

    Raises `UsageError` when the destination is there already, is inside the instance, or can't be encrypted for;
    `InstanceBusy` during a restore; `DamagedData` for a damaged ledger or database; `PikobotError` when the disk
    is full. Takes the disk space of a copy besides that of the backup.
    """
    protection = protection or Protection()
    protection.check()
    target = _checked(destination, instance, overwrite)
    config = _config(instance)
    with ExitStack() as stack:
        db = stack.enter_context(_readable(instance, clock))
        place = stack.enter_context(workspace(target.parent, target.name, clock))
        private = place
        if protection.is_on:
            private = stack.enter_context(workspace(instance.run_dir, replacing.SNAPSHOT_NAME, clock))
        snapshot = private / "snapshot"
        description = _snapshot(db, snapshot, progress)
        skills, left_out = _skills(instance)
        contents = [
            _Content(DATABASE_NAME, snapshot),
            _Content(LEDGER_NAME, _ledger(instance, snapshot)),
            _Content(CONFIG_NAME, config),
            *skills,
        ]
        manifest = _manifest(description, contents, clock)
        archive = place / "archive"
        _write(archive, manifest, contents, protection, progress)
        _publish(archive, target, overwrite)
        return BackupReport(target, target.stat().st_size, manifest, left_out)


def _checked(destination: Path, instance: Instance, overwrite: bool) -> Path:
    """Where the backup goes, links resolved."""
    target = Path(os.path.realpath(destination))
    root = Path(os.path.realpath(instance.root))
    try:
        target.parent.stat()
    except OSError as error:
        raise UsageError(f"{target.parent} is not a directory that can be used: {error.strerror}") from None
    if target == root or root in target.parents:
        raise UsageError(f"{destination} is inside the instance: name a file elsewhere, best on another disk")
    if target.is_dir():
        raise UsageError(
            f"{destination} is a directory: name a file in it, such as {destination}/piko.backup"
        )
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is not a directory: choose another place")
    _refuse_existing(target, overwrite)
    return target


def _refuse_existing(target: Path, overwrite: bool) -> None:
    if not overwrite and os.path.lexists(target):
        raise UsageError(f"{target} is there already: name another file, or replace it with --force")


def _config(instance: Instance) -> bytes:
    """The settings as they are; an accepted config.toml has no place for a secret."""
    instance.load_config()
    return read_text(instance.config_path).encode()


@contextmanager
def _readable(instance: Instance, clock: Clock) -> Iterator[Database]:
    """The database: opened as for any command when nobody serves it, else beside who does."""
    lock = acquire_visitor_lock(instance)
    if not isinstance(lock, ServedBy):
        lock.release()
        with (
            acquire_serving_lock(instance, clock),
            closing(open_memory(instance.database_path, instance.ledger_path, clock)) as db,
        ):
            yield db
        return
    _refuse_restore(instance)
    if not instance.database_path.is_file():
        raise InstanceBusy(f"the instance {instance.root} is just being made by {lock}: try again")
    with closing(Database(instance.database_path, clock)) as db:
        yield db
    _refuse_restore(instance)


def _refuse_restore(instance: Instance) -> None:
    if any(os.path.lexists(instance.root / name) for name in replacing.NAMES):
        raise InstanceBusy(f"the instance {instance.root} is being restored: try again when that has ended")


def _snapshot(db: Database, path: Path, progress: Progress) -> Description:
    with db.read() as conn:
        total = expected_size(conn)
    is_stopped = threading.Event()

    def proceed(done: int) -> bool:
        progress("copying the database", min(done, total), total)
        return not is_stopped.is_set()

    try:
        db.perform(write_snapshot, path, proceed)
    except BaseException:
        is_stopped.set()  # when it was us that were interrupted, not the copy
        raise
    with open_unchanging(path) as conn:
        description = describe(conn)
    if description is None:
        raise DamagedData(f"{db.path} is not a database of pikobot; see RECOVERY.md")
    return description


def _ledger(instance: Instance, snapshot: Path) -> bytes:
    """The ledger file, checked to be whole and to tell the same history as the snapshot, as far as both go."""
    path = instance.ledger_path
    try:
        content = ledger.read_whole_lines(path)
    except FileNotFoundError:
        raise DamagedData(f"{path} is missing: the next start of pikobot writes it again") from None
    chain = ledger.parse_chain(path, content)
    ours = chain_in(snapshot)
    if not (continues(chain, ours) or continues(ours, chain)):
        raise DamagedData(f"{path} and the database have gone different ways: see RECOVERY.md")
    return content


def _skills(instance: Instance) -> tuple[list[_Content], tuple[str, ...]]:
    """The files of the skills, and what is left out because it is none. Links are not followed."""
    contents, left_out = [], []
    try:
        for directory, names, files in os.walk(instance.skills_dir, onerror=_raise):
            names.sort()
            links = [name for name in names if os.path.islink(os.path.join(directory, name))]
            for name in sorted([*files, *links]):
                path = Path(directory, name)
                mode = path.lstat().st_mode
                member = f"{SKILLS_NAME}/{path.relative_to(instance.skills_dir).as_posix()}"
                if not stat.S_ISREG(mode) or not _is_unicode(member):
                    left_out.append(member)
                    continue
                contents.append(_Content(member, path, bool(mode & stat.S_IXUSR)))
    except OSError as error:
        raise os_failure("read", instance.skills_dir, error) from error
    return contents, tuple(left_out)


def _is_unicode(name: str) -> bool:
    return name == name.encode(errors="replace").decode()


def _raise(error: OSError) -> None:
    if error.errno != errno.ENOENT:
        raise error


def _manifest(description: Description, contents: list[_Content], clock: Clock) -> Manifest:
    return Manifest(
        format=FORMAT,
        pikobot=__version__,
        schema_version=description.schema_version,
        instance=description.instance,
        created_at=iso_time(clock.now_ms()),
        ledger=LedgerHead(position=description.tip.position, hash=description.tip.hash.hex()),
        members=tuple(_member(content) for content in contents),
    )


def _member(content: _Content) -> Member:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(content):
        digest.update(chunk)
        size += len(chunk)
    return Member(name=content.name, size=size, sha256=digest.hexdigest(), executable=content.is_executable)


def _chunks(content: _Content) -> Iterator[bytes]:
    if isinstance(content.data, bytes):
        yield content.data
        return
    try:
        with content.data.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise os_failure("read", content.data, error) from error


def _write(
    archive: Path, manifest: Manifest, contents: list[_Content], protection: Protection, progress: Progress
) -> None:
    total = sum(container.stored_size(member.name, member.size) for member in manifest.members)
    try:
        with open(
            os.open(archive, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE), "wb"
        ) as file:
            with encrypting(file, protection) as stream:
                _write_container(
                    stream, manifest, contents, lambda done: progress("writing", min(done, total), total)
                )
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise os_failure("write", archive.parent.parent, error) from error


def _write_container(
    stream: BinaryIO, manifest: Manifest, contents: list[_Content], wrote: Callable[[int], None]
) -> None:
    document = manifest.to_bytes()
    for name, data in ((SUMS_NAME, container.sums_of(document, MANIFEST_NAME)), (MANIFEST_NAME, document)):
        stream.write(container.header(name, len(data)) + data + container.padding(len(data)))
    done = 0
    for member, content in zip(manifest.members, contents, strict=True):
        stream.write(container.header(member.name, member.size, executable=member.executable))
        digest = hashlib.sha256()
        for chunk in _chunks(content):
            digest.update(chunk)
            stream.write(chunk)
            done += len(chunk)
            wrote(done)
        if digest.hexdigest() != member.sha256:
            raise PikobotError(f"{member.name} has changed while it was read: try again")
        stream.write(container.padding(member.size))
    stream.write(container.END)


def _publish(archive: Path, target: Path, overwrite: bool) -> None:
    """Give the finished file its name."""
    try:
        _refuse_existing(target, overwrite)
        os.replace(archive, target)
        sync_directory(target.parent)
    except OSError as error:
        raise os_failure("write", target, error) from error
