"""A child process that obeys its texts: ``python -m tests.adapters.embedding.scripted_worker DIMENSION [HOW]``.

HOW: "refuse" says that the model is missing, "break" raises while loading, "die" ends instead of loading, "mute" never
gets ready, "noisy" prints to standard output as native code does.
"""

import os
import sys
import time

import numpy as np

from pikobot.adapters.embedding.frames import ModelMissing, serve_model


class Scripted:
    """A text is a command, or gets a vector made from its length; the second number says: question or passage."""

    def __init__(self) -> None:
        how = sys.argv[2] if len(sys.argv) > 2 else ""
        if how == "refuse":
            raise ModelMissing("the scripted model is missing; install it")
        if how == "break":
            raise RuntimeError("my diary")
        if how == "die":
            os.abort()
        if how == "mute":
            time.sleep(600)
        if how == "noisy":
            print("loading weights: 100 %", flush=True)
            os.write(1, b"more")

    def embed(self, text: str, *, is_query: bool) -> bytes:
        if text == "die":
            os.abort()
        if text == "sleep":
            time.sleep(600)
        if text == "raise":
            raise ValueError(text)
        if text == "environment":
            text = "x" * sum(name.startswith(("PIKOBOT_", "OPENAI_")) for name in os.environ)
        row = np.zeros(int(sys.argv[1]), "<f4")
        row[0], row[1] = len(text) + 1, is_query
        if text == "nan":
            row[0] = np.nan
        return row.tobytes()


if __name__ == "__main__":
    serve_model(Scripted, threads=2)
