from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.store.connection import Database
from tests.memory.remembering import opened


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the erasure ledger is."""
    return tmp_path / "erasures.jsonl"
