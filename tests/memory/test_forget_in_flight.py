"""Whatever is under way with something when it is forgotten, by whichever name, can commit nothing of it afterwards."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pikobot.memory import extract
from pikobot.memory.embedding import embed
from pikobot.memory.embedding.contract import Embedded
from pikobot.memory.embedding.embed import ClaimedBatch
from pikobot.memory.extract import ClaimedJob, LearningLimits
from pikobot.memory.facts import Committed, commit_candidates
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.imports import import_jsonl
from pikobot.store import leases
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import State
from pikobot.store.scopes import owner_scope
from pikobot.store.sources import SourceId, find_source
from tests.memory.conversing import Exchange, exchange, public, read, write
from tests.memory.learning import candidate, learn
from tests.memory.meaning import profile, vector
from tests.memory.remembering import NOW_MS, opened, say

LIMITS = LearningLimits(1_000_000, 1_000_000, 10)
SECRET = {"en": "my code is zanzibarite", "zh": "我的密码是紫水晶藏宝图"}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


FORMS: dict[str, Callable[[str, str], ForgetTarget]] = {
    "source": lambda source, fact: ForgetTarget(sources=(source,)),
    "fact": lambda source, fact: ForgetTarget(facts=(fact,)),
    "thread": lambda source, fact: ForgetTarget(thread="secrets"),
    "range": lambda source, fact: ForgetTarget(from_="2024-02-01", to="2024-02-29"),
    "owner's words": lambda source, fact: ForgetTarget(to="2024-02-29", owner_only=True),
    "workspace": lambda source, fact: ForgetTarget(workspace="vault"),
    "text": lambda source, fact: ForgetTarget(words=("zanzibarite",)),
    "文字": lambda source, fact: ForgetTarget(words=("紫水晶",)),
    "text of a thread and time": lambda source, fact: ForgetTarget(
        words=("code",), thread="secrets", to="2024-02-29"
    ),
}


IN_ONE_LANGUAGE = {"text": "en", "文字": "zh", "text of a thread and time": "en"}
EVERY_FORM = pytest.mark.parametrize(
    ("form", "text"),
    [
        (form, SECRET[language])
        for form in FORMS
        for language in (("en", "zh") if form not in IN_ONE_LANGUAGE else (IN_ONE_LANGUAGE[form],))
    ],
)


def plant(db: Database, text: str) -> str:
    """The secret, alone in its thread, its workspace and its month, beside something that stays."""
    say(db, "good morning 早上好", at_ms=NOW_MS, thread="chat")
    [secret] = say(db, text, at_ms=NOW_MS - 10 * 86_400_000, thread="secrets", scope=owner_scope("vault"))
    return secret


def forgotten(db: Database, form: str, secret: str) -> Receipt:
    """Forget the secret by that form; a fact of it is learned first where that is what is named."""
    fact = learn(db, "has a code", secret) if form == "fact" else ""
    outcome = forget(db, db.path.with_name("erasures.jsonl"), FORMS[form](secret, fact))
    assert isinstance(outcome, Receipt)
    assert outcome.is_clean
    return outcome


def source_id(db: Database, public_id: str) -> SourceId:
    with db.read() as conn:
        found = find_source(conn, public_id, now_ms=NOW_MS)
    assert found is not None
    return found.id


def reading(db: Database, secret: str) -> Exchange:
    """A run of the owner's chat that has read the secret, with a tool's result."""
    return exchange(
        db,
        "code?",
        transcript=["it is said"],
        reads=[source_id(db, secret)],
        is_leased=True,
        thread="chat",
    )


@EVERY_FORM
def test_a_run_that_has_read_it_loses_its_lease_and_begins_again(db: Database, form: str, text: str) -> None:
    secret = plant(db, text)
    running = reading(db, secret)
    receipt = forgotten(db, form, secret)
    assert running.lease is not None
    assert (receipt.removed.runs_cancelled, receipt.removed.runs_requeued) == (0, 1)
    assert not write(db, leases.finish, running.lease, State.SUCCEEDED, now_ms=NOW_MS)
    assert read(db, "SELECT * FROM run_transcript") == read(db, "SELECT * FROM run_sources") == []
    assert [row[0] for row in read(db, "SELECT text FROM sources ORDER BY id")] == [
        "good morning 早上好",
        "code?",
    ]


@EVERY_FORM
def test_what_is_learned_from_it_at_that_moment_is_not_stored(db: Database, form: str, text: str) -> None:
    secret = plant(db, text)
    queued = write(db, _queue, db, secret)
    assert queued == 1
    claimed = db.perform(extract.claim_job, LIMITS)
    assert isinstance(claimed, ClaimedJob)
    assert [turn.text for turn in claimed.turns] == [text]
    said = candidate(db, "has a code", secret)
    forgotten(db, form, secret)
    outcome = db.perform(commit_candidates, claimed.lease, claimed.snapshots, [said])
    assert outcome.result in (Committed.LEASE_LOST, Committed.SOURCES_CHANGED)
    assert read(db, "SELECT * FROM facts") == []
    assert read(db, "SELECT state FROM extraction_jobs WHERE state IN ('queued', 'leased')") == []


def _queue(tx: Connection, db: Database, secret: str) -> int:
    found = find_source(tx, secret, now_ms=NOW_MS)
    assert found is not None
    return extract.queue_sources(tx, [found], run_id=None, clock=db.clock)


@EVERY_FORM
def test_what_is_embedded_at_that_moment_gets_no_vector(db: Database, form: str, text: str) -> None:
    secret = plant(db, text)
    batches = [db.perform(embed.claim_batch, profile(), limit=10, lease_ms=60_000) for _ in range(2)]
    claimed = [batch for batch in batches if isinstance(batch, ClaimedBatch)]
    assert f"owner: {text}" in [each.text for batch in claimed for each in batch.texts]
    forgotten(db, form, secret)
    for batch in claimed:
        embedded = Embedded([vector(each.text) for each in batch.texts], 1)
        db.perform(embed.commit_batch, batch, embedded, None)
    left = read(db, "SELECT id FROM sources")
    assert read(db, "SELECT owner_id FROM vectors WHERE owner_kind = 'source'") == left
    assert len(left) == 1


@pytest.mark.parametrize("text", SECRET.values(), ids=SECRET)
def test_a_request_that_is_part_of_it_is_cancelled_and_commits_nothing(db: Database, text: str) -> None:
    plant(db, text)
    waiting = exchange(db, "and then?", thread="later")
    running = exchange(db, "what now?", transcript=["x"], is_leased=True, thread="now")
    assert running.lease is not None
    names = public(db, waiting.request, running.request)
    outcome = forget(db, db.path.with_name("erasures.jsonl"), ForgetTarget(workspace="main"))
    assert isinstance(outcome, Receipt)
    assert outcome.removed.runs_cancelled == 2
    assert not write(db, leases.finish, running.lease, State.SUCCEEDED, now_ms=NOW_MS)
    assert [row[0] for row in read(db, "SELECT text FROM sources")] == [text]
    assert read(db, "SELECT count(*) FROM erasures WHERE public_id IN (?, ?)", *names) == [(2,)]


@pytest.mark.parametrize("form_", ["thread", "range", "workspace"])
def test_a_second_import_of_it_stays_out(db: Database, tmp_path: Path, form_: str) -> None:
    lines = [
        {
            "thread": "secrets",
            "workspace": "vault",
            "role": "user",
            "text": text,
            "time": "2024-02-10T12:00:00",
        }
        for text in SECRET.values()
    ]
    stream = "".join(json.dumps(line) + "\n" for line in lines).encode()
    assert import_jsonl(db, io.BytesIO(stream)).added == 2
    outcome = forget(db, tmp_path / "erasures.jsonl", FORMS[form_]("", ""))
    assert isinstance(outcome, Receipt)
    report = import_jsonl(db, io.BytesIO(stream))
    assert (report.added, report.erased) == (0, 2)
