"""Money: what a call cost, and what it may cost at most, in integer micro-dollars.

A dollar per million tokens is a micro-dollar per token, so a cost is tokens times price, rounded up once, at
the end. The arithmetic is exact: the decimal context below refuses to round, and prices are kept decimal.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Context, Decimal, Inexact, InvalidOperation
from typing import TypeAlias

from pikobot.adapters.chat import Message, ToolSchema, Usage
from pikobot.errors import ConfigError

MAX_PRICE_DOLLARS = 1_000_000  # per million tokens; more is a slip of the unit
MAX_PRICE_DECIMALS = 20
MESSAGE_OVERHEAD_BYTES = 16  # role and separators, which chat templates turn into 3 to 7 tokens a message

Price: TypeAlias = Decimal | float | str

_EXACT = Context(prec=100, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens: of input, of input that the provider had cached, of output."""

    input: Decimal
    cached_input: Decimal
    output: Decimal

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_price(field.name, getattr(self, field.name))

    @classmethod
    def per_million(cls, input_price: Price, cached_input_price: Price, output_price: Price) -> "Prices":
        """Prices as they are written: 0.14 in a settings file means 0.14, not the binary fraction beside it.

        Raises ConfigError for what is no number, negative, or beyond the limits above.
        """
        return cls(*(_decimal(value) for value in (input_price, cached_input_price, output_price)))


def cost_microusd(usage: Usage, prices: Prices) -> int:
    """What a call with this usage costs, rounded up to a whole micro-dollar."""
    cached = min(usage.cached_input_tokens, usage.input_tokens)
    return _microusd(
        (usage.input_tokens - cached, prices.input),
        (cached, prices.cached_input),
        (usage.output_tokens, prices.output),
    )


def request_bytes(messages: Sequence[Message], tools: Sequence[ToolSchema]) -> int:
    """Size of a request for ``reserve_microusd``: UTF-8 bytes that the model reads, and an overhead each."""
    texts = [message.content for message in messages]
    texts += [
        part for message in messages for call in message.tool_calls for part in (call.name, call.arguments)
    ]
    texts += [json.dumps(tool.to_json(), ensure_ascii=False) for tool in tools]
    overhead = MESSAGE_OVERHEAD_BYTES * (len(messages) + len(tools))
    return overhead + sum(len(text.encode(errors="surrogatepass")) for text in texts)


def reserve_microusd(input_bytes: int, max_output_tokens: int, prices: Prices) -> int:
    """What a call may cost, estimated high before it is made; ``input_bytes`` as ``request_bytes`` counts.

    Rule: one token for every two bytes of input, rounded up, none of it cached, and all of the output that
    is allowed. Prose has 4 to 5 bytes a token in English, 3 to 5 in Chinese, so the estimate is about twice
    the truth and needs no tokenizer. It is no bound: digits and rare scripts may take a token for every byte.
    """
    input_tokens = (input_bytes + 1) // 2
    return _microusd(
        (input_tokens, max(prices.input, prices.cached_input)),
        (max_output_tokens, prices.output),
    )


def _microusd(*lines: tuple[int, Decimal]) -> int:
    total = Decimal(0)
    for tokens, price in lines:
        total = _EXACT.add(total, _EXACT.multiply(Decimal(tokens), price))
    return int(total.to_integral_value(rounding=ROUND_CEILING))


def _decimal(value: Price) -> Decimal:
    try:
        return Decimal(str(value))
    except InvalidOperation as error:
        raise ConfigError(
            "a price is not a number; prices are dollars per million tokens, as in 0.14"
        ) from error


def _check_price(name: str, price: Decimal) -> None:
    if not price.is_finite() or not 0 <= price <= MAX_PRICE_DOLLARS:
        raise ConfigError(
            f"the price for {name} is {price}; "
            f"it must be between 0 and {MAX_PRICE_DOLLARS} dollars per million tokens"
        )
    exponent = price.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > MAX_PRICE_DECIMALS:
        raise ConfigError(f"the price for {name} has more than {MAX_PRICE_DECIMALS} decimals")


_KNOWN = {
    # List price of the first party, August 2026.
    "deepseek-v4-flash": Prices(Decimal("0.14"), Decimal("0.028"), Decimal("0.28")),
}
