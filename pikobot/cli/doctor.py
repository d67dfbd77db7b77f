"""`pikobot doctor`: what works, what is degraded, what is broken, and the command that fixes each.

Every check is made, whatever the others found. Nothing is changed and no provider is contacted.
"""

import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pikobot.channels.operator.client import connect_operator
from pikobot.clock import SystemClock
from pikobot.config import Config
from pikobot.credentials import Credentials, load_credentials
from pikobot.errors import DamagedData, ExitCode, PikobotError
from pikobot.instance import Instance, is_instance, open_instance
from pikobot.memory.opening import refuse_another
from pikobot.serving import ServedBy, acquire_visitor_lock
from pikobot.store.prepare import is_prepared
from pikobot.streams import emit, emit_json
from pikobot.text import Count

LEAST_FREE_BYTES = 500 * 1024 * 1024
State = Literal["ok", "degraded", "failed"]
T = TypeVar("T")


@dataclass(frozen=True)
class Finding:
    """One checked thing. ``fix`` is a command or an edit; None when there is nothing to fix."""

    name: str
    state: State
    detail: str
    fix: str | None = None


def doctor(root: Path, *, as_json: bool) -> ExitCode:
    """Print the findings; 0 unless something failed, 6 when data is damaged."""
    findings, code = examine(root)
    completed = Instance(root).completed
    findings = [replace(finding, detail=completed(finding.detail)) for finding in findings]
    if as_json:
        document = {"findings": [asdict(finding) for finding in findings], "ok": code == ExitCode.DONE}
        emit_json(document)
    else:
        emit("\n".join(_line(finding) for finding in findings) + "\n")
    return code


def examine(root: Path) -> tuple[list[Finding], ExitCode]:
    """All findings about an instance, and the exit code that they come to."""
    checks = _Checks(root)
    instance = checks.attempt(
        "instance", lambda: open_instance(root, is_examined=True), lambda found: str(found.root)
    )
    if instance is None:
        if not _is_there(root):
            return checks.findings, checks.code
        instance = Instance(root)
    config = checks.attempt("settings", instance.load_config, lambda _: str(instance.config_path))
    credentials = checks.attempt("credentials", lambda: _credentials(instance, config), _set_credentials)
    if config is not None and credentials is not None:
        checks.findings.extend(_chat(instance, config, credentials))
    if config is not None:
        checks.findings.extend(_not_yet(instance, config))
    if config is None or credentials is None:
        checks.attempt("database", lambda: _database_alone(instance), str)
    elif (status := checks.attempt("database", lambda: _status(instance), _database_detail)) is not None:
        checks.findings.extend(_runs(instance, status))
        checks.findings.extend(_embeddings(instance, config, status["embedding"]))
        checks.findings.extend(_retention(instance, status))
    checks.findings.append(_disk(root))
    return checks.findings, checks.code


def _is_there(root: Path) -> bool:
    try:
        return is_instance(root)
    except PikobotError:
        return False


class _Checks:
    """Collects findings; a check that raises becomes a failed one."""

    def __init__(self, root: Path) -> None:
        copied = f"cp -a {shlex.quote(str(root))} {shlex.quote(f'{root}.copy')}"
        self._repair = f"copy the instance directory (`{copied}`), then follow RECOVERY.md"
        self._is_damaged = False
        self.findings: list[Finding] = []

    @property
    def code(self) -> ExitCode:
        if self._is_damaged:
            return ExitCode.DAMAGED
        has_failed = any(finding.state == "failed" for finding in self.findings)
        return ExitCode.FAILED if has_failed else ExitCode.DONE

    def attempt(self, name: str, check: Callable[[], T], detail: Callable[[T], str]) -> T | None:
        try:
            found = check()
        except PikobotError as error:
            is_damage = isinstance(error, DamagedData)
            self.findings.append(Finding(name, "failed", str(error), self._repair if is_damage else None))
            self._is_damaged |= is_damage
            return None
        self.findings.append(Finding(name, "ok", detail(found)))
        return found


def _credentials(instance: Instance, config: Config | None) -> Credentials:
    """Without settings it is not known which provider's own variables count."""
    if config is not None:
        return instance.load_credentials(config)
    return load_credentials(instance.credentials_path, chat_provider="", embedding_provider="")


def _set_credentials(credentials: Credentials) -> str:
    found = [f"{name} from {origin}" for name, origin in credentials.describe().items() if origin is not None]
    return ", ".join(found) or "none set"


def _chat(instance: Instance, config: Config, credentials: Credentials) -> Iterator[Finding]:
    chat = config.chat
    if chat.provider == "none":
        yield Finding(
            "chat model",
            "degraded",
            "recall mode by choice: questions are answered by quoting",
            f"pikobot init {instance.option} --set chat.provider=deepseek",
        )
    elif not chat.is_model_on(has_key=credentials.chat_api_key is not None):
        yield Finding(
            "chat model",
            "degraded",
            f"recall mode: there is no key for {chat.model} at {chat.base_url}",
            f"export PIKOBOT_CHAT_API_KEY=…, or set chat_api_key in {instance.credentials_path}",
        )
    elif chat.prices() is None:
        yield Finding(
            "chat model",
            "failed",
            chat.price_remedy(),
            f"pikobot init {instance.option} --set chat.price_input=… --set chat.price_output=…",
        )
    else:
        yield Finding("chat model", "ok", f"{chat.model} at {chat.base_url} is set up; doctor calls nobody")


def _not_yet(instance: Instance, config: Config) -> Iterator[Finding]:
    """What the settings ask for and this version does not have."""
    if config.telegram.enabled:
        yield Finding(
            "telegram",
            "degraded",
            "telegram.enabled is set, this version talks in the terminal only",
            f"pikobot init {instance.option} --set telegram.enabled=false",
        )


def _embeddings(instance: Instance, config: Config, embedding: dict[str, Any]) -> Iterator[Finding]:
    """Whether searches find by meaning, how far the vectors are, and what to do about the rest."""
    profile, problem = embedding["profile"], embedding["problem"]
    if config.embedding.provider == "disabled":
        yield Finding("embeddings", "ok", "disabled: searches find by words only")
        return
    if profile is None:
        yield _embeddings_off(instance, config, problem)
        return
    sets = [each for each in (embedding["serving"], embedding["building"]) if each is not None]
    failed, unknown = (sum(each[key] for each in sets) for key in ("failed", "unknown"))
    detail = f"{profile['model']} ({config.embedding.provider}, {profile['dimension']} numbers)"
    if sets:
        newest = sets[-1]  # what waits for the one that serves waits for it as well
        detail += f", {Count(newest['vectors']):vector}, {Count(newest['waiting']):text waits|texts wait}"
    if len(sets) > 1:
        model = sets[0]["profile"]["model"]
        detail += f"; {Count(sets[0]['vectors']):vector} of {model} answer until then"
    if problem is None:
        yield Finding("embeddings", "ok", detail)
    else:
        fix = f"pikobot work --drain {instance.option}"
        if config.embedding.price() is None:
            fix = f"pikobot init {instance.option} --set embedding.price_input=…"
        yield Finding("embeddings", "degraded", f"{detail}; {problem}", fix)
    if failed or unknown:
        yield Finding(
            "embedding batches",
            "degraded",
            f"{Count(failed):text} failed, {unknown} may have been charged without an answer; a retry can charge again",
            f"pikobot rpc memory.retry '{{\"all\":true}}' {instance.option}",
        )


def _embeddings_off(instance: Instance, config: Config, reason: str | None) -> Finding:
    """What is set can't be had: that is no fault when it is only the default."""
    command = f"pikobot init {instance.option} --set embedding.provider="
    if config.embedding.provider == "openai":
        return Finding(
            "embeddings",
            "degraded",
            f"off: searches find by words, not by meaning; there is no key for {config.embedding.model}",
            f"{command}e5 turns a local model on, free of charge; for {config.embedding.model}, "
            f"export PIKOBOT_EMBEDDING_API_KEY=…, or set embedding_api_key in {instance.credentials_path}",
        )
    return Finding("embeddings", "degraded", f"off: {reason}", f"{command}disabled does without")


def _retention(instance: Instance, status: dict[str, Any]) -> Iterator[Finding]:
    """What was removed because of its age or number, and what waits for it; nothing while all is kept."""
    retention = status["retention"]
    last, waiting = retention["lastSweep"], retention["expiredWaiting"] + retention["beyondCapacity"]
    if last is None and not waiting:
        return
    detail = f"{Count(waiting):message is|messages are} to be removed"
    if last is not None:
        detail = (
            f"removed {Count(last['expired']):expired source} and {last['overCapacity']} beyond "
            f"retention.max_sources at {last['at']}, {detail}"
        )
    if last is not None and last["clean"] is False:
        detail += (
            "; something of what was removed was still found afterwards, or not all could be looked through"
        )
        yield Finding("retention", "degraded", detail, f"pikobot verify {instance.option}")
    elif waiting and not status["served"]:
        yield Finding("retention", "degraded", detail, f"pikobot work --drain {instance.option}")
    else:
        yield Finding("retention", "ok", detail)


def _status(instance: Instance) -> dict[str, Any]:
    instance.refuse_lost()
    with connect_operator(instance, SystemClock()) as operator:
        return operator.call("status", {})


def _database_alone(instance: Instance) -> str:
    """What can be said of the database without the settings or the credentials; changes nothing in it."""
    instance.refuse_lost()
    lock = acquire_visitor_lock(instance)
    if isinstance(lock, ServedBy):
        return f"served by {lock}; it can be asked when the rest is repaired"
    with lock:
        if not instance.database_path.exists():
            return "not made yet"
        refuse_another(instance.database_path, instance.ledger_path)
        is_ready = is_prepared(instance.database_path)
    return "its own, and " + ("ready" if is_ready else "prepared at the next start")


def _database_detail(status: dict[str, Any]) -> str:
    served = "served by another process" if status["served"] else "served by nobody"
    return f"schema {status['schemaVersion']}, {Count(status['counts']['sources']):source}, {served}"


def _runs(instance: Instance, status: dict[str, Any]) -> Iterator[Finding]:
    unknown = status["unknownOutcomes"]
    if unknown:
        yield Finding(
            "provider calls",
            "degraded",
            f"{Count(unknown):call} that may have been charged without an answer, kept in the budget",
            f'pikobot rpc runs.list \'{{"state":"unknown"}}\' {instance.option}',
        )
    waiting = status["counts"]["runs"]["queued"]
    if waiting:
        yield Finding(
            "requests",
            "degraded",
            f"{Count(waiting):request waits|requests wait} for an answer",
            f"pikobot work --drain {instance.option}",
        )


def _disk(root: Path) -> Finding:
    free = shutil.disk_usage(root).free
    detail = f"{free // (1024 * 1024)} MiB free"
    if free < LEAST_FREE_BYTES:
        return Finding("disk", "degraded", detail, "free some space: nothing can be stored when it is full")
    return Finding("disk", "ok", detail)


def _line(finding: Finding) -> str:
    mark = {"ok": "ok      ", "degraded": "degraded", "failed": "failed  "}[finding.state]
    fix = f"\n          → {finding.fix}" if finding.fix else ""
    return f"{mark}  {finding.name}: {finding.detail}{fix}"
