"""The socket of the process that serves an instance.

Each client is a task of its own: it may be slow, silent or broken without anybody else noticing. Methods run
on other threads, so the event loop only moves bytes. The socket is in a directory of the owner (0700) and is
itself 0600; the token is asked for nevertheless, because a path can be shared by mistake.
"""

import asyncio
import contextlib
import logging
import socket
import sys
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from pikobot.channels.operator import protocol
from pikobot.channels.operator.methods import OperatorContext, call_async
from pikobot.credentials import Secret
from pikobot.errors import InstanceBusy, PikobotError
from pikobot.files import FILE_MODE
from pikobot.serving import socket_address

IDLE_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0
MAX_CLIENTS = 64
BACKLOG = 64
# asyncio would remove what has the socket's name by then, and that may have been relative to another directory.
_LEAVING_THE_FILE: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}

log = logging.getLogger(__name__)


class OperatorServer:
    """Answers requests until its task is cancelled; see `serve_operator`."""

    def __init__(
        self,
        context: OperatorContext,
        token: Secret | None,
        *,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._context = context
        self._token = token
        self._idle_timeout_s = idle_timeout_s
        self._write_timeout_s = write_timeout_s
        self._clients: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def end_clients(self) -> None:
        """Cut off every client and wait until their tasks are gone."""
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Nothing stays in a buffer after a write, so that closing never has to wait for a client.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            if len(self._clients) > MAX_CLIENTS:
                refusal = InstanceBusy(f"{MAX_CLIENTS} clients are connected; try again later")
                await self._send(writer, protocol.encode_error(None, refusal))
                return
            while await self._serve_request(reader, writer):
                pass
        except (TimeoutError, ConnectionError):
            pass  # the client went away, or it doesn't say or take anything
        finally:
            writer.transport.abort()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is to be closed."""
        try:
            async with asyncio.timeout(self._idle_timeout_s):
                line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return False
        except asyncio.LimitOverrunError:
            refusal = protocol.InvalidRequest(
                f"the request is longer than {protocol.MAX_REQUEST_BYTES} bytes"
            )
            await self._send(writer, protocol.encode_error(None, refusal))
            return False
        response, may_go_on = await self._respond(line)
        await self._send(writer, response)
        return may_go_on

    async def _respond(self, line: bytes) -> tuple[bytes, bool]:
        request_id: protocol.RequestId = None
        try:
            envelope = protocol.open_envelope(line)
            request_id = envelope.id
            protocol.authenticate(envelope, self._token)
            call = protocol.read_call(envelope)
            result = await call_async(self._context, call.method, call.params)
            return protocol.encode_result(request_id, result), True
        except PikobotError as error:
            return protocol.encode_error(request_id, error), not isinstance(error, protocol.CLOSING_ERRORS)
        except Exception as error:  # noqa: BLE001 — the edge: one broken method may not end the channel
            # Without the error's own words: they may quote what somebody said.
            place = traceback.extract_tb(error.__traceback__)[-1]
            log.error("rpc failed: %s at %s:%s", type(error).__name__, place.filename, place.lineno)  # noqa: TRY400 — see above
            failure = PikobotError(f"internal error ({type(error).__name__}); the log says where")
            return protocol.encode_error(request_id, failure), True

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        async with asyncio.timeout(self._write_timeout_s):
            await writer.drain()


def _bound_socket(path: Path) -> socket.socket:
    """A socket that nobody can connect to yet, so that its mode is right before anybody can."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket_address(path) as address:
            bound.bind(address)
        path.chmod(FILE_MODE)
    except BaseException:
        bound.close()
        raise
    return bound


@contextlib.asynccontextmanager
async def serve_operator(server: OperatorServer, path: Path) -> AsyncIterator[None]:
    """Serve on a socket at that path, where nothing is, while the block runs; the caller removes the socket."""
    listener = await asyncio.start_unix_server(
        server.accept,
        sock=_bound_socket(path),
        limit=protocol.MAX_REQUEST_BYTES,
        backlog=BACKLOG,
        **_LEAVING_THE_FILE,
    )
    try:
        yield
    finally:
        listener.close()
        await server.end_clients()
        await listener.wait_closed()
