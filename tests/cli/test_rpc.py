import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pikobot.cli.rpc import LEAVES_TRACES, rpc
from pikobot.errors import ExitCode, RpcCode
from pikobot.instance import Instance
from pikobot.serving import acquire_serving_lock
from tests.channels.operator.serving import make_instance, served

REPOSITORY = Path(__file__).parents[2]
HEAVY = ("openai", "rich", "prompt_toolkit", "mem0", "telegram", "typer", "httpx", "tomlkit")


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "i", "I moved to Porto in March 2024", "请修改youer服务端")


class Stdin(io.StringIO):
    """A stdin of bytes."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.buffer = io.BytesIO(content)  # type: ignore[misc]  # only the buffer is read


def error_in(stderr: str) -> dict[str, object]:
    document = json.loads(stderr)
    assert document.keys() == {"error"}
    error = document["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize("query", ["youer", "服务", "端", "改"])
def test_one_json_document_is_printed(
    instance: Instance, query: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rpc(instance.root, "memory.search", json.dumps({"query": query})) == ExitCode.DONE
    out, err = capfd.readouterr()
    assert out.count("\n") == 1
    assert "请修改youer服务端" in out
    [record] = json.loads(out)["results"]
    assert record["text"] == "请修改youer服务端"
    assert err == ""


def test_parameters_come_from_stdin_or_are_left_out(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin('{"query":"波尔图 Porto"}'.encode()))
    assert rpc(instance.root, "memory.search", "-") == ExitCode.DONE
    assert len(json.loads(capfd.readouterr().out)["results"]) == 1
    assert rpc(instance.root, "status") == ExitCode.DONE
    assert json.loads(capfd.readouterr().out)["counts"]["sources"] == 2


def test_timing_is_added_only_when_asked_for(instance: Instance, capfd: pytest.CaptureFixture[str]) -> None:
    rpc(instance.root, "memory.list")
    plain = json.loads(capfd.readouterr().out)
    rpc(instance.root, "memory.list", timing=True)
    timed = json.loads(capfd.readouterr().out)
    assert isinstance(timed.pop("elapsedMs"), float)
    assert timed == plain


@pytest.mark.parametrize(
    ("method", "params", "exit_code", "code", "message"),
    [
        (
            "status",
            "{",
            ExitCode.USAGE,
            RpcCode.PARSE_ERROR,
            "the parameter object is not valid JSON at column 2",
        ),
        ("status", "[]", ExitCode.USAGE, RpcCode.INVALID_PARAMS, "params: expected an object"),
        ("status", '{"a":1}', ExitCode.USAGE, RpcCode.INVALID_PARAMS, "a: unknown key"),
        ("memory.search", '{"query":7}', ExitCode.USAGE, RpcCode.INVALID_PARAMS, "query: Input should be"),
        ("memory.search", '{"query":"\\u0000"}', ExitCode.USAGE, RpcCode.INVALID_PARAMS, "query: has a NUL"),
        (
            "memory.search",
            '{"query":"\\ud800"}',
            ExitCode.USAGE,
            RpcCode.PARSE_ERROR,
            "the parameter object has half",
        ),
        (
            "memory.search",
            json.dumps({"query": "x" * 1_000_000}),
            ExitCode.USAGE,
            RpcCode.INVALID_PARAMS,
            "query:",
        ),
        ("nothing", "{}", ExitCode.USAGE, RpcCode.METHOD_NOT_FOUND, "there is no method 'nothing'"),
        ("source.read", '{"id":"x"}', ExitCode.NOT_FOUND, RpcCode.NOT_FOUND, "there is no source x"),
    ],
)
def test_an_error_is_json_on_stderr_and_changes_nothing(
    instance: Instance,
    capfd: pytest.CaptureFixture[str],
    method: str,
    params: str,
    exit_code: ExitCode,
    code: RpcCode,
    message: str,
) -> None:
    rpc(instance.root, "memory.list")
    before = capfd.readouterr().out
    assert rpc(instance.root, method, params) == exit_code
    out, err = capfd.readouterr()
    error = error_in(err)
    assert (out, error["code"]) == ("", code)
    assert str(error["message"]).startswith(message)
    with served(instance):
        assert rpc(instance.root, method, params) == exit_code
        assert capfd.readouterr() == (out, err)
    rpc(instance.root, "memory.list")
    assert capfd.readouterr().out == before


def test_a_wrong_token_is_refused_with_its_exit_code(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(instance):
        monkeypatch.setenv("PIKOBOT_OPERATOR_TOKEN", "wrong")
        assert rpc(instance.root, "memory.list") == ExitCode.NOT_FOUND
    assert error_in(capfd.readouterr().err)["code"] == RpcCode.NOT_ALLOWED


def test_an_instance_in_use_is_busy(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pikobot.channels.operator.client.CONNECT_WAIT_S", 0.0)
    with acquire_serving_lock(instance):
        assert rpc(instance.root, "status") == ExitCode.BUSY
    assert error_in(capfd.readouterr().err)["code"] == RpcCode.BUSY


def test_no_instance_is_wrong_usage(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert rpc(tmp_path, "status") == ExitCode.USAGE
    assert "pikobot init" in str(error_in(capfd.readouterr().err)["message"])


def test_a_damaged_database_has_its_own_exit_code(
    instance: Instance, capfd: pytest.CaptureFixture[str]
) -> None:
    instance.database_path.write_bytes(b"not a database at all" * 1_000)
    assert rpc(instance.root, "status") == ExitCode.DAMAGED
    assert error_in(capfd.readouterr().err)["code"] == RpcCode.DAMAGED


BATCH = """
{"method":"memory.search","params":{"query":"端"}}
{"method":"memory.serach","params":{"query":"端"}}

oops
{"method":"status","parms":{}}
{"method":"memory.search","params":{"query":"Porto","limit":1}}
""".encode()


@pytest.mark.parametrize("is_served", [False, True])
def test_a_batch_answers_every_line_in_order_and_goes_on_after_errors(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str], is_served: bool
) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_bytes(BATCH)
    if is_served:
        with served(instance):
            exit_code = rpc(instance.root, None, batch=str(file))
    else:
        exit_code = rpc(instance.root, None, batch=str(file))
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert exit_code == ExitCode.FAILED
    assert [len(line["results"]) if "results" in line else line["error"]["code"] for line in lines] == [
        1,
        RpcCode.METHOD_NOT_FOUND,
        RpcCode.PARSE_ERROR,
        RpcCode.PARSE_ERROR,
        1,
    ]


def test_a_batch_without_errors_is_done_and_may_be_timed(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Stdin(b'{"method":"status"}\n{"method":"status"}'))
    assert rpc(instance.root, None, batch="-", timing=True) == ExitCode.DONE
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line.keys() >= {"elapsedMs", "version"} for line in lines] == [True, True]


def test_a_line_of_a_batch_that_is_too_long_is_refused_and_the_next_one_answered(
    instance: Instance, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pikobot.cli.rpc.MAX_REQUEST_BYTES", 100)
    monkeypatch.setattr(sys, "stdin", Stdin(b"x" * 1_000 + b'\n{"method":"status"}\n'))
    assert rpc(instance.root, None, batch="-") == ExitCode.FAILED
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line.keys() == {"error"} for line in lines] == [True, False]


def test_a_batch_file_that_is_missing_is_an_error(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rpc(instance.root, None, batch=str(tmp_path / "none")) == ExitCode.USAGE
    assert "none" in str(error_in(capfd.readouterr().err)["message"])


@pytest.mark.parametrize(
    ("method", "params", "batch"), [(None, None, None), ("status", None, "-"), (None, "{}", "-")]
)
def test_a_method_or_a_batch_is_needed(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    method: str | None,
    params: str | None,
    batch: str | None,
) -> None:
    assert rpc(tmp_path, method, params, batch=batch) == ExitCode.USAGE
    assert error_in(capfd.readouterr().err)["code"] == RpcCode.USAGE


@pytest.mark.parametrize("method", ["memory.search", "memory.list", "status"])
def test_reading_loads_nothing_heavy_and_prints_utf8_in_any_locale(instance: Instance, method: str) -> None:
    params = json.dumps({"query": "服务"} if method == "memory.search" else {})
    script = f"""
import sys
from pathlib import Path
from pikobot.cli.rpc import LEAVES_TRACES, rpc
code = rpc(Path({str(instance.root)!r}), {method!r}, {params!r})
loaded = [name for name in {HEAVY!r} if name in sys.modules]
sys.exit(f"loaded {{loaded}}" if loaded else code)
"""
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", script],
        cwd=REPOSITORY,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert isinstance(json.loads(done.stdout.decode()), dict)


@pytest.mark.parametrize("is_served", [False, True])
def test_an_erasure_that_leaves_traces_has_failed_though_its_receipt_is_printed(
    instance: Instance, capfd: pytest.CaptureFixture[str], is_served: bool
) -> None:
    ids = said(instance, capfd)
    (instance.root / "notes.txt").write_text("I moved to Porto in March 2024")
    with served(instance) if is_served else contextlib.nullcontext():
        edit = json.dumps({"id": ids["I moved to Porto in March 2024"], "text": "I moved to Braga"})
        assert rpc(instance.root, "source.edit", edit) == ExitCode.FAILED
        out, err = capfd.readouterr()
        assert json.loads(out)["receipt"]["clean"] is False
        assert error_in(err) == {"code": RpcCode.FAILED, "message": LEAVES_TRACES}

        (instance.root / "notes.txt").write_text("请修改youer服务端")
        forget = json.dumps({"sources": [ids["请修改youer服务端"]]})
        assert rpc(instance.root, "memory.forget", forget) == ExitCode.FAILED
        out, err = capfd.readouterr()
        assert [find["file"] for find in json.loads(out)["scan"]["finds"]] == ["notes.txt"]
        assert error_in(err)["message"] == LEAVES_TRACES
        assert (
            rpc(instance.root, "memory.forget", forget) == ExitCode.DONE
        )  # there is nothing left of it to erase
        assert json.loads(capfd.readouterr().out) == {"status": "alreadyErased", "ids": 1}


@pytest.mark.parametrize(("kept", "code"), [("请修改youer服务端", ExitCode.FAILED), ("other", ExitCode.DONE)])
def test_in_a_batch_too_an_erasure_fails_only_by_the_traces_it_leaves(
    instance: Instance, tmp_path: Path, capfd: pytest.CaptureFixture[str], kept: str, code: ExitCode
) -> None:
    ids = said(instance, capfd)
    (instance.root / "notes.txt").write_text(kept)
    calls = [
        {"method": "memory.forget", "params": {"sources": [ids["请修改youer服务端"]]}},
        {"method": "memory.list"},
    ]
    (tmp_path / "b").write_text("".join(f"{json.dumps(one)}\n" for one in calls))
    assert rpc(instance.root, None, batch=str(tmp_path / "b")) == code
    out, err = capfd.readouterr()
    erased, rest = map(json.loads, out.splitlines())
    assert (erased["clean"], len(rest["results"]), err) == (code == ExitCode.DONE, 1, "")


def said(instance: Instance, capfd: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The ids of what was said, by its text."""
    rpc(instance.root, "memory.list")
    return {one["text"]: one["id"] for one in json.loads(capfd.readouterr().out)["results"]}
