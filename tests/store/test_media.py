import hashlib

import pytest

from pikobot.errors import InvalidParams
from pikobot.store import media
from pikobot.store.connection import Database
from pikobot.store.media import Media, MediaId, insert_media, list_media, read_media
from pikobot.store.sources import SourceId, delete_source
from tests.clock import FakeClock
from tests.store import rows

DATA = bytes(range(256)) * 300


def stored(db: Database, source_id: SourceId, data: bytes = DATA, name: str | None = "照片.png") -> Media:
    return rows.write(db, insert_media, source_id, data, media_type="image/png", name=name, clock=db.clock)


@pytest.fixture
def source_id(db: Database) -> SourceId:
    return rows.source(db, rows.thread(db), "a photo")


def test_an_attachment_is_listed_with_its_size_and_hash(db: Database, source_id: SourceId) -> None:
    first, second = stored(db, source_id), stored(db, source_id, b"", None)
    assert first == Media(
        MediaId(1), "med_0005", source_id, "image/png", "照片.png", hashlib.sha256(DATA).digest(), len(DATA)
    )
    assert (second.name, second.size, second.sha256) == (None, 0, hashlib.sha256(b"").digest())
    assert rows.read(db, list_media, source_id) == [first, second]
    assert rows.read(db, list_media, SourceId(99)) == []


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, None), (0, 10), (300, 20), (len(DATA) - 3, 10), (len(DATA), None), (len(DATA) + 9, 5)],
)
def test_a_range_is_read_as_it_was_written(
    db: Database, source_id: SourceId, offset: int, length: int | None
) -> None:
    expected = DATA[offset:] if length is None else DATA[offset : offset + length]
    assert rows.read(db, read_media, stored(db, source_id).id, offset=offset, length=length) == expected


def test_an_empty_attachment_is_read(db: Database, source_id: SourceId) -> None:
    assert rows.read(db, read_media, stored(db, source_id, b"").id) == b""


def test_an_attachment_that_is_gone_is_a_lookup_error(db: Database, source_id: SourceId) -> None:
    kept = stored(db, source_id)
    rows.write(db, delete_source, source_id)
    with pytest.raises(LookupError, match="media 1"):
        rows.read(db, read_media, kept.id)


def test_an_attachment_above_the_limit_is_refused(
    db: Database, source_id: SourceId, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "MAX_MEDIA_BYTES", 10)
    with pytest.raises(InvalidParams, match="has 11 bytes, the limit is 10"):
        stored(db, source_id, b"x" * 11)
    assert stored(db, source_id, b"x" * 10).size == 10


def test_a_deleted_attachment_leaves_no_byte_behind(
    db: Database, source_id: SourceId, clock: FakeClock
) -> None:
    pattern = b"attachment-trace-" * 8000
    stored(db, source_id, pattern)
    rows.write(db, delete_source, source_id)
    assert db.perform(Database.truncate_wal)
    left = b"".join(file.read_bytes() for file in db.path.parent.iterdir())
    assert b"attachment-trace-" not in left
