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


@pytest.fixture(scope="module")
def shared_db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One database for all examples of a property, which clear away what they need gone."""
    database = open_database(tmp_path_factory.mktemp("shared") / "pikobot.sqlite3", FakeClock())
    yield database
    database.close()
