import dataclasses
import json
import logging
import stat
import threading
from typing import NoReturn

import pytest

from pikobot.channels.operator import methods, protocol, server
from pikobot.channels.operator.methods import Method, NoParams
from pikobot.errors import RpcCode
from pikobot.instance import Instance
from tests.channels.operator.serving import answer, connected, exchange, is_closed, operator_token, served


def request(instance: Instance, **members: object) -> bytes:
    token = operator_token(instance).reveal()
    document = {"jsonrpc": "2.0", "id": 1, "method": "status", "params": {}, "token": token} | members
    return json.dumps({k: v for k, v in document.items() if v is not ...}).encode() + b"\n"


def error_of(response: dict[str, object] | None) -> dict[str, object]:
    assert response is not None
    assert isinstance(response["error"], dict)
    return response["error"]


def test_a_request_is_answered_with_its_id_and_the_connection_goes_on(instance: Instance) -> None:
    with served(instance) as path, connected(path) as client:
        for request_id in (7, "sieben"):
            response = exchange(
                client,
                request(instance, id=request_id, method="memory.search", params={"query": "服务"}),
            )
            assert response is not None
            assert (response["jsonrpc"], response["id"]) == ("2.0", request_id)
            assert isinstance(response["result"], dict)
            assert [record["text"] for record in response["result"]["results"]] == ["请修改youer服务端"]


def test_the_socket_is_for_its_owner_alone(instance: Instance) -> None:
    with served(instance) as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("token", [..., None, "", "wrong", 5, ["a"], "密", "x" * 1_000_000])
@pytest.mark.parametrize("method", ["status", "no.such.method"])
def test_without_the_right_token_nothing_else_is_looked_at(
    instance: Instance, token: object, method: str
) -> None:
    with served(instance) as path, connected(path) as client:
        error = error_of(exchange(client, request(instance, token=token, method=method, params=5)))
        assert error["code"] == RpcCode.NOT_ALLOWED
        assert error["message"] == (
            "the operator token is wrong or missing; it stands in the instance's credentials.toml"
        )
        assert is_closed(client)


def test_without_a_token_of_its_own_the_instance_refuses_every_one(instance: Instance) -> None:
    line = request(instance)
    instance.credentials_path.write_text("")
    with served(instance) as path, connected(path) as client:
        assert error_of(exchange(client, line))["code"] == RpcCode.NOT_ALLOWED


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (b"{\n", RpcCode.PARSE_ERROR, "the request is not valid JSON at line 2, column 1"),
        (b"\xff\n", RpcCode.PARSE_ERROR, "the request is not UTF-8 text: invalid byte at position 0"),
        (b'{"id":NaN}\n', RpcCode.PARSE_ERROR, "the request has NaN, which is not JSON, at $.id"),
        (b'{"id":1,"id":2}\n', RpcCode.PARSE_ERROR, "the request has the key id twice"),
        (b'{"id":"\\ud800"}\n', RpcCode.PARSE_ERROR, "the request has half a surrogate pair"),
        (b"[" * 100_000 + b"\n", RpcCode.PARSE_ERROR, "the request is nested deeper than 100 levels"),
        (b"[]\n", RpcCode.INVALID_REQUEST, "the request is a batch; send one request a line"),
        (b'"status"\n', RpcCode.INVALID_REQUEST, "the request must be an object"),
        (b"\n", RpcCode.PARSE_ERROR, "the request is not valid JSON"),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_closed(
    instance: Instance, line: bytes, code: RpcCode, message: str
) -> None:
    with served(instance) as path, connected(path) as client:
        error = error_of(exchange(client, line))
        assert error["code"] == code
        assert str(error["message"]).startswith(message)
        assert is_closed(client)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"jsonrpc": "1.0"}, 'jsonrpc: expected "2.0"'),
        ({"jsonrpc": ...}, 'jsonrpc: expected "2.0"'),
        ({"id": ...}, "id: expected a number or a text of at most 128 characters"),
        ({"id": None}, "id: expected a number or a text"),
        ({"id": True}, "id: expected a number or a text"),
        ({"id": "x" * 129}, "id: expected a number or a text"),
        ({"method": 5}, "method: expected a text"),
        ({"method": ...}, "method: expected a text"),
        ({"verbose": 1}, "'verbose': unknown member of the request"),
    ],
)
def test_a_member_that_is_wrong_is_named(
    instance: Instance, members: dict[str, object], message: str
) -> None:
    with served(instance) as path, connected(path) as client:
        error = error_of(exchange(client, request(instance, **members)))
        assert error["code"] == RpcCode.INVALID_REQUEST
        assert str(error["message"]).startswith(message)


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"method": "memory.forge"}, RpcCode.METHOD_NOT_FOUND),
        ({"method": "memory.search"}, RpcCode.INVALID_PARAMS),
        ({"method": "memory.search", "params": [1]}, RpcCode.INVALID_PARAMS),
        ({"method": "memory.search", "params": {"query": "x" * 1_000_000}}, RpcCode.INVALID_PARAMS),
        ({"method": "memory.search", "params": {"query": "a\0b"}}, RpcCode.INVALID_PARAMS),
        ({"method": "source.read", "params": {"id": "src_none"}}, RpcCode.NOT_FOUND),
    ],
)
def test_a_call_that_fails_leaves_the_connection_open(
    instance: Instance, members: dict[str, object], code: RpcCode
) -> None:
    with served(instance) as path, connected(path) as client:
        assert error_of(exchange(client, request(instance, **members)))["code"] == code
        assert "result" in (exchange(client, request(instance)) or {})


def test_a_request_that_is_too_long_is_refused(instance: Instance) -> None:
    with served(instance) as path, connected(path) as client:
        error = error_of(exchange(client, b" " * (protocol.MAX_REQUEST_BYTES + 100_000)))
        assert error["code"] == RpcCode.INVALID_REQUEST
        assert is_closed(client)


def test_clients_that_are_silent_slow_or_gone_hinder_nobody(instance: Instance) -> None:
    with (
        served(instance) as path,
        connected(path) as silent,
        connected(path) as slow,
        connected(path) as gone,
    ):
        line = request(instance)
        slow.sendall(line[:10])
        gone.sendall(line * 3)
        gone.close()
        with connected(path) as client:
            assert "result" in (exchange(client, line) or {})
        assert "result" in (exchange(slow, line[10:]) or {})
        assert "result" in (exchange(silent, line) or {})


def test_a_client_that_says_nothing_is_let_go(instance: Instance) -> None:
    with served(instance, idle_timeout_s=0.05) as path, connected(path) as client:
        assert is_closed(client)


def test_a_client_that_takes_nothing_is_let_go(instance: Instance) -> None:
    with served(instance, write_timeout_s=0.05) as path, connected(path) as client, connected(path) as other:
        line = request(instance, method="memory.search", params={"query": "Porto"})
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            client.sendall(line * 100_000)
        assert "result" in (exchange(other, line) or {})


def test_many_clients_at_once_get_their_own_answers(instance: Instance) -> None:
    answers: dict[int, object] = {}

    def ask(number: int) -> None:
        with connected(path) as client:
            for turn in range(5):
                response = exchange(client, request(instance, id=number * 10 + turn))
                answers[number * 10 + turn] = None if response is None else response["id"]

    with served(instance) as path:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {key: key for key in (n * 10 + t for n in range(8) for t in range(5))}


def test_too_many_clients_are_told_to_come_back(instance: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CLIENTS", 1)
    with served(instance) as path, connected(path) as first:
        assert "result" in (exchange(first, request(instance)) or {})
        with connected(path) as second:
            assert error_of(answer(second))["code"] == RpcCode.BUSY
        assert "result" in (exchange(first, request(instance)) or {})


def test_a_method_that_breaks_is_an_internal_error_without_its_words(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> NoReturn:
        raise KeyError("somebody's secret")

    monkeypatch.setitem(methods.METHODS, "status", Method(NoParams, broken))
    with caplog.at_level(logging.ERROR), served(instance) as path, connected(path) as client:
        error = error_of(exchange(client, request(instance)))
        assert error == {
            "code": RpcCode.FAILED,
            "message": "internal error (KeyError); the log says where",
        }
        assert "result" in (exchange(client, request(instance, method="threads.list")) or {})
    assert "KeyError at " in caplog.text
    assert "somebody" not in caplog.text


def test_the_server_ends_with_clients_connected_and_can_serve_again(instance: Instance) -> None:
    with served(instance) as path, connected(path) as client:
        exchange(client, request(instance))
    assert not path.exists()
    degraded = served(instance, change_context=lambda c: dataclasses.replace(c, degraded=("why",)))
    with degraded as path, connected(path) as client:
        response = exchange(client, request(instance))
    assert response is not None
    assert isinstance(response["result"], dict)
    assert response["result"]["degraded"] == ["why"]
