"""Attachments' bytes, in the database so that one snapshot and one transaction cover everything."""

import hashlib
from dataclasses import dataclass
from typing import NewType

import apsw

from pikobot.clock import Clock
from pikobot.errors import InvalidParams
from pikobot.store.connection import Connection
from pikobot.store.sources import SourceId

MediaId = NewType("MediaId", int)
MAX_MEDIA_BYTES = 100 * 1024 * 1024


@dataclass(frozen=True)
class Media:
    id: MediaId
    public_id: str
    source_id: SourceId
    media_type: str
    name: str | None
    sha256: bytes
    size: int


def insert_media(
    conn: Connection, source_id: SourceId, data: bytes, *, media_type: str, name: str | None, clock: Clock
) -> Media:
    """Store an attachment of a source; it goes when the source goes. Caller holds write.

    Raises `InvalidParams` above 100 MiB.
    """
    if len(data) > MAX_MEDIA_BYTES:
        raise InvalidParams(f"the attachment has {len(data)} bytes, the limit is {MAX_MEDIA_BYTES}")
    public_id, sha256 = clock.token("med"), hashlib.sha256(data).digest()
    conn.execute(
        "INSERT INTO media (public_id, source_id, media_type, name, sha256, data) VALUES (?, ?, ?, ?, ?, ?)",
        (public_id, source_id, media_type, name, sha256, data),
    )
    return Media(MediaId(conn.last_insert_rowid()), public_id, source_id, media_type, name, sha256, len(data))


def list_media(conn: Connection, source_id: SourceId) -> list[Media]:
    return [
        Media(MediaId(row[0]), row[1], SourceId(row[2]), row[3], row[4], row[5], row[6])
        for row in conn.execute(
            """
            SELECT id, public_id, source_id, media_type, name, sha256, length(data)
            FROM media WHERE source_id = ? ORDER BY id
            """,
            (source_id,),
        )
    ]


def read_media(conn: Connection, media_id: MediaId, *, offset: int = 0, length: int | None = None) -> bytes:
    """A range of an attachment's bytes, without loading the rest. Raises `LookupError` when it is gone."""
    try:
        blob = conn.blob_open("main", "media", "data", media_id, False)
    except apsw.SQLError as error:
        raise LookupError(f"media {media_id}") from error
    try:
        blob.seek(min(offset, blob.length()))
        return blob.read(-1 if length is None else length)
    finally:
        blob.close()
