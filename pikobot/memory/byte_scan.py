"""Looks for erased texts in every byte of an instance's files.

    contents that went ─▶ collect ─▶ Erased ─▶ fragments that no surviving row holds ─▶ read every file ─▶ ScanReport

Looked for are the smallest parts that tell: words of six bytes and more, three Chinese characters in a row, and
sequences of three shorter words, each when the text index knows no surviving source with it; of a text without
any of these the whole. What is then found and stands in a surviving row or in the schema after all is no find.
Of every page of the database file the part outside of rows is looked through (`store.pages`), for a row that holds
a fragment survives; other files are looked through as they are. That happens in folded form (ASCII lower case,
punctuation as space), with JSON escapes resolved as well; UTF-16LE is looked for in the original spelling, up to
16 fragments of it. Of binary attachments samples are looked for.

Limits, all told in the report: one or two characters and three letters can't be looked for; of very long contents
a part is looked for. Terms in the text index are prefix-compressed: a term that was cut there is not recognised. The
settings files and the skills are the owner's own: single words in them are no find, and no lines that pikobot itself
has put there. Links are not followed, sockets are left out.

Memory is bounded by one chunk, what is outside of rows, the fragments and the longest surviving value. The time is
that of looking at the pages of the database, 0.1 ms for each megabyte, and of reading and looking through all other
files.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pikobot.files import os_failure
from pikobot.memory.multi_search import FEW, MultiSearch
from pikobot.memory.settings_files import owners_part
from pikobot.store.connection import Connection, Database
from pikobot.store.outside import Remains, find_remains
from pikobot.store.pages import WAL_SUFFIX, open_raw
from pikobot.store.remnants import held_by_rows, index_holds

UNREAD_SUFFIX = "-shm"  # numbers of frames only
CHUNK_BYTES = 1 << 20
LARGE_BYTES = 8 << 20
OVERLAP_BYTES = 8 << 10
MAX_FRAGMENT_CHARS = 256
MAX_TEXT_BYTES = 32 << 20  # of all erased texts together
MAX_SAMPLES = 256
SAMPLE_BYTES = 32
SAMPLE_STEP = 4096
MIN_PART_BYTES = 6
MIN_CHARS = 3
MIN_WHOLE_BYTES = 4  # three bytes in either case stand in random ids and hashes by chance
MAX_WIDE = 16
SETTINGS_FILES = frozenset({"config.toml", "credentials.toml"})
OWNERS_FILES = SETTINGS_FILES | {"skills"}

_FOLD = bytes(
    byte + 32 if 65 <= byte <= 90 else byte if 48 <= byte <= 57 or 97 <= byte <= 122 or byte >= 128 else 32
    for byte in range(256)
)
_HAN = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
_CHINESE = re.compile(rf"[{_HAN}]+")
_UNIT = re.compile(rf"[{_HAN}]+|[^\W_{_HAN}]+")
_UNICODE_ESCAPES = re.compile(rb"(?:\\u[0-9a-fA-F]{4})+")
_ESCAPED = re.compile(rb"\\u[0-9a-fA-F]{4}\\u|\\[nt\"]")
_OTHER_ESCAPES = re.compile(rb'\\[nrtbf"\\/]')


@dataclass
class Erased:
    """What has gone, held in memory until it was looked for and then dropped."""

    texts: list[str] = field(default_factory=list)
    samples: list[bytes] = field(default_factory=list)
    text_bytes: int = 0
    is_cut: bool = False

    def add(self, content: str | bytes) -> None:
        """Take a content, or as much of it as fits the limits."""
        if isinstance(content, str):
            self._add_text(content)
        elif (text := _as_text(content)) is not None:
            self._add_text(text)
        else:
            self._add_samples(content)

    def _add_text(self, text: str) -> None:
        room = MAX_TEXT_BYTES - self.text_bytes
        if len(text) * 4 > room:
            text, self.is_cut = text[: max(room // 4, 0)], True
        for form in (
            {text: None, _unescaped(text.encode()).decode(errors="ignore"): None} if "\\" in text else (text,)
        ):
            self.text_bytes += len(form.encode())
            self.texts += [form] if form else []

    def _add_samples(self, data: bytes) -> None:
        for at in range(0, max(len(data) - SAMPLE_BYTES, 1), SAMPLE_STEP):
            sample = data[at : at + SAMPLE_BYTES]
            if len(set(sample)) < SAMPLE_BYTES // 4:
                continue
            if len(self.samples) == MAX_SAMPLES:
                self.is_cut = True
                return
            self.samples.append(sample)


@dataclass(frozen=True)
class Needles:
    """What is looked for: ``parts`` in folded form, ``raw`` bytes as they stand."""

    parts: frozenset[str] = frozenset()
    raw: frozenset[bytes] = frozenset()
    too_short: int = 0
    is_cut: bool = False

    @property
    def count(self) -> int:
        return len(self.parts) + len(self.raw)

    @cached_property
    def folded_search(self) -> MultiSearch:
        return MultiSearch(part.encode() for part in self.parts)

    @cached_property
    def raw_search(self) -> MultiSearch:
        return MultiSearch(self.raw)

    @cached_property
    def longest_escaped(self) -> int:
        """How many bytes the longest part can have with all of it escaped: six for each unit of UTF-16."""
        return 6 * max((len(part.encode("utf-16-le")) // 2 for part in self.parts), default=0)


@dataclass(frozen=True)
class Find:
    """A file that still holds something, and how many fragments; never which."""

    file: str
    fragments: int


@dataclass(frozen=True)
class ScanReport:
    """What was read, what for, and what was found. Paths are relative to the instance."""

    files: int
    bytes: int
    fragments: int
    too_short: int
    is_cut: bool
    finds: tuple[Find, ...] = ()
    unreadable: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        return {
            "files": self.files,
            "bytes": self.bytes,
            "fragments": self.fragments,
            "tooShort": self.too_short,
            "partial": self.is_cut,
            "finds": [{"file": find.file, "fragments": find.fragments} for find in self.finds],
            "unreadable": list(self.unreadable),
        }


def collect(contents: Iterable[str | bytes], erased: Erased | None = None) -> Erased:
    """Keep what is about to be erased, as far as it has to be looked for, with what was kept before."""
    erased = erased or Erased()
    for content in contents:
        erased.add(content)
    return erased


def needles_of(conn: Connection, erased: Erased) -> Needles:
    """The parts of what was erased that no surviving source holds. ``conn`` sees the database after it."""
    known: dict[str, bool] = {}

    def tells(word: str) -> bool:
        if word not in known:
            known[word] = not index_holds(conn, word)
        return known[word]

    parts: set[str] = set()
    spelled: set[str] = set()
    too_short = 0
    for text in dict.fromkeys(erased.texts):
        folded = _folded_text(text)
        found = _telling_parts(folded, tells)
        if not found:
            whole = folded.strip()[:MAX_FRAGMENT_CHARS]
            is_long = len(whole) >= MIN_CHARS and len(whole.encode()) >= MIN_WHOLE_BYTES
            found = {whole} if is_long else set()
            too_short += not found
        parts |= found
        spelled.update(_spellings(text, folded, found))
    step = -(-len(spelled) // MAX_WIDE) or 1
    wide = {part.encode("utf-16-le") for part in sorted(spelled)[::step]}
    return Needles(frozenset(parts), frozenset({*wide, *erased.samples}), too_short, erased.is_cut)


def scan(root: Path, db: Database, needles: Needles, remains: Remains | None = None) -> ScanReport:
    """Read every file under ``root`` for the needles. Not on the writer thread, not from the event loop.

    ``remains`` are those of the database, as it is now when they are left out. Raises what reading the database
    raises; another file that can't be read is named in the report.
    """
    remains = remains or find_remains(db)
    hits: dict[str, frozenset[str | bytes]] = {}
    unreadable: list[str] = []
    files = total = 0
    for path in _files(root, db.path):
        name = path.relative_to(root).as_posix()
        try:
            found, size = _scan_file(path, db.path, remains, _needles_for(name, needles))
            if found and name in SETTINGS_FILES:
                found = found_in(owners_part(name, path.read_bytes()), _needles_for(name, needles))
        except OSError as error:
            unreadable.append(str(os_failure("read", path, error)))
            continue
        files, total = files + 1, total + size
        if found:
            hits[name] = found
    explained = _explained(db, frozenset[str | bytes]().union(*hits.values()))
    finds = [Find(name, len(found - explained)) for name, found in hits.items() if found - explained]
    return ScanReport(
        files, total, needles.count, needles.too_short, needles.is_cut, tuple(finds), tuple(unreadable)
    )


def _telling_parts(folded: str, tells: Callable[[str], bool]) -> set[str]:
    """Long words and Chinese trigrams that tell, and three units in a row where none of them does."""
    units = list(_UNIT.finditer(folded))
    parts: set[str] = set()
    covered = []
    for unit in units:
        telling = {
            part for part in _parts_of(unit.group()) if len(part.encode()) >= MIN_PART_BYTES and tells(part)
        }
        parts |= telling
        covered.append(bool(telling))
    for first in range(len(units) - 2):
        if not any(covered[first : first + 3]):
            parts.add(folded[units[first].start() : units[first + 2].end()][:MAX_FRAGMENT_CHARS])
    return parts


def _parts_of(unit: str) -> set[str]:
    if _CHINESE.match(unit):
        return set(map("".join, zip(unit, unit[1:], unit[2:], strict=False)))
    return {unit[:MAX_FRAGMENT_CHARS]}


def _spellings(text: str, folded: str, parts: Iterable[str]) -> Iterator[str]:
    """The parts as the text spells them: folding keeps positions."""
    for part in parts:
        at = folded.find(part)
        yield text[at : at + len(part)]


def _fold(data: bytes) -> bytes:
    return data.translate(_FOLD)


def _folded_text(text: str) -> str:
    return _fold(text.encode()).decode()


def _as_text(data: bytes) -> str | None:
    if b"\0" in data[:SAMPLE_STEP]:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _needles_for(name: str, needles: Needles) -> Needles:
    if name.split("/", 1)[0] not in OWNERS_FILES:
        return needles
    return Needles(frozenset(part for part in needles.parts if " " in part), frozenset())


def _files(root: Path, database: Path) -> Iterator[Path]:
    """Regular files below the directory, the database's index of its WAL left out."""
    for directory, names, files in os.walk(root):
        names.sort()
        for name in sorted(files):
            path = Path(directory, name)
            if path != database.with_name(database.name + UNREAD_SUFFIX) and stat.S_ISREG(
                path.lstat().st_mode
            ):
                yield path


def _scan_file(
    path: Path, database: Path, remains: Remains, needles: Needles
) -> tuple[frozenset[str | bytes], int]:
    if path == database and remains.is_complete:
        return found_in(b"\0".join(remains.left.values()), needles), path.stat().st_size
    found: frozenset[str | bytes] = frozenset()
    size = 0
    few = FEW if path.stat().st_size < LARGE_BYTES else 0
    for chunk, fresh in _chunks(path, database):
        size += fresh
        found |= found_in(chunk, needles, few=few)
    return found, size


def _chunks(path: Path, database: Path) -> Iterator[tuple[bytes, int]]:
    """Overlapping pieces of a file, each with how many bytes of it are new."""
    if path in (database, database.with_name(database.name + WAL_SUFFIX)):
        with open_raw(path) as read:
            yield from _overlapping(read)
    else:
        with path.open("rb") as file:
            yield from _overlapping(lambda offset, length: os.pread(file.fileno(), length, offset))


def _overlapping(read: Callable[[int, int], bytes]) -> Iterator[tuple[bytes, int]]:
    offset, kept = 0, b""
    while chunk := read(offset, CHUNK_BYTES):
        yield kept + chunk, len(chunk)
        offset += len(chunk)
        kept = chunk[-OVERLAP_BYTES:]


def found_in(data: bytes, needles: Needles, *, few: int = FEW) -> frozenset[str | bytes]:
    """Which needles stand in the data, also behind JSON escapes. ``few`` as for `MultiSearch`."""
    found: set[str | bytes] = {*needles.raw_search.found_in(data, few=few)}
    for form in (data, _around_escapes(data, needles.longest_escaped)):
        found.update(part.decode() for part in needles.folded_search.found_in(_fold(form), few=few))
    return frozenset(found)


def _standing_in(values: bytes, needles: Needles) -> frozenset[str | bytes]:
    parts = needles.folded_search.found_in(_fold(values), few=0)
    return frozenset({*(part.decode() for part in parts), *needles.raw_search.found_in(values, few=0)})


def _around_escapes(data: bytes, reach: int) -> bytes:
    """What JSON escapes stand in, that far in both directions, with the escapes resolved."""
    pieces: list[bytes] = []
    first = last = 0
    for match in _ESCAPED.finditer(data):
        if match.start() - reach > last:
            pieces.append(data[first:last])
            first = match.start() - reach
        last = match.end() + reach
    return b"\0".join(_unescaped(piece) for piece in (*pieces, data[first:last]) if piece)


def _unescaped(data: bytes) -> bytes:
    """JSON escapes resolved, wherever they stand."""

    def resolve(match: re.Match[bytes]) -> bytes:
        units = bytes.fromhex(match.group().replace(b"\\u", b"").decode())
        return units.decode("utf-16-be", errors="ignore").encode()

    return _OTHER_ESCAPES.sub(b" ", _UNICODE_ESCAPES.sub(resolve, data))


def _explained(db: Database, found: frozenset[str | bytes]) -> frozenset[str | bytes]:
    """What was found and stands in a surviving row: by the text index first, which is quick, then by reading."""
    if not found:
        return found

    with db.read() as conn:
        indexed = frozenset(part for part in found if isinstance(part, str) and index_holds(conn, part))
        rest = found - indexed
        needles = Needles(
            frozenset(part for part in rest if isinstance(part, str)),
            frozenset(part for part in rest if isinstance(part, bytes)),
        )
        return indexed | held_by_rows(conn, rest, lambda values: _standing_in(values, needles))
