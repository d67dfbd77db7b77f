"""Learning touches nothing: no file, no socket, no process, no thread, no log, no heavy library.

The child has a home that cannot be created, whoever runs the tests, and no telemetry switch to help it.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pikobot.adapters.mem0 import patching

ROOT = Path(__file__).resolve().parents[3]
MAX_RESIDENT_BYTES = 120 * 1024 * 1024


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the child says about itself; it ended well and said nothing else."""
    scratch = tmp_path_factory.mktemp("scratch")
    home = scratch / "home"
    home.write_text("a file, so that no directory can be made in it")
    environment = {
        "HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(home),
        "PATH": os.environ.get("PATH", ""),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.adapters.mem0.traced_child", str(scratch)],
        env=environment,
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in scratch.iterdir()) == ["directory", "home", "written"]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_child_learns(child: dict[str, Any]) -> None:
    assert child["learned"] == {"candidates": 1, "failed": "Unparsable"}


def test_it_writes_no_file_opens_no_socket_starts_no_process_and_no_thread(child: dict[str, Any]) -> None:
    assert child["touched"] == []
    assert child["threads"] == ["MainThread"]


def test_the_hook_would_have_seen_each_of_them(child: dict[str, Any]) -> None:
    expected = {"open for writing", "os.mkdir", "socket.__new__", "subprocess.Popen", "thread"}
    assert expected <= set(child["control"])


def test_it_logs_nothing(child: dict[str, Any]) -> None:
    assert child["log"] == ""


def test_no_heavy_library_is_loaded(child: dict[str, Any]) -> None:
    heavy = {
        "grpc",
        "httpx",
        "numpy",
        "openai",
        "posthog",
        "qdrant_client",
        "requests",
        "spacy",
        "sqlalchemy",
        "sqlite3",
        "urllib3",
    }
    assert heavy & set(child["modules"]) == set()


def test_only_reviewed_modules_of_mem0_are_loaded(child: dict[str, Any]) -> None:
    manifest = patching.read_manifest(patching.patches_directory())
    reviewed = {
        path.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for path in manifest.files
    }
    assert set(child["mem0"]) <= reviewed | {"mem0.utils"}
    assert "mem0.memory.main" in child["mem0"]


def test_it_stays_small(child: dict[str, Any]) -> None:
    assert child["peak_bytes"] <= MAX_RESIDENT_BYTES
