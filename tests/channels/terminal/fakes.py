"""A scripted runner and the services around it: events as written, no network, no database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pikobot.agent.events import Event, RunEnded, TextDelta
from pikobot.channels.terminal.services import TerminalServices
from pikobot.errors import PikobotError
from pikobot.memory.forgetting.preview import ForgetPreview, PreviewItem
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.why import Explanation
from pikobot.store.leases import State

THREAD_ID = "thr_aaaaaaaaaaaaaaaaaaaa"
SOURCE_ID = "src_bbbbbbbbbbbbbbbbbbbb"


@dataclass(frozen=True)
class Hang:
    """Stands in a script for a provider that says nothing more until the run is stopped."""


Script = Sequence[Event | Hang]


def answer(*pieces: str) -> Script:
    return [*map(TextDelta, pieces), RunEnded(State.SUCCEEDED, "".join(pieces))]


class FakeAnswering:
    run_id = "run_1"

    def __init__(self, script: Script, thread_id: str, *, ignores_stop: bool) -> None:
        self.thread_id = thread_id
        self.stops = 0
        self._script = script
        self._stopped = asyncio.Event()
        self._ignores_stop = ignores_stop

    async def events(self) -> AsyncIterator[Event]:
        for item in self._script:
            await asyncio.sleep(0)
            if isinstance(item, Hang):
                await self._stopped.wait()
            else:
                yield item
            if self._stopped.is_set():
                yield RunEnded(State.CANCELLED, "")
                return

    async def stop(self) -> None:
        self.stops += 1
        if not self._ignores_stop:
            self._stopped.set()


@dataclass
class FakeRunner:
    scripts: list[Script]
    mode: Literal["model", "recall"] = "model"
    model: str | None = "scripted-1"
    error: PikobotError | None = None
    ignores_stop: bool = False
    asked: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    answerings: list[FakeAnswering] = field(default_factory=list)
    stopped_threads: list[str] = field(default_factory=list)

    async def ask(
        self,
        text: str,
        *,
        thread_key: str | None = None,
        thread_id: str | None = None,
        is_standalone: bool = False,
    ) -> FakeAnswering:
        asked = {"thread_key": thread_key, "thread_id": thread_id, "is_standalone": is_standalone}
        self.asked.append((text, {key: value for key, value in asked.items() if value}))
        return self._start(thread_id or THREAD_ID)

    async def ask_ephemeral(self, text: str) -> FakeAnswering:
        self.asked.append((text, {"is_ephemeral": True}))
        return self._start("")

    async def stop_thread(self, thread_id: str) -> int:
        self.stopped_threads.append(thread_id)
        return 2

    def _start(self, thread_id: str) -> FakeAnswering:
        if self.error is not None:
            raise self.error
        self.answerings.append(FakeAnswering(self.scripts.pop(0), thread_id, ignores_stop=self.ignores_stop))
        return self.answerings[-1]


@dataclass(frozen=True)
class FakeReceipt:
    count: int
    is_clean: bool = True

    def render_lines(self, language: str) -> list[str]:
        return [f"erased {self.count} sources"]


@dataclass
class FakeForget:
    statements: Sequence[str] = ("I moved to Porto\nin March", "我搬到了波尔图")
    previewed: list[ForgetTarget] = field(default_factory=list)
    erased: list[int] = field(default_factory=list)

    async def preview(self, target: ForgetTarget, *, shows_all: bool) -> ForgetPreview:
        self.previewed.append(target)
        items = tuple(PreviewItem(SOURCE_ID, "user", "owner", "2024-03-02", text) for text in self.statements)
        return ForgetPreview(target=target, scope_ids=None, token="token", items=items, direct=len(items))

    async def forget(self, preview: ForgetPreview) -> FakeReceipt:
        self.erased.append(preview.total)
        return FakeReceipt(preview.total)


@dataclass
class FakeInstance:
    runner: FakeRunner
    forget: FakeForget = field(default_factory=FakeForget)
    threads: list[dict[str, object]] = field(default_factory=list)
    is_cut_off: bool = False
    told_mode: str | None = None
    said: list[str] = field(default_factory=list)
    explanation: Explanation | None = None
    explained: list[str | None] = field(default_factory=list)

    @property
    def services(self) -> TerminalServices:
        return TerminalServices(
            runner=self.runner,
            status=self._status,
            threads=self._threads,
            named=self._named,
            is_new_mode=self._is_new_mode,
            recently_said=self._recently_said,
            is_cut_off=self._is_cut_off,
            why=self._why,
            forget=self.forget,
        )

    async def _status(self) -> dict[str, object]:
        return STATUS

    async def _threads(self) -> list[dict[str, object]]:
        return self.threads

    async def _why(self, thread_id: str | None) -> Explanation | None:
        self.explained.append(thread_id)
        return self.explanation

    async def _named(self, name: str) -> dict[str, object] | None:
        return next((thread for thread in self.threads if thread.get("key") == name), None)

    async def _is_new_mode(self) -> bool:
        is_new, self.told_mode = self.told_mode != self.runner.mode, self.runner.mode
        return is_new

    async def _recently_said(self, thread: str | None) -> list[str]:
        return self.said

    async def _is_cut_off(self, thread_id: str) -> bool:
        return self.is_cut_off


def scripted(*scripts: Script) -> FakeInstance:
    return FakeInstance(FakeRunner(list(scripts)))


PORTO: dict[str, object] = {
    "id": THREAD_ID,
    "key": "porto",
    "scope": "private",
    "createdAt": "2024-03-01T09:00:00Z",
    "lastSaidAt": "2024-03-02T09:30:00Z",
    "messages": 4,
    "beginning": "I moved to\nPorto in March",
}

STATUS: dict[str, object] = {
    "version": "0.1.0",
    "schemaVersion": 1,
    "instanceId": "ins_x",
    "served": True,
    "mode": "model",
    "model": "scripted-1",
    "counts": {"sources": 12, "threads": 3, "runs": {"queued": 0, "succeeded": 5}},
    "unknownOutcomes": 1,
    "spend": {
        "since": "2024-03-01T00:00:00Z",
        "workspaces": [{"workspace": "main", "spentMicroUsd": 12_300, "reservedMicroUsd": 500}],
        "workspaceBudgetMicroUsd": 5_000_000,
    },
    "degraded": ["no embeddings yet: text search only", "budget nearly used up"],
}
