"""Parameters from outside: what every method and tool accepts and refuses alike.

Parsed JSON becomes a pydantic model here; a refusal names the wrong keys and never repeats a value, which may
be somebody's words.
"""

import re
from collections.abc import Sequence
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pikobot.errors import InvalidParams
from pikobot.memory import cursors, moments

MAX_NAME_CHARS = 512
DEFAULT_LIMIT = 10
MAX_LIMIT = 50
MAX_ERRORS_NAMED = 5
MAX_KEY_CHARS_NAMED = 64
MAX_TAG_CHARS = 48
TAG_PATTERN = "^[a-z0-9]+(-[a-z0-9]+)*$"


def storable(text: str) -> str:
    """The text, unless it has a NUL character; lone surrogates are refused by pydantic."""
    if "\0" in text:
        raise ValueError("has a NUL character; remove it")
    return text


def is_tag(text: str) -> bool:
    """Lowercase ASCII words and dashes, at most 48 characters."""
    return len(text) <= MAX_TAG_CHARS and re.fullmatch(TAG_PATTERN, text) is not None


def _moment(text: str) -> str:
    moments.parse_moment(text)
    return text


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(storable)]
MomentText = Annotated[str, Field(max_length=64), AfterValidator(_moment)]
Tag = Annotated[str, Field(max_length=MAX_TAG_CHARS, pattern=TAG_PATTERN)]
Cursor = Annotated[str, Field(max_length=cursors.MAX_CURSOR_CHARS)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class Params(BaseModel):
    """Parameters of a method: no unknown keys, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


P = TypeVar("P", bound=BaseModel)


def validated(model: type[P], params: object) -> P:
    """The parameters as that model; raises `InvalidParams` that names every wrong key, never a value."""
    if not isinstance(params, dict):
        raise InvalidParams("params: expected an object")
    try:
        return model.model_validate(params)
    except ValidationError as error:
        known = [field.alias or name for name, field in model.model_fields.items()]
        found = error.errors(include_url=False, include_context=False, include_input=False)
        messages = [_problem(str(item["type"]), item["loc"], item["msg"], known) for item in found]
        raise InvalidParams("; ".join(messages[:MAX_ERRORS_NAMED])) from None


def _problem(kind: str, place: tuple[int | str, ...], message: str, known: Sequence[str]) -> str:
    if kind == "extra_forbidden":
        key = str(place[-1])
        return f"{named_key(key)}: unknown key; known are {', '.join(known)}"
    text = message.removeprefix("Value error, ")
    return f"{'.'.join(named_key(str(step)) for step in place)}: {text}" if place else text


def named_key(key: str) -> str:
    """A key from outside, fit for a message: short, and escaped unless it is a plain name."""
    shown = key if len(key) <= MAX_KEY_CHARS_NAMED else key[:MAX_KEY_CHARS_NAMED] + "…"
    return shown if shown.isidentifier() or shown.isdigit() else ascii(shown)
