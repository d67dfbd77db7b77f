"""Imports Mem0 as reviewed and patched, from memory.

``load_memory_class`` checks the installed release and every reviewed file against the manifest before the first
module runs, and applies the patch. From then on an import hook serves ``mem0`` from those texts and refuses
every module of it that nobody reviewed, among them the telemetry, the notices, the history store, the hosted
client and the proxy. Nothing is written: not to site-packages, not to the home directory, no byte code.

The modules keep their real file names, and ``linecache`` gets the patched texts, so that a traceback shows the
lines that ran. Mem0 logs what people said; its loggers are silenced here for the whole process.
"""

import importlib
import importlib.metadata
import linecache
import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.resources.abc import Traversable
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pikobot.adapters.mem0 import patching
from pikobot.errors import PikobotError

_PACKAGE = "mem0"
_lock = threading.Lock()


class Mem0Unavailable(PikobotError):
    """The Mem0 that pikobot was reviewed with is not there; learning facts is not possible without it."""


@dataclass(frozen=True)
class ReviewedModule:
    """One module as it will run. ``file`` is where its upstream text lies."""

    name: str
    file: str
    source: str
    is_package: bool
    is_patched: bool


def load_memory_class() -> type[Any]:
    """Mem0's ``Memory``, patched. Repeated calls and calls from several threads are fine.

    Raises Mem0Unavailable for a missing or different release, for changed files, and when something else
    has imported Mem0 before.
    """
    with _lock:
        if not any(isinstance(finder, ReviewedFinder) for finder in sys.meta_path):
            _refuse_foreign_import()
            modules = reviewed_modules(patching.patches_directory(), importlib.metadata.distribution)
            _silence_logs()
            _show_patched_lines(modules)
            sys.meta_path.insert(0, ReviewedFinder(modules))
        memory: type[Any] = importlib.import_module(f"{_PACKAGE}.memory.main").Memory
        return memory


def load_module(name: str) -> ModuleType:
    """Another module of the patched Mem0, after ``load_memory_class``."""
    return importlib.import_module(name)


def reviewed_modules(directory: Traversable, distribution_of: Any) -> dict[str, ReviewedModule]:
    """All modules that may be imported, verified and patched; ``distribution_of`` finds the installed release."""
    manifest = patching.read_manifest(directory)
    patch = patching.read_patch(directory, manifest.patch)
    try:
        release = distribution_of(manifest.distribution)
    except importlib.metadata.PackageNotFoundError:
        raise Mem0Unavailable(f"{manifest.distribution} is not installed; {_remedy(manifest)}") from None
    if release.version != manifest.version:
        found = f"{manifest.distribution} {release.version} is installed"
        raise Mem0Unavailable(f"{found}, pikobot needs {manifest.version}; {_remedy(manifest)}")
    unknown = sorted(set(patch) - set(manifest.files))
    if unknown:
        raise patching.PatchFailed(f"{manifest.patch} changes {unknown[0]}, which the manifest does not list")
    modules = {}
    for path, hashes in manifest.files.items():
        file = Path(release.locate_file(path))
        source = _patched_source(file, path, hashes, patch.get(path, ()), manifest)
        module = _module(path, str(file), source, is_patched=path in patch)
        modules[module.name] = module
    return modules


class ReviewedFinder(MetaPathFinder):
    """Finds the reviewed modules, refuses the rest of Mem0, and leaves everything else to others."""

    def __init__(self, modules: Mapping[str, ReviewedModule]) -> None:
        self._modules = modules
        self._namespaces = _namespaces(modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.split(".")[0] != _PACKAGE:
            return None
        if fullname in self._namespaces:
            namespace = ModuleSpec(fullname, None, is_package=True)
            namespace.submodule_search_locations = [self._namespaces[fullname]]
            return namespace
        module = self._modules.get(fullname)
        if module is None:
            refusal = f"pikobot does not load {fullname}: it is no reviewed part of Mem0"
            raise ModuleNotFoundError(refusal, name=fullname)
        places = [str(Path(module.file).parent)] if module.is_package else None
        loader = _ReviewedLoader(self._modules)
        return spec_from_file_location(
            fullname, module.file, loader=loader, submodule_search_locations=places
        )


class _ReviewedLoader(ExecutionLoader):
    def __init__(self, modules: Mapping[str, ReviewedModule]) -> None:
        self._modules = modules

    def get_filename(self, fullname: str) -> str:
        return self._modules[fullname].file

    def get_source(self, fullname: str) -> str:
        return self._modules[fullname].source

    def is_package(self, fullname: str) -> bool:
        return self._modules[fullname].is_package


def _patched_source(
    file: Path,
    path: str,
    hashes: patching.ReviewedFile,
    hunks: Sequence[patching.Hunk],
    manifest: patching.Manifest,
) -> str:
    try:
        upstream = file.read_bytes()
    except OSError:
        raise Mem0Unavailable(f"{path} cannot be read; {_remedy(manifest)}") from None
    if patching.sha256(upstream) != hashes.upstream:
        changed = f"{path} is not the file of {manifest.distribution} {manifest.version}"
        raise Mem0Unavailable(f"{changed}; {_remedy(manifest)}")
    source = patching.apply_hunks(upstream.decode(), hunks, path)
    if patching.sha256(source.encode()) != hashes.loaded:
        raise patching.PatchFailed(
            f"{manifest.patch} makes of {path} what nobody reviewed; install pikobot again"
        )
    return source


def _module(path: str, file: str, source: str, *, is_patched: bool) -> ReviewedModule:
    parts = path.removesuffix(".py").split("/")
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return ReviewedModule(name, file, source, is_package, is_patched)


def _namespaces(modules: Mapping[str, ReviewedModule]) -> dict[str, str]:
    """Packages without an ``__init__`` file, and their directories."""
    parents = {name.rpartition(".")[0]: module for name, module in modules.items() if "." in name}
    return {name: str(Path(module.file).parent) for name, module in parents.items() if name not in modules}


def _remedy(manifest: patching.Manifest) -> str:
    requirement = f"{manifest.distribution}=={manifest.version}"
    return f"run `{sys.executable} -m pip install --force-reinstall --no-deps {requirement}`"


def _refuse_foreign_import() -> None:
    if _PACKAGE in sys.modules:
        raise Mem0Unavailable(
            "mem0 was imported before pikobot could patch it; start pikobot in a process of its own"
        )


def _silence_logs() -> None:
    logger = logging.getLogger(_PACKAGE)
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)


def _show_patched_lines(modules: Mapping[str, ReviewedModule]) -> None:
    """An entry without a time of change is never read again from the file, which has the upstream lines."""
    for module in modules.values():
        if module.is_patched:
            lines = module.source.splitlines(keepends=True)
            linecache.cache[module.file] = (len(module.source), None, lines, module.file)
