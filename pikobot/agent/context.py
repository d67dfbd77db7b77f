"""What the model gets to see of a thread, and what of it an answer depends on.

A thread's messages come in order, the request last, and behind it what is at hand (`at_hand`). When they outgrow
80 % of the room, the oldest are left out until 40 % is used, and a note says so. The cut is a function of the
messages alone, found by replaying how the thread grew: it stays where it is for many turns, so that the prompt keeps
its prefix, and never moves back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pikobot.adapters.chat import Message
from pikobot.agent.at_hand import AtHand, at_hand
from pikobot.agent.prompt import SYSTEM_PROMPT, coverage_note, render_source, stamped
from pikobot.clock import local_utc_offset_min
from pikobot.errors import ProviderError
from pikobot.store.connection import Connection
from pikobot.store.history import conversation_before, since_last_answer
from pikobot.store.runs import Run
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Source, SourceId, load_sources

TRIM_AT = 0.80
TRIM_TO = 0.40
KEEP_NEWEST = 5  # messages: the request, and the two newest runs before it, are never left out
MIN_OUTPUT_TOKENS = 1_024
OUTPUT_SHARE = 0.15
BYTES_PER_TOKEN = 2  # conservative: prose has 4 to 5 in English and Chinese
BYTES_PER_TOKEN_OF_TOOLS = 3  # conservative too: of the descriptions it is known that they are English JSON
AT_HAND_BYTES_PER_CHAR = 8  # two blocks, four bytes for a character at the most
MESSAGE_OVERHEAD_BYTES = 64  # role, time stamp, JSON of participants


@dataclass(frozen=True)
class Room:
    """How many tokens a model's context has for what is sent, and how many are kept for its answer.

    ``tool_bytes`` are those of the descriptions of the tools, which are sent with every request.
    """

    input_tokens: int
    output_tokens: int
    tool_bytes: int = 0

    @property
    def capacity(self) -> int:
        """Bytes that the conversation may take beside system prompt and tools; negative when not even those fit."""
        tool_tokens = -(-self.tool_bytes // BYTES_PER_TOKEN_OF_TOOLS)
        return (self.input_tokens - tool_tokens) * BYTES_PER_TOKEN - len(SYSTEM_PROMPT.encode())

    @classmethod
    def of(cls, *, context_tokens: int, max_output_tokens: int, tool_bytes: int = 0) -> "Room":
        reserve = min(max_output_tokens, max(int(context_tokens * OUTPUT_SHARE), MIN_OUTPUT_TOKENS))
        return cls(context_tokens - reserve, reserve, tool_bytes)


@dataclass(frozen=True)
class Context:
    """A request ready for the model.

    ``shown`` are the sources in it, the request included. ``depends_on`` are those that the answer is recorded
    to depend on: the request, what the facts at hand rest on, and the conversation since the model's answer before
    it, that one included; older messages follow through that answer. Imported answers and those of recall mode
    record no such dependency. ``fact_ids`` are the public ids of the facts at hand.
    """

    messages: tuple[Message, ...]
    shown: tuple[SourceId, ...]
    depends_on: tuple[SourceId, ...]
    left_out: int
    fact_ids: tuple[str, ...] = ()


def build_context(
    conn: Connection, run: Run, request: Source, room: Room | None, *, now_ms: int, with_basics: bool = True
) -> Context:
    """Raises `ProviderError` when the request with its newest context can't fit the model at all.

    ``room`` None is recall mode: nothing is sent, the request stands alone.
    """
    if room is None:
        return Context((Message("user", render_source(request)),), (request.id,), (request.id,), 0)
    entries = [] if run.is_standalone else conversation_before(conn, run.thread_id, run.id, now_ms=now_ms)
    sizes = [
        size + MESSAGE_OVERHEAD_BYTES for size in (*(e.size for e in entries), len(request.text.encode()))
    ]
    start = plan_start(sizes, room.capacity)
    kept = entries[start:]
    spare = room.capacity - sum(sizes[start:])
    if spare < 0:
        raise ProviderError(
            f"the request and the newest messages before it take about {sum(sizes[start:]) // BYTES_PER_TOKEN} "
            f"tokens, the model's context has room for {max(room.capacity, 0) // BYTES_PER_TOKEN}: raise "
            "chat.context_tokens, or start a new thread"
        )
    loaded = load_sources(conn, [entry.source_id for entry in kept], now_ms=now_ms)
    shown = [loaded[entry.source_id] for entry in kept if entry.source_id in loaded]
    known = _at_hand(conn, request.scope_id, spare, with_basics=with_basics, now_ms=now_ms)
    note = coverage_note(start) if start else ""
    return Context(
        messages=(
            Message("system", SYSTEM_PROMPT),
            *(_message(source) for source in shown),
            Message("user", render_source(request) + note + known.text),
        ),
        shown=tuple(dict.fromkeys((*(source.id for source in shown), *known.source_ids, request.id))),
        depends_on=tuple(dict.fromkeys((*since_last_answer(kept), *known.source_ids, request.id))),
        left_out=start,
        fact_ids=known.fact_ids,
    )


def ephemeral_context(
    conn: Connection, text: str, scope_id: ScopeId | None, room: Room, *, now_ms: int, with_basics: bool
) -> tuple[Message, ...]:
    """A request of which nothing is kept: it stands alone, with what is at hand in the scope."""
    request = stamped(text, now_ms, local_utc_offset_min(now_ms))
    spare = room.capacity - len(request.encode())
    known = _at_hand(conn, scope_id, spare, with_basics=with_basics, now_ms=now_ms)
    return Message("system", SYSTEM_PROMPT), Message("user", request + known.text)


def _at_hand(
    conn: Connection, scope_id: ScopeId | None, spare: int, *, with_basics: bool, now_ms: int
) -> AtHand:
    """What is at hand, in what the conversation has left of the room: ``spare`` bytes."""
    max_block_chars = max(spare, 0) // AT_HAND_BYTES_PER_CHAR
    return at_hand(conn, scope_id, with_basics=with_basics, max_block_chars=max_block_chars, now_ms=now_ms)


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
