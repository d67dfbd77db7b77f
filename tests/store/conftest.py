from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from tests.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pikobot.sqlite3"


@pytest.fixture
def db(path: Path, clock: FakeClock) -> Iterator[Database]:
    database = open_database(path, clock)
    yield database
    database.close()
