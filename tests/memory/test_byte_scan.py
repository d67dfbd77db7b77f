import json
import random
import unicodedata
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.config_file import default_config_text
from pikobot.credentials import default_credentials_text
from pikobot.memory.forgetting import byte_scan
from pikobot.memory.forgetting.byte_scan import Find, Needles, ScanReport, collect, found_in, needles_of, scan
from pikobot.memory.forgetting.wording import nothing_text
from pikobot.store.connection import Database
from pikobot.store.sources import SourceId, delete_source
from tests.memory.conversing import attach, exchange, write
from tests.memory.remembering import opened, say

ENGLISH = "Yesterday I hid the zanzibarite under the old oak tree"
CHINESE = "昨天我把紫水晶藏在老橡树下面了"


@pytest.fixture(params=["few", "many"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of looking: one search for each part, and all parts at once."""
    if request.param == "many":
        monkeypatch.setattr(byte_scan, "LARGE_BYTES", 0)
    return str(request.param)


def look(db: Database, *erased: str | bytes) -> ScanReport:
    return scan(db.path.parent, db, needles_of(collect(erased)))


def finds(db: Database, *erased: str | bytes) -> list[str]:
    return [find.file for find in look(db, *erased).finds]


def test_nothing_is_found_in_an_instance_without_the_text(db: Database, engine: str) -> None:
    say(db, "something else entirely", "完全不同的内容")
    report = look(db, ENGLISH, CHINESE)
    size = sum(path.stat().st_size for path in db.path.parent.iterdir() if not path.name.endswith("-shm"))
    assert (report.finds, report.too_short, report.is_cut, report.unreadable) == ((), 0, False, ())
    assert (report.files, report.bytes) == (2, size)
    assert report.fragments > 5


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "把zanzibarite藏在下面", "я спрятал сокровище под дубом"])
@pytest.mark.parametrize(
    "form",
    [
        lambda text: text.encode(),
        lambda text: text.encode().upper(),  # ASCII alone
        lambda text: json.dumps({"text": f'"{text}"\n{text}'}).encode(),
        lambda text: json.dumps(text, ensure_ascii=False).encode(),
        lambda text: b"\x07" + text.encode()[3:] + b"\xff\xfe",
    ],
    ids=["utf-8", "upper case", "escaped json", "json", "inside binary"],
)
def test_a_text_is_found_in_every_form(db: Database, engine: str, text: str, form: object) -> None:
    data = form(text)  # type: ignore[operator]  # a lambda
    (db.path.parent / "some.log").write_bytes(b"\0\1before " + data + b" after\n")
    assert finds(db, text) == ["some.log"]


@pytest.mark.parametrize(("erased", "left"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_a_text_is_found_in_both_normal_forms(
    db: Database, erased: Literal["NFC", "NFD"], left: Literal["NFC", "NFD"]
) -> None:
    text = "the crème brûlée of 각하 バス停"
    (db.path.parent / "some.log").write_text(unicodedata.normalize(left, text), encoding="utf-8")
    assert finds(db, unicodedata.normalize(erased, text)) == ["some.log"]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_a_text_is_found_in_utf_16(db: Database, text: str) -> None:
    (db.path.parent / "some.log").write_bytes(b"odd" + text.encode("utf-16-le"))
    assert finds(db, text) == ["some.log"]


@pytest.mark.parametrize("part", ["zanzibarite", "under the old", "hid  the zanzibarite", "紫水晶", "老橡树"])
def test_a_telling_part_is_enough(db: Database, engine: str, part: str) -> None:
    (db.path.parent / "some.log").write_text(f"x {part} y", encoding="utf-8")
    assert finds(db, ENGLISH, CHINESE) == ["some.log"]


@pytest.mark.parametrize("part", ["yesterday", "the old oak", "昨天我", "under the"])
def test_what_a_surviving_source_says_too_is_no_find(db: Database, engine: str, part: str) -> None:
    say(db, "Yesterday the old oak fell", "昨天我累了")
    (db.path.parent / "some.log").write_text(part, encoding="utf-8")
    assert finds(db, ENGLISH, CHINESE) == []


def test_what_a_surviving_attachment_transcript_or_the_schema_says_is_no_find(
    db: Database, engine: str
) -> None:
    one = exchange(db, "look", transcript=["transcribed"], is_leased=True)
    attach(db, one.request, b"the attachedword", "filenamed.txt")
    assert finds(db, "transcribed attachedword filenamed standalone idempotent AUTOINCREMENT") == []


def test_the_wal_and_the_unused_part_of_the_database_are_looked_through(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needles = Needles(frozenset({"zanzibarite"}))
    with opened(tmp_path) as db:
        say(db, ENGLISH)
        with monkeypatch.context() as patch:
            patch.setattr(byte_scan, "_explained", lambda db, found: frozenset())
            assert scan(tmp_path, db, needles).finds == (Find("pikobot.sqlite3-wal", 1),)
        db.perform(Database.truncate_wal)
        assert scan(tmp_path, db, needles).finds == ()
        write(db, delete_source, SourceId(1))
    with (tmp_path / "pikobot.sqlite3").open("r+b") as file:
        unused = file.read(16_384).index(bytes(100)) + 50
        file.seek(unused)
        file.write(b"Zanzibarite")
    with opened(tmp_path) as db:
        assert scan(tmp_path, db, needles).finds == (Find("pikobot.sqlite3", 1),)


def test_single_words_in_the_owners_own_files_are_no_find(db: Database, engine: str) -> None:
    (db.path.parent / "config.toml").write_text('model = "zanzibarite"\n')
    assert finds(db, ENGLISH) == []
    (db.path.parent / "config.toml").write_text('motto = "under the old oak"\n')
    assert finds(db, ENGLISH) == ["config.toml"]


def test_pikobots_own_lines_in_the_settings_files_are_no_find(db: Database, engine: str) -> None:
    root = db.path.parent
    (root / "config.toml").write_text(default_config_text())
    (root / "credentials.toml").write_text(default_credentials_text("t0ken"))
    texts = (default_config_text(), default_credentials_text(), nothing_text("en"), nothing_text("zh"))
    assert finds(db, *texts) == []
    with (root / "config.toml").open("a") as file:
        file.write("# under the old oak\n")
    assert finds(db, ENGLISH, *texts) == ["config.toml"]


def test_texts_that_stand_anywhere_by_chance_are_counted_and_not_looked_for(db: Database) -> None:
    (db.path.parent / "some.log").write_text("ok 好的 yes 好的呀", encoding="utf-8")
    report = look(db, "ok", "好的", "!", "yes", "好的呀")
    assert (report.too_short, report.finds) == (4, (Find("some.log", 1),))


def test_a_short_text_is_looked_for_as_a_whole(db: Database, engine: str) -> None:
    (db.path.parent / "some.log").write_text("a blue car", encoding="utf-8")
    assert finds(db, "Blue car!") == ["some.log"]
    assert finds(db, "red car") == []


def test_samples_of_a_binary_attachment_are_found(db: Database) -> None:
    data = random.Random(7).randbytes(100_000)
    (db.path.parent / "some.log").write_bytes(b"x" * 77 + data[40_000:60_000])
    assert finds(db, data) == ["some.log"]
    assert finds(db, random.Random(8).randbytes(100_000)) == []
    assert look(db, b"\0" * 50_000).fragments == 0


def test_an_attached_text_is_looked_for_like_a_text(db: Database) -> None:
    (db.path.parent / "some.log").write_text("ZANZIBARITE")
    assert finds(db, ENGLISH.encode()) == ["some.log"]


@pytest.mark.parametrize("at", [-40, -11, -5, -1, 0, 3])
def test_a_text_across_two_chunks_is_found(
    db: Database, engine: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_scan, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(byte_scan, "OVERLAP_BYTES", 500)
    data = b"." * (20_000 + at) + ENGLISH.encode() + b"." * 15_000
    (db.path.parent / "some.log").write_bytes(data)
    report = look(db, ENGLISH)
    assert [find.file for find in report.finds] == ["some.log"]
    assert report.bytes == len(data) + db.path.stat().st_size + Path(f"{db.path}-wal").stat().st_size


def test_links_are_not_followed_and_unreadable_files_are_named(
    db: Database, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.txt"
    outside.write_text(ENGLISH)
    (db.path.parent / "link").symlink_to(outside)
    closed = db.path.parent / "closed.log"
    closed.write_text("x")
    real = Path.open

    def refuse(self: Path, *args: object) -> object:
        if self == closed:
            raise PermissionError(13, "denied")
        return real(self, *args)  # type: ignore[call-overload]  # passed through

    monkeypatch.setattr(Path, "open", refuse)
    report = look(db, ENGLISH)
    assert report.finds == ()
    assert [name.split(":")[0] for name in report.unreadable] == [f"cannot read {closed}"]


def test_more_than_the_limit_is_looked_for_in_part_and_said_so(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_scan, "MAX_TEXT_BYTES", 100)
    report = look(db, "filler " * 20, ENGLISH)
    assert report.is_cut


def test_a_text_is_found_behind_escapes_far_apart_in_much_else(db: Database, engine: str) -> None:
    (db.path.parent / "some.log").write_bytes(
        b"." * 50_000 + b"\\n" + b"." * 3000 + json.dumps(CHINESE).encode() + b"." * 90_000 + b'\\"'
    )
    assert finds(db, CHINESE) == ["some.log"]
    assert finds(db, "另外一句完全不同的话") == []


@given(
    st.lists(
        st.sampled_from(["apple", "bananas", "cherries", "of", "the", "苹果树下", "橘子", "é", "42"]),
        min_size=3,
    )
)
@settings(max_examples=60, deadline=None)
def test_a_text_is_found_in_itself_and_in_its_json(words: list[str]) -> None:
    text = " ".join(words)
    needles = Needles(frozenset(text[first:last] for first, last in byte_scan._telling_spans(text)))
    assert needles.parts
    assert found_in(b"\0 " + text.encode() + b" \0", needles) == needles.parts
    assert found_in(json.dumps(f'"{text}"').encode(), needles) == needles.parts
