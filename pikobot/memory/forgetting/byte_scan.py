"""Looks for erased texts in every byte of an instance's files.

    contents that went ─▶ collect ─▶ Erased ─▶ fragments of it ─▶ read every file ─▶ found and in no row ─▶ ScanReport

Looked for are the smallest parts that tell: words of six bytes and more, three Chinese characters in a row, and
sequences of three words; of a text without any of these the whole. What is found and stands in a surviving row or in
the schema is no find; rows are asked, the text index first, about what was found and about nothing else.
Of every page of the database file the part outside of rows is looked through (`store.erasing.pages`), for a row that
holds a fragment survives; other files are looked through as they are. That happens in folded form (ASCII lower case,
punctuation as space), with JSON escapes resolved as well; UTF-16LE is looked for in the original spelling, up to
128 fragments of it. Of binary attachments samples are looked for.

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
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from pikobot.files import os_failure
from pikobot.memory.forgetting.multi_search import FEW, MultiSearch
from pikobot.memory.forgetting.settings_files import owners_part
from pikobot.store.connection import Database
from pikobot.store.erasing.outside import Remains, find_remains
from pikobot.store.erasing.pages import WAL_SUFFIX, open_raw
from pikobot.store.erasing.remnants import held_by_rows, index_holds

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
MIN_UNITS = 3
MIN_WHOLE_BYTES = 4  # three bytes in either case stand in random ids and hashes by chance
MAX_WIDE = 128
NORMAL_FORMS: tuple[Literal["NFC", "NFD"], ...] = ("NFC", "NFD")
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

    @property
    def shortest(self) -> int:
        """Fewer bytes can't hold any of them."""
        return min(self.folded_search.shortest, self.raw_search.shortest)

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
    """A file that still holds something, and how many fragments, of a text index how many rows; never which."""

    file: str
    fragments: int
    is_in_index: bool = False


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


NOTHING_READ = ScanReport(0, 0, 0, 0, is_cut=False)


def collect(contents: Iterable[str | bytes], erased: Erased | None = None) -> Erased:
    """Keep what is about to be erased, as far as it has to be looked for, with what was kept before."""
    erased = erased or Erased()
    for content in contents:
        erased.add(content)
    return erased


def needles_of(erased: Erased) -> Needles:
    """The parts of what was erased that may tell of it."""
    spelled: dict[str, str] = {}
    too_short = 0
    for text in dict.fromkeys(erased.texts):
        has_parts = False
        for form in dict.fromkeys((text, *(unicodedata.normalize(form, text) for form in NORMAL_FORMS))):
            folded = _folded_text(form)
            spans = _telling_spans(folded)
            has_parts |= bool(spans)
            spelled.update((folded[first:last], form[first:last]) for first, last in spans)
        too_short += not has_parts
    step = -(-len(spelled) // MAX_WIDE) or 1
    wide = (spelled[part].encode("utf-16-le") for part in sorted(spelled)[::step])
    return Needles(frozenset(spelled), frozenset({*wide, *erased.samples}), too_short, erased.is_cut)


def scan(root: Path, db: Database, needles: Needles, remains: Remains | None = None) -> ScanReport:
    """Read every file under ``root`` for the needles. Not on the writer thread, not from the event loop.

    ``remains`` are those of the database, as it is now when they are left out. Raises what reading the database
    raises; another file that can't be read is named in the report.
    """
    remains = remains or find_remains(db)
    hits: dict[str, frozenset[str | bytes]] = {}
    unreadable: list[str] = []
    files = total = 0
    unread = Path(f"{db.path}{UNREAD_SUFFIX}")
    for name, path in _files(root, unreadable):
        if path == unread:
            continue
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


def _telling_spans(folded: str) -> list[tuple[int, int]]:
    """Where the parts of a folded text are: long words, Chinese trigrams, three units in a row.

    A text of fewer units is a part as a whole if it is long enough.
    """
    units = [match.span() for match in _UNIT.finditer(folded)]
    spans = [
        (first, min(last, first + MAX_FRAGMENT_CHARS))
        for (first, _), (_, last) in zip(units, units[2:], strict=False)
    ]
    if len(units) < MIN_UNITS:
        whole = folded.strip()[:MAX_FRAGMENT_CHARS]
        if len(whole) >= MIN_CHARS and len(whole.encode()) >= MIN_WHOLE_BYTES:
            first = folded.index(whole)
            spans.append((first, first + len(whole)))
    for first, last in units:
        if _CHINESE.match(folded, first):
            spans += ((at, at + 3) for at in range(first, last - 2))
        elif last - first >= MIN_PART_BYTES or len(folded[first:last].encode()) >= MIN_PART_BYTES:
            spans.append((first, min(last, first + MAX_FRAGMENT_CHARS)))
    return spans


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


def _files(directory: Path, unreadable: list[str], within: str = "") -> Iterator[tuple[str, Path]]:
    """Regular files in and below the directory, each with its name relative to the first one."""
    try:
        with os.scandir(directory) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        unreadable.append(str(os_failure("read", directory, error)))
        return
    for entry in listed:
        name = within + entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), unreadable, f"{name}/")
        elif entry.is_file(follow_symlinks=False):
            yield name, Path(entry.path)


def _scan_file(
    path: Path, database: Path, remains: Remains, needles: Needles
) -> tuple[frozenset[str | bytes], int]:
    if path == database and remains.is_complete:
        return found_in(b"\0".join(remains.left.values()), needles), path.stat().st_size
    found: frozenset[str | bytes] = frozenset()
    size, in_file = 0, path.stat().st_size
    if not in_file:
        return found, 0
    few = FEW if in_file < LARGE_BYTES else 0
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
    for form in filter(None, (data, _around_escapes(data, needles.longest_escaped))):
        found.update(part.decode() for part in needles.folded_search.found_in(_fold(form), few=few))
    return frozenset(found)


def _standing_in(values: bytes, needles: Needles) -> frozenset[str | bytes]:
    parts = needles.folded_search.found_in(_fold(values), few=0)
    return frozenset({*(part.decode() for part in parts), *needles.raw_search.found_in(values, few=0)})


def _around_escapes(data: bytes, reach: int) -> bytes:
    """What JSON escapes stand in, that far in both directions, with the escapes resolved."""
    if b"\\" not in data:
        return b""
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


def held_by_index(db: Database, found: frozenset[str | bytes]) -> frozenset[str | bytes]:
    """Those of the parts that some surviving source has, as far as the text index can tell."""
    if not found:
        return found
    with db.read() as conn:
        return frozenset(part for part in found if isinstance(part, str) and index_holds(conn, part))


def _explained(db: Database, found: frozenset[str | bytes]) -> frozenset[str | bytes]:
    """What was found and stands in a surviving row: by the text index first, which is quick, then by reading."""
    indexed = held_by_index(db, found)
    rest = found - indexed
    if not rest:
        return found
    needles = Needles(
        frozenset(part for part in rest if isinstance(part, str)),
        frozenset(part for part in rest if isinstance(part, bytes)),
    )
    with db.read() as conn:
        return indexed | held_by_rows(conn, rest, lambda values: _standing_in(values, needles))
