"""Fixtures for every test: no network but loopback, no environment of the person who runs the tests."""

import ipaddress
import os
import socket
from typing import Any

import pytest

pytest_plugins = ["tests.servers.fixtures"]

_connect = socket.socket.connect
_PREFIXES = ("PIKOBOT_", "OPENAI_", "DEEPSEEK_")


def _is_loopback(address: Any) -> bool:
    if not isinstance(address, tuple):
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        return str(address[0]) == "localhost"


def _connect_to_loopback(self: socket.socket, address: Any) -> None:
    if not _is_loopback(address):
        raise AssertionError(f"a test connects to {address}")
    _connect(self, address)


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _connect_to_loopback)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(_PREFIXES) and name != "PIKOBOT_SHARED":
            monkeypatch.delenv(name)
