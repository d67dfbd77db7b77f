"""Settings of an instance: what config.toml may say, each with default, range and a line of documentation.

The models below are the only list of settings: the file that `pikobot init` writes, the check of unknown keys
and `--set` are all made from them. No secrets live here (see pikobot.credentials). Loading reports every
finding at once and never repeats a value, because people paste keys into the wrong line.
"""

import difflib
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from pikobot.errors import ConfigError
from pikobot.files import parse_toml, read_text

DEEPSEEK_URL = "https://api.deepseek.com"
OPENAI_URL = "https://api.openai.com/v1"
E5_MODEL = "multilingual-e5-small"
E5_DIMENSION = 384
MAX_TEXT_CHARS = 1_000

_SECRET_WORDS = ("key", "token", "secret", "password", "passwd", "credential", "credentials")


@dataclass(frozen=True)
class TokenPrices:
    """US dollars per million tokens."""

    input: float
    cached_input: float
    output: float


# First-party list prices by host and model; another host may charge anything for the same model.
LIST_PRICES = {
    ("api.deepseek.com", "deepseek-v4-flash"): TokenPrices(input=0.14, cached_input=0.028, output=0.28)
}
EMBEDDING_PRICES = {
    ("api.openai.com", "text-embedding-3-small"): 0.02,
    ("api.openai.com", "text-embedding-3-large"): 0.13,
}
FREE = TokenPrices(input=0.0, cached_input=0.0, output=0.0)


def is_loopback_url(url: str) -> bool:
    """Whether the URL's host is this machine by name or number; nothing is looked up."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    """An endpoint without its last slash. Raises ValueError with the remedy."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or not url.isascii() or any(not char.isprintable() or char == " " for char in url):
        raise ValueError("must be a URL such as https://host/v1")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not contain a user name or password; keys go to credentials.toml")
    if parts.query or parts.fragment:
        raise ValueError("must not contain '?' or '#'; give the address alone, such as https://host/v1")
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with https:// (or http:// for a server on this machine)")
    if parts.scheme == "http" and not is_loopback_url(url):
        raise ValueError("must begin with https://: over plain http, keys and messages would travel in clear")
    return url.rstrip("/")


def _checked_text(text: str) -> str:
    if any(not char.isprintable() for char in text):
        raise ValueError("must be one line without control characters")
    return text


Url = Annotated[str, Field(max_length=MAX_TEXT_CHARS), AfterValidator(_checked_url)]
OptionalUrl = Annotated[
    str, Field(max_length=MAX_TEXT_CHARS), AfterValidator(lambda u: u and _checked_url(u))
]
Line = Annotated[str, Field(max_length=MAX_TEXT_CHARS), AfterValidator(_checked_text)]
TelegramId = Annotated[int, Field(ge=-(2**53), le=2**53)]
TelegramIds = Annotated[tuple[TelegramId, ...], Field(strict=False)]  # not strict: TOML has lists, no tuples
Price = Annotated[float | None, Field(ge=0, le=100_000)]


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


class ChatConfig(Section):
    provider: Literal["deepseek", "openai", "custom", "none"] = Field(
        "deepseek",
        description="Who answers: deepseek, openai, custom (any OpenAI-compatible server, such as Ollama or "
        "llama.cpp: set base_url and model) or none (no model: recall mode).",
    )
    base_url: Url = Field(DEEPSEEK_URL, description=f"Address of the provider; for openai {OPENAI_URL}.")
    model: Line = Field(
        "deepseek-v4-flash", min_length=1, description="Name of the model, as the provider calls it."
    )
    context_tokens: int = Field(
        128_000, ge=2_048, le=10_000_000, description="Size of the model's context, in tokens."
    )
    max_output_tokens: int = Field(
        8_192, ge=16, le=1_000_000, description="Longest answer that is asked for, in tokens."
    )
    timeout_s: float = Field(
        120,
        gt=0,
        le=3_600,
        description="Longest silence of the provider before a call counts as lost, seconds.",
    )
    run_timeout_s: float = Field(
        600, gt=0, le=86_400, description="Longest time for a whole answer, tools included, in seconds."
    )
    price_input: Price = Field(
        None,
        examples=[0.14],
        description="Dollars per million input tokens. Without it: the list price if pikobot knows it, 0 for "
        "a server on this machine, else calls are refused.",
    )
    price_cached_input: Price = Field(
        None,
        examples=[0.028],
        description="Dollars per million input tokens that the provider had cached. Without it: price_input.",
    )
    price_output: Price = Field(
        None,
        examples=[0.28],
        description="Dollars per million output tokens. Without it: as price_input says.",
    )

    @model_validator(mode="before")
    @classmethod
    def _openai_address(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("provider") == "openai":
            return {"base_url": OPENAI_URL, **data}
        return data

    @model_validator(mode="after")
    def _is_complete(self) -> "ChatConfig":
        required = {"openai": ["model"], "custom": ["base_url", "model"]}.get(self.provider, [])
        missing = [f"chat.{key}" for key in required if key not in self.model_fields_set]
        if missing:
            raise ValueError(f"{' and '.join(missing)} must be set when chat.provider is {self.provider}")
        if self.max_output_tokens >= self.context_tokens:
            raise ValueError("chat.max_output_tokens must be smaller than chat.context_tokens")
        return self

    @property
    def is_local(self) -> bool:
        """The provider is on this machine: no key is needed and no money is spent unless a price is set."""
        return is_loopback_url(self.base_url)

    def is_model_on(self, *, has_key: bool) -> bool:
        """Whether a model answers; otherwise the instance is in recall mode."""
        return self.provider != "none" and (has_key or self.is_local)

    def prices(self) -> TokenPrices | None:
        """What a token costs; None if that is not known, and then no call may be made (`price_remedy`)."""
        listed = LIST_PRICES.get((urlsplit(self.base_url).hostname or "", self.model))
        default = FREE if self.is_local else listed
        cost_in, cost_cached, cost_out = self.price_input, self.price_cached_input, self.price_output
        if cost_cached is None:
            cost_cached = cost_in
        if default is not None:
            cost_cached = default.cached_input if cost_cached is None else cost_cached
            cost_in = default.input if cost_in is None else cost_in
            cost_out = default.output if cost_out is None else cost_out
        if cost_in is None or cost_cached is None or cost_out is None:
            return None
        return TokenPrices(input=cost_in, cached_input=cost_cached, output=cost_out)

    def price_remedy(self) -> str:
        """The sentence for a call that the budget refuses because its price is not known."""
        return (
            f"the price of {self.model} at {self.base_url} is not known, so the budget cannot be kept: set "
            "it with `pikobot init --set chat.price_input=… --set chat.price_output=…` (dollars per million tokens; "
            "0 if it is free)"
        )


class ExtractionConfig(Section):
    enabled: bool = Field(True, description="Learn facts from conversations in the background.")
    base_url: OptionalUrl = Field(
        "", description="Address of the model that extracts; empty: that of [chat]."
    )
    model: Line = Field("", description="Name of the model that extracts; empty: that of [chat].")
    max_jobs_per_hour: int = Field(60, ge=0, le=100_000, description="Most extraction calls in an hour.")

    def chat(self, chat: ChatConfig) -> ChatConfig:
        """The model that extracts, as the settings of a chat model: another address has other prices."""
        base_url, model = self.base_url or chat.base_url, self.model or chat.model
        if (base_url, model) == (chat.base_url, chat.model):
            return chat
        unpriced = {"price_input": None, "price_cached_input": None, "price_output": None}
        return chat.model_copy(update={"base_url": base_url, "model": model, **unpriced})


class EmbeddingConfig(Section):
    provider: Literal["openai", "e5", "sentence-transformers", "disabled"] = Field(
        "openai",
        description="Search by meaning: openai (or a compatible server), e5 (local, English and Chinese), "
        "sentence-transformers (a local model directory) or disabled (search by words only).",
    )
    base_url: Url = Field(
        OPENAI_URL, description="Address of the embedding server, when the provider is openai."
    )
    model: Line = Field(
        "text-embedding-3-small", min_length=1, description=f"Name of the embedding model; for e5 {E5_MODEL}."
    )
    dimension: int = Field(
        1_536,
        ge=1,
        le=8_192,
        description=f"Numbers in one vector, as the model makes them; for e5 {E5_DIMENSION}.",
    )
    path: Line = Field("", description="Directory of the model, when the provider is sentence-transformers.")
    price_input: Price = Field(
        None,
        examples=[0.02],
        description="Dollars per million tokens. Without it: the list price if pikobot knows it, 0 for a server "
        "on this machine, else calls are refused.",
    )

    @model_validator(mode="before")
    @classmethod
    def _e5_profile(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("provider") == "e5":
            return {"model": E5_MODEL, "dimension": E5_DIMENSION, **data}
        return data

    @model_validator(mode="after")
    def _is_complete(self) -> "EmbeddingConfig":
        if self.provider == "e5" and self.dimension != E5_DIMENSION:
            raise ValueError(f"embedding.dimension must be {E5_DIMENSION} when embedding.provider is e5")
        if self.provider == "sentence-transformers" and not self.path:
            raise ValueError("embedding.path must be set when embedding.provider is sentence-transformers")
        if self.path and not (self.path.startswith("~") or Path(self.path).is_absolute()):
            raise ValueError(
                "embedding.path must be absolute or begin with ~: pikobot is started from many directories"
            )
        return self

    @property
    def is_local(self) -> bool:
        """The server is on this machine: no key is needed and no money is spent unless a price is set."""
        return is_loopback_url(self.base_url)

    def price(self) -> float | None:
        """Dollars per million tokens; None if not known, and then no call may be made (`price_remedy`)."""
        if self.provider != "openai":
            return 0.0
        if self.price_input is not None:
            return self.price_input
        if self.is_local:
            return 0.0
        return EMBEDDING_PRICES.get((urlsplit(self.base_url).hostname or "", self.model))

    def price_remedy(self) -> str:
        """The sentence for a call that the budget refuses because its price is not known."""
        return (
            f"the price of {self.model} at {self.base_url} is not known, so the budget cannot be kept: set "
            "it with `pikobot init --set embedding.price_input=…` (dollars per million tokens; 0 if it is free)"
        )


class BudgetConfig(Section):
    run_usd: float = Field(
        0.25, ge=0, le=1_000_000, description="Most that one answer may cost, in dollars; 0: spend nothing."
    )
    workspace_usd_per_month: float = Field(
        10,
        ge=0,
        le=1_000_000,
        description="Most that a workspace may cost in a month, in dollars; 0: spend nothing.",
    )
    background_usd_per_day: float = Field(
        0.5,
        ge=0,
        le=1_000_000,
        description="Most that background work may cost in a day, in dollars; 0: spend nothing.",
    )


class MemoryConfig(Section):
    idle_minutes: int = Field(
        30, ge=1, le=525_600, description="A conversation is summed up after this long without a message."
    )
    extract_imports: bool = Field(
        False, description="Learn facts from imported conversations too (costs calls)."
    )
    basics: bool = Field(
        True, description="Keep the owner's basics (name, home, occupation …) at hand in every answer."
    )


class RetentionConfig(Section):
    message_days: int = Field(
        0,
        ge=0,
        le=365_000,
        description="Delete messages, and what was made of them, after this many days; 0: keep all.",
    )
    max_sources: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        description="Keep at most this many messages in a workspace, the oldest go first; 0: keep all.",
    )


class TelegramConfig(Section):
    enabled: bool = Field(False, description="Talk on Telegram too; needs owner_id and a bot token.")
    base_url: Url = Field("https://api.telegram.org", description="Address of the Bot API server.")
    owner_id: int = Field(0, ge=0, le=2**53, description="The owner's numeric Telegram user id; 0: not set.")
    allowed_users: TelegramIds = Field((), description="Numeric ids of other users who may talk to the bot.")
    allowed_groups: TelegramIds = Field(
        (), description="Numeric ids of groups where the bot answers (negative)."
    )
    media_max_mb: int = Field(
        20, ge=0, le=2_000, description="Largest attachment that is kept, in megabytes."
    )

    @model_validator(mode="after")
    def _has_owner(self) -> "TelegramConfig":
        if self.enabled and not self.owner_id:
            raise ValueError(
                "telegram.owner_id must be set when telegram.enabled is true: your numeric user id, which "
                "@userinfobot tells you, as in --set telegram.owner_id=123456789"
            )
        return self


class Config(Section):
    """All settings of an instance. Immutable: a change is a new file and a restart."""

    chat: ChatConfig = Field(default_factory=ChatConfig, description="The model that answers.")
    extraction: ExtractionConfig = Field(
        default_factory=ExtractionConfig, description="Learning facts from what is said."
    )
    embedding: EmbeddingConfig = Field(default_factory=EmbeddingConfig, description="Search by meaning.")
    budget: BudgetConfig = Field(default_factory=BudgetConfig, description="Limits of what may be spent.")
    memory: MemoryConfig = Field(default_factory=MemoryConfig, description="What is remembered, and when.")
    retention: RetentionConfig = Field(
        default_factory=RetentionConfig, description="How long messages are kept."
    )
    telegram: TelegramConfig = Field(default_factory=TelegramConfig, description="The Telegram channel.")


def config_keys() -> dict[str, FieldInfo]:
    """Every setting by its dotted name (``chat.model``), in the order of the models."""
    return {
        f"{section}.{key}": field
        for section, parent in Config.model_fields.items()
        if isinstance(parent.annotation, type) and issubclass(parent.annotation, BaseModel)
        for key, field in parent.annotation.model_fields.items()
    }


def load_config(path: Path) -> Config:
    """Read and check config.toml. Raises ConfigError that lists every finding with its key and remedy."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing; `pikobot init` writes a new one with the defaults") from None
    return parse_config(text, path)


def parse_config(text: str, name: str | Path) -> Config:
    """Settings from the text of a config.toml; ``name`` says in errors where the text is from."""
    return check_config(parse_toml(text, name), name)


def check_config(data: dict[str, object], name: str | Path) -> Config:
    """Settings from parsed TOML; otherwise as ``parse_config``."""
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        findings = [_finding(detail) for detail in error.errors(include_url=False, include_input=False)]
    raise ConfigError("\n".join(f"{name}: {finding}" for finding in dict.fromkeys(findings)))


def unknown_key(key: str) -> str:
    """The sentence for a key that is no setting: where a secret belongs, or the nearest known key."""
    words = key.rpartition(".")[2].lower().replace("-", "_").split("_")
    if any(word in _SECRET_WORDS or word == "apikey" for word in words):
        return (
            f"{_shown(key)} is a secret and does not belong in the settings: put it into credentials.toml "
            "(chat_api_key, embedding_api_key, telegram_token) or the environment (PIKOBOT_CHAT_API_KEY, "
            "PIKOBOT_EMBEDDING_API_KEY, PIKOBOT_TELEGRAM_TOKEN)"
        )
    near = _nearest(key)
    return f"{_shown(key)} is not a setting; " + (f"did you mean {near}?" if near else "remove it")


def _nearest(key: str) -> str | None:
    known = list(config_keys())
    sections = [f"[{section}]" for section in Config.model_fields]
    near = difflib.get_close_matches(key, [*known, *sections], n=1, cutoff=0.7)
    if not near:  # the right name in the wrong section, or in none
        last_parts = {name.rpartition(".")[2]: name for name in reversed(known)}
        close = difflib.get_close_matches(key.rpartition(".")[2], list(last_parts), n=1, cutoff=0.7)
        near = [last_parts[part] for part in close]
    return near[0] if near else None


def _shown(key: str) -> str:
    return key if len(key) <= 60 and key.isprintable() else repr(key[:60])


_PROBLEMS = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "string_unicode": "must be valid Unicode text",
    "string_too_short": "must not be empty",
    "string_too_long": "must be at most {max_length} characters",
    "literal_error": "must be one of {expected}",
    "tuple_type": "must be a list of whole numbers, such as [1, 2]",
    "model_type": "must be a section, written [{key}]",
    "greater_than": "must be more than {gt:,.0f}",
    "greater_than_equal": "must be at least {ge:,.0f}",
    "less_than_equal": "must be at most {le:,.0f}",
    "finite_number": "must be a finite number",
    "value_error": "{error}",
}


def _finding(detail: ErrorDetails) -> str:
    key = ".".join(str(step) for step in detail["loc"] if isinstance(step, str))
    if detail["type"] == "extra_forbidden":
        return unknown_key(key)
    template = _PROBLEMS.get(detail["type"])
    problem = template.format(key=key, **detail.get("ctx", {})) if template else detail["msg"]
    field = config_keys().get(key)
    if detail["type"] == "value_error":
        return f"{key} {problem}" if field else problem
    documentation = f": {field.description}" if field and detail["type"] != "literal_error" else ""
    item = "".join(f", item {step + 1}," for step in detail["loc"] if isinstance(step, int))
    return f"{key}{item} {problem}{documentation}"
