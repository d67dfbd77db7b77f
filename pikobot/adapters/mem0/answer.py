"""One answer of the model, taken apart strictly: exactly one object with exactly the key ``memory``, or a fault.

Nothing is repaired, searched for or cut out here. A lenient reader would store a draft instead of its
correction, or a document that somebody pasted into the chat and the model merely quoted.
"""

import json
import math
import re
from typing import Any, NoReturn

from pikobot.adapters.mem0.candidates import DocumentFault
from pikobot.errors import PikobotError
from pikobot.text import lone_surrogate

_WHITESPACE = " \t\r\n"
_DECLINES = re.compile(
    r"sorry|i['’]?m (very )?sorry|i apologi[sz]e|i can ?(not|['’]t)|i won['’]?t|i must decline|as an ai\b"
    r"|i(['’]?m| am) (not able|unable)"
    r"|(很|非常)?抱歉|对不起|我?(不能|无法)|作为(一个|一名)? ?(ai|人工智能|语言模型)",
    re.IGNORECASE,
)


class InvalidDocument(PikobotError):
    """The answer is not a document of the contract. Caught beside the call that gave the answer."""

    def __init__(self, fault: DocumentFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


def read_elements(text: str) -> list[Any]:
    """The elements of the document, of any JSON type. Raises InvalidDocument."""
    document = text.strip(_WHITESPACE)
    _check_beginning(document)
    value, end = _decode(document)
    if end != len(document):
        raise InvalidDocument(DocumentFault.MORE_AFTER_IT)
    _check_strings(value)
    if not isinstance(value, dict):
        raise InvalidDocument(DocumentFault.NOT_AN_OBJECT)
    if set(value) != {"memory"} or not isinstance(value["memory"], list):
        raise InvalidDocument(DocumentFault.WRONG_KEYS)
    return value["memory"]


def is_refusal(text: str) -> bool:
    """Whether an answer without any JSON reads like a model that declines, in English or Chinese."""
    return not any(bracket in text for bracket in "{[") and bool(_DECLINES.match(text.strip()))


def _check_beginning(document: str) -> None:
    if not document:
        raise InvalidDocument(DocumentFault.EMPTY)
    if "\0" in document:
        raise InvalidDocument(DocumentFault.NUL_CHARACTER)
    if document.startswith(("```", "~~~")):
        raise InvalidDocument(DocumentFault.FENCED)


def _decode(document: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(document)
    except json.JSONDecodeError as error:
        if error.pos == 0:
            raise InvalidDocument(DocumentFault.PROSE) from None
        is_cut = error.pos >= len(document) or error.msg.startswith("Unterminated string")
        raise InvalidDocument(DocumentFault.ENDS_EARLY if is_cut else DocumentFault.NOT_JSON) from None
    except RecursionError:
        raise InvalidDocument(DocumentFault.TOO_DEEP) from None
    except ValueError:  # more digits than the interpreter converts
        raise InvalidDocument(DocumentFault.NOT_A_NUMBER) from None


def _check_strings(value: Any) -> None:
    pending = [value]
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            if "\0" in part:
                raise InvalidDocument(DocumentFault.NUL_CHARACTER)
            if lone_surrogate(part) is not None:
                raise InvalidDocument(DocumentFault.LONE_SURROGATE)
        elif isinstance(part, dict):
            pending += [*part.keys(), *part.values()]
        elif isinstance(part, list):
            pending += part


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise InvalidDocument(DocumentFault.DUPLICATE_KEY)
    return members


def _no_constant(name: str) -> NoReturn:
    raise InvalidDocument(DocumentFault.NOT_A_NUMBER)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise InvalidDocument(DocumentFault.NOT_A_NUMBER)
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_no_constant, parse_float=_finite, strict=True
)
