"""The ``openai`` client, opened so that only our settings count, and its failures in our words.

Imported by ``openai_chat`` with the first call, because importing ``openai`` takes a second. Invariants:
one request a call and no retries; no redirect is followed, so that neither key nor conversation goes to an
address that nobody configured; only the headers listed here leave, whatever OPENAI_* variables say; nothing
of a request or an answer is logged.
"""

import ipaddress
import logging
import math
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

import anyio
import httpx2
import openai

from pikobot import __version__
from pikobot.adapters.chat import CallFailure, ChatCallFailed
from pikobot.adapters.chat_chunks import error_text, short_detail
from pikobot.adapters.openai_chat import ChatEndpoint
from pikobot.clock import Clock

CONNECT_TIMEOUT_S = 10.0
# Shorter than the idle limit of usual servers: a request that meets a closing connection ends unknown.
KEEPALIVE_EXPIRY_S = 2.0
MAX_RETRY_AFTER_S = 600.0
MAX_ERROR_BODY_BYTES = 16_384

_PLACEHOLDER_KEY = "none"  # the client insists on one, local servers ignore it
_SENT_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "host",
        "user-agent",
        "x-stainless-raw-response",  # by this the client knows its own streaming requests again
    }
)
_NOT_SENT = (
    httpx2.ConnectError,  # refused, DNS, TLS
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
)
_UNUSABLE_ADDRESS = (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError)
# Statuses below 500 with which gateways report that the model's time was up.
_OUTCOME_UNKNOWN_STATUSES = (408, 499)

for _name in ("openai", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.WARNING)


class ProviderClient:
    """Connections to one endpoint."""

    def __init__(self, endpoint: ChatEndpoint, *, silence_timeout_s: float, clock: Clock) -> None:
        """Raises ChatCallFailed for a key or an address that no request can carry."""
        self._endpoint = endpoint
        self._clock = clock
        if not all("!" <= char <= "~" for char in endpoint.api_key or ""):
            raise ChatCallFailed(
                f"the API key has characters that no key has; set {endpoint.key_variable} again",
                code=CallFailure.UNAUTHORIZED,
            )
        with self._failures():
            self._client = _open_client(endpoint, write_timeout_s=silence_timeout_s)

    async def aclose(self) -> None:
        await self._client.close()

    @asynccontextmanager
    async def open(self, request: dict[str, Any]) -> AsyncIterator[AsyncIterator[bytes]]:
        """Make the request; gives the bytes of a 200's body as they come. Leaving closes the response.

        ``request`` holds the parameters of a chat completion. Raises ChatCallFailed, also while iterating.
        """
        async with AsyncExitStack() as stack:
            with self._failures():
                create = self._client.chat.completions.with_streaming_response.create
                response = await stack.enter_async_context(create(**request, stream=True))
            yield self._body(response.http_response)

    @asynccontextmanager
    async def open_embeddings(self, request: dict[str, Any]) -> AsyncIterator[AsyncIterator[bytes]]:
        """As ``open``, for the parameters of an embeddings request, whose answer is one JSON document."""
        async with AsyncExitStack() as stack:
            with self._failures():
                create = self._client.embeddings.with_streaming_response.create
                response = await stack.enter_async_context(create(**request))
            yield self._body(response.http_response)

    async def _body(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        with self._failures():
            async for chunk in response.aiter_bytes():
                yield chunk

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except openai.APIStatusError as error:
            raise self._status_failure(error) from error
        except openai.OpenAIError as error:
            raise self._connection_failure(error.__cause__ or error) from error
        except (
            httpx2.HTTPError,
            httpx2.StreamError,
            httpx2.InvalidURL,
            ssl.SSLError,
            anyio.EndOfStream,
        ) as error:
            raise self._connection_failure(error) from error

    def _connection_failure(self, cause: BaseException) -> ChatCallFailed:
        endpoint = self._endpoint
        if isinstance(cause, _NOT_SENT):
            return ChatCallFailed(
                f"no connection to {endpoint.host} ({_kind(cause)}); "
                f"check the network and {endpoint.section}.base_url",
                code=CallFailure.UNREACHABLE,
            )
        if isinstance(cause, _UNUSABLE_ADDRESS):
            return ChatCallFailed(
                f"{endpoint.section}.base_url is not an address that can be called; "
                "it looks like https://api.deepseek.com",
                code=CallFailure.REFUSED_REQUEST,
            )
        return ChatCallFailed(
            f"the connection to {endpoint.host} broke before the answer was complete ({_kind(cause)})"
            f"{endpoint.unknown_outcome}",
            code=CallFailure.TRUNCATED,
        )

    def _status_failure(self, error: openai.APIStatusError) -> ChatCallFailed:
        status, headers = error.status_code, error.response.headers
        code = _failure_of_status(status, error.code or error.type)
        detail = short_detail(error_text(error.body or error.response.reason_phrase), self._endpoint.secrets)
        retry_after_s = self._retry_after_s(headers) if code is CallFailure.RATE_LIMITED else None
        return ChatCallFailed(
            f"{self._endpoint.host} {self._explanation(code, status)} (HTTP {status}): {detail}",
            code=code,
            retry_after_s=retry_after_s,
        )

    def _explanation(self, code: CallFailure, status: int) -> str:
        endpoint = self._endpoint
        if code is CallFailure.UNAUTHORIZED and not endpoint.secrets:
            return f"wants an API key; set {endpoint.key_variable}"
        if code is CallFailure.REFUSED_REQUEST and status < 400:
            return f"sends requests elsewhere; set {endpoint.section}.base_url to the final address"
        return {
            CallFailure.RATE_LIMITED: "is limiting the rate of requests; wait a little",
            CallFailure.UNAUTHORIZED: f"refused the API key; check {endpoint.key_variable}",
            CallFailure.PAYMENT_REQUIRED: "wants to be paid; top up the account there",
            CallFailure.NOT_FOUND: f"knows no such model or path; check {endpoint.section}.base_url "
            f"and {endpoint.section}.model",
            CallFailure.SERVER_ERROR: f"failed{endpoint.unknown_outcome}",
        }.get(
            code,
            f"refused the request; check {endpoint.section}.model and the settings of {endpoint.section}",
        )

    def _retry_after_s(self, headers: httpx2.Headers) -> float | None:
        """Retry-After (RFC 9110, section 10.2.3): seconds, or a date, counted from that of the response."""
        value = headers.get("retry-after", "").strip()
        try:
            seconds = float(value)
        except ValueError:
            until_s = _http_date_s(value)
            if until_s is None:
                return None
            now_s = _http_date_s(headers.get("date", ""))
            seconds = until_s - (self._clock.now_ms() / 1000 if now_s is None else now_s)
        return None if math.isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER_S)


class _BoundedBody(httpx2.AsyncByteStream):
    """The beginning of an error's body; the rest is never read."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ERROR_BODY_BYTES
        async for chunk in self._body:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._body.aclose()


def _open_client(endpoint: ChatEndpoint, *, write_timeout_s: float) -> openai.AsyncOpenAI:
    timeout = httpx2.Timeout(
        connect=CONNECT_TIMEOUT_S,
        pool=CONNECT_TIMEOUT_S,
        write=write_timeout_s,
        read=None,  # the caller limits the silence between chunks, which keep-alive comments would hide here
    )
    http_client = httpx2.AsyncClient(
        timeout=timeout,
        limits=httpx2.Limits(keepalive_expiry=KEEPALIVE_EXPIRY_S),
        follow_redirects=False,
        trust_env=not _is_loopback(endpoint.base_url),
        event_hooks={"request": [_drop_other_headers], "response": [_bound_error_body]},
    )
    key = endpoint.api_key or _PLACEHOLDER_KEY
    return openai.AsyncOpenAI(
        base_url=endpoint.base_url,
        api_key=key,
        # Given, so that the environment is not asked; empty ones are dropped with the other headers.
        admin_api_key="",
        organization="",
        project="",
        webhook_secret="",
        default_headers={
            "Authorization": f"Bearer {key}",
            "Accept-Encoding": "identity",
            "User-Agent": f"pikobot/{__version__}",
        },
        max_retries=0,
        timeout=timeout,
        http_client=http_client,
    )


async def _drop_other_headers(request: httpx2.Request) -> None:
    for name in list(request.headers):
        if name.lower() not in _SENT_HEADERS:
            del request.headers[name]


async def _bound_error_body(response: httpx2.Response) -> None:
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _BoundedBody(response.stream)


def _failure_of_status(status: int, reported_code: str | None) -> CallFailure:
    if status >= 500 or status in _OUTCOME_UNKNOWN_STATUSES:
        return CallFailure.SERVER_ERROR
    if status == 429 and reported_code == "insufficient_quota":
        return CallFailure.PAYMENT_REQUIRED
    return {
        401: CallFailure.UNAUTHORIZED,
        402: CallFailure.PAYMENT_REQUIRED,
        403: CallFailure.UNAUTHORIZED,
        404: CallFailure.NOT_FOUND,
        429: CallFailure.RATE_LIMITED,
    }.get(status, CallFailure.REFUSED_REQUEST)


def _is_loopback(base_url: str) -> bool:
    """A proxy from the environment is not for servers of this machine."""
    try:
        host = httpx2.URL(base_url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (httpx2.InvalidURL, ValueError):
        return False


def _http_date_s(value: str) -> float | None:
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _kind(cause: BaseException) -> str:
    """What kind of failure it was; its own message may hold the address with a password."""
    return type(cause).__name__
