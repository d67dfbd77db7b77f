"""Reviews another Mem0 release against the patch, and records the patch from edited sources.

    scripts/review_mem0_upgrade RELEASE            a wheel, or a directory with mem0/ in it
    scripts/review_mem0_upgrade --record EDITED    a directory with an edited mem0/: writes the patch and manifest

A review prints the upstream diff of every reviewed file, says of every hunk whether it still applies, and names the
Mem0 modules that the patched files would import without having been reviewed. Exit code 0: all reviewed files
are the same or take the patch as it is; 1: a person has to look. RELEASE is never imported, only read.
"""

import argparse
import ast
import difflib
import importlib.metadata
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pikobot.adapters.mem0 import patching
from pikobot.errors import PikobotError

HEADER = """\
Changes to mem0ai {version} that pikobot makes while it imports it; see pikobot/adapters/mem0/loader.py.
The lines quoted here are from mem0ai, which is under the Apache License 2.0; this file states the changes, as its
section 4(b) asks. The manifest beside this file binds it to the release.

"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "release", type=Path, metavar="RELEASE", help="a wheel or a directory with mem0/ in it"
    )
    parser.add_argument(
        "--record", action="store_true", help="write patch and manifest from this edited copy"
    )
    options = parser.parse_args(arguments)
    try:
        if options.record:
            record(options.release, _patches())
            return 0
        return review(_tree(options.release), _tree(_installed()), sys.stdout.write)
    except (PikobotError, OSError, zipfile.BadZipFile) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def review(release: Traversable, pinned: Traversable, write: Any) -> int:
    """Compares the reviewed files of two trees and tries every hunk on the new one; 0 when nothing is open."""
    directory = _patches()
    manifest = patching.read_manifest(directory)
    patch = patching.read_patch(directory, manifest.patch)
    open_points: list[str] = []
    patched: dict[str, str] = {}
    for path in manifest.files:
        new_file = _at(release, path)
        if not new_file.is_file():
            open_points.append(f"{path}: is gone")
            continue
        old, new = _at(pinned, path).read_bytes().decode(), new_file.read_bytes().decode()
        if old != new:
            write("".join(_diff(old, new, path)))
        findings, patched[path] = try_hunks(new, patch.get(path, ()), path)
        open_points += findings
        if old != new and path not in patch:
            open_points.append(f"{path}: changed, and is used unpatched; read the diff above")
    open_points += unreviewed_imports(patched, manifest.files)
    for point in open_points:
        write(f"! {point}\n")
    write(f"{len(manifest.files)} reviewed files, {len(open_points)} open points\n")
    return 1 if open_points else 0


def try_hunks(source: str, hunks: Sequence[patching.Hunk], path: str) -> tuple[list[str], str]:
    """What stands in the way of each hunk, and the text with those that still apply, wherever they now belong."""
    findings: list[str] = []
    if not hunks:
        return findings, source
    lines = patching.split_lines(source, path)
    shift = 0
    for number, hunk in enumerate(hunks, start=1):
        places = list(_places(lines, hunk.old))
        expected = hunk.first_line - 1 + shift
        if not places:
            findings.append(f"{path}: hunk {number} (line {hunk.first_line}) no longer applies")
            continue
        place = min(places, key=lambda start: abs(start - expected))
        if len(places) > 1 and place != expected:
            findings.append(f"{path}: hunk {number} (line {hunk.first_line}) fits {len(places)} places")
        lines[place : place + len(hunk.old)] = hunk.new
        shift = place - hunk.first_line + 1 + len(hunk.new) - len(hunk.old)
    return findings, "".join(f"{line}\n" for line in lines)


def unreviewed_imports(sources: Mapping[str, str], reviewed: Mapping[str, Any]) -> list[str]:
    """Modules of Mem0 that the given files import and that the loader would refuse."""
    findings: set[str] = set()
    for path, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                base = name.replace(".", "/")
                if name.split(".")[0] == "mem0" and not {f"{base}.py", f"{base}/__init__.py"} & set(reviewed):
                    findings.add(f"{path}: imports {name}, which is not reviewed")
    return sorted(findings)


def record(edited: Path, directory: Path) -> None:
    """Writes the diff between the installed release and an edited copy, and the manifest of what that loads."""
    manifest_path = directory / patching.MANIFEST_NAME
    manifest = json.loads(manifest_path.read_text("utf-8"))
    pinned = _installed()
    text = HEADER.format(version=manifest["version"])
    files: dict[str, dict[str, str]] = {}
    for path in sorted(manifest["files"]):
        old, new = (pinned / path).read_bytes(), (edited / path).read_bytes()
        files[path] = {"upstream": patching.sha256(old)}
        if old != new:
            files[path]["patched"] = patching.sha256(new)
            text += "".join(_diff(old.decode(), new.decode(), path))
    (directory / manifest["patch"]).write_text(text, "utf-8")
    manifest_path.write_text(json.dumps({**manifest, "files": files}, indent=2) + "\n", "utf-8")


def _patches() -> Path:
    return Path(__file__).resolve().parent.parent / "patches"


def _installed() -> Path:
    return Path(str(importlib.metadata.distribution("mem0ai").locate_file("")))


def _tree(release: Path) -> Traversable:
    tree: Traversable = zipfile.Path(release) if release.is_file() else release
    if not (tree / "mem0").is_dir():
        raise patching.PatchFailed(f"{release} has no mem0/ in it; give a wheel or an unpacked one")
    return tree


def _at(tree: Traversable, path: str) -> Traversable:
    return tree.joinpath(*path.split("/"))


def _diff(old: str, new: str, path: str) -> Iterator[str]:
    before, after = (text.splitlines(keepends=True) for text in (old, new))
    return difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")


def _places(lines: Sequence[str], wanted: Sequence[str]) -> Iterator[int]:
    for start in range(len(lines) - len(wanted) + 1):
        if tuple(lines[start : start + len(wanted)]) == tuple(wanted):
            yield start


if __name__ == "__main__":
    sys.exit(main())
