"""Time and randomness, passed in so that a test can hold both still.

Times are integers, milliseconds since the Unix epoch, UTC. Public ids are random: an id named by a
tombstone can never be given out again, not even after an old copy of the database was restored.
"""

import secrets
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Protocol

PUBLIC_ID_BYTES = 15


class Clock(Protocol):
    def now_ms(self) -> int: ...

    def token(self, prefix: str) -> str:
        """A fresh random id such as ``src_…``, 120 bits, URL-safe."""
        ...


class SystemClock:
    """The machine's clock and the system's randomness."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def token(self, prefix: str) -> str:
        return f"{prefix}_{secrets.token_urlsafe(PUBLIC_ID_BYTES)}"


def local_utc_offset_min(at_ms: int) -> int:
    """Offset of this machine's time zone at a moment, in minutes east of UTC."""
    local = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    offset = local.utcoffset()
    return int(offset.total_seconds() // 60) if offset is not None else 0


def iso_time(at_ms: int, utc_offset_min: int = 0) -> str:
    """ISO 8601 in the given offset, whole seconds when there are no milliseconds: ``2024-03-02T09:30:00Z``."""
    zone = UTC if utc_offset_min == 0 else timezone(timedelta(minutes=utc_offset_min))
    moment = datetime.fromtimestamp(at_ms // 1000, zone) + timedelta(milliseconds=at_ms % 1000)
    precision = "milliseconds" if at_ms % 1000 else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
