import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from pikobot.backup.verify import Finding, exit_code, verify_instance
from pikobot.errors import DamagedData, ExitCode, InstanceBusy
from pikobot.instance import Instance
from pikobot.memory.reindexing import reindex
from pikobot.serving import acquire_serving_lock, acquire_visitor_lock
from pikobot.store.connection import Database, connect
from pikobot.store.schema import known_migrations
from tests.backup.instances import (
    CLOCK,
    SAID,
    forget_text,
    lose_all,
    make_instance,
    opened,
    picture,
    restored,
    say,
)
from tests.backup.instances import back_up as make_backup
from tests.memory.conversing import read, write

NEWEST = known_migrations()[-1].version


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


def verified(instance: Instance) -> list[Finding]:
    """The findings; whatever there is to find, no byte changes."""
    before = picture(instance.root)
    findings = verify_instance(instance, CLOCK)
    assert picture(instance.root) == before
    return findings


def problems(instance: Instance) -> list[tuple[str, str, str]]:
    return [
        (one.check, one.state, one.detail.replace(f"{instance.root}/", ""))
        for one in verified(instance)
        if one.state != "ok"
    ]


def raw(instance: Instance, *statements: str) -> None:
    """Change the database behind pikobot's back."""
    connection = apsw.Connection(str(instance.database_path))
    try:
        for statement in statements:
            connection.execute(statement).fetchall()
    finally:
        connection.close()


def test_a_sound_instance_has_one_line_for_each_check(instance: Instance) -> None:
    forget_text(instance, SAID)
    findings = verified(instance)
    with opened(instance) as db:
        [(name,)] = read(db, "SELECT value FROM settings WHERE key = 'instance_id'")
    assert findings == [
        Finding("permissions", "ok", "the directory and what is private in it are yours alone"),
        Finding("settings", "ok", str(instance.config_path)),
        Finding("database", "ok", f"schema {NEWEST}, {name}"),
        Finding("erased ids", "ok", "2 ids are nowhere else"),
        Finding("ledger", "ok", "2 erasures, in file and database"),
        Finding("left files", "ok", "none"),
    ]
    assert exit_code(findings) == ExitCode.DONE


def test_an_instance_that_was_never_started_is_sound(instance: Instance) -> None:
    lose_all(instance)
    assert problems(instance) == []


def test_a_database_with_a_log_that_a_crash_has_left_is_read_as_it_is(
    instance: Instance, tmp_path: Path
) -> None:
    crashed = Instance(tmp_path / "crashed")
    connection = connect(instance.database_path)
    connection.execute("INSERT INTO settings VALUES ('unfinished_erasure', '1')")
    shutil.copytree(instance.root, crashed.root)
    connection.close()
    Path(f"{crashed.database_path}-shm").unlink()
    assert Path(f"{crashed.database_path}-wal").stat().st_size
    assert problems(crashed) == [
        ("erasures", "exposed", "an erasure was cut off: the next start of pikobot finishes it")
    ]


def test_what_a_process_serves_is_checked_beside_it(instance: Instance) -> None:
    with acquire_serving_lock(instance), opened(instance) as db:
        assert [one.state for one in verify_instance(instance, CLOCK)] == ["ok"] * 6
        write(db, lambda tx: tx.execute("UPDATE settings SET value = value"))


def test_while_another_command_works_it_is_busy(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    from functools import partial

    from pikobot.backup import verify

    monkeypatch.setattr(verify, "acquire_serving_lock", partial(acquire_serving_lock, visitor_wait_s=0))
    lock = acquire_visitor_lock(instance)
    with pytest.raises(InstanceBusy):
        verify_instance(instance, CLOCK)
    assert hasattr(lock, "release")
    lock.release()


SPOILED: list[tuple[list[str], list[str]]] = [
    (
        ["UPDATE sources_text_data SET block = zeroblob(length(block)) WHERE id > 10"],
        ["a text index is damaged: run `pikobot reindex`"],
    ),
    (
        ["DELETE FROM sources_text_docsize WHERE id = 1"],
        ["1 source is missing in the text index: run `pikobot reindex`"],
    ),
    (
        ["UPDATE settings SET value = 'other' WHERE key = 'segmenter'"],
        ["the text index was made by another segmenter: run `pikobot reindex`"],
    ),
    (
        ["PRAGMA foreign_keys = OFF", "DELETE FROM scopes"],
        [
            "4 rows of sources without scopes: restore a backup (RECOVERY.md)",
            "2 rows of threads without scopes: restore a backup (RECOVERY.md)",
        ],
    ),
]


@pytest.mark.parametrize(("statements", "expected"), SPOILED)
def test_what_is_wrong_in_the_database_is_named(
    instance: Instance, statements: list[str], expected: list[str]
) -> None:
    raw(instance, *statements)
    assert problems(instance) == [("database", "damaged", detail) for detail in expected]
    assert exit_code(verified(instance)) == ExitCode.DAMAGED


def test_a_damaged_page_and_a_file_that_is_no_database_are_named(instance: Instance) -> None:
    whole = instance.database_path.read_bytes()
    instance.database_path.write_bytes(whole[:40_000] + b"\xff" * 30_000 + whole[70_000:])
    found = problems(instance)
    assert ("database", "damaged") in {(check, state) for check, state, _ in found}
    instance.database_path.write_bytes(b"x" * 50_000)
    [(check, state, _)] = problems(instance)
    assert (check, state) == ("database", "damaged")
    instance.database_path.write_bytes(b"")
    [(check, state, detail)] = problems(instance)
    assert (check, state) == ("database", "damaged")
    assert detail.startswith("pikobot.sqlite3 is empty, and this instance had one")
    instance.database_path.unlink()
    [(check, state, detail)] = problems(instance)
    assert (check, state) == ("database", "damaged")
    assert detail.startswith("pikobot.sqlite3 is missing, and this instance had one")


def test_an_older_database_that_was_copied_back_is_found(instance: Instance) -> None:
    older = instance.database_path.read_bytes()
    forget_text(instance, SAID)
    instance.database_path.write_bytes(older)
    assert problems(instance) == [
        (
            "ledger",
            "damaged",
            "erasures.jsonl has 2 erasures and the database 0; the next start of pikobot makes them equal",
        )
    ]
    with opened(instance):
        pass
    assert problems(instance) == []


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _swap(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], lines[2], lines[1]]))


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (Path.unlink, "erasures.jsonl is missing; the next start of pikobot writes it again"),
        (_cut, "erasures.jsonl ends in a cut line; the next start of pikobot repairs it"),
        (_swap, "erasures.jsonl line 2 breaks the chain of hashes"),
    ],
)
def test_what_is_wrong_with_the_ledger_is_named(
    instance: Instance, spoil: Callable[[Path], None], expected: str
) -> None:
    forget_text(instance, SAID)
    spoil(instance.ledger_path)
    [(check, state, detail)] = problems(instance)
    assert (check, state) == ("ledger", "damaged")
    assert detail.startswith(expected)


def test_the_ledger_of_another_instance_and_a_broken_chain_inside_are_named(
    instance: Instance, tmp_path: Path
) -> None:
    forget_text(instance, SAID)
    own = instance.ledger_path.read_bytes()
    instance.ledger_path.write_bytes(make_instance(tmp_path / "other").ledger_path.read_bytes())
    [(_, state, detail)] = problems(instance)
    assert (state, "belongs to another instance" in detail) == ("damaged", True)
    instance.ledger_path.write_bytes(own)
    raw(instance, "UPDATE erasures SET erased_at_ms = 1 WHERE position = 2")
    [(_, state, detail)] = problems(instance)
    assert (state, "broken at position 2" in detail) == ("damaged", True)


def test_copies_of_erased_rows_outside_of_rows_are_found_and_reindexing_removes_them(
    instance: Instance,
) -> None:
    forget_text(instance, SAID)
    assert problems(instance) == []
    with opened(instance) as db:
        [(erased,)] = read(db, "SELECT public_id FROM erasures WHERE position = 1")
        pages = {
            name: min(pages_in(db, name)) for name in ("sources", "sqlite_autoindex_erasures_1", "settings")
        }
    for name in ("sqlite_autoindex_erasures_1", "settings", "sources"):
        leave_outside_of_rows(instance.database_path, pages[name], erased.encode())
        found = problems(instance)
        assert bool(found) == (name != "sqlite_autoindex_erasures_1")
    assert found == [
        ("erased ids", "exposed", "pikobot.sqlite3 names 1 erased id outside of rows: run `pikobot reindex`")
    ]
    with opened(instance) as db:
        reindex(db)
    assert problems(instance) == []


def test_a_directory_in_the_place_of_the_ledger_is_damage(instance: Instance) -> None:
    instance.ledger_path.unlink()
    instance.ledger_path.mkdir(mode=0o755)
    assert problems(instance) == [
        (
            "ledger",
            "damaged",
            "erasures.jsonl is a directory: move it away, and the next start of pikobot writes the file again",
        )
    ]
    with pytest.raises(DamagedData, match="is a directory: move it away"), opened(instance):
        pass


def test_rows_of_an_index_that_are_out_of_use_are_found_and_reindexing_removes_them(
    instance: Instance,
) -> None:
    forget_text(instance, SAID)
    leave = "INSERT INTO sources_text_data (id, block) VALUES ((99 << 37) + 1, x'00000004')"
    raw(instance, leave, "INSERT INTO sources_text_idx (segid, term, pgno) VALUES (99, 'secret', 4)")
    detail = "2 rows of sources_text may hold what was erased: run `pikobot reindex`"
    assert problems(instance) == [("erased ids", "exposed", detail)]
    with opened(instance) as db:
        reindex(db)
    assert problems(instance) == []


def pages_in(db: Database, name: str) -> list[int]:
    return [row[0] for row in read(db, "SELECT pageno FROM dbstat WHERE name = ?", name)]


def leave_outside_of_rows(path: Path, page: int, data: bytes) -> None:
    """Write into the gap of a page as SQLite does when it moves rows."""
    with path.open("r+b") as file:
        file.seek((page - 1) * 16_384)
        gap = file.read(16_384).index(bytes(200))
        file.seek((page - 1) * 16_384 + gap + 100)
        file.write(data)


def test_erased_rows_that_are_there_again_and_copies_that_hold_them_are_found(instance: Instance) -> None:
    older = instance.database_path.read_bytes()
    forget_text(instance, SAID)
    copy = instance.root / "pikobot.sqlite3.bak"
    copy.write_bytes(older)
    assert problems(instance) == [
        (
            "erased ids",
            "exposed",
            "pikobot.sqlite3.bak names 2 erased ids: an old copy of the database? Delete it",
        )
    ]
    assert exit_code(verified(instance)) == ExitCode.FAILED
    copy.unlink()
    with opened(instance) as db:
        [(erased,)] = read(db, "SELECT public_id FROM erasures WHERE position = 1")
    raw(instance, f"UPDATE sources SET public_id = '{erased}' WHERE id = (SELECT max(id) FROM sources)")
    assert problems(instance) == [
        ("database", "damaged", "1 row of sources, erased before, there again: start pikobot once")
    ]


def test_what_is_open_to_others_is_named_with_the_command_that_closes_it(instance: Instance) -> None:
    instance.credentials_path.chmod(0o640)
    instance.database_path.chmod(0o644)
    found = problems(instance)
    assert [(check, state) for check, state, _ in found if check == "permissions"] == [
        ("permissions", "exposed"),
        ("permissions", "exposed"),
    ]
    assert all("run `chmod 600 " in detail for check, _, detail in found if check == "permissions")


def test_settings_that_cannot_be_read_are_named(instance: Instance) -> None:
    instance.config_path.write_text("[chat]\nmodle = 'x'\n")
    [(check, state, _)] = problems(instance)
    assert (check, state) == ("settings", "exposed")


def test_what_was_cut_off_has_left_is_named(instance: Instance) -> None:
    (instance.root / "pikobot.sqlite3.before-0002").write_text("x")
    (instance.root / ".config.toml.abc").write_text("x")
    ending = " was left by something cut off: start pikobot once, then delete it"
    assert problems(instance) == [
        ("left files", "exposed", f"{name}{ending}")
        for name in (".config.toml.abc", "pikobot.sqlite3.before-0002")
    ]
    say(instance, "x")  # a start removes the copy
    assert problems(instance) == [("left files", "exposed", f".config.toml.abc{ending}")]


def test_the_snapshot_that_a_killed_backup_has_left_goes_with_the_first_lock(instance: Instance) -> None:
    left = instance.run_dir / ".backup._x.partial"
    left.mkdir()
    with acquire_serving_lock(instance):
        assert not left.exists()
        left.mkdir()
        assert [one.detail for one in verify_instance(instance, CLOCK) if one.state != "ok"] == [
            f"{left} was left by something cut off: start pikobot once, then delete it"
        ]


def test_what_was_restored_is_sound(instance: Instance, tmp_path: Path) -> None:
    backup = make_backup(instance, tmp_path / "b")
    restored(backup, tmp_path / "copy")
    assert problems(Instance(tmp_path / "copy")) == []
    assert os.listdir(tmp_path / "copy" / "run") == ["lock"]


def test_no_damage_of_the_file_makes_the_check_itself_fail(instance: Instance) -> None:
    """Random stretches are overwritten: whatever SQLite says to it becomes a finding."""
    whole = instance.database_path.read_bytes()
    chance = random.Random(7)
    found = set()
    for _ in range(80):
        at, size = chance.randrange(len(whole)), chance.choice([1, 16, 4000, 60_000])
        if chance.random() < 0.3:
            at %= 20_000
        noise = chance.randbytes(size)
        instance.database_path.write_bytes((whole[:at] + noise + whole[at + size :])[: len(whole)])
        found.add(exit_code(verify_instance(instance, CLOCK)))
    assert ExitCode.DAMAGED in found
    assert found <= {ExitCode.DAMAGED, ExitCode.DONE}  # unused bytes mean nothing


def test_the_ledger_is_checked_alone_where_the_database_cannot_be_read(instance: Instance) -> None:
    forget_text(instance, SAID)
    instance.database_path.write_bytes(b"nothing like a database " * 100)
    found = [one for one in verified(instance) if one.check == "ledger"]
    assert found == [Finding("ledger", "ok", "2 erasures in the file, not compared with the database")]
    line = instance.ledger_path.read_bytes().splitlines(keepends=True)[1]
    instance.ledger_path.write_bytes(instance.ledger_path.read_bytes().replace(line, b"{}\n"))
    assert ("ledger", "damaged") in [(one.check, one.state) for one in verified(instance)]
    instance.database_path.unlink()
    assert ("ledger", "damaged") in [(one.check, one.state) for one in verified(instance)]
