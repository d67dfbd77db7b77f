"""Mem0 is loaded as reviewed, or not at all, and says what it is that does not fit."""

import importlib
import importlib.metadata
import importlib.util
import inspect
import logging
import shutil
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.mem0 import loader, patching
from pikobot.adapters.mem0.loader import Mem0Unavailable, load_memory_class, reviewed_modules
from pikobot.adapters.mem0.patching import PatchFailed
from pikobot.errors import ExitCode

MAIN = "mem0/memory/main.py"


@dataclass
class Release:
    """A copy of the installed release that a test may damage; ``patches`` lies beside it."""

    root: Path
    version: str = "2.2.1"

    @property
    def patches(self) -> Path:
        return self.root / "patches"

    def locate_file(self, path: str) -> Path:
        return self.root / path

    def load(self) -> dict[str, loader.ReviewedModule]:
        return reviewed_modules(self.patches, lambda _: self)


@pytest.fixture
def release(tmp_path: Path) -> Release:
    installed = importlib.metadata.distribution("mem0ai")
    source = patching.patches_directory()
    release = Release(tmp_path)
    release.patches.mkdir()
    manifest = patching.read_manifest(source)
    for name in (patching.MANIFEST_NAME, manifest.patch):
        (release.patches / name).write_bytes((source / name).read_bytes())
    for path in manifest.files:
        release.locate_file(path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(str(installed.locate_file(path)), release.locate_file(path))
    return release


def test_the_reviewed_release_loads(release: Release) -> None:
    modules = release.load()
    assert len(modules) == len(patching.read_manifest(release.patches).files)
    assert modules["mem0"].is_package
    assert "posthog" not in "".join(module.source for module in modules.values())


def test_another_version_is_refused_with_the_command_that_installs_the_right_one(release: Release) -> None:
    release.version = "2.3.0"
    with pytest.raises(Mem0Unavailable) as refused:
        release.load()
    assert str(refused.value) == (
        f"mem0ai 2.3.0 is installed, pikobot needs 2.2.1; run `{sys.executable} -m pip install "
        "--force-reinstall --no-deps mem0ai==2.2.1`"
    )
    assert refused.value.exit_code is ExitCode.FAILED


def test_a_missing_release_is_refused_with_the_same_command(release: Release) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    with pytest.raises(Mem0Unavailable, match=r"mem0ai is not installed; run `.* mem0ai==2\.2\.1`"):
        reviewed_modules(release.patches, missing)


@pytest.mark.parametrize(
    "path",
    [MAIN, "mem0/__init__.py", "mem0/configs/prompts.py", "mem0/exceptions.py", "mem0/llms/__init__.py"],
)
def test_a_file_with_one_byte_more_is_refused_patched_or_not(release: Release, path: str) -> None:
    with release.locate_file(path).open("ab") as file:
        file.write(b"\n")
    with pytest.raises(Mem0Unavailable, match=f"{path} is not the file of mem0ai 2.2.1"):
        release.load()


def test_line_ends_of_another_platform_are_another_file(release: Release) -> None:
    file = release.locate_file(MAIN)
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(Mem0Unavailable, match=MAIN):
        release.load()


def test_a_missing_file_is_refused(release: Release) -> None:
    release.locate_file("mem0/memory/utils.py").unlink()
    with pytest.raises(Mem0Unavailable, match=r"mem0/memory/utils\.py cannot be read"):
        release.load()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text.replace("@@ -814,", "@@ -815,"), "does not fit mem0/memory/main.py"),
        (
            lambda text: text.replace("_load_failed_full = True", "_load_failed_full = False"),
            "nobody reviewed",
        ),
        (lambda text: text.replace("mem0/configs/base.py", "mem0/configs/other.py"), "does not list"),
        (lambda text: text[: text.index("--- a/mem0/utils")], "nobody reviewed"),
    ],
)
def test_a_changed_patch_is_refused(release: Release, damage: Callable[[str], str], message: str) -> None:
    file = release.patches / "mem0ai-2.2.1.patch"
    before = file.read_text("utf-8")
    file.write_text(damage(before), "utf-8")
    assert file.read_text("utf-8") != before
    with pytest.raises(PatchFailed, match=message):
        release.load()


def test_site_packages_keeps_the_upstream_files() -> None:
    load_memory_class()
    installed = importlib.metadata.distribution("mem0ai")
    for path, file in patching.read_manifest(patching.patches_directory()).files.items():
        assert patching.sha256(Path(str(installed.locate_file(path))).read_bytes()) == file.upstream


@pytest.mark.parametrize(
    "name",
    [
        "mem0.client",
        "mem0.client.main",
        "mem0.proxy",
        "mem0.memory.storage",
        "mem0.memory.telemetry",
        "mem0.memory.notices",
        "mem0.memory.setup",
        "mem0.utils.factory",
        "mem0.vector_stores.qdrant",
    ],
)
def test_modules_that_nobody_reviewed_are_not_loaded(name: str) -> None:
    load_memory_class()
    with pytest.raises(ModuleNotFoundError, match="pikobot does not load mem0"):
        importlib.import_module(name)
    assert name not in sys.modules


def test_a_traceback_and_the_inspection_show_the_lines_that_ran() -> None:
    memory = load_memory_class()
    with pytest.raises(NotImplementedError) as raised:
        memory()
    shown = "".join(traceback.format_exception(raised.value))
    assert 'raise NotImplementedError("Memory has no stores of its own' in shown
    assert str(importlib.metadata.distribution("mem0ai").locate_file(MAIN)) in shown
    assert "parse_extraction(response" in inspect.getsource(memory._add_to_vector_store)


def test_what_pikobot_does_not_use_is_switched_off() -> None:
    memory = load_memory_class()
    module = importlib.import_module("mem0.memory.main")
    with pytest.raises(NotImplementedError, match="use Memory in a thread"):
        module.AsyncMemory()
    assert not hasattr(importlib.import_module("mem0"), "MemoryClient")
    spacy_models = importlib.import_module("mem0.utils.spacy_models")
    assert (spacy_models.get_nlp_full(), spacy_models.get_nlp_lemma()) == (None, None)
    with pytest.raises(RuntimeError, match="switched off"):
        spacy_models._ensure_model_available()
    assert (
        importlib.import_module("mem0.configs.base").MemoryConfig.model_fields["history_db_path"].default
        == ""
    )
    assert memory.__module__ == "mem0.memory.main"


@pytest.mark.parametrize(
    "answer",
    [
        '```json\n{"memory":[]}\n```',
        '{"memory":[]} {"memory":[]}',
        '{"memory":[],"memory":[]}',
        '{"memory":[{"id":"0","text":"x"}]}',
        '{"memory":[{"id":"0","text":"x","attributed_to":"system"}]}',
        '{"memory":[{"id":"0","text":"x\\u0000","attributed_to":"user"}]}',
        '{"memory":[{"id":"0","text":"x","attributed_to":"user","event":"DELETE"}]}',
        '{"memory":[{"id":"0","text":"x","attributed_to":"user","linked_memory_ids":["9"]}]}',
        '{"memory":[{"id":"0","text":"x","attributed_to":"user"},{"id":"0","text":"y","attributed_to":"user"}]}',
        '{"memory":[NaN]}',
        '{"memory":null}',
        "[]",
        "null",
        "",
        None,
    ],
)
def test_the_patched_mem0_raises_on_whatever_is_not_exactly_its_document(answer: Any) -> None:
    load_memory_class()
    utils = loader.load_module("mem0.memory.utils")
    with pytest.raises(utils.InvalidExtraction):
        utils.parse_extraction(answer, {"0"})


def test_its_loggers_reach_nobody() -> None:
    load_memory_class()
    assert not logging.getLogger("mem0.memory.main").isEnabledFor(logging.CRITICAL)
    assert logging.getLogger("mem0").propagate is False


def test_loading_twice_and_from_many_threads_is_loading_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        classes = set(pool.map(lambda _: load_memory_class(), range(16)))
    assert len(classes) == 1
    assert sum(isinstance(finder, loader.ReviewedFinder) for finder in sys.meta_path) == 1


def test_a_mem0_that_something_else_has_imported_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [finder for finder in sys.meta_path if not isinstance(finder, loader.ReviewedFinder)]
    monkeypatch.setattr(sys, "meta_path", others)
    monkeypatch.setitem(sys.modules, "mem0", sys)
    with pytest.raises(Mem0Unavailable, match="a process of its own"):
        load_memory_class()
    assert sys.meta_path == others


def test_other_modules_are_left_to_other_finders() -> None:
    finder = loader.ReviewedFinder({})
    assert finder.find_spec("mem0ai", None) is None
    assert finder.find_spec("json", None) is None
