"""A clock that a test sets: time moves when told to, ids count upwards."""

from dataclasses import dataclass

NOW_MS = 1_709_300_000_000  # 2024-03-01T13:33:20Z
MINUTE_MS = 60_000
DAY_MS = 86_400_000


@dataclass
class FakeClock:
    """Settable by its attribute ``now``; tokens are ``src_0001``, ``thr_0002`` … in the order of the calls."""

    now: int = NOW_MS
    tokens: int = 0

    def now_ms(self) -> int:
        return self.now

    def advance(self, ms: int) -> None:
        self.now += ms

    def token(self, prefix: str) -> str:
        self.tokens += 1
        return f"{prefix}_{self.tokens:04}"
