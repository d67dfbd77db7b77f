"""Writing config.toml: the commented default file, and changes that keep everything else as it is.

The default file holds every setting as a comment, ``# key = default`` under its documentation, made from the
models in pikobot.config. A change is put beneath that comment, so the default stays in sight. No change is
returned unless the whole result is valid and says exactly what was asked for.
"""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, get_origin

from pydantic.fields import FieldInfo

from pikobot.config import Config, check_config, config_keys, unknown_key
from pikobot.errors import ConfigError
from pikobot.files import parse_toml, read_text, write_private_file

COMMENT_WIDTH = 100

_HEADER = """\
# Settings of this pikobot instance. A line that begins with '# key =' shows a default: remove the '# ' to
# change it, or let `pikobot init --set section.key=value` do it. Restart pikobot afterwards.
# Secrets are not settings: they go to credentials.toml, or into the environment.
"""


def default_config_text() -> str:
    """A config.toml that sets nothing and documents everything; it loads as ``Config()``."""
    return _HEADER + "".join(_section_text(name, field) for name, field in Config.model_fields.items())


def _section_text(name: str, field: FieldInfo) -> str:
    prefix = f"{name}."
    keys = {key.removeprefix(prefix): doc for key, doc in config_keys().items() if key.startswith(prefix)}
    return f"\n# {field.description}\n[{name}]\n" + "\n".join(
        _key_text(key, doc) for key, doc in keys.items()
    )


def _key_text(key: str, field: FieldInfo) -> str:
    documentation = "".join(
        f"# {line}\n" for line in wrap(field.description or "", COMMENT_WIDTH, break_on_hyphens=False)
    )
    if field.default is None:
        example = (field.examples or [0])[0]
        return f"{documentation}# {key} = {_toml(example)}  # an example: without it, nothing is set\n"
    return f"{documentation}# {key} = {_toml(field.default)}\n"


def _toml(value: object) -> str:
    """A setting as TOML; what JSON writes for these types is TOML as well."""
    return json.dumps(value, ensure_ascii=False)


def set_values(text: str, changes: Sequence[tuple[str, str]], *, name: str | Path = "config.toml") -> str:
    """The text of a config.toml with settings changed, all comments and other settings kept.

    Values are TOML (``0.5``, ``true``, ``"text"``, ``[1, 2]``); for text the quotes, for a list the brackets
    may be left out. Of two changes of one key the later counts. Raises ConfigError for an unknown key, and if
    the result as a whole would not be valid; then nothing has changed.
    """
    before = parse_toml(text, name)
    values = _parse_changes(changes)
    expected = _merged(before, values)
    check_config(expected, name)
    for dotted, value in values.items():
        section, _, key = dotted.partition(".")
        is_set = key in _section(before, section)
        below_comment = None if is_set else _below_its_comment(text, section, key, value)
        text = below_comment or _edited(text, section, key, value)
    if _loaded(text) != expected:
        raise ConfigError(f"{name} is written in a way that --set cannot edit: change it in an editor")
    return text


def _loaded(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def update_config_file(path: Path, changes: Sequence[tuple[str, str]]) -> None:
    """``set_values`` on a file, replaced atomically. Raises ConfigError, and then the file is as before."""
    try:
        text = read_text(path)
    except FileNotFoundError:
        text = default_config_text()
    write_private_file(path, set_values(text, changes, name=path))


def _parse_changes(changes: Sequence[tuple[str, str]]) -> dict[str, Any]:
    known = config_keys()
    problems = [unknown_key(dotted) for dotted, _ in changes if dotted not in known]
    if problems:
        raise ConfigError("\n".join(problems))
    return {dotted: _parse_value(value, known[dotted]) for dotted, value in changes}


def _parse_value(written: str, field: FieldInfo) -> Any:
    try:
        value = tomllib.loads(f"value = {written}")
        parsed = value["value"] if len(value) == 1 else written
    except (ValueError, RecursionError):
        parsed = written
    if isinstance(field.default, str):
        return parsed if isinstance(parsed, str) else written
    if get_origin(field.annotation) is tuple and not isinstance(parsed, list):
        return _parse_list(written)
    return parsed


def _parse_list(written: str) -> Any:
    try:
        return tomllib.loads(f"value = [{written}]")["value"]
    except (ValueError, RecursionError):
        return written


def _section(data: dict[str, Any], name: str) -> dict[str, Any]:
    section = data.get(name, {})
    return section if isinstance(section, dict) else {}


def _merged(data: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    merged = dict(data)
    for dotted, value in values.items():
        section, _, key = dotted.partition(".")
        merged[section] = {**_section(merged, section), key: value}
    return merged


def _below_its_comment(text: str, section: str, key: str, value: object) -> str | None:
    """The text with ``key = value`` below the comment ``# key = …`` of its section; None if there is none."""
    lines = text.split("\n")
    current = ""
    for index, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.partition("#")[0].strip()
        if current == f"[{section}]" and stripped.startswith(f"# {key} ="):
            ending = "\r" if line.endswith("\r") else ""
            lines.insert(index + 1, f"{key} = {_toml(value)}{ending}")
            return "\n".join(lines)
    return None


def _edited(text: str, section: str, key: str, value: object) -> str:
    import tomlkit  # lazily: most commands only read settings
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        if section not in document:
            document[section] = tomlkit.table()
        table: Any = document[section]
        if isinstance(table, dict):
            table[key] = value
        return tomlkit.dumps(document)
    except TOMLKitError:
        return text
