"""From the settings to what answers and what learns: models with their keys, prices, budgets and room.

Nothing is contacted here. A key is sent to the host that it was set for and to no other.
"""

from urllib.parse import urlsplit

from pikobot.adapters.openai_chat import ChatEndpoint, OpenAIChatModel
from pikobot.adapters.prices import Prices, request_bytes
from pikobot.agent.accounting import Tariff
from pikobot.agent.context import Room
from pikobot.agent.executor import Brain
from pikobot.agent.runs import Limits
from pikobot.agent.tools import TOOLS
from pikobot.clock import Clock
from pikobot.config import ChatConfig, Config
from pikobot.credentials import Credentials
from pikobot.memory.extract import LearningLimits
from pikobot.memory.spending import MICROUSD


def chat_brain(config: Config, credentials: Credentials, clock: Clock) -> Brain | None:
    """What answers; None in recall mode."""
    has_key = credentials.chat_api_key is not None
    return (
        _brain(config, config.chat, credentials, clock) if config.chat.is_model_on(has_key=has_key) else None
    )


def learning_brain(config: Config, credentials: Credentials, clock: Clock) -> Brain | None:
    """What extracts facts; None when that is off, or there is no model or no key for its host."""
    if not config.extraction.enabled or config.chat.provider == "none":
        return None
    chat = config.extraction.chat(config.chat)
    is_same_host = urlsplit(chat.base_url).netloc == urlsplit(config.chat.base_url).netloc
    has_key = is_same_host and credentials.chat_api_key is not None
    return _brain(config, chat, credentials, clock) if chat.is_model_on(has_key=has_key) else None


def learning_limits(config: Config) -> LearningLimits:
    return LearningLimits(
        day_microusd=int(config.budget.background_usd_per_day * MICROUSD),
        workspace_month_microusd=int(config.budget.workspace_usd_per_month * MICROUSD),
        calls_per_hour=config.extraction.max_jobs_per_hour,
    )


def _brain(config: Config, chat: ChatConfig, credentials: Credentials, clock: Clock) -> Brain:
    is_same_host = urlsplit(chat.base_url).netloc == urlsplit(config.chat.base_url).netloc
    key = credentials.chat_api_key if is_same_host else None
    endpoint = ChatEndpoint(
        base_url=chat.base_url,
        model=chat.model,
        api_key=None if key is None else key.reveal(),
        key_variable=credentials.origins.get("chat_api_key", "PIKOBOT_CHAT_API_KEY"),
        section="chat" if chat is config.chat else "extraction",
    )
    prices = chat.prices()
    room = Room.of(
        context_tokens=chat.context_tokens,
        max_output_tokens=chat.max_output_tokens,
        tool_bytes=request_bytes((), [tool.schema() for tool in TOOLS]),
    )
    tariff = Tariff(
        model=chat.model,
        prices=None
        if prices is None
        else Prices.per_million(prices.input, prices.cached_input, prices.output),
        price_remedy=chat.price_remedy(),
        limits=Limits(
            run_microusd=int(config.budget.run_usd * MICROUSD),
            workspace_month_microusd=int(config.budget.workspace_usd_per_month * MICROUSD),
        ),
        max_output_tokens=room.output_tokens,
    )
    model = OpenAIChatModel(endpoint, silence_timeout_s=chat.timeout_s, clock=clock)
    return Brain(
        model=model,
        tariff=tariff,
        room=room,
        run_timeout_s=chat.run_timeout_s,
        shows_basics=config.memory.basics,
        close=model.aclose,
    )
