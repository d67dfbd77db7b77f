"""Makes the status document of the operator's method `status` readable: one line for each thing an owner asks about.

A key that this version does not know is shown as it is named; a key that is absent is left out.
"""

from typing import Any

from pikobot.channels.terminal.reasons import spoken_reason
from pikobot.channels.terminal.wording import Wording
from pikobot.channels.terminal.wrapping import cells
from pikobot.text import Count

MICROUSD = 1_000_000

_HIDDEN = frozenset({"schemaVersion", "instanceId", "served"})


def status_lines(status: dict[str, object], words: Wording) -> list[str]:
    rows = [
        (words.status_labels.get(key, key), line)
        for key, value in status.items()
        if key not in _HIDDEN and value is not None
        for line in _lines(key, value, words, has_model=status.get("mode") != "recall")
        if line
    ]
    for index in range(len(rows) - 1, 0, -1):
        if rows[index][0] == rows[index - 1][0]:
            rows[index] = ("", rows[index][1])
    width = max((cells(label) for label, _ in rows), default=0)
    return [f"{label}{' ' * (width - cells(label))}  {line}".rstrip() for label, line in rows]


def _lines(key: str, value: object, words: Wording, *, has_model: bool) -> list[str]:
    if key == "spend":
        return _spend(value, words) if has_model or _is_anything_spent(value) else []
    if key == "extraction" and isinstance(value, dict) and not has_model:
        queued = value.get("queued")
        return [words.status_unlearned.format(count=Count(queued))] if queued else []
    if key == "retention" and isinstance(value, dict):
        return _retention(value, words)
    if key == "embedding" and isinstance(value, dict):
        return _embedding(value, words)
    if key == "degraded" and isinstance(value, list) and value:
        return [spoken_reason(str(part), words.language) for part in value]
    if isinstance(value, list) and value:
        return [_shown(part, words) for part in value]
    shown = _shown(value, words)
    return [words.status_terms.get(shown, shown) if key == "mode" else shown]


def _spend(spend: object, words: Wording) -> list[str]:
    if not isinstance(spend, dict):
        return [_shown(spend, words)]
    budget = spend.get("workspaceBudgetMicroUsd")
    lines = []
    for row in spend.get("workspaces") or [{"workspace": "main"}]:
        line = words.status_spend.format(
            workspace=row.get("workspace"), spent=_dollars(row.get("spentMicroUsd")), budget=_dollars(budget)
        )
        reserved = row.get("reservedMicroUsd")
        lines.append(line + (words.status_reserved.format(reserved=_dollars(reserved)) if reserved else ""))
    return lines


def _is_anything_spent(spend: object) -> bool:
    rows = spend.get("workspaces") if isinstance(spend, dict) else None
    return any(row.get("spentMicroUsd") or row.get("reservedMicroUsd") for row in rows or [])


def _retention(state: dict[str, object], words: Wording) -> list[str]:
    """What is kept how long and what was removed; nothing while all is kept."""
    waiting = sum(
        count for key in ("expiredWaiting", "beyondCapacity") if isinstance(count := state.get(key), int)
    )
    counts = (
        (words.retention_days, state.get("messageDays")),
        (words.retention_most, state.get("maxSources")),
        (words.retention_waiting, waiting),
    )
    lines = [line.format(count=Count(count)) for line, count in counts if isinstance(count, int) and count]
    last = state.get("lastSweep")
    if isinstance(last, dict):
        lines.append(
            words.retention_swept.format(
                at=last.get("at"),
                expired=last.get("expired"),
                over=last.get("overCapacity"),
                facts=Count(last.get("facts") or 0),
            )
        )
    return lines


def _embedding(state: dict[str, Any], words: Wording) -> list[str]:
    """The model whose vectors answer, and the one that they are made anew for; what is wrong is among the degraded."""
    if state.get("profile") is None:
        return [words.embedding_off]
    lines = [_vectors(state[key], words) for key in ("serving", "building") if state.get(key)]
    if len(lines) > 1:
        lines[1] = words.embedding_building.format(line=lines[1])
    return lines or [state["profile"]["model"]]


def _vectors(vector_set: dict[str, Any], words: Wording) -> str:
    counts = words.status_comma.join(
        words.embedding_counts[key].format(count=Count(vector_set[key]))
        for key in ("vectors", "waiting", "failed", "unknown")
        if key == "vectors" or vector_set[key]
    )
    return words.status_vectors.format(model=vector_set["profile"]["model"], counts=counts)


def _dollars(microusd: object) -> str:
    return f"{(microusd if isinstance(microusd, int) else 0) / MICROUSD:.4f}".rstrip("0").rstrip(".")


def _shown(value: object, words: Wording) -> str:
    match value:
        case dict():
            shown = {key: _nested(part, words) for key, part in value.items() if part}
            parts = [
                f"{words.status_terms.get(key, key)} {part}".replace(" （", "（")
                for key, part in shown.items()
                if part
            ]
            return words.status_comma.join(parts)
        case list():
            return "; ".join(_shown(part, words) for part in value) or words.status_none
        case _:
            return str(value)


def _nested(value: object, words: Wording) -> str:
    shown = _shown(value, words)
    return words.status_nested.format(shown) if shown and isinstance(value, dict) else shown
