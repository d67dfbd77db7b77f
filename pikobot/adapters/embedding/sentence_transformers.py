"""Any local directory with a sentence-transformers model, through the extra of that name; nothing is downloaded.

What is put before questions and passages is what the model's own configuration says (its prompts). A directory whose
files change is another model: a digest of them is part of the profile. One thread of the child computes: a second one
spins while it waits for the first, which on two busy cores makes 1.6 texts a second instead of 48 (all-MiniLM-L6-v2;
0.7 instead of 5.7 with a model of BERT's size), and gains nothing on cores that are idle.
"""

import hashlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.adapters.embedding.process import WorkerCommand
from pikobot.adapters.embedding.vocabulary import EmbeddingProfile, how_to_install
from pikobot.clock import Clock
from pikobot.config import EmbeddingConfig

WORKER = "pikobot.adapters.embedding.sentence_transformers_worker"
DIGEST_CHARS = 12
# Of a larger file its size, beginning and end count: weights differ there too, and gigabytes take seconds to read.
MAX_DIGESTED_BYTES = 1_000_000
_VARIABLES = {"TOKENIZERS_PARALLELISM": "false"}
_DIMENSION_KEYS = (
    "out_features",
    "embedding_dimension",
    "word_embedding_dimension",
    "hidden_size",
    "d_model",
)


def make_sentence_transformers(config: EmbeddingConfig, clock: Clock) -> LocalEmbedder | str:
    """The embedder, or the reason why it can't be had. Reads the directory; loads and starts nothing."""
    directory = Path(config.path).expanduser()
    if importlib.util.find_spec("sentence_transformers") is None:
        return f"sentence-transformers is not installed; {how_to_install('sentence-transformers')}"
    if not (directory / "modules.json").is_file() and not (directory / "config.json").is_file():
        return f"embedding.path, {directory}, is no directory with a sentence-transformers model"
    try:
        found, digest = read_dimension(directory), digest_of(directory)
    except (OSError, ValueError) as error:
        return f"the model in embedding.path, {directory}, can't be read ({type(error).__name__})"
    given = config.dimension if "dimension" in config.model_fields_set else None
    dimension = found or given
    if dimension is None:
        return f"set embedding.dimension: the files in {directory} don't say how many numbers a vector has"
    if given not in (None, dimension):
        return f"the model in {directory} makes {dimension} numbers; set embedding.dimension to {dimension}"
    profile = EmbeddingProfile(
        provider="sentence-transformers",
        model=config.model if "model" in config.model_fields_set else directory.resolve().name,
        dimension=dimension,
        prefix_rule=f"prompts of the model; files {digest}",
    )
    return LocalEmbedder(profile, worker_command(directory), clock=clock)


def worker_command(directory: Path) -> WorkerCommand:
    """What runs the model of a directory."""
    return WorkerCommand(WORKER, (str(directory),), _VARIABLES)


def read_dimension(directory: Path) -> int | None:
    """What the last module says that changes the size of a vector; None when none says it."""
    configs = [_json(directory / "config.json")]
    modules = _json(directory / "modules.json")
    for module in modules if isinstance(modules, list) else []:
        configs.append(_json(directory / str(module["path"]) / "config.json"))
    sizes = [
        config[key]
        for config in configs
        if isinstance(config, dict)
        for key in _DIMENSION_KEYS
        if isinstance(config.get(key), int)
    ]
    return int(sizes[-1]) if sizes else None


def digest_of(directory: Path) -> str:
    """Of the names and contents of all files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in directory.rglob("*") if path.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.relative_to(directory).as_posix()}\0{size}\0".encode())
        for part in _telling_parts(file, size):
            digest.update(part)
    return digest.hexdigest()[:DIGEST_CHARS]


def _telling_parts(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as stream:
        yield stream.read(MAX_DIGESTED_BYTES)
        if size > MAX_DIGESTED_BYTES:
            stream.seek(max(MAX_DIGESTED_BYTES, size - MAX_DIGESTED_BYTES))
            yield stream.read(MAX_DIGESTED_BYTES)


def _json(file: Path) -> Any:
    return json.loads(file.read_text("utf-8")) if file.is_file() else None
