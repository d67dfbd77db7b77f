import functools
import gzip
import json
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pikobot.backup import restore as restoring
from pikobot.backup.archive import _Content, _manifest, _write
from pikobot.backup.encryption import Keys, Protection
from pikobot.backup.manifest import Manifest
from pikobot.backup.verify import exit_code, verify_instance
from pikobot.errors import (
    ConfigError,
    DamagedData,
    ExitCode,
    InstanceBusy,
    PikobotError,
    SchemaTooNew,
    UsageError,
)
from pikobot.instance import Instance
from pikobot.memory.forgetting.forget import Finished, finish_interrupted
from pikobot.memory.forgetting.ledger import parse_chain, read_whole_lines
from pikobot.serving import InstanceLock, acquire_serving_lock, acquire_visitor_lock
from pikobot.store.connection import Connection, Database
from pikobot.store.schema import known_migrations
from pikobot.store.snapshot import describe, open_unchanging
from tests.backup.instances import (
    CLOCK,
    KEPT,
    MARKERS,
    SAID,
    back_up,
    files_with,
    forget_text,
    make_instance,
    opened,
    picture,
    restored,
    say,
    texts,
)
from tests.fixtures.make_schema_fixture import ROWS, fixture_path
from tests.memory.conversing import exchange, read, write


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "piko")


@pytest.fixture
def backup(instance: Instance, tmp_path: Path) -> Path:
    return back_up(instance, tmp_path / "b")


def is_sound(instance: Instance) -> bool:
    return exit_code(verify_instance(instance, CLOCK)) == ExitCode.DONE


def unchanged(instance: Instance, work: Callable[[], object], error: type[Exception], match: str) -> None:
    """Whatever fails leaves every byte of the instance as it was."""
    before = picture(instance.root)
    with pytest.raises(error, match=match):
        work()
    assert picture(instance.root) == before


def test_a_backup_becomes_a_new_instance(instance: Instance, backup: Path, tmp_path: Path) -> None:
    copy = Instance(tmp_path / "a" / "copy")
    report = restored(backup, copy.root)
    assert (
        report.sources,
        report.erased_again,
        report.other_ledgers,
        report.has_replaced,
        report.exit_code,
    ) == (
        4,
        0,
        0,
        False,
        ExitCode.DONE,
    )
    assert sorted(os.listdir(copy.root)) == [
        "config.toml",
        "credentials.toml",
        "erasures.jsonl",
        "pikobot.sqlite3",
        "run",
        "skills",
    ]
    assert texts(copy) == texts(instance)
    assert copy.config_path.read_bytes() == instance.config_path.read_bytes()
    assert copy.ledger_path.read_bytes() == instance.ledger_path.read_bytes()
    assert copy.load_credentials(copy.load_config(), {}).operator_token is not None
    assert copy.credentials_path.read_bytes() != instance.credentials_path.read_bytes()
    modes = {
        path.name: f"{stat.S_IMODE(path.lstat().st_mode):o}"
        for path in [copy.root, *copy.skills_dir.rglob("*")]
    }
    assert modes == {"copy": "700", "旅行": "700", "SKILL.md": "600", "run.sh": "700"}
    assert is_sound(copy)


def test_a_restored_instance_is_the_old_one_and_keeps_its_keys(instance: Instance, backup: Path) -> None:
    credentials = instance.credentials_path.read_bytes()
    say(instance, "said after the backup")
    (instance.skills_dir / "new.md").write_text("x")
    instance.config_path.write_text(instance.config_path.read_text() + "# mine\n")
    report = restored(backup, instance.root)
    assert (report.has_replaced, report.sources, report.other_ledgers) == (True, 4, 2)
    assert KEPT in texts(instance)
    assert "said after the backup" not in texts(instance)
    assert files_with(instance.root, "said after the backup") == []
    assert sorted(path.name for path in instance.skills_dir.rglob("*")) == ["SKILL.md", "run.sh", "旅行"]
    assert "# mine" not in instance.config_path.read_text()
    assert instance.credentials_path.read_bytes() == credentials
    assert is_sound(instance)
    say(instance, "it goes on")
    restored(backup, instance.root)  # a second time
    assert is_sound(instance)


def test_what_was_erased_after_the_backup_does_not_come_back(
    instance: Instance, backup: Path, tmp_path: Path
) -> None:
    assert files_with(backup, *MARKERS)
    forget_text(instance, SAID)
    report = restored(backup, instance.root)
    assert report.erased_again == 2
    assert texts(instance) == [KEPT, "Noted."]
    assert files_with(instance.root, *MARKERS) == []
    assert files_with(back_up(instance, tmp_path / "b2"), *MARKERS) == []
    assert is_sound(instance)


def test_a_ledger_that_is_given_is_obeyed_where_nothing_else_is_left(
    instance: Instance, backup: Path, tmp_path: Path
) -> None:
    forget_text(instance, SAID)
    copy = Instance(tmp_path / "copy")
    assert restored(backup, copy.root, instance.ledger_path).erased_again == 2
    assert files_with(copy.root, *MARKERS) == []
    assert copy.ledger_path.read_bytes() == instance.ledger_path.read_bytes()
    assert files_with(back_up(copy, tmp_path / "b2"), *MARKERS) == []
    assert is_sound(copy)


def test_an_older_ledger_is_no_harm(instance: Instance, tmp_path: Path) -> None:
    older = tmp_path / "older.jsonl"
    older.write_bytes(instance.ledger_path.read_bytes())
    forget_text(instance, SAID)
    backup = back_up(instance, tmp_path / "b")
    copy = Instance(tmp_path / "copy")
    assert restored(backup, copy.root, older).erased_again == 0
    assert copy.ledger_path.read_bytes() == instance.ledger_path.read_bytes()


def test_the_file_or_the_database_of_the_instance_is_enough(instance: Instance, backup: Path) -> None:
    forget_text(instance, SAID)
    whole = instance.ledger_path.read_bytes()
    instance.ledger_path.unlink()
    assert restored(backup, instance.root).erased_again == 2
    assert instance.ledger_path.read_bytes() == whole
    instance.database_path.write_bytes(b"not a database" * 1000)
    assert restored(backup, instance.root).erased_again == 2
    assert files_with(instance.root, *MARKERS) == []
    assert is_sound(instance)


def test_ledgers_that_have_gone_different_ways_are_all_obeyed(
    instance: Instance, backup: Path, tmp_path: Path
) -> None:
    """Somebody has restored the backup elsewhere, and both copies have forgotten something else since."""
    copy = Instance(tmp_path / "copy")
    restored(backup, copy.root)
    forget_text(instance, SAID)
    forget_text(copy, KEPT)
    report = restored(backup, instance.root, copy.ledger_path)
    assert (report.erased_again, report.other_way) == (4, 2)
    assert texts(instance) == []
    assert files_with(instance.root, *MARKERS, "Porto", "波尔图") == []
    assert is_sound(instance)
    chain = parse_chain(instance.ledger_path, read_whole_lines(instance.ledger_path))
    others = parse_chain(copy.ledger_path, read_whole_lines(copy.ledger_path))
    assert {one.public_id for one in chain.erasures} > {one.public_id for one in others.erasures}
    assert restored(backup, instance.root, copy.ledger_path).other_way == 0  # all known by now
    assert is_sound(instance)


def test_what_depends_on_an_erased_source_in_the_backup_only_goes_as_well(
    instance: Instance, tmp_path: Path
) -> None:
    with opened(instance) as db:
        ids = [row[0] for row in read(db, "SELECT id FROM sources WHERE text = ?", SAID)]
        exchange(db, "where is it?", "Under the terracottapot, 在赤陶花盆下面", thread="later", reads=ids)
    backup = back_up(instance, tmp_path / "b")
    # the copy that forgets has never known the later answer
    other = Instance(tmp_path / "other")
    restored(backup, other.root)
    with opened(other) as db:
        write(db, lambda tx: tx.execute("DELETE FROM source_dependencies"))
        write(db, lambda tx: tx.execute("DELETE FROM run_sources"))
    forget_text(other, SAID)
    restored(backup, instance.root, other.ledger_path)
    assert files_with(instance.root, *MARKERS) == []
    assert "where is it?" in texts(instance)
    assert is_sound(instance)


def test_an_erasure_that_was_cut_off_before_the_backup_is_finished(
    instance: Instance, tmp_path: Path
) -> None:
    with opened(instance) as db:
        write(db, lambda tx: tx.execute("INSERT INTO settings VALUES ('unfinished_erasure', '1')"))
        with acquire_serving_lock(instance):
            backup = back_up(instance, tmp_path / "b")
    restored(backup, tmp_path / "copy")
    with opened(Instance(tmp_path / "copy")) as db:
        assert read(db, "SELECT key FROM settings WHERE key = 'unfinished_erasure'") == []


def test_an_encrypted_backup_is_restored_with_its_key_only(instance: Instance, tmp_path: Path) -> None:
    key = pytest.importorskip("pyrage").x25519.Identity.generate()
    backup = back_up(instance, tmp_path / "b", Protection(recipients=(str(key.to_public()),)))
    unchanged(instance, lambda: restored(backup, instance.root), UsageError, "--identity FILE")
    file = tmp_path / "key.txt"
    file.write_text(str(key))
    copy = Instance(tmp_path / "copy")
    restored(backup, copy.root, keys=Keys(identity_files=(file,)))
    assert texts(copy) == texts(instance)


# Refusals: the instance is as it was ---------------------------------------------------------------------------


def test_an_instance_in_use_is_busy(
    instance: Instance, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = functools.partial(acquire_serving_lock, visitor_wait_s=0)
    monkeypatch.setattr(restoring, "acquire_serving_lock", impatient)
    with acquire_serving_lock(instance), pytest.raises(InstanceBusy) as busy:
        restored(backup, instance.root)
    assert busy.value.exit_code == ExitCode.BUSY
    lock = acquire_visitor_lock(instance)
    assert isinstance(lock, InstanceLock)
    with lock:
        before = picture(instance.root)
        with pytest.raises(InstanceBusy, match="in use by another command"):
            restored(backup, instance.root)
        assert picture(instance.root) == before


def test_a_damaged_backup_is_refused_with_the_members_named(instance: Instance, backup: Path) -> None:
    whole = bytearray(backup.read_bytes())
    whole[whole.index(b"SQLite format 3") + 60] ^= 1
    whole[whole.rindex(b"# \xe6")] ^= 1
    backup.write_bytes(whole)
    unchanged(
        instance,
        lambda: restored(backup, instance.root),
        DamagedData,
        r"pikobot.sqlite3 is damaged; skills/旅行/SKILL.md is damaged. Nothing was changed: take another backup$",
    )
    backup.write_bytes(whole[:5000])
    unchanged(instance, lambda: restored(backup, instance.root), DamagedData, "cut off in pikobot.sqlite3")


def test_nothing_is_made_where_nothing_was_when_it_fails(backup: Path, tmp_path: Path) -> None:
    backup.write_bytes(backup.read_bytes()[:-1])
    with pytest.raises(DamagedData):
        restored(backup, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").mkdir(mode=0o700)
    with pytest.raises(DamagedData):
        restored(backup, tmp_path / "empty")
    assert os.listdir(tmp_path / "empty") == []


def test_a_directory_with_other_files_is_refused(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "other" / "thesis.txt").write_text("x")
    with pytest.raises(UsageError, match="holds other files and no pikobot instance"):
        restored(backup, tmp_path / "other")
    assert os.listdir(tmp_path / "other") == ["thesis.txt"]


def test_another_instance_is_not_replaced(backup: Path, tmp_path: Path) -> None:
    other = make_instance(tmp_path / "other")
    unchanged(
        other, lambda: restored(backup, other.root), UsageError, "is another instance .* empty directory"
    )
    other.database_path.unlink()  # its ledger still tells whose it is
    unchanged(other, lambda: restored(backup, other.root), UsageError, "is another instance")


def test_the_ledger_of_another_instance_is_refused(instance: Instance, backup: Path, tmp_path: Path) -> None:
    other = make_instance(tmp_path / "other")
    unchanged(
        instance,
        lambda: restored(backup, instance.root, other.ledger_path),
        UsageError,
        "is the ledger of ins_.*name the ledger of that instance, or leave --ledger out",
    )
    unchanged(
        instance, lambda: restored(backup, instance.root, tmp_path / "none"), UsageError, "no erasure ledger"
    )


def test_a_broken_ledger_is_refused_wherever_it_is(instance: Instance, backup: Path, tmp_path: Path) -> None:
    forget_text(instance, SAID)
    lines = instance.ledger_path.read_bytes().splitlines(keepends=True)
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join([lines[0], *lines[2:]]))
    unchanged(
        instance,
        lambda: restored(backup, instance.root, broken),
        DamagedData,
        "broken.jsonl line 2 breaks the chain of hashes",
    )
    instance.ledger_path.write_bytes(broken.read_bytes())
    unchanged(
        instance,
        lambda: restored(backup, instance.root),
        DamagedData,
        r"move .*erasures.jsonl away, and give the newest ledger that is whole with --ledger",
    )
    instance.ledger_path.unlink()  # as the message says; the database knows as much
    assert restored(backup, instance.root).erased_again == 2


def test_a_ledger_whose_last_line_a_crash_has_cut_is_obeyed_as_far_as_it_goes(
    instance: Instance, backup: Path, tmp_path: Path
) -> None:
    forget_text(instance, SAID)
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(instance.ledger_path.read_bytes()[:-20])
    copy = Instance(tmp_path / "copy")
    assert restored(backup, copy.root, cut).erased_again == 1
    assert files_with(copy.root, *MARKERS) == []
    assert is_sound(copy)


def repacked(
    backup: Path, directory: Path, change: Callable[[dict[str, bytes], dict[str, object]], None]
) -> Path:
    """The backup with other contents, hashes that fit, and other words in its manifest."""
    with tarfile.open(backup, encoding="utf-8") as tar:
        tar.extractall(directory, filter="data")
        names = [one["name"] for one in json.loads((directory / "manifest.json").read_bytes())["members"]]
    contents = {name: (directory / name).read_bytes() for name in names}
    words: dict[str, object] = {}
    with open_unchanging(directory / "pikobot.sqlite3") as conn:
        description = describe(conn)
    assert description is not None
    change(contents, words)
    members = [_Content(name, data) for name, data in contents.items()]
    made = _manifest(description, members, CLOCK)
    manifest = Manifest.model_validate(made.model_dump() | words)
    target = directory / "repacked"
    _write(target, manifest, members, Protection(), lambda *told: None)
    return target


def test_a_newer_schema_is_refused(instance: Instance, backup: Path, tmp_path: Path) -> None:
    newer = repacked(backup, tmp_path / "x", lambda _, words: words.update(schema_version=99))
    unchanged(instance, lambda: restored(newer, instance.root), SchemaTooNew, "schema 99, this pikobot knows")


def test_settings_that_this_version_does_not_take_are_refused(
    instance: Instance, backup: Path, tmp_path: Path
) -> None:
    def change(contents: dict[str, bytes], words: dict[str, object]) -> None:
        contents["config.toml"] += b"[future]\nsecret = 'x93'\n"

    newer = repacked(backup, tmp_path / "x", change)
    unchanged(instance, lambda: restored(newer, instance.root), ConfigError, "a newer pikobot may know it$")


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"instance": "ins_other"}, "is not the one that its manifest describes"),
        ({"ledger": {"position": 4, "hash": "0" * 64}}, "is not the one that its manifest describes"),
    ],
)
def test_a_manifest_that_describes_another_database_is_refused(
    instance: Instance, backup: Path, tmp_path: Path, words: dict[str, object], match: str
) -> None:
    wrong = repacked(backup, tmp_path / "x", lambda _, made: made.update(words))
    unchanged(instance, lambda: restored(wrong, instance.root), DamagedData, match)


def test_a_ledger_in_the_backup_that_is_broken_or_foreign_is_refused(
    instance: Instance, backup: Path, tmp_path: Path
) -> None:
    def foreign(contents: dict[str, bytes], words: dict[str, object]) -> None:
        contents["erasures.jsonl"] = b'{"instance": "ins_other", "version": 1}\n'

    def broken(contents: dict[str, bytes], words: dict[str, object]) -> None:
        contents["erasures.jsonl"] += b"{}\n"

    for number, change in enumerate((foreign, broken)):
        wrong = repacked(backup, tmp_path / str(number), change)
        work = functools.partial(restored, wrong, instance.root)
        unchanged(instance, work, DamagedData, "erasures.jsonl in it")


def test_an_index_that_was_damaged_when_it_was_backed_up_is_made_again(
    instance: Instance, tmp_path: Path
) -> None:
    def spoil(tx: Connection) -> None:
        tx.execute("INSERT INTO sources_text (sources_text) VALUES ('delete-all')")

    with opened(instance) as db:
        write(db, spoil)
    report = restored(back_up(instance, tmp_path / "b"), tmp_path / "copy")
    assert [note.partition(":")[0] for note in report.damages] == ["4 sources are missing in the text index"]
    assert report.exit_code == ExitCode.DAMAGED


@pytest.mark.parametrize("version", sorted(ROWS))
def test_a_backup_of_an_older_schema_is_migrated(version: int, tmp_path: Path) -> None:
    database = tmp_path / "pikobot.sqlite3"
    database.write_bytes(gzip.decompress(fixture_path(version).read_bytes()))
    with open_unchanging(database) as conn:
        description = describe(conn)
        assert description is not None
        count = conn.execute("SELECT count(*) FROM sources").fetchall()[0][0]
    header = json.dumps({"instance": description.instance, "version": 1}).encode() + b"\n"
    contents = [
        _Content("pikobot.sqlite3", database.read_bytes()),
        _Content("erasures.jsonl", header),
        _Content("config.toml", b""),
    ]
    packed = tmp_path / "b"
    _write(packed, _manifest(description, contents, CLOCK), contents, Protection(), lambda *told: None)
    copy = Instance(tmp_path / "copy")
    restored(packed, copy.root)
    with opened(copy) as db, db.read() as conn:
        migrated = describe(conn)
        assert migrated is not None
        assert migrated.schema_version == known_migrations()[-1].version
        assert conn.execute("SELECT count(*) FROM sources").fetchall()[0][0] == count
    assert is_sound(copy)


def test_what_the_staged_files_still_hold_stops_the_restore(
    instance: Instance, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof is made on the files themselves: here the text stays in the database, as if SQLite kept it."""
    forget_text(instance, SAID)

    def finish_and_spoil(db: Database, path: Path) -> Finished:
        finished = finish_interrupted(db, path)
        wal = Path(f"{db.path}-wal")
        wal.write_bytes(wal.read_bytes() + b"terracottapot")
        return finished

    monkeypatch.setattr(restoring, "finish_interrupted", finish_and_spoil)
    unchanged(instance, lambda: restored(backup, instance.root), PikobotError, "still holds what was erased")


def test_erased_words_in_a_skill_are_told_and_left_to_the_owner(instance: Instance, tmp_path: Path) -> None:
    (instance.skills_dir / "keys.md").write_text(SAID)
    backup = back_up(instance, tmp_path / "b")
    forget = instance.skills_dir / "keys.md"
    forget.unlink()
    forget_text(instance, SAID)
    report = restored(backup, instance.root)
    assert [note.partition(" holds ")[0] for note in report.left] == ["skills/keys.md"]
    assert (report.damages, report.exit_code) == ((), ExitCode.FAILED)
