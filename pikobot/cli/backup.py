"""`pikobot backup` and `pikobot restore`: an instance into one file, and back.

What was done is one line on stdout; what the owner should know besides goes to stderr.
"""

import getpass
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pikobot.backup.archive import create_backup
from pikobot.backup.encryption import Keys, Protection
from pikobot.backup.restore import RestoreReport
from pikobot.backup.restore import restore as restore_backup
from pikobot.cli.inputs import named_path
from pikobot.cli.progress import progress_in_bytes
from pikobot.clock import SystemClock
from pikobot.credentials import Secret
from pikobot.errors import ExitCode, UsageError
from pikobot.files import read_text
from pikobot.instance import open_instance
from pikobot.streams import emit
from pikobot.text import Count


@dataclass(frozen=True)
class BackupOptions:
    """How to write a backup."""

    recipients: tuple[str, ...] = ()
    passphrase_file: str | None = None
    asks_passphrase: bool = False
    overwrite: bool = False


def backup(root: Path, destination: str, options: BackupOptions) -> ExitCode:
    """Write a backup of the instance in an absolute directory. Raises what `create_backup` raises."""
    instance = open_instance(root)
    passphrase = None
    if options.passphrase_file is not None:
        passphrase = passphrase_in(options.passphrase_file)
    elif options.asks_passphrase:
        passphrase = _ask_twice()
    protection = Protection(options.recipients, passphrase)
    with progress_in_bytes() as progress:
        report = create_backup(
            instance,
            named_path(destination),
            clock=SystemClock(),
            protection=protection,
            overwrite=options.overwrite,
            progress=progress,
        )
    for name in report.left_out:
        sys.stderr.write(f"left out: {name!a} is no file of its own\n")
    sealed = ", encrypted" if protection.is_on else ""
    emit(f"{report.path}: {_size(report.size)}, {Count(len(report.manifest.members)):member}{sealed}\n")
    return ExitCode.DONE


def restore(root: Path, source: str, *, ledgers: Sequence[str] = (), keys: Keys) -> ExitCode:
    """Make a backup the instance in an absolute directory; 6 when it is damaged, 1 when erased text is left in a file.

    Raises what `backup.restore` raises.
    """
    with progress_in_bytes() as progress:
        report = restore_backup(
            named_path(source),
            root,
            clock=SystemClock(),
            keys=keys,
            ledgers=[named_path(one) for one in ledgers],
            progress=progress,
        )
    for note in _notes(report):
        sys.stderr.write(f"{note}\n")
    verb = "replaced by" if report.has_replaced else "made from"
    emit(
        f"{root}: {verb} the backup of {report.manifest.created_at}; {Count(report.sources):source}, "
        f"{Count(report.erased_again):later erasure} obeyed\n"
    )
    return report.exit_code


def keys_of(identity_files: Sequence[str], passphrase_file: str | None) -> Keys:
    """What a backup is opened with; a person on a terminal is asked for a passphrase when one is needed."""
    return Keys(
        identity_files=tuple(named_path(one) for one in identity_files),
        passphrase=None if passphrase_file is None else passphrase_in(passphrase_file),
        ask=_ask if sys.stdin.isatty() else None,
    )


def passphrase_in(file: str) -> Secret:
    """The first line of a file that only its owner can read."""
    path = named_path(file)
    try:
        lines = read_text(path, private=True).splitlines()
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    if not lines or not lines[0]:
        raise UsageError(f"{path} holds no passphrase in its first line")
    return Secret(lines[0])


def _ask() -> Secret:
    return Secret(getpass.getpass("Passphrase of the backup: "))


def _ask_twice() -> Secret:
    if not sys.stdin.isatty():
        raise UsageError("--passphrase asks on a terminal: give --passphrase-file FILE instead")
    first = getpass.getpass("Passphrase for the backup: ")
    if not first:
        raise UsageError("an empty passphrase protects nothing")
    if first != getpass.getpass("Once more: "):
        raise UsageError("the two passphrases differ")
    return Secret(first)


def _notes(report: RestoreReport) -> list[str]:
    notes = [*report.damages, *report.left]
    if not report.other_ledgers:
        notes.append(
            f"no other erasure ledger was found: what was forgotten after {report.manifest.created_at} may be "
            "there again; if you have a newer erasures.jsonl, restore again with --ledger"
        )
    if report.other_way:
        notes.append(
            f"{Count(report.other_way):erasure comes|erasures come} from a ledger that had gone another way"
        )
    return notes


def _size(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB"
