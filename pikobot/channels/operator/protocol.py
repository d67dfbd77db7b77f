"""The operator's wire: JSON-RPC 2.0 (https://www.jsonrpc.org/specification), one document a line, UTF-8.

    → {"jsonrpc":"2.0","id":1,"method":"memory.search","params":{"query":"dinner"},"token":"…"}
    ← {"jsonrpc":"2.0","id":1,"result":{…}}
    ← {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"…"}}

Two departures: a member ``token`` authenticates every request, and neither batches (arrays) nor notifications
(requests without id) are accepted. The token is compared before anything else of a request is looked at.
"""

import json
from dataclasses import dataclass

from pikobot.credentials import Secret
from pikobot.errors import (
    DamagedData,
    InstanceBusy,
    InvalidParams,
    MalformedRequest,
    NotAllowed,
    NotFound,
    PikobotError,
    ProviderError,
    RpcCode,
    UnknownMethod,
    UsageError,
)
from pikobot.text import parse_json, shown_name

MAX_REQUEST_BYTES = 4 * 1024 * 1024
MAX_ID_CHARS = 128

MEMBERS = frozenset({"jsonrpc", "id", "method", "params", "token"})
RequestId = str | int | None
Json = dict[str, object]


class InvalidRequest(MalformedRequest):
    """The JSON is well-formed and not a request."""

    rpc_code = RpcCode.INVALID_REQUEST


class BrokenAnswer(PikobotError):
    """What came back answers nothing that was asked."""


ERRORS: dict[RpcCode, type[PikobotError]] = {
    kind.rpc_code: kind
    for kind in (
        PikobotError,
        UsageError,
        InvalidParams,
        UnknownMethod,
        MalformedRequest,
        InvalidRequest,
        NotFound,
        NotAllowed,
        InstanceBusy,
        ProviderError,
        DamagedData,
    )
}
# After one of these the two sides may disagree about where they are: the connection is closed.
CLOSING_ERRORS = (NotAllowed, MalformedRequest, BrokenAnswer)


@dataclass(frozen=True)
class Call:
    """An authenticated request. The method is a text, the parameters any JSON."""

    id: RequestId
    method: str
    params: object


@dataclass(frozen=True)
class Envelope:
    """A request that was parsed, and not yet believed."""

    members: Json

    @property
    def id(self) -> RequestId:
        """The id to answer with, None when there is no usable one."""
        value = self.members.get("id")
        is_id = (isinstance(value, str) and len(value) <= MAX_ID_CHARS) or type(value) is int
        return value if is_id and isinstance(value, str | int) else None


def open_envelope(line: bytes) -> Envelope:
    """Raises `MalformedRequest` for what isn't JSON, `InvalidRequest` for what isn't an object."""
    document = parse_json(line, "the request")
    if isinstance(document, list):
        raise InvalidRequest("the request is a batch; send one request a line")
    if not isinstance(document, dict):
        raise InvalidRequest("the request must be an object")
    return Envelope(document)


def authenticate(envelope: Envelope, token: Secret | None) -> None:
    """Raises `NotAllowed` for a wrong or missing token, and for every token when the instance has none."""
    given = envelope.members.get("token")
    is_right = token is not None and token.matches(given if isinstance(given, str) else "")
    if not is_right:
        raise NotAllowed(
            "the operator token is wrong or missing; it stands in the instance's credentials.toml"
        )


def read_call(envelope: Envelope) -> Call:
    """The call of an authenticated envelope; raises `InvalidRequest` that names the member."""
    members = envelope.members
    unknown = [key for key in members if key not in MEMBERS]
    if unknown:
        raise InvalidRequest(f"{shown_name(unknown[0])}: unknown member of the request")
    if members.get("jsonrpc") != "2.0":
        raise InvalidRequest('jsonrpc: expected "2.0"')
    if envelope.id is None:
        raise InvalidRequest(f"id: expected a number or a text of at most {MAX_ID_CHARS} characters")
    method = members.get("method")
    if not isinstance(method, str):
        raise InvalidRequest("method: expected a text")
    return Call(envelope.id, method, members.get("params", {}))


def encode_call(call: Call, token: Secret) -> bytes:
    """Raises `InvalidRequest` above 4 MiB."""
    line = encode(
        {
            "jsonrpc": "2.0",
            "id": call.id,
            "method": call.method,
            "params": call.params,
            "token": token.reveal(),
        }
    )
    if len(line) > MAX_REQUEST_BYTES:
        raise InvalidRequest(f"the request has {len(line)} bytes, the limit is {MAX_REQUEST_BYTES}")
    return line


def encode_result(request_id: RequestId, result: Json) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId, error: PikobotError) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "error": error_object(error)})


def error_object(error: PikobotError) -> Json:
    return {"code": int(error.rpc_code), "message": str(error)}


def encode(document: Json) -> bytes:
    """One line of JSON, its end included."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def read_answer(line: bytes, request_id: RequestId) -> Json:
    """The result; raises the error that the server sent, as the class with that code.

    Raises `BrokenAnswer` for an answer that isn't one.
    """
    try:
        document = parse_json(line, "the answer")
    except MalformedRequest as problem:
        raise BrokenAnswer(f"{problem}: restart the process that serves the instance") from None
    if not isinstance(document, dict):
        raise BrokenAnswer("the process that serves the instance answered with something else than an object")
    error, result = document.get("error"), document.get("result")
    if isinstance(error, dict):
        raise _error_class(error.get("code"))(str(error.get("message")))
    if not isinstance(result, dict) or document.get("id") != request_id:
        raise BrokenAnswer("the process that serves the instance answered another request; try again")
    return result


def _error_class(code: object) -> type[PikobotError]:
    known = [kind for known_code, kind in ERRORS.items() if known_code == code]
    return known[0] if known else PikobotError
