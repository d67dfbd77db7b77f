"""The product's local E5 for benchmarks: both sides of a comparison get these vectors, and runs share a cache of them.

The cache is a file under the directory for temporary files; vectors that an equal profile made before are read from it.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Coroutine, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.adapters.embedding.e5 import PROFILE, make_e5
from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.clock import SystemClock
from pikobot.memory.embedding.contract import Embedded, Engine
from pikobot.store.vectors.profiles import Profile

DIMENSION = PROFILE.dimension
CHUNK = 64  # texts that are made and kept at a time

Float32s = npt.NDArray[np.float32]
T = TypeVar("T")


def local_e5() -> "LocalE5 | str":
    """Close it. A reason where there is no local E5."""
    made = make_e5(SystemClock())
    return made if isinstance(made, str) else LocalE5(made)


class LocalE5:
    """An embedder of both sides: ours asks for batches, a peer for one text at a time, each in the loop kept here."""

    def __init__(self, embedder: LocalEmbedder) -> None:
        self.engine = Engine(Profile(**asdict(PROFILE)), self, is_local=True, price=Decimal(0), batch=256)
        self._embedder = embedder
        self._runner = asyncio.Runner()
        self._cache = apsw.Connection(str(Path(tempfile.gettempdir()) / "pikobot-benchmark-e5.sqlite3"))
        self._cache.execute("CREATE TABLE IF NOT EXISTS units (key BLOB PRIMARY KEY, unit BLOB NOT NULL)")

    def run(self, work: Coroutine[None, None, T]) -> T:
        """Where everything runs that embeds: an embedder belongs to one event loop."""
        return self._runner.run(work)

    def close(self) -> None:
        self.run(self._embedder.aclose())
        self._runner.close()
        self._cache.close()

    def vectors(self, texts: Sequence[str], *, is_query: bool = False) -> Float32s:
        """float32 (n, 384), L2-normalised."""
        return self.run(self._vectors(texts, is_query=is_query))

    async def embed_passages(self, texts: Sequence[str]) -> Embedded:
        return Embedded(list(await self._vectors(texts, is_query=False)))

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        return Embedded(list(await self._vectors(texts, is_query=True)))

    async def _vectors(self, texts: Sequence[str], *, is_query: bool) -> Float32s:
        keys = {text: _key(text, is_query) for text in texts}
        missing = [text for text, key in keys.items() if self._known(key) is None]
        make = self._embedder.embed_queries if is_query else self._embedder.embed_passages
        for at in range(0, len(missing), CHUNK):
            chunk = missing[at : at + CHUNK]
            units = (await make(chunk)).vectors
            rows = [
                (keys[text], np.asarray(unit, "<f4").tobytes())
                for text, unit in zip(chunk, units, strict=True)
            ]
            with self._cache:
                self._cache.executemany("INSERT OR REPLACE INTO units VALUES (?, ?)", rows)
        return np.stack([np.frombuffer(self._known(keys[text]) or b"", "<f4") for text in texts])

    def _known(self, key: bytes) -> bytes | None:
        row = self._cache.execute("SELECT unit FROM units WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])


def _key(text: str, is_query: bool) -> bytes:
    return hashlib.sha256(f"{PROFILE}{is_query}{text}".encode(errors="surrogatepass")).digest()
