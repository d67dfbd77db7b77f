import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.adapters.chat import Message, ToolCall, ToolSchema, Usage
from pikobot.adapters.prices import (
    MAX_PRICE_DOLLARS,
    MESSAGE_OVERHEAD_BYTES,
    Prices,
    cost_microusd,
    request_bytes,
    reserve_microusd,
)
from pikobot.errors import ConfigError

FLASH = Prices(Decimal("0.14"), Decimal("0.028"), Decimal("0.28"))

_prices = st.builds(
    Prices, *[st.decimals(0, MAX_PRICE_DOLLARS, places=places, allow_nan=False) for places in (3, 6, 20)]
)
_tokens = st.integers(0, 10**12)


def test_a_cost_is_exact_and_rounded_up_once() -> None:
    assert cost_microusd(Usage(1_000_000, 0, 0), FLASH) == 140_000
    assert cost_microusd(Usage(1000, 500, 100), FLASH) == 112  # 70 + 14 + 28
    assert cost_microusd(Usage(1, 1, 0), FLASH) == 1
    assert cost_microusd(Usage(0, 0, 0), FLASH) == 0


@settings(max_examples=100, deadline=None)
@given(prices=_prices, total=_tokens, cached=_tokens, output=_tokens)
def test_a_cost_equals_that_of_fractions(prices: Prices, total: int, cached: int, output: int) -> None:
    cached = min(cached, total)
    exact = (
        (total - cached) * Fraction(prices.input)
        + cached * Fraction(prices.cached_input)
        + output * Fraction(prices.output)
    )
    assert cost_microusd(Usage(total, cached, output), prices) == math.ceil(exact)


@settings(max_examples=100, deadline=None)
@given(prices=_prices, size=_tokens, output=_tokens, data=st.data())
def test_a_reservation_covers_every_call_within_its_assumptions(
    prices: Prices, size: int, output: int, data: st.DataObject
) -> None:
    used = data.draw(st.integers(0, (size + 1) // 2))
    usage = Usage(used, data.draw(st.integers(0, used)), data.draw(st.integers(0, output)))
    assert cost_microusd(usage, prices) <= reserve_microusd(size, output, prices)


def test_prices_mean_what_is_written() -> None:
    assert Prices.per_million(0.14, "0.028", Decimal("0.28")) == FLASH


@pytest.mark.parametrize("price", ["free", float("nan"), float("inf"), -0.1, MAX_PRICE_DOLLARS + 1, "1e-21"])
def test_an_impossible_price_is_refused(price: float | str) -> None:
    with pytest.raises(ConfigError):
        Prices.per_million(0.14, price, 0.28)


def test_the_size_of_a_request_counts_bytes_of_messages_calls_and_tools() -> None:
    messages = [
        Message("user", "波尔图 \ud83d"),
        Message("assistant", "", (ToolCall("call_1", "search", "{}"),)),
    ]
    tool = ToolSchema("search", "找", {})
    tool_bytes = len(
        '{"type": "function", "function": {"name": "search", "description": "找", "parameters": {}}}'.encode()
    )
    assert request_bytes(messages, [tool]) == 3 * MESSAGE_OVERHEAD_BYTES + 13 + len("search{}") + tool_bytes
