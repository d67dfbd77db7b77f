"""The composition root: opens an instance, starts what serves it, and closes everything in reverse order.

    lock ▶ database ▶ ledger ▶ recovery ▶ runner and operator socket, in one task group ▶ the caller's channel

What the caller does inside `serving` is the channel. Leaving it, for whatever reason, ends the runs under way as
`agent.runner` says, then the socket, the model's connections, the database and the lock.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from pikobot.adapters.openai_chat import ChatEndpoint, OpenAIChatModel
from pikobot.adapters.prices import Prices
from pikobot.agent import runs
from pikobot.agent.accounting import Tariff
from pikobot.agent.context import Room
from pikobot.agent.executor import Brain
from pikobot.agent.runner import Runner
from pikobot.agent.runs import interruptions
from pikobot.channels.operator.methods import OperatorContext, answer, create_context
from pikobot.channels.operator.server import OperatorServer, serve_operator
from pikobot.channels.terminal.services import TerminalServices
from pikobot.clock import Clock, SystemClock
from pikobot.config import Config
from pikobot.credentials import Credentials
from pikobot.instance import Instance
from pikobot.serving import acquire_serving_lock, prepare_socket_path, remove_socket
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from pikobot.store.scopes import owner_scope

MICROUSD = 1_000_000


@dataclass(frozen=True)
class Service:
    """A served instance, for a channel to work with."""

    instance: Instance
    config: Config
    db: Database
    runner: Runner
    operator: OperatorContext
    worker: asyncio.Task[None]  # executes runs; it ends by itself only when it was told to work until idle


@asynccontextmanager
async def serving(
    instance: Instance, *, serves_all: bool, until_idle: bool = False, clock: Clock | None = None
) -> AsyncIterator[Service]:
    """Serve an instance while the block runs.

    ``serves_all`` False works only on the threads that are asked in; ``until_idle`` lets the worker end when
    nothing is due. Raises `InstanceBusy` when another process serves it, `ConfigError`, `DamagedData`, and
    whatever ended the block or the worker.
    """
    clock = clock or SystemClock()
    config = instance.load_config()
    credentials = instance.load_credentials(config)
    async with AsyncExitStack() as stack:
        stack.enter_context(acquire_serving_lock(instance, clock))
        db = open_database(instance.database_path, clock)
        stack.callback(db.close)
        await db.perform_async(runs.recover)
        model = chat_model(config, credentials, clock)
        if model is not None:
            stack.push_async_callback(model.aclose)
        runner = Runner(
            db,
            None if model is None else brain(config, model),
            owner_scope(),
            message_days=config.retention.message_days,
            serves_all=serves_all,
        )
        operator = create_context(db, config, credentials, is_served=True)
        stack.callback(remove_socket, instance)
        server = OperatorServer(operator, credentials.operator_token)
        await stack.enter_async_context(serve_operator(server, prepare_socket_path(instance)))
        stack.push_async_callback(runner.aclose)
        stack.enter_context(_first_failure())
        async with asyncio.TaskGroup() as group:
            worker = group.create_task(runner.serve(until_idle=until_idle))
            try:
                yield Service(instance, config, db, runner, operator, worker)
            finally:
                worker.cancel()


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


def chat_model(config: Config, credentials: Credentials, clock: Clock) -> OpenAIChatModel | None:
    """The configured chat model; None in recall mode. Nothing is contacted."""
    if not config.chat.is_model_on(has_key=credentials.chat_api_key is not None):
        return None
    key = credentials.chat_api_key
    endpoint = ChatEndpoint(
        base_url=config.chat.base_url,
        model=config.chat.model,
        api_key=None if key is None else key.reveal(),
        key_variable=credentials.origins.get("chat_api_key", "PIKOBOT_CHAT_API_KEY"),
    )
    return OpenAIChatModel(endpoint, silence_timeout_s=config.chat.timeout_s, clock=clock)


def brain(config: Config, model: OpenAIChatModel) -> Brain:
    """The model with what it may cost and how much fits into it."""
    prices = config.chat.prices()
    room = Room.of(context_tokens=config.chat.context_tokens, max_output_tokens=config.chat.max_output_tokens)
    tariff = Tariff(
        model=model.name,
        prices=None
        if prices is None
        else Prices.per_million(prices.input, prices.cached_input, prices.output),
        price_remedy=config.chat.price_remedy(),
        limits=runs.Limits(
            run_microusd=int(config.budget.run_usd * MICROUSD),
            workspace_month_microusd=int(config.budget.workspace_usd_per_month * MICROUSD),
        ),
        max_output_tokens=room.output_tokens,
    )
    return Brain(model=model, tariff=tariff, room=room, run_timeout_s=config.chat.run_timeout_s)


def terminal_services(service: Service) -> TerminalServices:
    """What the terminal channel needs of a served instance."""
    db, operator = service.db, service.operator

    async def ask_operator(method: str, params: dict[str, object]) -> dict[str, Any]:
        return await db.read_async(answer, operator, method, params)

    async def threads() -> list[dict[str, object]]:
        listed = await ask_operator("threads.list", {"scope": str(owner_scope())})
        return list(listed["threads"])

    async def interrupted(thread_id: str) -> list[str]:
        return await db.read_async(interruptions, thread_id)

    return TerminalServices(
        runner=service.runner,
        status=lambda: ask_operator("status", {}),
        threads=threads,
        interrupted=interrupted,
        forget=None,
    )
