"""An instance with something in it, and a server for its operator in a thread of its own."""

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pikobot.channels.operator.methods import OperatorContext, create_context
from pikobot.channels.operator.server import OperatorServer, serve_operator
from pikobot.cli.init import Dialog, init
from pikobot.clock import Clock
from pikobot.credentials import Secret
from pikobot.instance import Instance, open_instance
from pikobot.serving import acquire_serving_lock, remove_socket, socket_address
from pikobot.store.prepare import open_database
from tests.memory.remembering import StillClock, say


def make_instance(root: Path, *texts: str, clock: Clock | None = None) -> Instance:
    """A new instance without a model, in which the texts were said."""
    init(root, ["chat.provider=none", "embedding.provider=disabled"], dialog=Dialog(say=lambda line: None))
    instance = open_instance(root)
    with contextlib.closing(open_database(instance.database_path, clock or StillClock())) as db:
        say(db, *texts)
    return instance


def operator_token(instance: Instance) -> Secret:
    token = instance.load_credentials(instance.load_config(), {}).operator_token
    assert token is not None
    return token


@contextlib.contextmanager
def served(
    instance: Instance,
    *,
    idle_timeout_s: float = 30,
    write_timeout_s: float = 30,
    change_context: Callable[[OperatorContext], OperatorContext] = lambda context: context,
) -> Iterator[Path]:
    """Serve the instance, holding its lock; gives the path of the socket."""
    ready, stop = threading.Event(), threading.Event()
    paths: list[Path] = []

    async def serve() -> None:
        config = instance.load_config()
        credentials = instance.load_credentials(config, {})
        with (
            acquire_serving_lock(instance),
            contextlib.closing(open_database(instance.database_path, StillClock())) as db,
        ):
            context = change_context(create_context(db, instance, config, credentials, is_served=True))
            server = OperatorServer(
                context,
                credentials.operator_token,
                idle_timeout_s=idle_timeout_s,
                write_timeout_s=write_timeout_s,
            )
            remove_socket(instance)
            async with serve_operator(server, instance.socket_path):
                paths.append(instance.socket_path)
                ready.set()
                await asyncio.to_thread(stop.wait)
            remove_socket(instance)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield paths[0]
    finally:
        stop.set()
        thread.join(20)


@contextlib.contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        with socket_address(path) as address:
            client.connect(address)
        yield client


def exchange(client: socket.socket, request: bytes) -> dict[str, object] | None:
    """Send bytes and read one answer; None when the server closes instead."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(request)
    return answer(client)


def answer(client: socket.socket) -> dict[str, object] | None:
    line = b""
    with contextlib.suppress(ConnectionResetError):
        while not line.endswith(b"\n") and (part := client.recv(65_536)):
            line += part
    return json.loads(line) if line else None


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True
