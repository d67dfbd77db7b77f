"""What can happen to an instance, each operation with what it changes in the model."""

import io
import json
from collections.abc import Sequence

from pikobot.agent import runs
from pikobot.agent.context import Room
from pikobot.agent.runs import Claimed, Request, Result
from pikobot.memory.assertions import Assertion, Statement, correct, remember
from pikobot.memory.edits import Edited, edit_source
from pikobot.memory.facts import FactCandidate, Quoted, commit_candidates, snapshots
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.memory.forgetting.retention import Swept, sweep
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.imports import import_jsonl
from pikobot.store.leases import State as RunState
from pikobot.store.scopes import owner_scope
from pikobot.store.sources import find_source
from tests.clock import NOW_MS
from tests.histories.model import DAY_MS, Fact, Mark, Said
from tests.histories.world import Change, World

ROOM = Room(input_tokens=100_000, output_tokens=1_000)
LEASE_MS = 60_000
THREADS = ("旅行", "garden", "家")
MAX_ECHOES = 3  # marks of other things in one text


class History(World):
    """Each operation picks at random what it does, does it, and gives back what the model has to go through."""

    def echo(self, names: Sequence[str]) -> str:
        """The marks of some of them, as what is made from them says them again."""
        chosen = self.some(names, MAX_ECHOES)
        return " ".join(str(self.state.said[name].mark) for name in chosen)

    def say(self) -> Change:
        """A message of the owner, waiting for its answer."""
        mark = self.new_mark()
        text = f"I found {mark.english}, 我发现了{mark.chinese}"
        asked = self.db.perform(
            runs.accept,
            Request(
                text=text, scope=owner_scope(), thread_key=self.chance.choice(THREADS), message_days=self.days
            ),
        )
        [(name, at)] = self.rows(
            "SELECT public_id, said_at_ms FROM sources WHERE run_id = ? AND role = 'user'", asked.run.id
        )

        def apply() -> None:
            self.state.said[name] = Said(
                text=text,
                mark=mark,
                thread=asked.thread.public_id,
                said_at_ms=at,
                run=asked.run.public_id,
                is_request=True,
            )

        return apply

    def claim(self) -> Change:
        """Begin to answer what is due, and go on with other things."""
        if self.claimed is not None:
            return _nothing
        claimed = self.db.perform(runs.claim_next, thread_id=None, model="m", room=ROOM, lease_ms=LEASE_MS)
        if isinstance(claimed, Claimed):
            self.claimed = claimed
            self.claimed_reads = frozenset(self._names(claimed.context.shown))
        return _nothing

    def answer(self) -> Change:
        """End the answer under way; it is lost if something that it has read has gone meanwhile."""
        if self.claimed is None:
            self.claim()
        claimed = self.claimed
        if claimed is None:
            return self.say()
        mark = self.new_mark()
        is_whole = self.claimed_reads <= self.state.said.keys()
        read = [name for name in self._names(claimed.context.depends_on) if name in self.state.said]
        text = f"Noted {mark.english}，记下了{mark.chinese}: {self.echo(read)}"
        result = Result(text=text, origin="model", is_partial=False)
        ended = self.db.perform(runs.finish, claimed, RunState.SUCCEEDED, result)
        assert (ended is not None) == is_whole, (ended, self.claimed_reads)
        self.claimed = None
        if ended is None:
            return _nothing
        [(number, name)] = self.rows(
            "SELECT id, public_id FROM sources WHERE run_id = ? AND role = 'assistant'", claimed.run.id
        )
        made_from = self.rows(
            """
            SELECT s.public_id FROM source_dependencies AS d JOIN sources AS s ON s.id = d.depends_on_id
            WHERE d.source_id = ?
            """,
            number,
        )

        def apply() -> None:
            self.state.said[name] = Said(
                text=text,
                mark=mark,
                thread=claimed.thread.public_id,
                said_at_ms=self.clock.now,
                run=claimed.run.public_id,
                depends_on=frozenset(row[0] for row in made_from),
            )

        return apply

    def _names(self, numbers: Sequence[int]) -> list[str]:
        found = self.rows(
            "SELECT public_id FROM sources WHERE id IN (SELECT value FROM json_each(?))",
            json.dumps([*numbers]),
        )
        return [row[0] for row in found]

    def remember(self) -> Change:
        """A statement that is to be kept; sometimes it corrects a fact."""
        mark = self.new_mark()
        text = f"Remember {mark.english} 记住{mark.chinese}"
        standing = [
            name
            for name, fact in self.state.facts.items()
            if fact.successor is None and all(map(self.is_visible, fact.rests_on))
        ]
        old = self.chance.choice(standing) if standing and self.chance.randrange(2) else None
        if old is None:
            asserted = self.db.perform(remember, Assertion(text=text), Statement(owner_scope()))
        else:
            asserted = self.db.perform(correct, old, Assertion(text=text))
        assert asserted is not None
        name = asserted.fact.evidence[0].source.public_id
        [(thread, at)] = self.rows(
            """
            SELECT t.public_id, s.said_at_ms FROM sources AS s JOIN threads AS t ON t.id = s.thread_id
            WHERE s.public_id = ?
            """,
            name,
        )

        def apply() -> None:
            self.state.said[name] = Said(text=text, mark=mark, thread=thread, said_at_ms=at, is_kept=True)
            fact = Fact(text=text, mark=mark, quoted=frozenset({name}), is_explicit=True)
            self.state.facts[asserted.fact.public_id] = fact
            if old is not None:
                self._supersede(old, asserted.fact.public_id)

        return apply

    def _supersede(self, old: str, new: str) -> None:
        fact = self.state.facts[old]
        self.state.facts[old] = Fact(**{**vars(fact), "successor": new})

    def learn(self) -> Change:
        """A fact from one or two sources of one scope, with one that it needs."""
        there = [name for name in self.visible() if not self.state.said[name].depends_on]
        if not there:
            return self.say()
        quoted = self.some(there, 2)
        context = [name for name in self.some(there, 1) if name not in quoted]
        mark = self.new_mark()
        text = f"The owner {mark.english} 主人{mark.chinese}: {self.echo(quoted)}"
        with self.db.read() as conn:
            sources = [find_source(conn, name, now_ms=self.clock.now) for name in [*quoted, *context]]
        batch = snapshots([source for source in sources if source is not None])
        candidate = FactCandidate(
            text=text,
            subject="someone",
            kind="fact",
            evidence=tuple(Quoted(name, 0, 5) for name in quoted),
            depends_on=tuple(context),
            entities=(mark.english,),
            tags=("found",),
        )
        outcome = self.db.perform(commit_candidates, None, batch, [candidate])
        assert outcome.rejections == {}
        [number] = outcome.stored
        [(name,)] = self.rows("SELECT public_id FROM facts WHERE id = ?", number)

        def apply() -> None:
            self.state.facts[name] = Fact(
                text=text, mark=mark, quoted=frozenset(quoted), context=frozenset(context)
            )

        return apply

    def import_(self) -> Change:
        """Some new records and some old ones, of which those stay out that were erased."""
        for _ in range(self.chance.randrange(4)):
            mark = self.new_mark()
            record = {
                "thread": self.chance.choice(("imported", "导入的")),
                "id": f"record {len(self.records)}",
                "role": self.chance.choice(("user", "participant")),
                "text": f"Long ago {mark.english} 很久以前{mark.chinese}",
                "time": f"2024-02-{self.chance.randint(10, 28)}T00:00:00Z",
            }
            self.records.append(record)
            self.marks[record["id"]] = mark
        chosen = self.some(self.records, 6)
        stream = io.BytesIO(b"".join(json.dumps(record).encode() + b"\n" for record in chosen))
        import_jsonl(self.db, stream, message_days=self.days)
        there = {said.record for said in self.state.said.values()}

        def apply() -> None:
            for record in chosen:
                self._imported(record, there)

        return apply

    def _imported(self, record: dict[str, str], there: set[str | None]) -> None:
        key = record["id"]
        found = self.rows(
            """
            SELECT s.public_id, t.public_id, s.said_at_ms FROM sources AS s JOIN threads AS t ON t.id = s.thread_id
            WHERE s.external_id = ?
            """,
            key,
        )
        at = _time_of(record)
        is_wanted = (
            key not in self.erased.records
            and (key, record["text"]) not in self.erased.revisions
            and (not self.days or at + self.days * DAY_MS > self.clock.now)
        )
        assert bool(found) == (key in there or is_wanted), (key, found)
        if found and key not in there:
            [(name, thread, said_at)] = found
            assert said_at == at
            self.state.said[name] = Said(
                text=record["text"], mark=self.marks[key], thread=thread, said_at_ms=at, record=key
            )

    def forget(self) -> Change:
        """By ids, by a whole thread, by a word, or a fact."""
        target, seeds, also = self._target()
        if target is None:
            return self.say()
        gone = self.state.closure(seeds)
        receipt = forget(self.db, self.ledger, target)
        assert isinstance(receipt, Receipt)
        assert receipt.is_clean

        def apply() -> None:
            self.state.erase(gone, self.erased)
            self.erased.ids |= also

        return apply

    def _target(self) -> tuple[ForgetTarget | None, set[str], set[str]]:
        """What to forget, the sources that it means, and what else is buried."""
        said, facts = list(self.state.said), list(self.state.facts)
        if not said:
            return None, set(), set()
        match self.chance.randrange(4):
            case 0:
                thread = self.state.said[self.chance.choice(said)].thread
                seeds = {name for name in said if self.state.said[name].thread == thread}
                return ForgetTarget(thread=thread), seeds, {thread}
            case 1:
                mark = self.state.said[self.chance.choice(said)].mark
                word = self.chance.choice((mark.english.upper(), mark.chinese))
                return ForgetTarget(words=(word,)), self._holding(mark), set()
            case 2 if facts:
                fact = self.chance.choice(facts)
                return ForgetTarget(facts=(fact,)), {*self.state.facts[fact].quoted}, {fact}
            case _:
                chosen = self.some(said, 2)
                return ForgetTarget(sources=tuple(chosen)), set(chosen), set()

    def _holding(self, mark: Mark) -> set[str]:
        """Sources that say it, and those that are quoted by a fact that does."""
        holding = {name for name, said in self.state.said.items() if mark.english in said.text}
        for fact in self.state.facts.values():
            if mark.english in fact.text:
                holding |= fact.quoted
        return holding

    def edit(self) -> Change:
        there = [name for name in self.visible() if not self.state.said[name].depends_on]
        if not there:
            return self.say()
        name, mark = self.chance.choice(there), self.new_mark()
        text = f"Rather {mark.english}，应该是{mark.chinese}"
        edited = edit_source(self.db, self.ledger, name, text)
        assert isinstance(edited, Edited)
        assert edited.receipt.is_clean
        return lambda: self.state.edit(name, edited.public_id, text, mark, self.erased)

    def sweep(self, max_sources: int = 0) -> Change:
        """What has expired goes, then the oldest beyond the capacity."""
        expired = self.state.closure(name for name in self.state.said if not self.is_visible(name))
        gone: set[str] = set()
        while True:
            done = sweep(self.db, self.ledger, max_sources=max_sources, started_ms=self.clock.now)
            if done is None:
                break
            assert done.is_clean
            gone |= _sources_in(done)
        assert expired <= gone
        assert max_sources or expired == gone
        assert self.state.closure(gone) == gone
        explicit = {name for fact in self.state.facts.values() if fact.is_explicit for name in fact.rests_on}
        assert not (explicit & gone - expired)
        return lambda: self.state.erase(gone, self.erased)

    def sweep_beyond(self) -> Change:
        return self.sweep(max(len(self.state.said) - self.chance.randrange(4), 1))

    def fork(self) -> None:
        """Go on, go back and forget, and come back to what was made meanwhile: the ledger knows nothing of that."""
        self.keep()
        for operate in self.chance.choices((self.say, self.answer, self.learn, self.import_, self.edit), k=3):
            self.change(operate, is_killed=False)
        self.keep()
        before, after = self.kept[-2:]
        self.go_back_to(before)
        self.change(self.chance.choice((self.forget, self.edit)), is_killed=False)
        self.go_back_to(after)


def _nothing() -> None:
    pass


def _sources_in(done: Swept) -> set[str]:
    return {each.public_id for each in done.removed.tombstones if each.entity == "source"}


def _time_of(record: dict[str, str]) -> int:
    day = int(record["time"][8:10])
    return NOW_MS - NOW_MS % DAY_MS - (30 - day) * DAY_MS
