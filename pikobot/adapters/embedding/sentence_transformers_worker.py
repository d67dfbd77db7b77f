"""The child process of a sentence-transformers model: ``python -m …sentence_transformers_worker DIRECTORY``.

Spoken to over ``frames``. Only files of the directory are loaded, and no code from it is run.
"""

import sys
import threading
from pathlib import Path

import numpy as np

from pikobot.adapters.embedding.frames import ModelMissing, serve_model
from pikobot.adapters.embedding.vocabulary import how_to_install

# Without the files of its tokenizer a model loads all the same, and every word is the same unknown one to it.
DIFFERENT_WORDS = (("water", "stone"), ("水", "石"))


class DirectoryModel:
    """The model of a directory; its tokenizer serves one text at a time."""

    def __init__(self, directory: Path) -> None:
        """Raises ModelMissing."""
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ModelMissing(
                f"sentence-transformers can't be imported; {how_to_install('sentence-transformers')}"
            ) from error
        try:
            self._model = SentenceTransformer(
                str(directory.resolve()), device="cpu", local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            raise ModelMissing(
                f"{directory} is no model that sentence-transformers loads ({type(error).__name__}); "
                "check embedding.path"
            ) from error
        self._lock = threading.Lock()
        if not self._tells_words_apart():
            raise ModelMissing(
                f"the model in {directory} makes the same numbers of different words: "
                "files of its tokenizer are missing; check embedding.path"
            )

    def embed(self, text: str, *, is_query: bool) -> bytes:
        """As ``frames.Model.embed``; the model cuts what is longer than its window."""
        encode = self._model.encode_query if is_query else self._model.encode_document
        with self._lock:
            vector = encode(_clean(text), show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(vector).astype("<f4").tobytes()

    def _tells_words_apart(self) -> bool:
        return any(
            self.embed(one, is_query=False) != self.embed(other, is_query=False)
            for one, other in DIFFERENT_WORDS
        )


def _clean(text: str) -> str:
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", " ")


if __name__ == "__main__":
    serve_model(lambda: DirectoryModel(Path(sys.argv[1])), threads=1)
