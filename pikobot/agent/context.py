"""What the model gets to see of a thread, and what of it an answer depends on.

A thread's messages come in order, the request last. When they outgrow 80 % of the room, the oldest are left out
until 40 % is used, and a note says so. The cut is a function of the messages alone, found by replaying how the
thread grew: it stays where it is for many turns, so that the prompt keeps its prefix, and never moves back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pikobot.adapters.chat import Message
from pikobot.agent.prompt import SYSTEM_PROMPT, coverage_note, render_source
from pikobot.errors import ProviderError
from pikobot.store.connection import Connection
from pikobot.store.history import ContextEntry, conversation_before
from pikobot.store.runs import Run
from pikobot.store.sources import Source, SourceId, load_sources

TRIM_AT = 0.80
TRIM_TO = 0.40
KEEP_NEWEST = 5  # messages: the request, and the two newest runs before it, are never left out
MIN_OUTPUT_TOKENS = 1_024
OUTPUT_SHARE = 0.15
BYTES_PER_TOKEN = 2  # conservative: prose has 4 to 5 in English and Chinese
MESSAGE_OVERHEAD_BYTES = 64  # role, time stamp, JSON of participants


@dataclass(frozen=True)
class Room:
    """How many tokens a model's context has for what is sent, and how many are kept for its answer."""

    input_tokens: int
    output_tokens: int

    @classmethod
    def of(cls, *, context_tokens: int, max_output_tokens: int) -> "Room":
        reserve = min(max_output_tokens, max(int(context_tokens * OUTPUT_SHARE), MIN_OUTPUT_TOKENS))
        return cls(input_tokens=context_tokens - reserve, output_tokens=reserve)


@dataclass(frozen=True)
class Context:
    """A request ready for the model.

    ``shown`` are the sources in it, the request included. ``depends_on`` are those that the answer is recorded
    to depend on: the request and the conversation since the model's answer before it, that one included; older
    messages follow through that answer. Imported answers and those of recall mode record no such dependency.
    """

    messages: tuple[Message, ...]
    shown: tuple[SourceId, ...]
    depends_on: tuple[SourceId, ...]
    left_out: int


def build_context(conn: Connection, run: Run, request: Source, room: Room | None, *, now_ms: int) -> Context:
    """Raises `ProviderError` when the request with its newest context can't fit the model at all.

    ``room`` None is recall mode: nothing is sent, the request stands alone.
    """
    if room is None:
        return Context((Message("user", render_source(request)),), (request.id,), (request.id,), 0)
    entries = [] if run.is_standalone else conversation_before(conn, run.thread_id, run.id, now_ms=now_ms)
    capacity = room.input_tokens * BYTES_PER_TOKEN - len(SYSTEM_PROMPT.encode())
    sizes = [
        size + MESSAGE_OVERHEAD_BYTES for size in (*(e.size for e in entries), len(request.text.encode()))
    ]
    start = plan_start(sizes, capacity)
    kept = entries[start:]
    used = sum(sizes[start:])
    if used > capacity:
        raise ProviderError(
            f"the request and the newest messages before it take about {used // BYTES_PER_TOKEN} tokens, the "
            f"model's context has room for {max(capacity, 0) // BYTES_PER_TOKEN}: raise chat.context_tokens, "
            "or start a new thread"
        )
    loaded = load_sources(conn, [entry.source_id for entry in kept], now_ms=now_ms)
    shown = [loaded[entry.source_id] for entry in kept if entry.source_id in loaded]
    return Context(
        messages=(
            Message("system", SYSTEM_PROMPT),
            *(_message(source) for source in shown),
            Message("user", render_source(request) + (coverage_note(start) if start else "")),
        ),
        shown=(*(source.id for source in shown), request.id),
        depends_on=(*_since_last_answer(kept), request.id),
        left_out=start,
    )


def plan_start(sizes: Sequence[int], capacity: int) -> int:
    """Index of the first message to show, given each one's size, the request last, and the room, in bytes."""
    start = used = 0
    for index, size in enumerate(sizes):
        used += size
        if used > capacity * TRIM_AT:
            while used > capacity * TRIM_TO and index - start >= KEEP_NEWEST:
                used -= sizes[start]
                start += 1
    return start


def _message(source: Source) -> Message:
    return Message("assistant" if source.role == "assistant" else "user", render_source(source))


def _since_last_answer(entries: Sequence[ContextEntry]) -> list[SourceId]:
    chain: list[SourceId] = []
    for entry in reversed(entries):
        chain.append(entry.source_id)
        if entry.is_answer:
            break
    return chain[::-1]
