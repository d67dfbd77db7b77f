"""Budgets: what may still be spent, checked in the transaction that reserves a provider call.

Periods are calendar months and days, UTC. A budget fails closed: a call whose highest cost doesn't fit is not made.
"""

from datetime import UTC, datetime

from pikobot.errors import BudgetExceeded

MICROUSD = 1_000_000


def month_start_ms(now_ms: int) -> int:
    """The first millisecond of the calendar month."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return int(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()) * 1000


def day_start_ms(now_ms: int) -> int:
    """The first millisecond of the day."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return int(datetime(now.year, now.month, now.day, tzinfo=UTC).timestamp()) * 1000


def check_budget(key: str, counted: int, reserved: int, ceiling: int) -> None:
    """Raises `BudgetExceeded` that names the setting; amounts in micro-dollars."""
    if counted + reserved > ceiling:
        raise BudgetExceeded(
            f"the call may cost up to ${reserved / MICROUSD:.6f} and ${counted / MICROUSD:.6f} of {key} "
            f"(${ceiling / MICROUSD:.6f}) are used: raise {key} with `pikobot init --set {key}=…`, or wait"
        )
