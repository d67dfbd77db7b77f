"""One instance and its model: opened, killed, taken back to what was kept of it, and compared.

`operations.History` adds what happens in it.
"""

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pikobot.agent import runs
from pikobot.agent.runs import Claimed
from pikobot.backup.archive import create_backup
from pikobot.backup.restore import restore
from pikobot.backup.verify import verify_instance
from pikobot.config_file import set_values
from pikobot.instance import Instance
from pikobot.memory.forgetting.ledger import check as check_ledger
from pikobot.memory.forgetting.retention import obey_message_days
from pikobot.memory.opening import open_memory
from pikobot.memory.recall.answers import answer_from_memory
from pikobot.memory.records import Page
from pikobot.memory.search import SearchParams, search
from pikobot.store.connection import Connection, Database
from pikobot.store.inspection import inspect
from pikobot.store.scopes import find_scope, owner_scope
from tests.clock import NOW_MS
from tests.histories.model import DAY_MS, Erased, Mark, State
from tests.histories.snapshots import Killer, copy_files

LETTERS = "bcdfghjklmnpqrstvwxz"

T = TypeVar("T")
Change = Callable[[], None]
"""Changes the model as an operation has changed the instance."""


class WorldClock:
    """Moves when told to; ids count upwards and have one length."""

    def __init__(self) -> None:
        self.now = NOW_MS
        self._tokens = 0

    def now_ms(self) -> int:
        return self.now

    def token(self, prefix: str) -> str:
        self._tokens += 1
        return f"{prefix}_{self._tokens:06}"


@dataclass(frozen=True)
class Kept:
    """A backup, which has settings of its own, or an old copy of the database, with what it held."""

    path: Path
    state: State
    days: int
    is_backup: bool


@dataclass
class World:
    """``erased`` and ``state`` are what the instance is compared with; ``days`` is its retention."""

    directory: Path
    chance: random.Random
    killer: Killer
    clock: WorldClock = field(default_factory=WorldClock)
    state: State = field(default_factory=State)
    erased: Erased = field(default_factory=Erased)
    days: int = 0
    records: list[dict[str, str]] = field(default_factory=list)
    marks: dict[str, Mark] = field(default_factory=dict)  # of the texts of records
    kept: list[Kept] = field(default_factory=list)
    claimed: Claimed | None = None
    claimed_reads: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.instance = Instance(self.directory / "i")
        self.db = self._open()

    # The instance --------------------------------------------------------------------------------------------

    def _open(self) -> Database:
        """As a process that serves does it."""
        db = open_memory(self.instance.database_path, self.instance.ledger_path, self.clock)
        obey_message_days(db, self.instance.load_config().retention.message_days)
        db.perform(runs.recover)
        self.claimed = None
        return db

    def close(self) -> None:
        self.db.close()

    def rows(self, sql: str, *bindings: Any) -> list[tuple[Any, ...]]:
        with self.db.read() as conn:
            return conn.execute(sql, bindings).fetchall()

    @property
    def ledger(self) -> Path:
        return self.instance.ledger_path

    # What is there -------------------------------------------------------------------------------------------

    def new_mark(self) -> Mark:
        english = "".join(self.chance.choices(LETTERS, k=9))
        return Mark(english, "".join(chr(self.chance.randrange(0x4E00, 0x9FA5)) for _ in range(5)))

    def is_visible(self, name: str) -> bool:
        return self.state.expiry(name, self.days) > self.clock.now

    def visible(self) -> list[str]:
        return [name for name in self.state.said if self.is_visible(name)]

    def some(self, things: Sequence[T], most: int) -> list[T]:
        """One or more of them, in any order; none when there are none."""
        return self.chance.sample(things, min(self.chance.randint(1, most), len(things)))

    # Changes -------------------------------------------------------------------------------------------------

    def change(self, operate: Callable[[], Change], *, is_killed: bool, in_parts: bool = False) -> None:
        """Carry an operation out in both; killed at one of its steps, the instance is as before it or as after it.

        What goes ``in_parts`` may have gone in part.
        """
        if not is_killed:
            operate()()
            return
        state, erased, target = self.state.copy(), self.erased.copy(), self.directory / "killed"
        shutil.rmtree(target, ignore_errors=True)
        with self.killer.killing(self.instance.root, target):
            apply = operate()
        apply()
        if target.exists():
            self.close()
            shutil.rmtree(self.instance.root)
            copy_files(target, self.instance.root)
            self.db = self._open()
            if self.held() != self.expected():
                gone = self._gone(state) if in_parts else set()
                assert gone <= self.erased.ids
                self.state, self.erased = state, erased
                self.state.erase(gone, self.erased)

    def _gone(self, before: State) -> set[str]:
        """What is there no more, with all that was made of it."""
        gone = before.said.keys() - {row[0] for row in self.rows("SELECT public_id FROM sources")}
        assert before.closure(gone) == gone
        return {*gone}

    # Time and settings ---------------------------------------------------------------------------------------

    def wait(self) -> None:
        self.clock.now += self.chance.randrange(1, 12) * DAY_MS

    def set_days(self) -> None:
        """Another retention; it is obeyed from the next start on, which comes at once."""
        self.days = self.chance.choice((0, 0, 12, 30, 60))
        text = self.instance.config_path.read_text()
        self.close()
        self.instance.config_path.write_text(set_values(text, [("retention.message_days", str(self.days))]))
        self.db = self._open()

    def restart(self) -> None:
        self.close()
        self.db = self._open()

    # Backups and copies --------------------------------------------------------------------------------------

    def back_up(self) -> None:
        self.close()
        path = self.directory / f"backup{len(self.kept)}"
        create_backup(self.instance, path, clock=self.clock)
        self.kept.append(Kept(path, self.state.copy(), self.days, is_backup=True))
        self.db = self._open()

    def copy_database(self) -> None:
        self.close()
        path = self.directory / f"copy{len(self.kept)}"
        shutil.copy(self.instance.database_path, path)
        self.kept.append(Kept(path, self.state.copy(), self.days, is_backup=False))
        self.db = self._open()

    def keep(self) -> None:
        """A backup, or a copy of the database."""
        self.chance.choice((self.back_up, self.copy_database))()

    def go_back(self) -> None:
        """To any backup or copy there is."""
        if self.kept:
            self.go_back_to(self.chance.choice(self.kept))
        else:
            self.keep()

    def go_back_to(self, kept: Kept) -> None:
        self.close()
        if kept.is_backup:
            restore(kept.path, self.instance.root, clock=self.clock)
            self.days = kept.days
        else:
            for end in ("-wal", "-shm"):
                Path(f"{self.instance.database_path}{end}").unlink(missing_ok=True)
            shutil.copy(kept.path, self.instance.database_path)
        self._come_back(kept)

    def _come_back(self, kept: Kept) -> None:
        self.db = self._open()
        self.state = kept.state.copy()
        self.state.erase(self.state.erased_again(self.erased), self.erased)

    # Comparison ----------------------------------------------------------------------------------------------

    def held(self) -> object:
        """What the database holds, in the terms of `expected`."""
        facts = self.rows(
            """
            SELECT f.public_id, f.text, n.public_id FROM facts AS f LEFT JOIN facts AS n ON n.id = f.superseded_by_id
            """
        )
        return dict(self.rows("SELECT public_id, text FROM sources")), {row[0]: row[1:] for row in facts}

    def expected(self) -> object:
        said = {name: said.text for name, said in self.state.said.items()}
        return said, {name: (fact.text, fact.successor) for name, fact in self.state.facts.items()}

    def check(self) -> None:
        """What was erased is in no file and no answer; what was not is still there, byte for byte."""
        assert self.held() == self.expected()
        with self.db.read() as conn:
            assert inspect(conn) == []
            check_ledger(conn, self.ledger)
            self._check_answers(conn)
        self._check_files()

    def _check_answers(self, conn: Connection) -> None:
        names = list(self.state.said)
        hidden = [self.state.said[name].mark for name in names if not self.is_visible(name)]
        for name in self.some(self.visible(), 3):
            for query in (self.state.said[name].mark.english, self.state.said[name].mark.chinese):
                page = self._search(conn, query)
                assert any(name in record.source_ids for record in page.records), (name, query)
        for mark in self.some([*hidden, *sorted(self.erased.marks, key=str)], 4):
            for query in (mark.english, mark.chinese, f"Where is {mark.english} {mark.chinese}?"):
                page = self._search(conn, query)
                answer = answer_from_memory(
                    conn,
                    f"Where is {mark.english} {mark.chinese}?",
                    scope_id=find_scope(conn, owner_scope()),
                    request_id=None,
                    now_ms=self.clock.now,
                )
                shown = [*(record.text for record in page.records), answer.text]
                assert not any(mark.english in text or mark.chinese in text for text in shown), query

    def _search(self, conn: Connection, query: str) -> Page:
        params = SearchParams.model_validate({"query": query, "limit": 50})
        return search(conn, params, allowed_scopes=None, now_ms=self.clock.now)

    def _check_files(self) -> None:
        for path in self.instance.root.rglob("*"):
            if path.is_file() and not path.name.endswith("-shm"):
                content = path.read_bytes()
                for mark in self.erased.marks:
                    forms = (mark.english.encode(), mark.chinese.encode(), mark.chinese.encode("utf-16-le"))
                    assert not any(form in content for form in forms), (path.name, mark)

    def verify(self) -> None:
        """`pikobot verify` finds nothing either."""
        self.close()
        findings = verify_instance(self.instance, self.clock)
        self.db = self._open()
        assert [finding for finding in findings if finding.state != "ok"] == []
