"""A mark of its own in every place that can hold one: gone from the directory, from a new backup, and from an old one.

Whatever names it to be forgotten; English and Chinese alike.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pikobot.instance import Instance
from pikobot.memory.forgetting import proposals
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.memory.forgetting.search import Asked
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.tags import TagParams, tag_fact
from pikobot.store import leases, runs
from pikobot.store.connection import Connection, Database
from pikobot.store.leases import State
from pikobot.store.media import insert_media
from pikobot.store.runs import RunId
from pikobot.store.scopes import ensure_scope, owner_scope
from pikobot.store.sources import NewSource, SourceId, insert_source, link_dependencies
from pikobot.store.threads import ensure_thread
from tests.backup.instances import back_up, files_with, make_instance, opened, restored, texts
from tests.memory.conversing import exchange, public, read, write
from tests.memory.learning import learn

LONG_AGO_MS = 1_600_000_000_000  # 2020-09-13
PLACES = {
    "message": ("kowarigrin", "脊尾袋鼬的秘密"),
    "speaker": ("wombatfoot", "袋熊脚先生"),
    "fact": ("numbatstripe", "袋食蚁兽条纹"),
    "value": ("bilbyears", "兔耳袋狸的耳朵"),
    "entity": ("potoroohop", "长鼻袋鼠跳跃"),
    "alias": ("dunnartdash", "袋鼩飞奔而过"),
    "attachment": ("bettongnest", "草原袋鼠的窝"),
    "file name": ("pademelonpaw", "丛林小袋鼠爪印"),
    "tool result": ("antechinusnap", "宽足袋鼩打盹"),
    "partial answer": ("phascogaletail", "帚尾袋鼩的尾巴"),
    "answer": ("quollspots", "袋鼬的斑点花纹"),
    "thread name": ("glidermoon", "袋鼯的月光之旅"),
    "external id": ("cuscuseyes", "袋貂的大眼睛"),
}
TAG = "koala-nap-zone"
MARKS = [mark for pair in PLACES.values() for mark in pair] + [TAG]


@dataclass(frozen=True)
class Planted:
    source: str
    fact: str
    thread: str


def both(place: str) -> str:
    return " ".join(PLACES[place])


def plant(db: Database) -> Planted:
    """The secret with all that can be made of it, and what stays, in another workspace and another year."""
    source_id, thread = write(db, _secret, db)
    [secret] = public(db, source_id)
    fact = learn(
        db,
        f"it is {both('fact')}",
        secret,
        subject=both("entity"),
        attribute="nickname",
        value=both("alias"),
        entities=(PLACES["entity"][0], PLACES["entity"][1]),
    )
    learn(db, "is so", secret, subject="Ana", attribute="home_city", value=both("value"))
    db.perform(tag_fact, TagParams(id=fact, tags=[TAG]))
    answered = exchange(db, "what is it?", f"it is {both('answer')}", reads=[source_id], thread="asking")
    partial = exchange(db, "go on", f"it is {both('partial answer')}", reads=[source_id], thread="going on")
    write(db, lambda tx: tx.execute("UPDATE sources SET is_partial = 1 WHERE id = ?", (partial.answer,)))
    exchange(
        db, "once more", reads=[source_id], transcript=[both("tool result")], is_leased=True, thread="working"
    )
    asking = exchange(db, "forget it", thread="forgetting", is_leased=True)
    assert asking.lease is not None
    db.perform(proposals.propose, asking.lease, Asked((source_id,)))
    write(db, leases.finish, asking.lease, State.SUCCEEDED, now_ms=db.clock.now_ms())
    assert answered.answer is not None
    return Planted(secret, fact, thread)


def _secret(tx: Connection, db: Database) -> tuple[SourceId, str]:
    scope = ensure_scope(tx, owner_scope("vault"))
    thread = ensure_thread(tx, scope, both("thread name"), db.clock)
    new = NewSource(
        role="participant",
        speaker=both("speaker"),
        scope_id=scope,
        thread_id=thread.id,
        text=f"the secret is {both('message')}",
        origin="imported",
        said_at_ms=LONG_AGO_MS,
        external_id=both("external id"),
        identity=b"i" * 32,
    )
    source_id = insert_source(tx, new, db.clock)
    data = both("attachment").encode()
    insert_media(tx, source_id, data, media_type="text/plain", name=both("file name"), clock=db.clock)
    link_dependencies(tx, source_id, [])
    return source_id, thread.public_id


FORMS: dict[str, Callable[[Planted], ForgetTarget]] = {
    "source": lambda planted: ForgetTarget(sources=(planted.source,)),
    "fact": lambda planted: ForgetTarget(facts=(planted.fact,)),
    "thread": lambda planted: ForgetTarget(thread=planted.thread),
    "range": lambda planted: ForgetTarget(to="2020-12-31"),
    "workspace": lambda planted: ForgetTarget(workspace="vault"),
    "text": lambda planted: ForgetTarget(words=("KowariGrin",)),
    "text in Chinese": lambda planted: ForgetTarget(words=("脊尾袋鼬",)),
    "speaker": lambda planted: ForgetTarget(words=("wombat",)),
    "tag": lambda planted: ForgetTarget(words=("koala-nap",)),
    "entity": lambda planted: ForgetTarget(words=("长鼻袋鼠",)),
}


def erase(instance: Instance, form: Callable[[Planted], ForgetTarget], planted: Planted) -> None:
    with opened(instance) as db:
        receipt = forget(db, instance.ledger_path, form(planted))
        assert isinstance(receipt, Receipt)
        assert receipt.is_clean


@pytest.mark.parametrize("form", FORMS)
def test_no_mark_is_left_in_the_directory_in_a_new_backup_or_after_restoring_an_old_one(
    tmp_path: Path, form: str
) -> None:
    instance = make_instance(tmp_path / "i")
    with opened(instance) as db:
        planted = plant(db)
    old = back_up(instance, tmp_path / "old")
    assert marks_in(instance.root) == marks_in(old) == MARKS

    erase(instance, FORMS[form], planted)
    assert marks_in(instance.root) == []
    assert marks_in(back_up(instance, tmp_path / "new")) == []

    copy = Instance(tmp_path / "copy")
    restored(old, copy.root, instance.ledger_path)
    assert marks_in(copy.root) == []
    restored(old, instance.root)
    assert marks_in(instance.root) == []
    assert marks_in(back_up(instance, tmp_path / "newest")) == []
    left = ["what is it?", "go on", "once more", "forget it"]
    assert [text for text in texts(instance) if text in left] == left


def marks_in(root: Path) -> list[str]:
    """The marks that a file holds, as UTF-8, as UTF-16 or as JSON spells them."""
    return [mark for mark in MARKS if files_with(root, mark, json.dumps(mark)[1:-1])]


def test_the_run_under_way_has_lost_its_lease(tmp_path: Path) -> None:
    instance = make_instance(tmp_path / "i")
    with opened(instance) as db:
        planted = plant(db)
        [(run_id,)] = read(db, "SELECT id FROM runs WHERE state = 'leased'")
    erase(instance, FORMS["range"], planted)
    with opened(instance) as db:
        states: Any = read(db, "SELECT state, lease_token FROM runs WHERE id = ?", run_id)
        assert states == [("queued", None)]
        with db.read() as conn:
            assert runs.load_transcript(conn, RunId(run_id)) == []
