"""Text and JSON from outside, checked once at the edge.

Everything that enters (RPC, import, tool arguments, command line) passes here before it is stored or
indexed, so that no later room meets a NUL byte, a lone surrogate or an ambiguous JSON document.
Messages name the field and the position, never the text around it.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from pikobot.errors import InvalidParams, MalformedRequest

MAX_JSON_DEPTH = 100
MAX_KEY_CHARS_SHOWN = 40
MAX_PLACE_CHARS_SHOWN = 200
MAX_NAME_CHARS_SHOWN = 80

_TYPE_NAMES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def clean_text(name: str, value: object, *, max_chars: int) -> str:
    """The value unchanged, if it is text that can be stored; positions count characters from 0.

    Raises InvalidParams that names the field for anything but text, for more than ``max_chars`` characters,
    a NUL character or a lone surrogate.
    """
    if not isinstance(value, str):
        raise InvalidParams(f"{name} must be text, not {_TYPE_NAMES.get(type(value), type(value).__name__)}")
    if len(value) > max_chars:
        raise InvalidParams(f"{name} has {len(value)} characters; at most {max_chars} are accepted")
    nul = value.find("\0")
    if nul >= 0:
        raise InvalidParams(f"{name} has a NUL character at position {nul}; remove it")
    surrogate = lone_surrogate(value)
    if surrogate is not None:
        raise InvalidParams(f"{name} has half a surrogate pair at position {surrogate}; it is not valid text")
    return value


def shown_name(name: str) -> str:
    """An id or a name from outside, for a message: quoted, ASCII alone, its first characters if it is long."""
    return ascii(name[:MAX_NAME_CHARS_SHOWN])


class Count(int):
    """A number with its English noun: ``f"{Count(n):source}"``, or ``f"{Count(n):source is|sources are} missing"``."""

    def __format__(self, nouns: str) -> str:
        one, found, many = nouns.partition("|")
        if not one.isidentifier() and " " not in one:
            return format(int(self), nouns)
        return f"{int(self)} {one if self == 1 else many if found else f'{one}s'}"


def lone_surrogate(text: str) -> int | None:
    """Position of the first lone surrogate, which neither UTF-8 nor the database can hold, or None."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return None


def parse_json(document: str | bytes, what: str) -> object:
    """One strict JSON document (RFC 8259); a byte order mark at its start is dropped.

    Refused with MalformedRequest, which says where: invalid UTF-8, anything after the document, a key written
    twice in one object, NaN and infinities, lone surrogates in keys or strings, nesting over MAX_JSON_DEPTH.
    """
    text = _decode(document, what).removeprefix("\ufeff")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_Refused.constant, parse_float=_finite_or_refused
        )
    except json.JSONDecodeError as error:
        raise MalformedRequest(f"{what} is not valid JSON at {_position(error)}: {error.msg}") from None
    except RecursionError:
        raise MalformedRequest(f"{what} is nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError:  # more digits than the interpreter converts
        raise MalformedRequest(f"{what} has a number with too many digits") from None
    for place, problem in _findings(value):
        raise MalformedRequest(f"{what} {problem} at {place}")
    return value


def _position(error: json.JSONDecodeError) -> str:
    column = f"column {error.colno}"
    return f"line {error.lineno}, {column}" if "\n" in error.doc else column


def _decode(document: str | bytes, what: str) -> str:
    if isinstance(document, str):
        return document
    try:
        return document.decode()
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"{what} is not UTF-8 text: invalid byte at position {error.start}") from None


@dataclass(frozen=True)
class _Refused:
    """Stands in the parsed document for a part that JSON allows to be written but nobody may use."""

    problem: str

    @classmethod
    def constant(cls, name: str) -> "_Refused":
        return cls(f"has {name}, which is not JSON,")


def _object(pairs: list[tuple[str, object]]) -> object:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Refused(f"has the key {_shown(key)} twice")
        seen.add(key)
    return members


def _finite_or_refused(digits: str) -> object:
    number = float(digits)
    return number if math.isfinite(number) else _Refused("has a number too large for a float")


_Path: TypeAlias = tuple[Any, str | int] | None  # the path of the parent, and one step; Any: recursive


def _findings(document: object) -> Iterator[tuple[str, str]]:
    """Place and problem of every refused part, in document order, without recursion."""
    pending: list[tuple[object, _Path, int]] = [(document, None, 0)]
    while pending:
        value, path, depth = pending.pop()
        if isinstance(value, str):
            if lone_surrogate(value) is not None:
                yield _rendered(path), "has half a surrogate pair in a string"
        elif isinstance(value, _Refused):
            yield _rendered(path), value.problem
        elif isinstance(value, dict | list):
            if depth >= MAX_JSON_DEPTH:
                yield _rendered(path), f"is nested deeper than {MAX_JSON_DEPTH} levels"
                return
            if isinstance(value, dict) and any(lone_surrogate(key) is not None for key in value):
                yield _rendered(path), "has half a surrogate pair in a key"
            steps = value.items() if isinstance(value, dict) else enumerate(value)
            pending.extend([(child, (path, step), depth + 1) for step, child in steps][::-1])


def _rendered(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(f"[{step}]" if isinstance(step, int) else f".{_shown(step)}")
    place = "$" + "".join(reversed(steps))
    return place if len(place) <= MAX_PLACE_CHARS_SHOWN else place[:MAX_PLACE_CHARS_SHOWN] + "…"


def _shown(key: str) -> str:
    short = key if len(key) <= MAX_KEY_CHARS_SHOWN else key[:MAX_KEY_CHARS_SHOWN] + "…"
    if short.isidentifier():
        return short
    return json.dumps(short, ensure_ascii=False).encode(errors="backslashreplace").decode()
