"""The composition root: opens an instance, starts what serves it, and closes everything in reverse order.

    lock ▶ database ▶ ledger ▶ recovery ▶ runner and operator socket, in one task group ▶ the caller's channel

What the caller does inside `serving` is the channel. Leaving it, for whatever reason, ends the runs under way as
`agent.runner` says, then the socket, the model's connections, the database and the lock.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pikobot.agent import runs
from pikobot.agent.executor import Brain
from pikobot.agent.indexer import Indexer
from pikobot.agent.learner import Learner
from pikobot.agent.runner import Runner
from pikobot.agent.runs import is_cut_off
from pikobot.agent.sweeper import Sweeper
from pikobot.brains import chat_brain, learning_brain, learning_limits
from pikobot.channels.operator.methods import OperatorContext, call_async, create_context
from pikobot.channels.operator.server import OperatorServer, serve_operator
from pikobot.channels.terminal.commands import MAX_THREADS_SHOWN
from pikobot.channels.terminal.services import TerminalServices
from pikobot.clock import Clock, SystemClock
from pikobot.config import Config
from pikobot.credentials import Secret
from pikobot.instance import Instance
from pikobot.memory import extract
from pikobot.memory.embedding import embed
from pikobot.memory.embedding.engines import Embedding, embedding_of
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.preview import ForgetPreview
from pikobot.memory.forgetting.preview import preview as preview_forgetting
from pikobot.memory.forgetting.receipts import AlreadyErased, Changed, Receipt
from pikobot.memory.forgetting.retention import obey_message_days
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.opening import open_memory
from pikobot.memory.why import Explanation, explain_last_answer
from pikobot.serving import acquire_serving_lock, remove_socket
from pikobot.store.connection import Connection, Database
from pikobot.store.history import recent_requests, recent_requests_in
from pikobot.store.scopes import find_scope, owner_scope, owner_scopes
from pikobot.store.settings import TOLD_MODE, read_setting, write_setting
from pikobot.store.threads import find_thread_by_key

WATCH_EVERY_S = 2.0


@dataclass(frozen=True)
class Service:
    """A served instance, for a channel to work with."""

    instance: Instance
    config: Config
    db: Database
    runner: Runner
    operator: OperatorContext
    worker: asyncio.Task[None]  # executes runs; it ends by itself only when it was told to work until idle
    sweeper: Sweeper | None = None
    learner: Learner | None = None


@asynccontextmanager
async def serving(
    instance: Instance, *, serves_all: bool, until_idle: bool = False, clock: Clock | None = None
) -> AsyncIterator[Service]:
    """Serve an instance while the block runs.

    ``serves_all`` False works only on the threads that are asked in; ``until_idle`` lets the worker end when
    nothing is due. Raises `InstanceBusy` when another process serves it, `ConfigError`, `DamagedData`, also when the
    database is deleted or replaced meanwhile, and whatever ended the block or the worker.
    """
    clock = clock or SystemClock()
    async with AsyncExitStack() as stack:
        stack.enter_context(acquire_serving_lock(instance, clock))
        config = instance.load_config()
        credentials = instance.load_credentials(config)
        db = open_memory(instance.database_path, instance.ledger_path, clock)
        stack.callback(db.close)
        await _recover(db, config)
        answers, learns = chat_brain(config, credentials, clock), learning_brain(config, credentials, clock)
        _close_in_the_end(stack, answers, learns)
        embedding = embedding_of(config, credentials, clock)
        stack.push_async_callback(embedding.aclose)
        indexer = _indexer(db, embedding) if serves_all else None
        sweeper = _sweeper(db, instance, config) if serves_all else None
        learner = _learner(db, learns, config, indexer) if serves_all else None
        wake = _waker(learner, indexer)
        operator = create_context(
            db,
            instance,
            config,
            credentials,
            is_served=True,
            catches_up=not serves_all,
            embedding=embedding,
            indexer_problem=lambda: None if indexer is None else indexer.problem,
            retention_problem=lambda: None if sweeper is None else sweeper.problem,
            on_change=wake,
        )
        runner = Runner(
            db,
            answers,
            owner_scope(),
            message_days=config.retention.message_days,
            serves_all=serves_all,
            learns=config.extraction.enabled,
            on_run_ended=wake,
            queries=operator.queries,
            ledger_path=instance.ledger_path,
        )
        await stack.enter_async_context(_listening(instance, operator, credentials.operator_token))
        stack.push_async_callback(runner.aclose)
        stack.enter_context(_first_failure())
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(_work(runner, (sweeper, learner, indexer), until_idle=until_idle))
            watch = group.create_task(_watch(db))
            try:
                yield Service(instance, config, db, runner, operator, worker, sweeper, learner)
            finally:
                watch.cancel()
                worker.cancel()


def _close_in_the_end(stack: AsyncExitStack, *brains: Brain | None) -> None:
    for brain in brains:
        if brain is not None and brain.close is not None:
            stack.push_async_callback(brain.close)


@asynccontextmanager
async def _listening(
    instance: Instance, operator: OperatorContext, token: Secret | None
) -> AsyncIterator[None]:
    """Answer the operator at the instance's socket, which is there only meanwhile."""
    remove_socket(instance)
    try:
        async with serve_operator(OperatorServer(operator, token), instance.socket_path):
            yield
    finally:
        remove_socket(instance)


async def _recover(db: Database, config: Config) -> None:
    """Give back what a process that was killed had begun."""
    await asyncio.to_thread(obey_message_days, db, config.retention.message_days)
    await db.perform_async(runs.recover)
    await db.perform_async(extract.recover_jobs)
    await db.perform_async(embed.recover_batches)


@contextmanager
def _first_failure() -> Iterator[None]:
    """Task groups raise groups; what reports failures wants the one that came first."""
    try:
        yield
    except BaseExceptionGroup as group:
        first: BaseException = group
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first from None


async def _work(
    runner: Runner, workers: Sequence[Sweeper | Learner | Indexer | None], *, until_idle: bool
) -> None:
    """Everything side by side; until idle one after the other, each with what the one before left."""
    background = [worker for worker in workers if worker is not None]
    if until_idle:
        await runner.serve(until_idle=True)
        for worker in background:
            await worker.serve(until_idle=True)
        return
    async with asyncio.TaskGroup() as group:
        group.create_task(runner.serve())
        for worker in background:
            group.create_task(worker.serve())


async def _watch(db: Database) -> None:
    """End the service when its database is gone: no more may be said that nobody would keep."""
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        db.files.check()


def _sweeper(db: Database, instance: Instance, config: Config) -> Sweeper:
    return Sweeper(db, instance.ledger_path, max_sources=config.retention.max_sources)


def _learner(db: Database, brain: Brain | None, config: Config, indexer: Indexer | None) -> Learner | None:
    if brain is None:
        return None
    return Learner(db, brain, learning_limits(config), on_learned=_waker(indexer))


def _indexer(db: Database, embedding: Embedding) -> Indexer | None:
    return None if embedding.engine is None else Indexer(db, embedding.engine, embedding.limits)


def _waker(*workers: Learner | Indexer | None) -> Callable[[], None]:
    """What tells the background that something was said, or changed by the operator."""

    def wake() -> None:
        for worker in workers:
            if worker is not None:
                worker.wake()

    return wake


def terminal_services(service: Service) -> TerminalServices:
    """What the terminal channel needs of a served instance."""
    db, operator = service.db, service.operator

    async def ask_operator(method: str, params: dict[str, object]) -> dict[str, Any]:
        return await call_async(operator, method, params)

    async def threads() -> list[dict[str, object]]:
        listed = await ask_operator(
            "threads.list", {"scope": str(owner_scope()), "limit": MAX_THREADS_SHOWN + 1}
        )
        return list(listed["threads"])

    async def named(key: str) -> dict[str, object] | None:
        listed = await ask_operator("threads.list", {"scope": str(owner_scope()), "key": key})
        return next(iter(listed["threads"]), None)

    return TerminalServices(
        runner=service.runner,
        status=lambda: ask_operator("status", {}),
        threads=threads,
        named=named,
        is_new_mode=lambda: db.perform_async(_is_new_mode, service.runner.mode),
        recently_said=lambda key: db.read_async(_recently_said, key, db.clock.now_ms()),
        is_cut_off=lambda thread_id: db.read_async(is_cut_off, thread_id),
        why=lambda thread_id: db.read_async(_explain, thread_id, db.clock.now_ms()),
        forget=_Forgetting(db, service.instance.ledger_path),
        completed=service.instance.completed,
    )


def _is_new_mode(db: Database, mode: str) -> bool:
    """Whether the mode is another one than the owner was told last; then it is noted as told."""
    with db.read() as conn:
        if read_setting(conn, TOLD_MODE) == mode:
            return False
    with db.write("note the mode that was told") as tx:
        write_setting(tx, TOLD_MODE, mode)
    return True


def _recently_said(conn: Connection, thread_key: str | None, now_ms: int) -> list[str]:
    if thread_key is None:
        return recent_requests(conn, owner_scopes(conn), now_ms=now_ms, limit=20, max_chars=200)
    scope_id = find_scope(conn, owner_scope())
    thread = None if scope_id is None else find_thread_by_key(conn, scope_id, thread_key)
    if thread is None:
        return []
    return recent_requests_in(conn, thread.id, now_ms=now_ms, limit=20, max_chars=200)


def _explain(conn: Connection, thread_id: str | None, now_ms: int) -> Explanation | None:
    return explain_last_answer(conn, thread_id, scope_ids=owner_scopes(conn), now_ms=now_ms)


@dataclass(frozen=True)
class _Forgetting:
    """`memory.forget` for the terminal: the owner's own scopes of every workspace; off the event loop."""

    db: Database
    ledger_path: Path

    async def preview(self, target: ForgetTarget, *, shows_all: bool) -> ForgetPreview:
        scope_ids = await self.db.read_async(owner_scopes)
        return await asyncio.to_thread(preview_forgetting, self.db, target, scope_ids, shows_all=shows_all)

    async def forget(self, preview: ForgetPreview) -> Receipt | AlreadyErased | Changed:
        return await asyncio.to_thread(forget, self.db, self.ledger_path, preview)
