"""Opaque cursors: where a listing stands, bound to the parameters that it was made for.

A cursor is base64url of a JSON object: a fingerprint of method and filters, and a state of integers. It holds
no text and grants nothing: whoever forges one only skips results. Paging a ranking can't use a position,
because what is stored meanwhile moves it; its cursor lists what was given already, packed.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pikobot.errors import InvalidParams

MAX_CURSOR_CHARS = 32_768
MAX_PACKED_IDS = 1_000
_MAX_ID = 2**63 - 1
# Paging may go on with another page size; what was asked for may not change.
_FREE_PARAMETERS = {"cursor", "limit", "max_scan"}


class _Cursor(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    f: str
    p: list[int] = Field(default=[], max_length=2)
    s: str = ""


def fingerprint(method: str, params: BaseModel) -> str:
    """What a cursor is bound to: the method and its parameters apart from paging."""
    filters = params.model_dump(mode="json", exclude=_FREE_PARAMETERS)
    canonical = json.dumps([method, filters], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:24]


def position_cursor(bound_to: str, position: Sequence[int]) -> str:
    """The cursor of a listing in a fixed order: the keys of its last row."""
    return _seal({"f": bound_to, "p": list(position)})


def read_position(cursor: str, bound_to: str, length: int) -> list[int]:
    """Raises `InvalidParams` when the cursor is damaged or belongs to other parameters."""
    opened = _open(cursor, bound_to)
    if len(opened.p) != length or any(not -_MAX_ID <= key <= _MAX_ID for key in opened.p):
        raise _refused()
    return opened.p


def seen_cursor(bound_to: str, seen: Collection[int]) -> str:
    """The cursor of a ranking: the ids that were given already."""
    return _seal({"f": bound_to, "s": base64.b64encode(pack_ids(seen)).decode()})


def read_seen(cursor: str, bound_to: str) -> list[int]:
    """Raises `InvalidParams` when the cursor is damaged or belongs to other parameters."""
    try:
        return unpack_ids(base64.b64decode(_open(cursor, bound_to).s, validate=True))
    except (binascii.Error, ValueError):
        raise _refused() from None


def pack_ids(ids: Collection[int]) -> bytes:
    """Ascending ids as differences, seven bits a byte, the lowest first, the eighth bit: more follows."""
    packed = bytearray()
    previous = 0
    for current in sorted(ids):
        difference = current - previous
        while difference > 0x7F:
            packed.append(difference & 0x7F | 0x80)
            difference >>= 7
        packed.append(difference)
        previous = current
    return bytes(packed)


def unpack_ids(packed: bytes) -> list[int]:
    """Inverse of `pack_ids`; raises `ValueError` for anything that it would not have made."""
    ids: list[int] = []
    current = shift = difference = 0
    for byte in packed:
        difference |= (byte & 0x7F) << shift
        shift += 7
        if byte & 0x80 and shift < 63:
            continue
        current += difference
        is_padded = byte == 0 and shift > 7
        if is_padded or difference < 1 or byte & 0x80 or current > _MAX_ID or len(ids) == MAX_PACKED_IDS:
            raise ValueError("not packed ids")
        ids.append(current)
        shift = difference = 0
    if shift:
        raise ValueError("packed ids are cut off")
    return ids


def _seal(content: dict[str, str | list[int]]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content, separators=(",", ":")).encode()).decode().rstrip("=")


def _open(cursor: str, bound_to: str) -> _Cursor:
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        opened = _Cursor.model_validate_json(raw)
    except (binascii.Error, ValueError, ValidationError):
        raise _refused() from None
    if opened.f != bound_to:
        raise _refused()
    return opened


def _refused() -> InvalidParams:
    return InvalidParams("cursor: it is damaged or was made for other parameters; search again without it")
