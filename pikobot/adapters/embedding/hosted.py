"""Embeddings of any OpenAI-compatible endpoint: one request a batch, no retries, strict about the answer.

The client and its failures are those of the chat adapter (``openai_client``), imported with the first call. A batch
that is refused may be refused for one of its texts or for the settings; a short probe tells which, so that a bad text
doesn't stop the others and bad settings don't use up the tries of good texts.
"""

import asyncio
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pikobot.adapters.chat import CallFailure, ChatCallFailed
from pikobot.adapters.chat_chunks import well_formed
from pikobot.adapters.embedding.vocabulary import Embedded, EmbeddingFailed, EmbeddingProfile
from pikobot.adapters.openai_chat import ChatEndpoint
from pikobot.clock import Clock
from pikobot.config import OPENAI_URL, is_loopback_url
from pikobot.text import Count

if TYPE_CHECKING:
    from pikobot.adapters.openai_client import ProviderClient

# A token has a byte at least: below 8,191 tokens a text and 300,000 a request, which is what OpenAI takes.
MAX_TEXT_BYTES = 8_000
MAX_REQUEST_BYTES = 290_000
BATCH = 128
MAX_JSON_BYTES_PER_NUMBER = 32
ANSWER_OVERHEAD_BYTES = 1_000_000
PROBE = "hello"
PROVIDER = "openai"
PREFIX_RULE = "none; first 8000 bytes"
_WITH_DIMENSIONS = "text-embedding-3"  # the models that can shorten their vectors


@dataclass(frozen=True)
class HostedTimeouts:
    """Seconds, of a whole request. A search waits for a question."""

    passages_s: float = 60.0
    query_s: float = 10.0


class HostedEmbedder:
    """One model at one endpoint, for one event loop. Close it with ``aclose``."""

    batch = BATCH

    def __init__(
        self, endpoint: ChatEndpoint, *, dimension: int, clock: Clock, timeouts: HostedTimeouts | None = None
    ) -> None:
        self.profile = EmbeddingProfile(
            provider=provider_at(endpoint.base_url),
            model=endpoint.model,
            dimension=dimension,
            prefix_rule=PREFIX_RULE,
        )
        self._endpoint = endpoint
        self._clock = clock
        self._timeouts = timeouts or HostedTimeouts()
        self._client: ProviderClient | None = None
        self._opening = asyncio.Lock()

    async def embed_passages(self, texts: Sequence[str]) -> Embedded:
        """As ``Embedder.embed_passages``: one request, more only for very long texts."""
        return await self._embedded(texts, self._timeouts.passages_s)

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """As ``Embedder.embed_queries``; these models embed questions like everything else."""
        return await self._embedded(texts, self._timeouts.query_s)

    async def aclose(self) -> None:
        """Close the connections. A later call opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _embedded(self, texts: Sequence[str], timeout_s: float) -> Embedded:
        parts: list[Embedded] = []
        for request in _requests([_sendable(text) for text in texts]):
            try:
                parts.append(await self._request(request, timeout_s))
            except EmbeddingFailed as failure:
                # What came before was charged for and is given up.
                failure.may_have_charged |= bool(parts) and self._endpoint.can_charge
                failure.is_about_text = failure.is_about_text or await self._is_to_blame(failure)
                raise
        tokens = [part.input_tokens for part in parts]
        return Embedded(
            [vector for part in parts for vector in part.vectors],
            None if None in tokens else sum(count for count in tokens if count is not None),
        )

    async def _is_to_blame(self, failure: EmbeddingFailed) -> bool:
        """Whether a text is what the endpoint failed on: another text is embedded."""
        is_refusal = failure.code == CallFailure.REFUSED_REQUEST
        # Servers on this machine report a text that is too long as an error of their own.
        is_free_error = failure.code == CallFailure.SERVER_ERROR and not failure.may_have_charged
        if not (is_refusal or is_free_error):
            return False
        try:
            await self._request([PROBE], self._timeouts.query_s)
        except EmbeddingFailed:
            return False
        return True

    async def _request(self, texts: Sequence[str], timeout_s: float) -> Embedded:
        try:
            async with asyncio.timeout(timeout_s):
                body = await self._body(texts)
        except TimeoutError as error:
            raise EmbeddingFailed(
                f"{self._endpoint.host} did not answer within {timeout_s:g} s"
                f"{self._endpoint.unknown_outcome}",
                code=CallFailure.TIMED_OUT,
                may_have_charged=self._endpoint.can_charge,
            ) from error
        except ChatCallFailed as failure:
            raise EmbeddingFailed(
                str(failure),
                code=failure.code,
                may_have_charged=failure.may_have_charged and self._endpoint.can_charge,
                retry_after_s=failure.retry_after_s,
            ) from failure
        return await asyncio.to_thread(self._parsed, body, len(texts))

    def _parsed(self, body: bytes, count: int) -> Embedded:
        from pikobot.adapters.embedding.answer import Wanted, parse_answer  # loads numpy

        try:
            return parse_answer(body, Wanted(self._endpoint.host, count, self.profile.dimension))
        except EmbeddingFailed as failure:
            failure.may_have_charged = self._endpoint.can_charge
            raise

    async def _body(self, texts: Sequence[str]) -> bytes:
        limit = ANSWER_OVERHEAD_BYTES + len(texts) * self.profile.dimension * MAX_JSON_BYTES_PER_NUMBER
        client, found = await self._open(), bytearray()
        async with client.open_embeddings(self._parameters(texts)) as body:
            async for chunk in body:
                found += chunk
                if len(found) > limit:
                    raise ChatCallFailed(
                        f"{self._endpoint.host} answered with more than {limit} bytes for {Count(len(texts)):text}; "
                        "check embedding.base_url and embedding.dimension",
                        code=CallFailure.TOO_LARGE,
                    )
        return bytes(found)

    def _parameters(self, texts: Sequence[str]) -> dict[str, Any]:
        parameters: dict[str, Any] = {
            "model": self._endpoint.model,
            "input": list(texts),
            "encoding_format": "base64",
        }
        if self._endpoint.model.startswith(_WITH_DIMENSIONS):
            parameters["dimensions"] = self.profile.dimension
        return parameters

    async def _open(self) -> "ProviderClient":
        async with self._opening:
            if self._client is None:
                module = await asyncio.to_thread(importlib.import_module, "pikobot.adapters.openai_client")
                self._client = module.ProviderClient(
                    self._endpoint, silence_timeout_s=self._timeouts.passages_s, clock=self._clock
                )
            return self._client


def provider_at(base_url: str) -> str:
    """Who makes the vectors there: a model of the same name at another host may be another model."""
    host = urlsplit(base_url).hostname
    if host == urlsplit(OPENAI_URL).hostname:
        return PROVIDER
    return f"{PROVIDER}@{'localhost' if is_loopback_url(base_url) else host}"


def _sendable(text: str) -> str:
    """Without lone surrogates and NUL, which servers refuse, and cut at the border of a character."""
    whole = well_formed(text[:MAX_TEXT_BYTES]).replace("\0", " ")
    return whole.encode()[:MAX_TEXT_BYTES].decode(errors="ignore")


def _requests(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts in as few requests as their sizes allow, in order."""
    request: list[str] = []
    size = 0
    for text in texts:
        length = len(text.encode())
        if request and (size + length > MAX_REQUEST_BYTES or len(request) == BATCH):
            yield request
            request, size = [], 0
        request.append(text)
        size += length
    if request:
        yield request
