"""Every damaged bit of a backup is found, and its place named."""

import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pikobot.backup import container
from pikobot.backup.archive import _Content, _manifest, _write_container
from pikobot.backup.encryption import Keys, Protection, encrypting
from pikobot.backup.verify import Finding, exit_code, verify_backup
from pikobot.credentials import Secret
from pikobot.errors import ExitCode, NotAllowed, PikobotError, UsageError
from pikobot.store.erasing.erasures import Tip
from pikobot.store.snapshot import Description
from tests.backup.instances import CLOCK, back_up, make_instance

LONG = "skills/" + "长名" * 40 + ".md"
CONTENTS = {
    "pikobot.sqlite3": b"SQLite format 3\0" + bytes(range(256)) * 4,
    "erasures.jsonl": b'{"instance": "ins_x", "version": 1}\n',
    "config.toml": b"",
    LONG: b"x" * 512,
}


def packed() -> tuple[bytes, list[tuple[int, str]]]:
    """A small backup, and where each of its parts ends."""
    contents = [_Content(name, data) for name, data in CONTENTS.items()]
    manifest = _manifest(Description("ins_x", 1, Tip(0, bytes(32))), contents, CLOCK)
    stream = io.BytesIO()
    _write_container(stream, manifest, contents, lambda done: None)
    document = manifest.to_bytes()
    named = {
        "manifest.sha256": container.sums_of(document, "manifest.json"),
        "manifest.json": document,
        **CONTENTS,
    }
    ends, at = [], 0
    for name, data in named.items():
        for size, part in (
            (len(container.header(name, len(data))), f"the header of {name}"),
            (len(data), name),
            (len(container.padding(len(data))), f"the padding of {name}"),
        ):
            at += size
            ends.append((at, part))
    ends.append((at + len(container.END), "the end of the file"))
    assert ends[-1][0] == len(stream.getvalue())
    return stream.getvalue(), ends


def damages(path: Path, keys: Keys | None = None) -> list[str]:
    findings = verify_backup(path, keys or Keys())
    assert exit_code(findings) == (ExitCode.DAMAGED if findings[0].state == "damaged" else ExitCode.DONE)
    return [finding.detail for finding in findings if finding.state == "damaged"]


def flip(whole: bytes, at: int, bit: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]


def each_flip(whole: bytes, bits: Callable[[int], Iterator[int]]) -> Iterator[tuple[int, bytes]]:
    for at in range(len(whole)):
        for bit in bits(at):
            yield at, flip(whole, at, bit)


def check_flips(directory: Path, bits: Callable[[int], Iterator[int]]) -> None:
    whole, ends = packed()
    path = directory / "b"
    path.write_bytes(whole)
    assert damages(path) == []
    for at, damaged in each_flip(whole, bits):
        path.write_bytes(damaged)
        part = next(name for end, name in ends if at < end)
        assert damages(path) == [f"{part} is damaged"], (at, part)


def test_a_flipped_bit_is_found_and_named(tmp_path: Path) -> None:
    check_flips(tmp_path, lambda at: iter(() if at % 13 else (at % 8,)))


@pytest.mark.stress
def test_any_flipped_bit_is_found_and_named(tmp_path: Path) -> None:
    check_flips(tmp_path, lambda at: iter(range(8)))


def test_a_flipped_bit_in_a_real_backup_is_found_and_named(tmp_path: Path) -> None:
    backup = back_up(make_instance(tmp_path / "piko"), tmp_path / "b")
    whole = backup.read_bytes()
    database_at = whole.index(b"SQLite format 3")
    for at in range(database_at, database_at + 1_000_000, 199_933):
        backup.write_bytes(flip(whole, at, at % 8))
        assert damages(backup) == ["pikobot.sqlite3 is damaged"]
    backup.write_bytes(flip(flip(whole, database_at, 0), whole.rindex(b"# \xe6"), 0))
    assert damages(backup) == ["pikobot.sqlite3 is damaged", "skills/旅行/SKILL.md is damaged"]


def test_a_backup_that_is_cut_off_anywhere_or_longer_is_found(tmp_path: Path) -> None:
    whole, ends = packed()
    path = tmp_path / "b"
    for size in range(512, len(whole), 97):
        path.write_bytes(whole[:size])
        [detail] = damages(path)
        assert detail.startswith("the file is cut off in "), size
    path.write_bytes(whole + b"\0")
    assert damages(path) == ["something stands behind the end of the file"]
    path.write_bytes(whole[: ends[6][0] + 1])
    assert damages(path) == ["the file is cut off in pikobot.sqlite3"]


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\0" + bytes(2000)], ids=len)
def test_another_file_is_no_backup(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "b"
    path.write_bytes(content)
    if content:
        with pytest.raises(UsageError, match=r"is not a backup of pikobot$"):
            verify_backup(path, Keys())
    else:
        assert damages(path) == ["the file is cut off in the header of manifest.sha256"]


def test_a_missing_file_and_a_directory_are_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such backup"):
        verify_backup(tmp_path / "none", Keys())
    with pytest.raises(UsageError, match="is a directory"):
        verify_backup(tmp_path, Keys())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ((b'"format": 1', b'"format": 2'), "format"),
        ((b"erasures.jsonl", b"../evil.jsonl."), "members.1"),
        ((b"skills/", b"/kills/"), "members.3"),
        ((b"config.toml", b"onfig.tomlc"), "members.2"),
        ((b"erasures.jsonl", b"config.toml"), "twice"),
    ],
)
def test_a_manifest_that_names_other_places_or_another_format_is_refused(
    tmp_path: Path, change: tuple[bytes, bytes], problem: str
) -> None:
    """The checksums fit: it was made so."""
    contents = [_Content(name, data) for name, data in CONTENTS.items()]
    document = _manifest(Description("ins_x", 1, Tip(0, bytes(32))), contents, CLOCK).to_bytes()
    document = document.replace(*change)
    sums = container.sums_of(document, "manifest.json")
    path = tmp_path / "b"
    with path.open("wb") as file:
        for name, data in (("manifest.sha256", sums), ("manifest.json", document)):
            file.write(container.header(name, len(data)) + data + container.padding(len(data)))
    [detail] = damages(path)
    assert "is not one that this pikobot knows" in detail
    assert problem in detail


# Encrypted -----------------------------------------------------------------------------------------------------


def sealed(path: Path, protection: Protection) -> bytes:
    whole, _ = packed()
    with path.open("w+b") as file, encrypting(file, protection) as stream:
        stream.write(whole)
    return path.read_bytes()


@pytest.fixture
def identity(tmp_path: Path) -> tuple[str, Path]:
    """A recipient and the file with its identity, as age-keygen writes one."""
    pyrage = pytest.importorskip("pyrage")
    key = pyrage.x25519.Identity.generate()
    path = tmp_path / "key.txt"
    path.write_text(f"# public key: {key.to_public()}\n{key}\n")
    return str(key.to_public()), path


def test_a_backup_for_a_recipient_opens_with_its_identity_alone(
    tmp_path: Path, identity: tuple[str, Path]
) -> None:
    recipient, file = identity
    path = tmp_path / "b"
    whole = sealed(path, Protection(recipients=(recipient,)))
    assert whole.startswith(b"age-encryption.org/v1\n")
    assert b"SQLite" not in whole
    assert damages(path, Keys(identity_files=(file,))) == []
    with pytest.raises(UsageError, match="name its identity file with --identity FILE"):
        verify_backup(path, Keys())
    other = tmp_path / "other.txt"
    other.write_text(f"{pytest.importorskip('pyrage').x25519.Identity.generate()}\n")
    with pytest.raises(NotAllowed, match="is encrypted for another key"):
        verify_backup(path, Keys(identity_files=(other,)))
    other.write_text("AGE-SECRET-KEY-1NONE\n")
    with pytest.raises(UsageError, match="line 1 is not an age identity") as failure:
        verify_backup(path, Keys(identity_files=(other,)))
    assert "NONE" not in str(failure.value)


def test_a_flipped_bit_of_an_encrypted_backup_is_found(tmp_path: Path, identity: tuple[str, Path]) -> None:
    recipient, file = identity
    path = tmp_path / "b"
    whole = sealed(path, Protection(recipients=(recipient,)))
    keys = Keys(identity_files=(file,))
    header_size = whole.index(b"\n---") + 48
    for at in [*range(header_size), *range(header_size, len(whole), 61), len(whole) - 1]:
        path.write_bytes(flip(whole, at, at % 8))
        try:
            [detail] = damages(path, keys)
        except NotAllowed as failure:
            detail = str(failure)  # a damaged stanza looks like one for another key
            assert at < header_size
        assert "damaged" in detail, at
    for changed in (whole[:-1], whole + b"x", whole[: len(whole) // 2]):
        path.write_bytes(changed)
        [detail] = damages(path, keys)
        assert detail == f"{path}: the encrypted content is damaged or cut off"


def test_a_backup_under_a_passphrase_opens_with_it_alone_and_names_what_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passphrases = pytest.importorskip("pyrage").passphrase
    derived = functools.cache(passphrases.decrypt)  # deriving a key takes a second or two
    monkeypatch.setattr(passphrases, "decrypt", derived)
    path = tmp_path / "b"
    whole = sealed(path, Protection(passphrase=Secret("correct horse 电池")))
    keys = Keys(passphrase=Secret("correct horse 电池"))
    assert damages(path, keys) == []
    with pytest.raises(UsageError, match="give it with --passphrase-file FILE"):
        verify_backup(path, Keys())
    with pytest.raises(NotAllowed, match="the passphrase is wrong"):
        verify_backup(path, Keys(ask=lambda: Secret("wrong")))
    sealed_at = whole.index(b"age-encryption")
    archive_at = whole.rindex(b"age-encryption")
    for at, part in (
        (0, "the header of identity.age is damaged"),
        (130, "the header of identity.age is damaged"),
        (sealed_at, "identity.age is damaged"),
        (sealed_at + 100, "identity.age is damaged"),
        (whole.index(b"  identity.age\n") - 3, "identity.sha256 is damaged"),
        (whole.index(b"archive.age"), "the header of archive.age is damaged"),
        (archive_at - 512 + 130, "the header of archive.age is damaged"),
        (archive_at + 3, "archive.age: the header of the encrypted file is damaged"),
        (len(whole) - 1, "the end of the file is damaged"),
        (len(whole) - 1025, "damaged"),
    ):
        path.write_bytes(flip(whole, at, 1))
        [detail] = damages(path, keys)
        assert detail.startswith(f"{path}: "), at
        assert detail.endswith(part) or part == "damaged", (at, detail)


@pytest.mark.parametrize("text", ["age1nonsense", "ssh-ed25519 AAAA", ""])
def test_a_recipient_that_is_none_is_refused_before_anything_is_done(text: str) -> None:
    pytest.importorskip("pyrage")
    with pytest.raises(UsageError, match="is not an age recipient"):
        Protection(recipients=(text,)).check()


def test_without_the_extra_package_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyrage", None)
    with pytest.raises(UsageError, match=r"run `scripts/install age` in the checkout of pikobot$"):
        Protection(passphrase=Secret("x")).check()


def test_recipients_and_a_passphrase_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="not both"):
        Protection(recipients=("age1x",), passphrase=Secret("x"))


def test_a_failure_while_encrypting_is_the_one_of_the_disk(
    tmp_path: Path, identity: tuple[str, Path]
) -> None:
    class Full(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(28, os.strerror(28))

    def write_much() -> None:
        with encrypting(Full(), Protection(recipients=(identity[0],))) as stream:
            for _ in range(100):
                stream.write(bytes(100_000))

    with pytest.raises(OSError, match="No space left"):
        write_much()


def test_the_plain_container_never_reaches_the_disk(tmp_path: Path, identity: tuple[str, Path]) -> None:
    instance = make_instance(tmp_path / "piko")
    place = tmp_path / "disk"
    place.mkdir()
    backup = back_up(instance, place / "b", Protection(recipients=(identity[0],)))
    assert [path.name for path in place.iterdir()] == ["b"]
    assert [path.name for path in instance.run_dir.iterdir()] == ["lock"]
    assert verify_backup(backup, Keys(identity_files=(identity[1],)))[0].state == "ok"


def test_findings_say_what_the_backup_is(tmp_path: Path) -> None:
    path = tmp_path / "b"
    path.write_bytes(packed()[0])
    [finding] = verify_backup(path, Keys())
    assert finding == Finding("backup", "ok", finding.detail)
    assert finding.detail.startswith("4 members, schema 1, made ")
    assert finding.detail.endswith(" of ins_x, 0 erasures")
    assert hashlib.sha256(path.read_bytes()).hexdigest()  # it was only read


def test_errors_of_reading_are_errors_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b"
    path.write_bytes(packed()[0])
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root may read everything")
    with pytest.raises(PikobotError, match="permission denied"):
        verify_backup(path, Keys())
