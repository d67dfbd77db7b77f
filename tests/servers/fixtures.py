"""Fixtures of the servers that tests talk to."""

from collections.abc import Iterator

import pytest

from tests.servers.openai_server import ScriptedOpenAI


@pytest.fixture(scope="session")
def openai_process() -> Iterator[ScriptedOpenAI]:
    """One process for all tests: starting one takes longer than most tests."""
    with ScriptedOpenAI() as server:
        yield server


@pytest.fixture
def openai_server(openai_process: ScriptedOpenAI) -> ScriptedOpenAI:
    """A scripted OpenAI-compatible provider with an empty script and nothing received: it echoes."""
    openai_process.reset()
    return openai_process
