"""Instances that are worth a backup: something said in two languages, answered, with an attachment and a skill."""

import hashlib
from contextlib import closing
from pathlib import Path

from pikobot import identity
from pikobot.backup.archive import create_backup
from pikobot.backup.encryption import Keys, Protection
from pikobot.backup.restore import RestoreReport, restore
from pikobot.clock import SystemClock
from pikobot.config_file import default_config_text, set_values
from pikobot.instance import Instance, create_instance
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.memory.opening import open_memory
from pikobot.store.connection import Database
from tests.memory.conversing import attach, exchange, read

CLOCK = SystemClock()
SAID = "The spare key lies under the terracottapot, 备用钥匙在赤陶花盆下面"
ANSWERED = "Quokkasnout noted it. 已记在紫毛毡本里。"
ATTACHED = "zebrastripe attachment 斑马条纹的附件".encode()
KEPT = "I moved to Porto in March 2024, 我三月搬到了波尔图"
MARKERS = ("terracottapot", "赤陶花盆", "Quokkasnout", "紫毛毡本", "zebrastripe", "斑马条纹")


def make_instance(root: Path) -> Instance:
    """In recall mode, with what is above in it, and a skill."""
    changes = [("chat.provider", "none"), ("embedding.provider", "disabled")]
    instance = create_instance(root, set_values(default_config_text(), changes))
    with opened(instance) as db:
        secret = exchange(db, SAID, ANSWERED)
        attach(db, secret.request, ATTACHED, "notes.txt")
        exchange(db, KEPT, "Noted.", thread="trip")
    skill = instance.skills_dir / "旅行" / "SKILL.md"
    skill.parent.mkdir()
    skill.write_text("# 旅行\nPlan a trip.\n")
    run = skill.with_name("run.sh")
    run.write_text("#!/bin/sh\n")
    run.chmod(0o700)
    return instance


def opened(instance: Instance) -> closing[Database]:
    return closing(open_memory(instance.database_path, instance.ledger_path, CLOCK))


def lose_all(instance: Instance) -> None:
    """Leave what `pikobot init` leaves, and a skill."""
    instance.database_path.unlink()
    instance.ledger_path.unlink()
    instance.root.joinpath(identity.NAME).unlink()


def back_up(instance: Instance, destination: Path, protection: Protection | None = None) -> Path:
    return create_backup(instance, destination, clock=CLOCK, protection=protection).path


def restored(backup: Path, root: Path, *ledgers: Path, keys: Keys | None = None) -> RestoreReport:
    return restore(backup, root, clock=CLOCK, ledgers=ledgers, keys=keys)


def say(instance: Instance, text: str) -> None:
    with opened(instance) as db:
        exchange(db, text, "Noted.")


def forget_text(instance: Instance, text: str) -> None:
    """Forget the source that has exactly this text, and prove it."""
    with opened(instance) as db:
        ids = [row[0] for row in read(db, "SELECT public_id FROM sources WHERE text = ?", text)]
        assert ids
        receipt = forget(db, instance.ledger_path, ids)
        assert isinstance(receipt, Receipt)
        assert receipt.is_clean


def texts(instance: Instance) -> list[str]:
    with opened(instance) as db:
        return [row[0] for row in read(db, "SELECT text FROM sources ORDER BY id")]


def files_with(directory: Path, *needles: str) -> list[str]:
    """Names of the files in or below a directory (or of the file) that hold one of the texts, UTF-8 or UTF-16."""
    wanted = [needle.encode(encoding) for needle in needles for encoding in ("utf-8", "utf-16-le")]
    files = [path for path in [directory, *directory.rglob("*")] if path.is_file()]
    return [path.name for path in files if any(each in path.read_bytes() for each in wanted)]


def picture(root: Path) -> dict[str, str]:
    """Every file of a directory with its mode and a hash of its content; the lock file is left out."""
    return {
        str(path.relative_to(root)): f"{path.lstat().st_mode:o} "
        + ("" if not path.is_file() else hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*"))
        if path.name != "lock"
    }
