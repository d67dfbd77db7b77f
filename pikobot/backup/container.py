"""The container: a plain tar file, written and checked byte for byte.

    manifest.sha256, manifest.json, pikobot.sqlite3, erasures.jsonl, config.toml, skills/…, two zero blocks

Not compressed, on purpose. Every byte belongs to one member, or to a header or a padding that follows from the
manifest, so that any damaged bit is found and has a name, and what is intact stays readable with any tar. Vectors
and attachments, most of a large instance, hardly shrink, and whoever stores backups can still compress them.

Headers are made here and not by `tarfile`: the checker compares them with what they must be, whatever version of
Python wrote or reads them. They are GNU tar's, with its form for long names and for sizes from 8 GiB on.

A checksum file holds two lines: what `sha256sum -c` understands, and as a comment the SHA-256 of that line, which
tells a damaged checksum from a damaged file.
"""

import hashlib
import operator

BLOCK = 512
MAX_NAME_BYTES = 100
MAX_OCTAL_SIZE = 8**11
MTIME = (
    1_577_836_800  # 2020-01-01: the same in every backup, so that headers follow from names and sizes alone
)
FILE_MODE = 0o600
EXECUTABLE_MODE = 0o700
END = bytes(2 * BLOCK)
MAX_DAMAGED_BYTES = 8  # fewer than two headers of different members differ in

_LONG_NAME = "././@LongLink"


def header(name: str, size: int, *, executable: bool = False) -> bytes:
    """All blocks that precede a member's content."""
    encoded = name.encode()
    block = _block(encoded, size, EXECUTABLE_MODE if executable else FILE_MODE, b"0")
    if len(encoded) <= MAX_NAME_BYTES:
        return block
    terminated = encoded + b"\0"
    long_name = terminated + padding(len(terminated))
    return _block(_LONG_NAME.encode(), len(terminated), 0, b"L") + long_name + block


def padding(size: int) -> bytes:
    """The zeros behind a content, up to the next block."""
    return bytes(-size % BLOCK)


def stored_size(name: str, size: int) -> int:
    """Bytes that a member takes in the container."""
    return len(header(name, size)) + size + len(padding(size))


def size_in(block: bytes) -> int | None:
    """The size that a short header gives; None when it is not one."""
    field = block[124:136]
    if len(block) != BLOCK or field[-1:] != b"\0":
        return None
    try:
        return int(field[:-1], 8)
    except ValueError:
        return None


def sums_of(content: bytes, name: str) -> bytes:
    """The checksum file of one member."""
    line = f"{hashlib.sha256(content).hexdigest()}  {name}\n".encode()
    return line + f"# {hashlib.sha256(line).hexdigest()}\n".encode()


def are_intact(sums: bytes) -> bool:
    """Whether a checksum file is as it was written, whatever it was written for."""
    end = sums.find(b"\n") + 1
    return sums[end:] == f"# {hashlib.sha256(sums[:end]).hexdigest()}\n".encode()


def sums_size(name: str) -> int:
    return len(sums_of(b"", name))


def resembles(found: bytes, wanted: bytes) -> bool:
    """Whether something begins with the wanted bytes, a few of them damaged perhaps."""
    differing = sum(map(operator.ne, found, wanted))
    return len(found) >= len(wanted) and differing <= MAX_DAMAGED_BYTES


def _block(name: bytes, size: int, mode: int, kind: bytes) -> bytes:
    fields = [
        name[:MAX_NAME_BYTES].ljust(MAX_NAME_BYTES, b"\0"),
        b"%07o\0" % mode,
        b"%07o\0" % 0,  # owner
        b"%07o\0" % 0,  # group
        b"%011o\0" % size if size < MAX_OCTAL_SIZE else b"\x80" + size.to_bytes(11, "big"),
        b"%011o\0" % MTIME,
        b" " * 8,  # the checksum is taken over spaces
        kind,
        bytes(100),
        b"ustar  \0",
        bytes(BLOCK - 265),
    ]
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]
