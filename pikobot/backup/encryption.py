"""Encrypted backups, in the format of age (age-encryption.org/v1), by the extra package pyrage.

    to recipients      the whole container as one age file: `age -d -i KEY backup | tar x`
    with a passphrase  a tar of identity.age, a fresh key under the passphrase, its checksum, and archive.age, the
                       container encrypted to that key: `age -d -i identity.age archive.age | tar x`

Contents stream through: the plain container is never on disk. age authenticates every byte, so damage is found
by decrypting; what can be named is the part of the envelope, not the member inside.
"""

import importlib
import io
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pikobot.backup import container
from pikobot.credentials import Secret
from pikobot.errors import DamagedData, NotAllowed, PikobotError, UsageError
from pikobot.files import os_failure, read_text

AGE_MAGIC = b"age-encryption.org/v1\n"
IDENTITY_NAME = "identity.age"
IDENTITY_SUMS_NAME = "identity.sha256"
ARCHIVE_NAME = "archive.age"
MAX_IDENTITY_BYTES = 64 << 10


@dataclass(frozen=True)
class Protection:
    """How a new backup is encrypted: to age recipients, or with a passphrase; not at all when both are empty."""

    recipients: tuple[str, ...] = ()
    passphrase: Secret | None = None

    def __post_init__(self) -> None:
        if self.recipients and self.passphrase is not None:
            raise UsageError("give either --recipient or a passphrase, not both")

    @property
    def is_on(self) -> bool:
        return bool(self.recipients) or self.passphrase is not None

    def check(self) -> None:
        """Raise `UsageError` for a recipient that is none and when pyrage is missing, before any work."""
        if self.is_on:
            age = _age()
            for recipient in self.recipients:
                _recipient(age, recipient)


@dataclass(frozen=True)
class Keys:
    """What a backup is decrypted with. ``ask`` is called for a passphrase when one is needed and none is given."""

    identity_files: tuple[Path, ...] = ()
    passphrase: Secret | None = None
    ask: Callable[[], Secret] | None = None


@contextmanager
def encrypting(file: BinaryIO, protection: Protection) -> Iterator[BinaryIO]:
    """A stream to write the plain container to; it arrives in ``file`` encrypted, or as it is."""
    if not protection.is_on:
        yield file
    elif protection.passphrase is None:
        age = _age()
        with _encrypted(age, file, [_recipient(age, one) for one in protection.recipients]) as stream:
            yield stream
    else:
        with _under_passphrase(_age(), file, protection.passphrase) as stream:
            yield stream


@contextmanager
def decrypting(file: BinaryIO, name: str, keys: Keys) -> Iterator[BinaryIO]:
    """The plain container as a stream to read once, from a file that is at its beginning.

    Raises `NotAllowed` without the right key, `DamagedData` naming the damaged part of the envelope.
    """
    envelope = _EnvelopeReader(file, name)
    start = envelope.peek(container.BLOCK)
    if container.resembles(start, AGE_MAGIC):
        if not start.startswith(AGE_MAGIC):
            raise DamagedData(f"{name}: the beginning of the encrypted file is damaged")
        with _decrypted(file, name, _identities(name, keys)) as stream:
            yield stream
    elif container.resembles(start, container.header(IDENTITY_NAME, container.size_in(start) or 0)):
        sealed = _sealed_identity(envelope)
        archive = envelope.limited(ARCHIVE_NAME)
        identity = _open_identity(envelope.name, sealed, keys)
        with _decrypted(archive, f"{name}: {ARCHIVE_NAME}", [identity]) as stream:
            yield stream
        envelope.finish()
    else:
        yield file


class _EnvelopeReader:
    """Reads the tar around an encrypted container and checks its bytes."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._limited: _Limited | None = None
        self.name = name

    def peek(self, size: int) -> bytes:
        start = self._file.read(size)
        self._file.seek(0)
        return start

    def member(self, name: str, most: int) -> bytes:
        size = self._size(name)
        if size > most:
            raise DamagedData(f"{self.name}: the header of {name} is damaged")
        content = self._file.read(size)
        self._check(
            self._file.read(-size % container.BLOCK), container.padding(size), f"the padding of {name}"
        )
        return content

    def limited(self, name: str) -> io.RawIOBase:
        self._limited = _Limited(self._file, self._size(name))
        return self._limited

    def finish(self) -> None:
        if self._limited is None or self._limited.left:
            return  # the reader has stopped before the end and says why
        size = self._limited.size
        self._check(
            self._file.read(-size % container.BLOCK),
            container.padding(size),
            f"the padding of {ARCHIVE_NAME}",
        )
        self._check(self._file.read(len(container.END) + 1), container.END, "the end of the file")

    def _size(self, name: str) -> int:
        block = self._file.read(container.BLOCK)
        size = (
            container.size_in(block) if block[124:125] != b"\x80" else int.from_bytes(block[125:136], "big")
        )
        self._check(block, container.header(name, size or 0), f"the header of {name}")
        return size or 0

    def _check(self, found: bytes, wanted: bytes, what: str) -> None:
        if found != wanted:
            raise DamagedData(f"{self.name}: {what} is damaged")


class _Limited(io.RawIOBase):
    """The next ``size`` bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = self.left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        chunk = self._file.read(min(len(buffer), self.left))
        buffer[: len(chunk)] = chunk
        self.left -= len(chunk)
        return len(chunk)


class _Remembering:
    """A writer that keeps its own failure: pyrage turns it into text."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        self._file.flush()


class _Worker:
    """A thread at one end of a pipe; ``stream`` is the other."""

    def __init__(self, work: Callable[[BinaryIO], None], *, reads: bool) -> None:
        reading, writing = os.pipe()
        theirs, ours = (reading, writing) if reads else (writing, reading)
        self.stream: BinaryIO = open(ours, "wb" if reads else "rb")  # noqa: SIM115 — closed by `finish`
        self._end: BinaryIO = open(theirs, "rb" if reads else "wb")  # noqa: SIM115 — closed by the thread
        self._work = work
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="pikobot-age", daemon=True)
        self._thread.start()

    def finish(self) -> BaseException | None:
        """Close our end and wait; what the thread has failed with, if it has."""
        with suppress(BrokenPipeError):  # the thread has failed before us
            self.stream.close()
        self._thread.join()
        return self._failure

    def _run(self) -> None:
        try:
            with self._end as end:
                self._work(end)
        except BaseException as error:  # noqa: BLE001 — delivered by `finish`
            self._failure = error


@contextmanager
def _encrypted(age: Any, file: BinaryIO, recipients: Sequence[Any]) -> Iterator[BinaryIO]:
    output = _Remembering(file)
    worker = _Worker(lambda end: age.encrypt_io(end, output, recipients), reads=True)
    try:
        yield worker.stream
    finally:
        failure = worker.finish()
        if output.failure is not None:
            raise output.failure
    if failure is not None:
        raise PikobotError(f"the backup can't be encrypted: {failure}")


@contextmanager
def _under_passphrase(age: Any, file: BinaryIO, passphrase: Secret) -> Iterator[BinaryIO]:
    identity = age.x25519.Identity.generate()
    sealed = age.passphrase.encrypt(f"{identity}\n".encode(), passphrase.reveal())
    for name, content in (
        (IDENTITY_NAME, sealed),
        (IDENTITY_SUMS_NAME, container.sums_of(sealed, IDENTITY_NAME)),
    ):
        file.write(container.header(name, len(content)) + content + container.padding(len(content)))
    at = file.tell()
    file.write(bytes(container.BLOCK))
    with _encrypted(age, file, [identity.to_public()]) as stream:
        yield stream
    size = file.tell() - at - container.BLOCK
    file.write(container.padding(size) + container.END)
    file.seek(at)
    file.write(container.header(ARCHIVE_NAME, size))
    file.seek(0, os.SEEK_END)


@contextmanager
def _decrypted(file: BinaryIO | io.RawIOBase, name: str, identities: Sequence[Any]) -> Iterator[BinaryIO]:
    age = _age()
    worker = _Worker(lambda end: age.decrypt_io(file, end, identities), reads=False)
    try:
        yield worker.stream
    finally:
        failure = worker.finish()
        if failure is not None and not isinstance(failure, BrokenPipeError):  # that: the rest was not wanted
            raise _reading_failure(age, name, failure) from None


def _reading_failure(age: Any, name: str, failure: BaseException) -> BaseException:
    if isinstance(failure, age.DecryptError):
        if "No matching keys" in str(failure):
            return NotAllowed(
                f"{name} is encrypted for another key, or the part of it that names the key is damaged: "
                "name its identity file with --identity, or take another copy"
            )
        return DamagedData(f"{name}: the header of the encrypted file is damaged")
    if isinstance(failure, OSError):
        if failure.errno is not None:
            return os_failure("read", Path(name), failure)
        return DamagedData(f"{name}: the encrypted content is damaged or cut off")
    return failure


def _sealed_identity(envelope: _EnvelopeReader) -> bytes:
    sealed = envelope.member(IDENTITY_NAME, MAX_IDENTITY_BYTES)
    sums = envelope.member(IDENTITY_SUMS_NAME, MAX_IDENTITY_BYTES)
    if not container.are_intact(sums):
        raise DamagedData(f"{envelope.name}: {IDENTITY_SUMS_NAME} is damaged")
    if sums != container.sums_of(sealed, IDENTITY_NAME):
        raise DamagedData(f"{envelope.name}: {IDENTITY_NAME} is damaged")
    return sealed


def _open_identity(name: str, sealed: bytes, keys: Keys) -> Any:
    """The key of a backup under a passphrase; deriving it takes a second."""
    passphrase = keys.passphrase or (keys.ask() if keys.ask is not None else None)
    if passphrase is None:
        raise UsageError(f"{name} is encrypted with a passphrase: give it with --passphrase-file FILE")
    age = _age()
    try:
        opened = age.passphrase.decrypt(sealed, passphrase.reveal())
        return age.x25519.Identity.from_str(opened.decode().strip())
    except age.DecryptError:
        raise NotAllowed(f"{name}: the passphrase is wrong") from None
    except (age.IdentityError, UnicodeDecodeError):
        raise DamagedData(f"{name}: {IDENTITY_NAME} is damaged") from None


def _identities(name: str, keys: Keys) -> list[Any]:
    if not keys.identity_files:
        raise UsageError(f"{name} is encrypted to a recipient: name its identity file with --identity FILE")
    age = _age()
    found = []
    for path in keys.identity_files:
        try:
            lines = read_text(path).splitlines()
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file") from None
        for number, line in enumerate(lines, 1):
            if line.strip() and not line.startswith("#"):
                try:
                    found.append(age.x25519.Identity.from_str(line.strip()))
                except age.IdentityError:
                    raise UsageError(
                        f"{path} line {number} is not an age identity (AGE-SECRET-KEY-1…)"
                    ) from None
    return found


def _recipient(age: Any, text: str) -> Any:
    try:
        return age.x25519.Recipient.from_str(text)
    except age.RecipientError:
        raise UsageError(f"{text:.80} is not an age recipient (age1…); `age-keygen` makes one") from None


def _age() -> Any:
    try:
        return importlib.import_module("pyrage")
    except ImportError:
        raise UsageError(
            "encrypted backups need the package pyrage: run `scripts/install age` in the checkout of pikobot"
        ) from None
