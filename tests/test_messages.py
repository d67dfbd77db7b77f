"""What messages suggest can be pasted into a shell: the right command, for the right instance."""

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from typer.testing import CliRunner

import pikobot
from pikobot.cli.app import app
from pikobot.config_file import set_values
from pikobot.errors import ExitCode
from pikobot.instance import Instance
from tests.backup.instances import make_instance

PACKAGE = Path(pikobot.__file__).parent
ROOT = PACKAGE.parent
VERBS = "backup|doctor|evaluate|import|init|reindex|restore|rpc|run|verify|work"


def _texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text that is no docstring, its values as {}."""
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documentation | inner
        ):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, "".join(parts)


def test_every_command_in_a_message_is_in_backquotes_so_that_it_is_completed() -> None:
    for file in sorted(PACKAGE.rglob("*.py")):
        for line, text in _texts(ast.parse(file.read_text(encoding="utf-8"))):
            bare = re.sub(r"`[^`]*`", "", text)
            found = re.search(rf"\bpikobot ({VERBS})\b", bare)
            assert not found or "{}" in bare or "pikobot run -m '/" in bare, (file.name, line, text)
            assert "--instance DIR" not in text or file.name == "__init__.py", (file.name, line, text)


def test_nothing_tells_to_install_pikobot_from_a_registry_where_anybody_could_take_that_name() -> None:
    told = [*PACKAGE.rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "scripts").glob("[!_]*")]
    for file in sorted(path for path in told if path.is_file()):
        found = re.search(r"pip install[^`\n]*\bpikobot\b|pikobot\[\w", file.read_text(encoding="utf-8"))
        assert not found, (file, found)


def test_a_message_is_completed_once_and_nothing_else_is_touched() -> None:
    instance = Instance(Path("/a b/我"))
    assert instance.completed("run `pikobot reindex`, or `pikobot init --set a.b=…`: `chmod 600 x`") == (
        "run `pikobot reindex --instance '/a b/我'`, or `pikobot init --set a.b=… --instance '/a b/我'`: `chmod 600 x`"
    )
    for message in ("`pikobot rpc METHOD --instance /x`", "pikobot is here", "`pikobot`", "找到 `原话`"):
        assert instance.completed(message) == message


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "it's 我的")


def commands_in(text: str) -> list[list[str]]:
    """The commands in backquotes, as a shell takes them apart."""
    return [shlex.split(found) for found in re.findall(r"`(pikobot [^`]*)`", text)]


def call(instance: Instance, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments, "--instance", str(instance.root)])
    return done.exit_code, done.output


def test_what_verify_suggests_mends_the_instance_that_it_has_checked(instance: Instance) -> None:
    connection = apsw.Connection(str(instance.database_path))
    connection.execute("UPDATE sources_text_data SET block = zeroblob(length(block)) WHERE id > 10")
    connection.close()
    code, output = call(instance, "verify")
    [[_, *suggested]] = commands_in(output)
    assert (code, suggested) == (ExitCode.DAMAGED, ["reindex", "--instance", str(instance.root)])
    assert (
        call(instance, "verify", "--json")[1].count(json.dumps(instance.option, ensure_ascii=False)[1:-1])
        == 1
    )
    assert CliRunner().invoke(app, suggested).exit_code == ExitCode.DONE
    assert call(instance, "verify")[0] == ExitCode.DONE


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-m", "/new"],
        ["rpc", "memory.forget", '{"thread":"没有"}'],
        ["rpc", "status"],
        ["work", "--drain"],
        ["import", "jsonl", "-"],
    ],
)
def test_every_suggestion_names_the_instance(instance: Instance, arguments: list[str]) -> None:
    if "status" in arguments or arguments[0] in ("work", "import"):
        instance.config_path.unlink()
    code, output = call(instance, *arguments)
    assert code in (ExitCode.USAGE, ExitCode.NOT_FOUND)
    message = json.loads(output)["error"]["message"] if arguments[0] == "rpc" else output
    suggested = commands_in(message)
    assert suggested
    for command in suggested:
        assert command[-2:] == ["--instance", str(instance.root)], output


def test_doctor_suggests_commands_as_they_are_typed(instance: Instance) -> None:
    changes = [
        ("chat.provider", "custom"),
        ("chat.base_url", "https://models.invalid/v1"),
        ("chat.model", "x"),
    ]
    instance.config_path.write_text(set_values(instance.config_path.read_text(), changes))
    instance.credentials_path.write_text('chat_api_key = "x"\n')
    findings = json.loads(call(instance, "doctor", "--json")[1])["findings"]
    [model] = [one for one in findings if one["name"] == "chat model"]
    assert commands_in(model["detail"])[0][-1] == str(instance.root)
    assert f"{instance.option} --set chat.price_input=…" in model["fix"]
    instance.database_path.write_bytes(b"x" * 1000)
    findings = json.loads(call(instance, "doctor", "--json")[1])["findings"]
    [database] = [one for one in findings if one["name"] == "database"]
    assert (
        f"`{shlex.join(['cp', '-a', str(instance.root), str(instance.root) + '.copy'])}`" in database["fix"]
    )
