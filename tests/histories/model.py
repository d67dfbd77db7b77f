"""What an instance has to hold and what it must not, in plain Python.

A `State` is what one database holds; a backup and an old copy of the file have states of their own, and what was lost
by going back to one of them is in no state any more. `Erased` only grows, whatever database is there: what it names
must be in no file and in no answer ever again.

Every source and every fact has two marks of its own, an English and a Chinese one, which stand in its text and in the
texts of what was made from it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Mark:
    """Words that stand nowhere else."""

    english: str
    chinese: str

    def __str__(self) -> str:
        return f"{self.english} {self.chinese}"


@dataclass(frozen=True, kw_only=True)
class Said:
    """A source, under its public id. ``depends_on`` are ids; ``record`` is what an import recognises it by."""

    text: str
    mark: Mark
    thread: str
    said_at_ms: int
    run: str | None = None
    is_request: bool = False
    is_kept: bool = False  # a statement that was asked to be kept: it has no expiry
    record: str | None = None
    depends_on: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Fact:
    """``successor`` is the id of the fact that has replaced it."""

    text: str
    mark: Mark
    quoted: frozenset[str]
    context: frozenset[str] = frozenset()
    is_explicit: bool = False
    successor: str | None = None

    @property
    def rests_on(self) -> frozenset[str]:
        return self.quoted | self.context


@dataclass
class Erased:
    """Ids, outside records with the texts that are not to be imported again, and marks."""

    ids: set[str] = field(default_factory=set)
    records: set[str] = field(default_factory=set)
    revisions: set[tuple[str, str]] = field(default_factory=set)
    marks: set[Mark] = field(default_factory=set)

    def copy(self) -> "Erased":
        return Erased({*self.ids}, {*self.records}, {*self.revisions}, {*self.marks})


@dataclass
class State:
    """In the order in which things were stored."""

    said: dict[str, Said] = field(default_factory=dict)
    facts: dict[str, Fact] = field(default_factory=dict)

    def copy(self) -> "State":
        return State({**self.said}, {**self.facts})

    def closure(self, seeds: Iterable[str]) -> set[str]:
        """What goes with them: what depends on it, and what came along with a request."""
        gone = {seed for seed in seeds if seed in self.said}
        while True:
            runs = {each.run for name, each in self.said.items() if name in gone and each.is_request}
            more = {
                name
                for name, each in self.said.items()
                if name not in gone
                and (each.depends_on & gone or (each.run is not None and each.run in runs))
            }
            if not more:
                return gone
            gone |= more

    def erase(self, gone: set[str], erased: Erased) -> None:
        """Take a closure out with the facts that rest on it."""
        for name in gone:
            each = self.said.pop(name)
            erased.marks.add(each.mark)
            if each.record is not None and name not in erased.ids:  # else it was an older revision
                erased.records.add(each.record)
            erased.ids.add(name)
        self._drop_facts(gone, erased)

    def edit(self, name: str, new_name: str, text: str, mark: Mark, erased: Erased) -> None:
        """Another text under another id, in the old place; what was made from the old one goes."""
        before = self.said[name]
        self.erase(self.closure({name}) - {name}, erased)
        self._drop_facts({name}, erased)
        erased.ids.add(name)
        erased.marks.add(before.mark)
        if before.record is not None:
            erased.revisions.add((before.record, before.text))
        after = replace(before, text=text, mark=mark)
        self.said = {
            new_name if each == name else each: after if each == name else said
            for each, said in self.said.items()
        }

    def expiry(self, name: str, days: int) -> float:
        """When it expires under a retention of so many days; an answer with the first of what it was made from."""
        said = self.said[name]
        if not days or said.is_kept:
            return float("inf")
        if said.depends_on:
            return min(self.expiry(each, days) for each in said.depends_on)
        return said.said_at_ms + days * DAY_MS

    def erased_again(self, erased: Erased) -> set[str]:
        """What goes when this state comes back after all that was erased meanwhile."""
        seeds = {
            name
            for name, each in self.said.items()
            if name in erased.ids or each.thread in erased.ids or each.record in erased.records
        }
        for name, fact in self.facts.items():
            if name in erased.ids:
                seeds |= fact.quoted
        return self.closure(seeds)

    def _drop_facts(self, gone: set[str], erased: Erased) -> None:
        for name in [name for name, fact in self.facts.items() if fact.rests_on & gone]:
            lost = self.facts.pop(name)
            erased.marks.add(lost.mark)
            for other, fact in self.facts.items():
                if fact.successor == name:
                    self.facts[other] = replace(fact, successor=lost.successor)
