"""`pikobot verify` and `pikobot reindex`; the repairs of RECOVERY.md that are made of them."""

import json
import shutil
import subprocess
from pathlib import Path

import apsw
import pytest

from pikobot.backup.encryption import Keys
from pikobot.cli.maintenance import reindex, verify
from pikobot.errors import DamagedData, ExitCode, InstanceBusy, UsageError
from pikobot.instance import Instance
from pikobot.memory import reindexing
from pikobot.memory.opening import open_memory
from pikobot.serving import acquire_serving_lock
from pikobot.store.text.index import search_text
from tests.backup.instances import (
    CLOCK,
    KEPT,
    MARKERS,
    SAID,
    back_up,
    files_with,
    forget_text,
    make_instance,
    texts,
)
from tests.end_to_end.instances import run

CHECKS = ["permissions", "settings", "database", "erased ids", "ledger", "left files"]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


def spoil_index(instance: Instance) -> None:
    connection = apsw.Connection(str(instance.database_path))
    connection.execute("UPDATE sources_text_data SET block = zeroblob(length(block)) WHERE id > 10")
    connection.close()


def spoil_table(instance: Instance, table: str) -> None:
    """Overwrite the first page of a table."""
    connection = apsw.Connection(str(instance.database_path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    [(page,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,))
    [(page_bytes,)] = connection.execute("PRAGMA page_size")
    connection.close()
    with instance.database_path.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * 100)


def test_each_check_is_a_line_and_0_means_sound(
    instance: Instance, capfd: pytest.CaptureFixture[str]
) -> None:
    assert verify(instance.root) == ExitCode.DONE
    out, err = capfd.readouterr()
    assert err == ""
    assert [line.split("  ", 1)[0].strip() for line in out.splitlines()] == ["ok"] * 6
    assert [line[9:].partition(":")[0] for line in out.splitlines()] == CHECKS


def test_damage_is_6_and_exposure_1_and_json_is_one_document(
    instance: Instance, capfd: pytest.CaptureFixture[str]
) -> None:
    (instance.root / "pikobot.sqlite3.before-0002").write_text("x")
    assert verify(instance.root, as_json=True) == ExitCode.FAILED
    spoil_index(instance)
    assert verify(instance.root, as_json=True) == ExitCode.DAMAGED
    first, second = map(json.loads, capfd.readouterr().out.splitlines())
    assert (first["ok"], second["ok"]) == (False, False)
    assert [one for one in second["findings"] if one["state"] == "damaged"] == [
        {
            "check": "database",
            "state": "damaged",
            "detail": f"a text index is damaged: run `pikobot reindex {instance.option}`",
        }
    ]


def test_a_damaged_index_is_made_again(instance: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    spoil_index(instance)
    assert reindex(instance.root) == ExitCode.DONE
    assert capfd.readouterr().out == "indexed 4 sources, 0 facts, 0 vectors\n"
    assert verify(instance.root) == ExitCode.DONE
    db = open_memory(instance.database_path, instance.ledger_path, CLOCK)
    try:
        with db.read() as conn:
            for query in ("Porto", "波尔图", "terracottapot"):
                hits = search_text(conn, query=query, scope_ids=None, now_ms=CLOCK.now_ms(), limit=9)
                assert len(hits) >= 1, query
    finally:
        db.close()


@pytest.mark.parametrize("table", ["threads", "fact_evidence"])
def test_a_damaged_file_is_told_in_one_sentence_and_no_index_mends_it(
    instance: Instance, table: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil_table(instance, table)
    assert verify(instance.root) == ExitCode.DAMAGED
    [damaged] = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("ok  ")]
    said = "the file is damaged: copy its directory, then follow RECOVERY.md (SQLite says: Tree "
    assert damaged.startswith(f"damaged  database: {said}")
    assert "***" not in damaged
    with pytest.raises(DamagedData) as raised:
        reindex(instance.root)
    assert str(raised.value).startswith(f"the indexes were made again, but {said}")
    assert raised.value.exit_code == ExitCode.DAMAGED


def test_reindex_waits_for_nobody(instance: Instance) -> None:
    with acquire_serving_lock(instance), pytest.raises(InstanceBusy):
        reindex(instance.root)


def test_an_index_that_is_made_while_old_traces_stay_has_failed(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reindexing, "remove_traces", lambda db: "the disk is full")
    assert reindex(instance.root) == ExitCode.FAILED
    out, err = capfd.readouterr()
    assert out == "indexed 4 sources, 0 facts, 0 vectors\n"
    assert "could not be removed: the disk is full; run it again" in err


def test_a_backup_is_verified_without_any_instance(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    backup = back_up(instance, tmp_path / "b")
    assert verify(tmp_path / "nowhere", str(backup), keys=Keys()) == ExitCode.DONE
    assert capfd.readouterr().out.startswith("ok       backup: 5 members, schema ")
    with pytest.raises(UsageError):
        verify(tmp_path / "nowhere", str(tmp_path / "none"))


def test_the_command_names_the_damaged_member_and_ends_with_6(instance: Instance, tmp_path: Path) -> None:
    backup = back_up(instance, tmp_path / "b")
    whole = bytearray(backup.read_bytes())
    whole[whole.index(b"[chat]")] ^= 4
    backup.write_bytes(whole)
    done = run("verify", str(backup), "--instance", str(instance.root))
    assert (done.code, done.out, done.err) == (
        ExitCode.DAMAGED,
        "damaged  backup: config.toml is damaged\n",
        "",
    )
    done = run("verify", "--json", "--instance", str(instance.root))
    assert (done.code, json.loads(done.out)["ok"]) == (ExitCode.DONE, True)
    assert run("verify", "--instance", str(tmp_path / "none")).code == ExitCode.USAGE


def test_an_instance_is_built_of_the_whole_members_of_a_damaged_backup(
    instance: Instance, tmp_path: Path
) -> None:
    """As RECOVERY.md has it."""
    backup = back_up(instance, tmp_path / "b")
    whole = bytearray(backup.read_bytes())
    whole[whole.index(b"[chat]")] ^= 4
    backup.write_bytes(whole)
    made = tmp_path / "made"
    made.mkdir(mode=0o700)
    members = ["pikobot.sqlite3", "erasures.jsonl"]
    subprocess.run(["tar", "-xf", str(backup), "-C", str(made), *members], check=True)
    assert run("init", "--instance", str(made), "--set", "chat.provider=none").code == ExitCode.DONE
    assert run("verify", "--instance", str(made)).code == ExitCode.DONE
    assert texts(Instance(made)) == texts(instance)


def test_a_lost_instance_comes_back_by_the_ledger_of_a_newer_backup(
    instance: Instance, tmp_path: Path
) -> None:
    """As RECOVERY.md has it."""
    old = back_up(instance, tmp_path / "old")
    forget_text(instance, SAID)
    newer = back_up(instance, tmp_path / "newer")
    shutil.rmtree(instance.root)
    subprocess.run(["tar", "-xf", str(newer), "-C", str(tmp_path), "erasures.jsonl"], check=True)
    ledger = str(tmp_path / "erasures.jsonl")
    done = run("restore", str(old), "--instance", str(instance.root), "--ledger", ledger)
    assert (done.code, done.err) == (ExitCode.DONE, "")
    assert texts(instance) == [KEPT, "Noted."]
    assert files_with(instance.root, *MARKERS) == []


def test_a_restore_that_was_cut_off_is_finished_by_any_command(instance: Instance, tmp_path: Path) -> None:
    """As RECOVERY.md has it."""
    (instance.root / "restoring").mkdir()
    (instance.root / "restoring" / "pikobot.sqlite3").write_text("half")
    assert run("verify", "--instance", str(instance.root)).code == ExitCode.DONE
    assert not (instance.root / "restoring").exists()
    shutil.copytree(
        instance.root, tmp_path / "restored", ignore=shutil.ignore_patterns("run", "credentials.toml")
    )
    (tmp_path / "restored").rename(instance.root / "restored")
    assert run("verify", "--instance", str(instance.root)).code == ExitCode.DONE
    assert not (instance.root / "restored").exists()
