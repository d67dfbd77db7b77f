"""A random web of threads, requests, answers, attachments and facts, and what forgetting does to it in plain Python.

`Graph` is the oracle: it knows nothing of SQL, walks the edges one by one, and says what has to be left.
"""

import random
from dataclasses import dataclass, field

from pikobot.clock import Clock
from pikobot.store import leases, runs
from pikobot.store.connection import Connection
from pikobot.store.facts import FactId, NewFact, Quote, store_fact, supersede_facts
from pikobot.store.leases import State
from pikobot.store.scopes import ScopeId, ensure_scope, owner_scope
from pikobot.store.sources import Kind, NewSource, Role, SourceId, insert_source, link_dependencies
from pikobot.store.threads import ThreadId, ensure_thread

WORDS = ("porto", "dentist", "波尔图", "牙医", "garden key", "花园钥匙", "tea", "茶")
NAMES = ("Ana", "安娜", "Rex", "陈医生", "Porto", "Bob")


@dataclass(frozen=True)
class Node:
    """A source. ``depends_on`` are other nodes."""

    thread: int
    run: int | None
    is_request: bool
    depends_on: frozenset[int]


@dataclass
class Statement:
    """A fact, with the nodes that it quotes or needs, its names, and the fact that has replaced it."""

    rests_on: frozenset[int]
    names: frozenset[str]
    successor: int | None = None


@dataclass
class Graph:
    """What is stored, by the ids of the rows."""

    nodes: dict[int, Node] = field(default_factory=dict)
    statements: dict[int, Statement] = field(default_factory=dict)
    waiting_runs: set[int] = field(default_factory=set)  # runs that are not finished
    runs: dict[int, int] = field(default_factory=dict)  # their threads

    def closure(self, seeds: set[int]) -> set[int]:
        """Walk until nothing is added: what depends on a node, and what came along with a request."""
        gone = {seed for seed in seeds if seed in self.nodes}
        while True:
            asked = {self.nodes[node].run for node in gone if self.nodes[node].is_request}
            more = {
                number
                for number, node in self.nodes.items()
                if number not in gone
                and (node.depends_on & gone or (node.run is not None and node.run in asked))
            }
            if not more:
                return gone
            gone |= more

    def dependants(self, number: int) -> set[int]:
        """What goes when the text of a node that nobody has answered with changes."""
        run = self.nodes[number].run if self.nodes[number].is_request else None
        made = {
            other
            for other, node in self.nodes.items()
            if number in node.depends_on
            or (run is not None and node.run == run and node.depends_on and not node.is_request)
        }
        return self.closure(made) - {number}

    def forget(self, gone: set[int]) -> set[int]:
        """Take the nodes out with all that rests on them; returns the threads that are left empty."""
        touched = {self.nodes[number].thread for number in gone}
        for number in gone:
            node = self.nodes.pop(number)
            if node.is_request and node.run in self.waiting_runs:
                self.waiting_runs.remove(node.run)
        for lost in [number for number, each in self.statements.items() if each.rests_on & gone]:
            successor = self.statements.pop(lost).successor
            for each in self.statements.values():
                if each.successor == lost:
                    each.successor = successor
        busy = {node.thread for node in self.nodes.values()} | {self.runs[run] for run in self.waiting_runs}
        emptied = touched - busy
        self.runs = {run: thread for run, thread in self.runs.items() if thread not in emptied}
        return emptied

    @property
    def names(self) -> set[str]:
        return {name for statement in self.statements.values() for name in statement.names}


def build(tx: Connection, clock: Clock, random_: random.Random, count: int) -> Graph:
    """Store about so many sources with a third as many facts, and the same in a graph."""
    return _Builder(tx, clock, random_).build(count)


@dataclass
class _Builder:
    tx: Connection
    clock: Clock
    random: random.Random
    graph: Graph = field(default_factory=Graph)

    def build(self, count: int) -> Graph:
        scope = ensure_scope(self.tx, owner_scope())
        threads = [
            ensure_thread(self.tx, scope, f"thread {number}", self.clock).id
            for number in range(max(count // 40, 3))
        ]
        while len(self.graph.nodes) < count:
            thread = self.random.choice(threads)
            match self.random.randrange(6):
                case 0 | 1:
                    self._message(scope, thread)
                case 2:
                    self._waiting(scope, thread)
                case _:
                    self._exchange(scope, thread)
        for _ in range(count // 3):
            self._fact(scope)
        return self.graph

    def _source(
        self,
        scope: ScopeId,
        thread: ThreadId,
        *,
        role: Role,
        run: int | None = None,
        kind: Kind = "message",
        depends_on: frozenset[int] = frozenset(),
    ) -> int:
        new = NewSource(
            role=role,
            speaker=role,
            kind=kind,
            scope_id=scope,
            thread_id=thread,
            run_id=run,
            text=" ".join(self.random.choices(WORDS, k=5)),
            origin="model" if role == "assistant" else "said",
            said_at_ms=self.clock.now_ms() + len(self.graph.nodes),
        )
        number = insert_source(self.tx, new, self.clock)
        link_dependencies(self.tx, number, [SourceId(each) for each in depends_on])
        is_request = role == "user" and kind == "message"
        self.graph.nodes[number] = Node(thread, run, is_request, depends_on)
        return number

    def _message(self, scope: ScopeId, thread: ThreadId) -> None:
        self._source(scope, thread, role="participant")

    def _run(self, thread: ThreadId) -> int:
        run = runs.insert_run(self.tx, thread, is_standalone=False, clock=self.clock)
        self.graph.runs[run.id] = thread
        return run.id

    def _waiting(self, scope: ScopeId, thread: ThreadId) -> None:
        run = self._run(thread)
        self.graph.waiting_runs.add(run)
        self._source(scope, thread, role="user", run=run)

    def _exchange(self, scope: ScopeId, thread: ThreadId) -> None:
        """A request, sometimes an attachment, and an answer that has read some of what was there."""
        run = self._run(thread)
        read = self._some(self.random.choice((0, 0, 0, 1, 1, 2)))
        request = self._source(scope, thread, role="user", run=run)
        if self.random.randrange(4) == 0:
            self._source(scope, thread, role="user", run=run, kind="attachment")
        self._source(scope, thread, role="assistant", run=run, depends_on=frozenset({request, *read}))
        lease = leases.claim(
            self.tx, "runs", run, token=f"lease {run}", now_ms=self.clock.now_ms(), lease_ms=1
        )
        assert lease is not None
        leases.finish(self.tx, lease, State.SUCCEEDED, now_ms=self.clock.now_ms())

    def _some(self, count: int) -> set[int]:
        """Of what is there; the newest more often, as in conversations."""
        there = list(self.graph.nodes)
        newest = there[-30:]
        return {
            self.random.choice(there if self.random.randrange(3) == 0 else newest)
            for _ in range(count)
            if there
        }

    def _fact(self, scope: ScopeId) -> None:
        quoted = self._some(self.random.choice((1, 1, 1, 2)))
        context = self._some(self.random.choice((0, 0, 1))) - quoted
        names = frozenset(self.random.sample(NAMES, self.random.randrange(3)))
        number = len(self.graph.statements)
        new = NewFact(
            scope_id=scope,
            text=f"fact {number}",
            evidence=tuple(Quote(SourceId(each), 0, 3) for each in sorted(quoted)),
            context=tuple(SourceId(each) for each in sorted(context)),
            kind="fact",
            basis="inferred",
            entities=tuple(names),
            tags=("tag",),
        )
        fact = store_fact(self.tx, new, self.clock).fact_id
        self.graph.statements[fact] = Statement(frozenset(quoted | context), names)
        older = [
            other for other, each in self.graph.statements.items() if each.successor is None and other != fact
        ]
        if older and self.random.randrange(3) == 0:
            replaced = self.random.choice(older)
            supersede_facts(self.tx, [FactId(replaced)], fact)
            self.graph.statements[replaced].successor = fact
