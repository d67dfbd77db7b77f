"""`restore`: a backup becomes the instance, and nothing that was erased since comes back with it.

    check every byte while unpacking into the stage ─▶ migrate ─▶ unite the ledgers: the backup's, the instance's,
    given ones ─▶ erase again what they name ─▶ read every staged file for it ─▶ commit by one rename

Until the commit the old instance is untouched; `pikobot.replacing` says what a crash leaves. The instance keeps its
credentials.toml, everything else becomes the backup's.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from pikobot import identity, replacing
from pikobot.backup.encryption import Keys
from pikobot.backup.ledgers import Union, chain_at, chain_in, given_chain, unite
from pikobot.backup.manifest import CONFIG_NAME, DATABASE_NAME, LEDGER_NAME, Manifest, Member
from pikobot.backup.reading import Progress, check_is_there, no_progress, read_backup
from pikobot.clock import Clock
from pikobot.config import parse_config
from pikobot.credentials import create_credentials
from pikobot.errors import ConfigError, DamagedData, ExitCode, PikobotError, SchemaTooNew, UsageError
from pikobot.files import DIRECTORY_MODE, FILE_MODE, os_failure, read_text
from pikobot.instance import Instance, is_instance, make_root
from pikobot.memory.forgetting import ledger
from pikobot.memory.forgetting.byte_scan import Erased, needles_of, scan
from pikobot.memory.forgetting.forget import finish_interrupted
from pikobot.memory.forgetting.ledger import Chain
from pikobot.memory.reindexing import reindex
from pikobot.serving import acquire_serving_lock
from pikobot.store.connection import Database
from pikobot.store.inspection import inspect, inspect_structure
from pikobot.store.prepare import open_database
from pikobot.store.schema import known_migrations
from pikobot.store.snapshot import describe, open_unchanging
from pikobot.store.sources import count_sources
from pikobot.text import Count

MAX_NAMED = 10


@dataclass(frozen=True)
class RestoreReport:
    """What the instance is now. ``erased_again``: ledger rows that the backup's database did not know.

    ``other_way`` of them come from a ledger that had gone another way. ``other_ledgers`` were found besides the
    backup's own. ``has_replaced``: there was a database. ``damages`` came with the backup; ``left``: where something
    of what was erased is left, or could not be looked for.
    """

    manifest: Manifest
    sources: int
    erased_again: int
    other_way: int
    other_ledgers: int
    has_replaced: bool
    damages: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """What `pikobot verify` would end with for these."""
        if self.damages:
            return ExitCode.DAMAGED
        return ExitCode.FAILED if self.left else ExitCode.DONE


def restore(
    backup: Path,
    root: Path,
    *,
    clock: Clock,
    keys: Keys | None = None,
    ledgers: Sequence[Path] = (),
    progress: Progress = no_progress,
) -> RestoreReport:
    """Put a backup in the place of the instance at ``root``, or make one there.

    Raises `InstanceBusy` while any process uses the instance, `UsageError` for a file that is no backup and for a
    ledger or an instance that does not belong to it, `DamagedData` for a damaged backup or ledger and a newer
    schema. The instance is as it was then.
    """
    check_is_there(backup)
    existed = os.path.exists(root)
    if Instance(root).database_path.is_dir():
        raise UsageError(f"{Instance(root).database_path} is a directory: move it away, then restore")
    instance = make_root(root)
    with acquire_serving_lock(instance, clock):
        try:
            report = _stage(backup, instance, clock, keys or Keys(), ledgers, progress)
            replacing.commit(root)
        except BaseException:
            shutil.rmtree(root / replacing.STAGE, ignore_errors=True)
            if not is_instance(root):
                _unmake(instance, existed)
            raise
        replacing.complete(root)
        return report


def _unmake(instance: Instance, existed: bool) -> None:
    """Leave nothing where nothing was."""
    shutil.rmtree(instance.run_dir, ignore_errors=True)
    if not existed:
        with contextlib.suppress(OSError):
            instance.root.rmdir()


def _stage(
    backup: Path, instance: Instance, clock: Clock, keys: Keys, ledgers: Sequence[Path], progress: Progress
) -> RestoreReport:
    """Make the whole new instance in the stage, on disk but for fsync."""
    stage = Instance(instance.root / replacing.STAGE)
    try:
        stage.root.mkdir(mode=DIRECTORY_MODE)
        stage.skills_dir.mkdir(mode=DIRECTORY_MODE)
    except OSError as error:
        raise os_failure("write", instance.root, error) from error
    manifest = _unpack(backup, stage, keys, progress)
    _check_staged(backup, stage, manifest)
    chains = list(_chains(backup, stage, instance, manifest, ledgers))
    union = unite(chain_in(stage.database_path), chains)
    sources, damages, left = _obey(stage, union, clock, progress)
    if not os.path.lexists(instance.credentials_path):
        create_credentials(stage.credentials_path)
    return RestoreReport(
        manifest=manifest,
        sources=sources,
        erased_again=len(union.continuing) + len(union.elsewhere),
        other_way=len(union.elsewhere),
        other_ledgers=len(chains) - 1,
        has_replaced=instance.database_path.exists(),
        damages=damages,
        left=left,
    )


def _unpack(backup: Path, stage: Instance, keys: Keys, progress: Progress) -> Manifest:
    read = read_backup(backup, keys, sink=lambda member: _staged(stage.root, member), progress=progress)
    if read.damages or read.manifest is None:
        raise DamagedData(
            f"{backup} is damaged: {'; '.join(read.damages[:MAX_NAMED])}. Nothing was changed: take another backup"
        )
    return read.manifest


@contextlib.contextmanager
def _staged(root: Path, member: Member) -> Iterator[BinaryIO]:
    """The file that a member becomes, new in the stage."""
    path = root.joinpath(*PurePosixPath(member.name).parts)
    try:
        path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        mode = DIRECTORY_MODE if member.executable else FILE_MODE
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        with open(os.open(path, flags, mode), "wb") as file:
            yield file
    except OSError as error:
        raise os_failure("write", root, error) from error


def _check_staged(backup: Path, stage: Instance, manifest: Manifest) -> None:
    """What the manifest says of the database is so; schema and settings are ones that this program takes."""
    newest = known_migrations()[-1].version
    if manifest.schema_version > newest:
        raise SchemaTooNew(
            f"{backup} has schema {manifest.schema_version}, this pikobot knows {newest}: use a newer pikobot"
        )
    with open_unchanging(stage.database_path) as conn:
        description = describe(conn)
    found = None
    if description is not None:
        tip = description.tip
        found = (description.instance, description.schema_version, tip.position, tip.hash.hex())
    head = manifest.ledger
    if found != (manifest.instance, manifest.schema_version, head.position, head.hash):
        raise DamagedData(f"{backup}: {DATABASE_NAME} is not the one that its manifest describes")
    try:
        parse_config(read_text(stage.config_path), f"{CONFIG_NAME} in {backup}")
    except ConfigError as error:
        raise ConfigError(f"{error}; a newer pikobot may know it") from None


def _chains(
    backup: Path, stage: Instance, instance: Instance, manifest: Manifest, ledgers: Sequence[Path]
) -> Iterator[Chain]:
    """Every other ledger there is, each checked to be of the backup's instance."""
    try:
        packed = chain_at(stage.ledger_path)
    except DamagedData as error:
        raise DamagedData(f"{backup}: {LEDGER_NAME} in it is broken ({error})") from None
    if packed is None or packed.instance != manifest.instance:
        raise DamagedData(f"{backup}: {LEDGER_NAME} in it belongs to another instance")
    yield packed
    for path in ledgers:
        yield given_chain(path, manifest.instance)
    _refuse_other(instance, identity.recorded_id(instance.database_path), manifest)
    for found in _existing_chains(instance):
        _refuse_other(instance, found.instance, manifest)
        yield found


def _existing_chains(instance: Instance) -> Iterator[Chain]:
    """The ledgers of the instance that is to be replaced; its database may be what is damaged."""
    try:
        chain = chain_at(instance.ledger_path)
    except DamagedData as error:
        raise DamagedData(
            f"{error} To restore without it: move {instance.ledger_path} away, and give the newest ledger that is "
            "whole with --ledger; what only the broken one names comes back"
        ) from None
    if chain is not None:
        yield chain
    with contextlib.suppress(DamagedData):
        if instance.database_path.is_file() and instance.database_path.stat().st_size:
            own = chain_in(instance.database_path)
            if own.instance:
                yield own


def _refuse_other(instance: Instance, found: str | None, manifest: Manifest) -> None:
    if found is not None and found != manifest.instance:
        raise UsageError(
            f"{instance.root} is another instance ({found}, the backup is of {manifest.instance}): "
            "choose an empty directory with --instance"
        )


def _obey(
    stage: Instance, union: Union, clock: Clock, progress: Progress
) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Migrate the staged database, erase what the ledgers name, prove it.

    Returns how many sources stand, what is damaged, and where something of what was erased may be left.
    """
    progress("restoring", 0, 1)
    with closing(open_database(stage.database_path, clock)) as db:
        _make_whole(db)
        erased = db.perform(ledger.replay, union.continuing, union.elsewhere) if union else Erased()
        stage.ledger_path.unlink()  # written anew, from all rows
        finished = finish_interrupted(db, stage.ledger_path)
        if finished.problem is not None:
            raise PikobotError(f"what was erased can't be removed from the copy: {finished.problem}")
        left = _prove(db, stage, erased)
        with db.read() as conn:
            return count_sources(conn, now_ms=clock.now_ms()), tuple(inspect(conn)), tuple(left)


def _make_whole(db: Database) -> None:
    """Refuse a damaged database; damaged indexes are made again first."""
    with db.read() as conn:
        findings = inspect_structure(conn)
    if findings:
        reindex(db)
        with db.read() as conn:
            findings = inspect_structure(conn)
    if findings:
        raise DamagedData(
            f"the database was damaged when it was backed up: {'; '.join(findings[:MAX_NAMED])}"
        )


def _prove(db: Database, stage: Instance, erased: Erased) -> list[str]:
    """Look for what was erased in every staged file. Raises `PikobotError` when the database still holds some."""
    report = scan(stage.root, db, needles_of(erased))
    if any(find.file.startswith(DATABASE_NAME) for find in report.finds):
        raise PikobotError("the restored database still holds what was erased: please report this")
    left = [f"{find.file} holds {Count(find.fragments):fragment} of what was erased" for find in report.finds]
    return [*left, *(f"not looked through: {problem}" for problem in report.unreadable)]
