"""The reviewed files of one Mem0 release, and the patch that makes them fit pikobot.

``patches/`` holds a unified diff and a manifest that binds it: the SHA-256 of every upstream file that may be
loaded, and of the result for those that the diff changes. Both are plain text for people to review. They lie
beside the package in a checkout and inside it in a wheel.

Hunks apply at exactly their own line and with exactly their own context, or not at all. Lines end at LF alone;
a CR or a missing last newline is part of the text and makes the hashes differ.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from importlib.resources.abc import Traversable

from pikobot.errors import PikobotError

MANIFEST_NAME = "mem0ai-2.2.1.manifest.json"

_HUNK_HEADER = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class PatchFailed(PikobotError):
    """The patch or its manifest cannot be read, or does not fit the files it is meant for."""


@dataclass(frozen=True)
class Hunk:
    """Lines without their LF; ``first_line`` counts from 1 in the old file."""

    first_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True)
class ReviewedFile:
    """SHA-256 of a file as released and as loaded; equal when the patch leaves it alone."""

    upstream: str
    loaded: str


@dataclass(frozen=True)
class Manifest:
    """Which release, and the files of it that may be loaded, by their path in site-packages."""

    distribution: str
    version: str
    patch: str
    files: Mapping[str, ReviewedFile]


def patches_directory() -> Traversable:
    """``patches/`` inside the installed package, else beside it in the checkout."""
    package = resources.files("pikobot")
    shipped = package / "patches"
    return shipped if shipped.is_dir() else package / ".." / "patches"


def read_manifest(directory: Traversable) -> Manifest:
    """Raises PatchFailed."""
    try:
        wire = json.loads((directory / MANIFEST_NAME).read_text("utf-8"))
        files = {
            path: ReviewedFile(hashes["upstream"], hashes.get("patched", hashes["upstream"]))
            for path, hashes in wire["files"].items()
        }
        return Manifest(wire["distribution"], wire["version"], wire["patch"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise PatchFailed(f"{MANIFEST_NAME} cannot be read; install pikobot again") from error


def read_patch(directory: Traversable, name: str) -> dict[str, tuple[Hunk, ...]]:
    """The hunks of every file that the diff changes, by its path in site-packages. Raises PatchFailed."""
    try:
        text = (directory / name).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise PatchFailed(f"{name} cannot be read; install pikobot again") from error
    return parse_patch(text, name)


def parse_patch(text: str, name: str) -> dict[str, tuple[Hunk, ...]]:
    """Reads a unified diff of ``a/PATH`` against ``b/PATH``; text before the first file is a comment."""
    malformed = partial(_malformed, name)
    rest = _Lines(split_lines(text, name), malformed)
    while rest.next_line is not None and not rest.next_line.startswith("--- "):
        rest.take()
    files: dict[str, tuple[Hunk, ...]] = {}
    while rest.next_line is not None:
        path = rest.take().removeprefix("--- a/")
        if rest.take() != f"+++ b/{path}" or path in files:
            raise malformed(rest.position)
        files[path] = tuple(_hunks(rest))
    return files


def apply_hunks(source: str, hunks: Sequence[Hunk], path: str) -> str:
    """The patched text. Raises PatchFailed that names the hunk, unless every one fits exactly where it says."""
    if not hunks:
        return source
    lines = split_lines(source, path)
    patched: list[str] = []
    done = 0
    for number, hunk in enumerate(hunks, start=1):
        start = hunk.first_line - 1
        end = start + len(hunk.old)
        if start < done or tuple(lines[start:end]) != hunk.old:
            raise PatchFailed(f"hunk {number} of the patch does not fit {path}, line {hunk.first_line}")
        patched += lines[done:start]
        patched += hunk.new
        done = end
    return "".join(f"{line}\n" for line in patched + lines[done:])


def split_lines(text: str, name: str) -> list[str]:
    """Lines without their LF; raises PatchFailed when the last one has none."""
    if text and not text.endswith("\n"):
        raise PatchFailed(f"{name} does not end with a line feed")
    return text.split("\n")[:-1]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Lines:
    """The lines of a diff that are still to be read."""

    def __init__(self, lines: Sequence[str], malformed: "partial[PatchFailed]") -> None:
        self._lines = lines
        self._malformed = malformed
        self.position = 0

    @property
    def next_line(self) -> str | None:
        return self._lines[self.position] if self.position < len(self._lines) else None

    def take(self) -> str:
        line = self.next_line
        if line is None:
            raise self.failure()
        self.position += 1
        return line

    def failure(self) -> PatchFailed:
        return self._malformed(self.position)


def _hunks(rest: _Lines) -> Iterator[Hunk]:
    if rest.next_line is None:
        raise rest.failure()
    while rest.next_line is not None and not rest.next_line.startswith("--- "):
        header = _HUNK_HEADER.match(rest.take())
        if header is None:
            raise rest.failure()
        first_line, old_count, new_count = (int(group or 1) for group in header.groups())
        yield _hunk(rest, first_line, old_count, new_count)


def _hunk(rest: _Lines, first_line: int, old_count: int, new_count: int) -> Hunk:
    """Reads by the header's counts, so that a removed line may begin with ``-- `` like a file's name."""
    old: list[str] = []
    new: list[str] = []
    while len(old) < old_count or len(new) < new_count:
        mark, line = (rest.next_line or "?")[0], rest.take()[1:]
        if mark not in " -+":
            raise rest.failure()
        if mark != "+":
            old.append(line)
        if mark != "-":
            new.append(line)
    if len(old) != old_count or len(new) != new_count:
        raise rest.failure()
    return Hunk(first_line, tuple(old), tuple(new))


def _malformed(name: str, line: int) -> PatchFailed:
    return PatchFailed(f"{name} is no unified diff at line {line}; install pikobot again")
