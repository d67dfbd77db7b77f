"""The patch applies exactly as written, or not at all."""

import json
from pathlib import Path

import pytest

from pikobot.adapters.mem0 import patching
from pikobot.adapters.mem0.patching import Hunk, PatchFailed, apply_hunks, parse_patch

PATCH = """\
Words before the first file are a comment.
--- a/one.py
+++ b/one.py
@@ -1,3 +1,3 @@
 first
---- a removed line
++++ an added line
 third
@@ -5 +5,2 @@
 fifth
+sixth
"""
SOURCE = "first\n--- a removed line\nthird\nfourth\nfifth\n"
hunks = parse_patch(PATCH, "test.patch")["one.py"]


def test_a_diff_is_read_by_its_counts() -> None:
    assert hunks == (
        Hunk(1, ("first", "--- a removed line", "third"), ("first", "+++ an added line", "third")),
        Hunk(5, ("fifth",), ("fifth", "sixth")),
    )


def test_hunks_apply_where_they_say() -> None:
    assert apply_hunks(SOURCE, hunks, "one.py") == "first\n+++ an added line\nthird\nfourth\nfifth\nsixth\n"


@pytest.mark.parametrize(
    "source",
    [
        "\n" + SOURCE,  # one line further down
        SOURCE.replace("first", "First"),
        SOURCE.replace("third", "third "),
        SOURCE.replace("\n", "\r\n"),
        SOURCE.removesuffix("fifth\n"),
        SOURCE.removesuffix("\n"),
        "",
    ],
)
def test_a_source_that_differs_in_the_least_is_refused(source: str) -> None:
    with pytest.raises(PatchFailed, match=r"one\.py"):
        apply_hunks(source, hunks, "one.py")


def test_hunks_out_of_order_are_refused() -> None:
    with pytest.raises(PatchFailed, match="hunk 2"):
        apply_hunks(SOURCE, hunks[::-1], "one.py")


def test_a_form_feed_or_a_line_separator_ends_no_line() -> None:
    source = "first\x0c\u2028\nsecond\n"
    assert apply_hunks(source, [Hunk(2, ("second",), ("2nd",))], "one.py") == "first\x0c\u2028\n2nd\n"


@pytest.mark.parametrize(
    "text",
    [
        PATCH.removesuffix("+sixth\n"),
        PATCH.removesuffix("\n"),
        PATCH.replace("@@ -5 +5,2 @@", "@@ 5 @@"),
        PATCH.replace("+++ b/one.py", "+++ b/two.py"),
        PATCH.replace(" third", "third"),
        PATCH.replace("-1,3 +1,3", "-1,2 +1,3"),
        PATCH + PATCH[PATCH.index("--- a/") :],
        "--- a/one.py\n+++ b/one.py\n",
        PATCH + "\\ No newline at end of file\n",
    ],
)
def test_what_is_no_plain_unified_diff_is_refused(text: str) -> None:
    with pytest.raises(PatchFailed, match=r"test\.patch"):
        parse_patch(text, "test.patch")


@pytest.mark.parametrize("text", ["", "[]", '{"distribution":"mem0ai"}', '{"files":[]}', '{"files":{"a":1}}'])
def test_a_damaged_manifest_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / patching.MANIFEST_NAME).write_text(text)
    with pytest.raises(PatchFailed, match="install pikobot again"):
        patching.read_manifest(tmp_path)


def test_a_missing_patch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PatchFailed, match="install pikobot again"):
        patching.read_patch(tmp_path, "mem0ai-2.2.1.patch")


def test_the_patch_that_ships_changes_what_its_manifest_says() -> None:
    directory = patching.patches_directory()
    manifest = patching.read_manifest(directory)
    patch = patching.read_patch(directory, manifest.patch)
    assert (manifest.distribution, manifest.version) == ("mem0ai", "2.2.1")
    assert {path for path, file in manifest.files.items() if file.upstream != file.loaded} == set(patch)
    assert b"Apache License 2.0" in (directory / manifest.patch).read_bytes()


def test_the_manifest_is_text_that_people_can_review() -> None:
    text = (patching.patches_directory() / patching.MANIFEST_NAME).read_text("utf-8")
    assert text == json.dumps(json.loads(text), indent=2) + "\n"
