"""Read a backup once from its beginning to its end, check every byte, and hand the members on.

Every damaged thing is found and named, and reading goes on behind it as long as the manifest says where: a member
by its SHA-256, a header or a padding by what it has to be, the end of the file by being there and nothing after
it. Used by `verify`, which wants the findings, and by `restore`, which writes the members into its stage.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pikobot.backup import container
from pikobot.backup.encryption import Keys, decrypting
from pikobot.backup.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    SUMS_NAME,
    Manifest,
    Member,
    parse_manifest,
)
from pikobot.errors import DamagedData, UsageError
from pikobot.files import os_failure

CHUNK_BYTES = 1 << 20

Sink = Callable[[Member], AbstractContextManager[BinaryIO]]
Progress = Callable[[str, int, int], None]
"""(what is being done, bytes done, bytes in all)"""


def no_progress(doing: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class ReadBackup:
    """What was read: the manifest when it could be trusted, and everything that is damaged, in order."""

    manifest: Manifest | None
    damages: tuple[str, ...]


def read_backup(
    path: Path, keys: Keys, *, sink: Sink | None = None, progress: Progress = no_progress
) -> ReadBackup:
    """Read and check the backup at ``path``; each member's content also goes to what ``sink`` opens for it.

    Raises `UsageError` when it is no backup or its key is not given, `NotAllowed` for a wrong key, `DamagedData`
    when its encryption is damaged, so that nothing inside can be seen.
    """
    with _opened(path) as file, decrypting(file, str(path), keys) as stream:
        return _Reading(path, stream, sink, progress).run()


def check_is_there(path: Path) -> None:
    """Raise `UsageError` or `PikobotError` unless the file can be read."""
    with _opened(path):
        pass


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise UsageError(f"{path}: no such backup") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory; name the file that the backup was written to") from None
    except OSError as error:
        raise os_failure("read", path, error) from error


class _CutOff(Exception):
    """The file ends too early."""


class _Reading:
    def __init__(self, path: Path, stream: BinaryIO, sink: Sink | None, progress: Progress) -> None:
        self._path = path
        self._stream = stream
        self._sink = sink
        self._progress = progress
        self._damages: list[str] = []
        self._done = self._total = 0

    def run(self) -> ReadBackup:
        manifest = None
        try:
            manifest = self._manifest()
            if manifest is not None:
                self._total = sum(container.stored_size(one.name, one.size) for one in manifest.members)
                for member in manifest.members:
                    self._member(member)
                self._end()
        except _CutOff as cut:
            self._damages.append(f"the file is cut off in {cut}")
        return ReadBackup(manifest, tuple(self._damages))

    def _manifest(self) -> Manifest | None:
        """The manifest when it is what its checksum says; otherwise the reason is noted."""
        start = self._exactly(container.BLOCK, f"the header of {SUMS_NAME}")
        size = container.sums_size(MANIFEST_NAME)
        wanted = container.header(SUMS_NAME, size)
        if not container.resembles(start, wanted):
            raise UsageError(f"{self._path} is not a backup of pikobot")
        self._compare(start, wanted, f"the header of {SUMS_NAME}")
        sums = self._exactly(size, SUMS_NAME)
        self._padding(size, SUMS_NAME)
        data = self._manifest_bytes()
        if data is None:
            return None
        if not container.are_intact(sums):
            self._damages.append(f"{SUMS_NAME} is damaged")
            return None
        if container.sums_of(data, MANIFEST_NAME) != sums:
            self._damages.append(f"{MANIFEST_NAME} is damaged")
            return None
        try:
            return parse_manifest(data)
        except ValueError as error:
            raise DamagedData(
                f"{self._path}: {MANIFEST_NAME} is not one that this pikobot knows ({error}): use a newer pikobot"
            ) from None

    def _manifest_bytes(self) -> bytes | None:
        block = self._exactly(container.BLOCK, f"the header of {MANIFEST_NAME}")
        size = container.size_in(block)
        if size is None or size > MAX_MANIFEST_BYTES or block != container.header(MANIFEST_NAME, size):
            self._damages.append(f"the header of {MANIFEST_NAME} is damaged")
            return None
        data = self._exactly(size, MANIFEST_NAME)
        self._padding(size, MANIFEST_NAME)
        return data

    def _member(self, member: Member) -> None:
        wanted = container.header(member.name, member.size, executable=member.executable)
        found = self._exactly(len(wanted), f"the header of {member.name}")
        self._compare(found, wanted, f"the header of {member.name}")
        digest = hashlib.sha256()
        left = member.size
        with self._sink(member) if self._sink is not None else nullcontext() as target:
            while left:
                chunk = self._exactly(min(left, CHUNK_BYTES), member.name)
                digest.update(chunk)
                if target is not None:
                    target.write(chunk)
                left -= len(chunk)
        if digest.hexdigest() != member.sha256:
            self._damages.append(f"{member.name} is damaged")
        self._padding(member.size, member.name)

    def _padding(self, size: int, name: str) -> None:
        wanted = container.padding(size)
        self._compare(self._exactly(len(wanted), name), wanted, f"the padding of {name}")

    def _end(self) -> None:
        end = self._exactly(len(container.END), "its end")
        self._compare(end, container.END, "the end of the file")
        if self._read(1):
            self._damages.append("something stands behind the end of the file")

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise os_failure("read", self._path, error) from error

    def _compare(self, found: bytes, wanted: bytes, what: str) -> None:
        if found != wanted:
            self._damages.append(f"{what} is damaged")

    def _exactly(self, size: int, what: str) -> bytes:
        data = self._read(size)
        while len(data) < size and (more := self._read(size - len(data))):
            data += more
        if len(data) < size:
            raise _CutOff(what)
        self._done += size
        self._progress("checking", self._done, max(self._total, self._done))
        return data
