"""`pikobot verify` and `pikobot reindex`: is everything sound, and make the indexes again."""

import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

from pikobot.backup.encryption import Keys
from pikobot.backup.verify import Finding, exit_code, verify_backup, verify_instance
from pikobot.cli.inputs import named_path
from pikobot.cli.progress import progress_in_bytes
from pikobot.clock import SystemClock
from pikobot.errors import DamagedData, ExitCode
from pikobot.instance import Instance, open_instance
from pikobot.memory.opening import open_memory
from pikobot.memory.reindexing import reindex as reindex_memory
from pikobot.serving import acquire_serving_lock
from pikobot.store.inspection import inspect_structure
from pikobot.streams import emit, emit_json
from pikobot.text import Count


def verify(
    root: Path, backup: str | None = None, *, keys: Keys | None = None, as_json: bool = False
) -> ExitCode:
    """Check a backup, or the instance in an absolute directory; print every finding.

    0 when nothing was found, 6 when something is damaged, 1 for the rest. Changes nothing.
    """
    if backup is None:
        findings = verify_instance(open_instance(root, is_examined=True), SystemClock())
    else:
        with progress_in_bytes() as progress:
            findings = verify_backup(named_path(backup), keys or Keys(), progress)
    instance = Instance(root)
    findings = [replace(finding, detail=instance.completed(finding.detail)) for finding in findings]
    code = exit_code(findings)
    if as_json:
        document = {"findings": [asdict(finding) for finding in findings], "ok": code == ExitCode.DONE}
        emit_json(document)
    else:
        emit("".join(_line(finding) for finding in findings))
    return code


def reindex(root: Path) -> ExitCode:
    """Make the indexes of an instance again; 1 when old traces could not be removed.

    Raises `InstanceBusy` while a process serves it, `DamagedData` when the file itself is damaged: new indexes of it
    would look like a repair.
    """
    instance = open_instance(root)
    clock = SystemClock()
    with (
        acquire_serving_lock(instance, clock),
        closing(open_memory(instance.database_path, instance.ledger_path, clock)) as db,
    ):
        made = reindex_memory(db)
        with db.read() as conn:
            problems = inspect_structure(conn)
    if problems:
        raise DamagedData(f"the indexes were made again, but {problems[0]}")
    counts = f"{Count(made.sources):source}, {Count(made.facts):fact}, {Count(made.vectors):vector}"
    emit(f"indexed {counts}\n")
    if made.problem is None:
        return ExitCode.DONE
    sys.stderr.write(
        f"what stands in the database outside of rows could not be removed: {made.problem}; run it again\n"
    )
    return ExitCode.FAILED


def _line(finding: Finding) -> str:
    return f"{finding.state:<7}  {finding.check}: {finding.detail}\n"
