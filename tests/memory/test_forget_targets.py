"""What can be named to be forgotten, and what then goes."""

import io
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.forgetting.forget import finish_interrupted, forget
from pikobot.memory.forgetting.ledger import check
from pikobot.memory.forgetting.preview import PreviewItem, preview
from pikobot.memory.forgetting.receipts import AlreadyErased, Changed, Receipt
from pikobot.memory.forgetting.rpc import ForgetParams, forget_rpc
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.forgetting.wording import proposal_text
from pikobot.memory.imports import import_jsonl
from pikobot.memory.params import validated
from pikobot.store.connection import Database
from pikobot.store.erasing import erasures
from pikobot.store.scopes import Scope, ScopeId, find_scope, owner_scope
from tests.memory.conversing import attach, exchange, public, read, write
from tests.memory.learning import batch, candidate, commit, learn
from tests.memory.remembering import DAY_MS, MINUTE_MS, StillClock, opened, say


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def db(tmp_path: Path, clock: StillClock) -> Iterator[Database]:
    with opened(tmp_path, clock) as database:
        yield database


def asked(db: Database, path: Path, **params: object) -> dict[str, Any]:
    return forget_rpc(db, path, validated(ForgetParams, params))


def texts(db: Database) -> list[str]:
    return [row[0] for row in read(db, "SELECT text FROM sources ORDER BY id")]


def facts(db: Database) -> list[str]:
    return [row[0] for row in read(db, "SELECT text FROM facts ORDER BY id")]


def moment(text: str) -> int:
    """A time of this machine's clock."""
    return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)


def said_on(db: Database, *days: str) -> None:
    for day in days:
        say(db, f"said on {day}", at_ms=moment(day))


# Facts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"attribute": "dentist_name"},
        {"value": "Dr Zhang 张医生"},
        {"attribute": None, "value": None},
        {"kind": "event"},
    ],
)
def test_the_wording_of_a_forgotten_fact_is_not_learned_under_another_attribute(
    db: Database, path: Path, clock: StillClock, changes: dict[str, Any]
) -> None:
    first, older = say(db, "My dentist is Zhang 张医生", "Again: my dentist is Zhang 张医生")
    as_it_was = {"attribute": "dentist", "value": "Zhang 张医生", "kind": "fact"}
    named = learn(db, "The dentist is Zhang 张医生", first, **as_it_was)
    clock.now += 3 * MINUTE_MS
    asked(db, path, facts=[named])
    found = candidate(db, "The dentist is Zhang 张医生", older, **as_it_was | changes)
    outcome = commit(db, [found], batch(db, older))
    assert (outcome.stored, outcome.rejections, facts(db)) == ((), {"forgotten": 1}, [])


@pytest.mark.parametrize(
    ("said", "again", "text", "value"),
    [
        ("I moved to Porto", "Porto is home", "The owner lives in Porto", "Porto"),
        ("我搬到波尔图了", "家在波尔图", "住在波尔图", "波尔图"),
    ],
)
def test_a_fact_goes_with_all_that_states_it_and_with_what_else_was_made_of_that(
    db: Database, path: Path, said: str, again: str, text: str, value: str
) -> None:
    first, second, other = say(db, said, again, "My cat is Miso")
    named = learn(db, text, first, attribute="home_city", value=value)
    learn(db, text, second, attribute="home_city", value=value)
    learn(db, "has moved", first)
    learn(db, "The cat is called Miso", other)
    exchange(db, "where?", said, reads=[read(db, "SELECT id FROM sources LIMIT 1")[0][0]])

    shown = asked(db, path, facts=[named], dryRun=True)
    assert (shown["direct"], shown["derived"], shown["facts"]["total"]) == (2, 1, 3)
    assert [item["beginning"] for item in shown["items"]] == [said, again, said]
    assert shown["facts"]["items"][0] == {"id": named, "text": text}

    receipt = asked(db, path, facts=[named], token=shown["token"])
    assert (receipt["clean"], receipt["erasedIds"], receipt["removed"]["facts"]) == (True, 6, 3)
    assert (texts(db), facts(db)) == (["My cat is Miso", "where?"], ["The cat is called Miso"])
    assert asked(db, path, facts=[named]) == {"status": "alreadyErased", "ids": 1}
    with db.read() as conn:
        assert check(conn, path) == 6


def test_a_forgotten_fact_is_not_learned_from_what_was_said_before_but_from_what_is_said_after(
    db: Database, path: Path, clock: StillClock
) -> None:
    first, unread = say(db, "I live in Porto", "波尔图是我的家")
    home = {"attribute": "home_city", "value": "Porto"}
    named = learn(db, "lives in Porto", first, **home)
    clock.now += 3 * MINUTE_MS
    asked(db, path, facts=[named])
    assert texts(db) == ["波尔图是我的家"]  # an independent statement, from which nothing was learned yet

    old = commit(db, [candidate(db, "Porto is home", unread, **home)], batch(db, unread))
    assert (old.stored, old.rejections) == ((), {"forgotten": 1})
    assert facts(db) == []
    [later] = say(db, "I live in Porto after all", at_ms=clock.now + 1)
    learn(db, "lives in Porto", later, **home)
    assert facts(db) == ["lives in Porto"]


def test_what_a_forgotten_fact_had_replaced_stands_again_if_its_own_words_still_do(
    db: Database, path: Path
) -> None:
    lisbon, porto = say(db, "I live in Lisbon", "No, in Porto")
    old = learn(db, "lives in Lisbon", lisbon, attribute="home_city", value="Lisbon")
    new = learn(db, "lives in Porto", porto, attribute="home_city", value="Porto")
    write(
        db,
        lambda tx: tx.execute(
            "UPDATE facts SET superseded_by_id = (SELECT id FROM facts WHERE public_id = ?) WHERE public_id = ?",
            (new, old),
        ),
    )
    asked(db, path, facts=[new])
    assert read(db, "SELECT text, superseded_by_id FROM facts") == [("lives in Lisbon", None)]


def test_a_question_that_gave_a_fact_its_context_stays(db: Database, path: Path) -> None:
    question, reply = say(db, "Since when do you swim?", "Since May")
    named = learn(db, "swims since May", reply, depends_on=(question,))
    asked(db, path, facts=[named])
    assert (texts(db), facts(db)) == (["Since when do you swim?"], [])


def test_an_old_database_that_comes_back_loses_the_fact_again(tmp_path: Path, path: Path) -> None:
    copy = tmp_path / "copy"
    with opened(tmp_path) as db:
        [said] = say(db, "I live in Porto")
        named = learn(db, "lives in Porto", said)
    copy.write_bytes((tmp_path / "pikobot.sqlite3").read_bytes())
    with opened(tmp_path) as db:
        asked(db, path, facts=[named])
    copy.replace(tmp_path / "pikobot.sqlite3")
    with opened(tmp_path) as db:
        assert finish_interrupted(db, path).reconciled.replayed == 3
        assert (texts(db), facts(db)) == ([], [])
        assert write(db, erasures.is_erased, named)


# Ids -----------------------------------------------------------------------------------------------


def test_ids_that_are_unknown_are_all_named_and_nothing_goes(db: Database, path: Path) -> None:
    [known] = say(db, "kept")
    named = learn(db, "kept", known)
    with pytest.raises(NotFound, match=r"^sources 'src_x', 'src_y' do not exist; .*nothing was forgotten$"):
        asked(db, path, sources=[known, "src_x", "src_y", "src_x"])
    with pytest.raises(NotFound, match=r"^fact .fact_x. does not exist"):
        asked(db, path, facts=[named, "fact_x"])
    with pytest.raises(NotFound, match="and 5 more do not exist"):
        asked(db, path, sources=[f"src_x{number}" for number in range(15)])
    with pytest.raises(NotFound, match="there is no workspace 'nowhere'"):
        asked(db, path, workspace="nowhere")
    with pytest.raises(NotFound, match="thread 'nowhere' does not exist"):
        asked(db, path, thread="nowhere", **{"from": "2024-03-01"})
    with pytest.raises(NotFound, match="does not exist"):
        forget(db, path, ForgetTarget(facts=(named,)), [ScopeId(0)])
    assert (texts(db), facts(db)) == (["kept"], ["kept"])


def test_a_thread_may_be_named_and_a_name_that_several_have_is_refused(db: Database, path: Path) -> None:
    say(db, "in the workspace main", thread="旅行")
    say(db, "in another", thread="旅行", scope=owner_scope("other"))
    with pytest.raises(InvalidParams, match="several conversations have that name"):
        asked(db, path, thread="旅行")
    with db.read() as conn:
        scope = find_scope(conn, owner_scope())
    assert scope is not None
    assert isinstance(forget(db, path, ForgetTarget(thread="旅行"), [scope]), Receipt)
    assert texts(db) == ["in another"]


# Time ----------------------------------------------------------------------------------------------


def test_a_range_takes_the_days_that_it_names_on_the_owners_clock(db: Database, path: Path) -> None:
    said_on(db, "2024-02-29T23:59:59", "2024-03-01T00:00:00", "2024-03-31T23:59:59", "2024-04-01T00:00:00")
    shown = asked(db, path, **{"from": "2024-03-01", "to": "2024-03-31", "dryRun": True})
    assert shown["range"] == {
        "from": datetime.fromisoformat("2024-03-01").astimezone().isoformat().replace("+00:00", "Z"),
        "before": datetime.fromisoformat("2024-04-01").astimezone().isoformat().replace("+00:00", "Z"),
    }
    assert shown["total"] == 2
    receipt = asked(db, path, **{"from": "2024-03-01", "to": "2024-03-31"})
    assert receipt["removed"]["sources"] == 2
    assert texts(db) == ["said on 2024-02-29T23:59:59", "said on 2024-04-01T00:00:00"]
    assert asked(db, path, to="2024-02-29")["removed"]["sources"] == 1
    assert asked(db, path, **{"from": "2024-04-01T00:00:00"})["removed"]["sources"] == 1
    with pytest.raises(NotFound, match="nothing that is retained matches"):
        asked(db, path, **{"from": "2000-01-01"})


def test_what_nobody_knows_the_time_of_is_in_no_range_and_shown_without_one(db: Database, path: Path) -> None:
    line = {"thread": "old", "role": "user", "text": "波尔图 Porto"}
    import_jsonl(db, io.BytesIO(json.dumps(line).encode()))
    with pytest.raises(NotFound, match="nothing that is retained matches"):
        asked(db, path, **{"from": "2024-02-01", "to": "2024-04-30"})
    shown = preview(db, ForgetTarget(words=("Porto",)))
    assert [item.said for item in shown.items] == [None]
    assert "- no date, you: “波尔图 Porto”\n" in proposal_text(shown, "en")


def test_a_range_takes_answers_of_another_day_that_were_made_from_it(
    db: Database, path: Path, clock: StillClock
) -> None:
    old = exchange(db, "my code is 4711", "noted")
    clock.now += 40 * DAY_MS
    exchange(db, "what is it?", "it is 4711", reads=[old.request])
    asked(db, path, to="2024-03-10")
    assert texts(db) == ["what is it?"]


def test_a_range_can_be_of_a_thread_a_workspace_or_a_text(db: Database, path: Path) -> None:
    march, may = moment("2024-03-05"), moment("2024-05-05")
    for at_ms in (march, may):
        say(db, "about dinner", at_ms=at_ms, thread="a")
        say(db, "about dinner", "about lunch", at_ms=at_ms, thread="b")
        say(db, "about dinner", at_ms=at_ms, thread="c", scope=owner_scope("other"))
    spring = {"from": "2024-03-01", "to": "2024-03-31"}
    assert asked(db, path, thread="a", **spring)["removed"] == {"sources": 1}
    assert asked(db, path, workspace="other", **spring)["removed"] == {"sources": 1}
    shown = asked(db, path, query="DINNER", dryRun=True, **spring)
    assert (shown["total"], asked(db, path, query="DINNER", token=shown["token"], **spring)["erasedIds"]) == (
        1,
        1,
    )
    assert texts(db) == ["about lunch", "about dinner", "about dinner", "about lunch", "about dinner"]
    assert len(read(db, "SELECT id FROM threads")) == 3


def test_the_owners_words_of_a_time_leave_what_others_said(db: Database, path: Path) -> None:
    say(db, "mine", at_ms=moment("2024-03-05"))
    say(db, "theirs", at_ms=moment("2024-03-05"), role="participant", speaker="Ana")
    forget(db, path, ForgetTarget(from_="2024-03-01", to="2024-03-31", owner_only=True))
    assert texts(db) == ["theirs"]


# Workspaces ----------------------------------------------------------------------------------------


def test_a_workspace_goes_whole_and_no_other(db: Database, path: Path) -> None:
    say(db, "我的", "mine", thread="one", scope=owner_scope("work"))
    said = say(db, "in the group", thread="two", scope=Scope("shared", "work", "bot", "-100", "7"))
    learn(db, "a fact of the group", *said, subject="Ana")
    say(db, "elsewhere", thread="one")
    shown = asked(db, path, workspace="work", dryRun=True)
    assert (
        shown["total"],
        shown["facts"]["total"],
        [each["name"] for each in shown["threads"]["items"]],
    ) == (
        3,
        1,
        ["one", "two"],
    )
    receipt = asked(db, path, workspace="work", token=shown["token"])
    assert (receipt["removed"]["sources"], receipt["removed"]["threads"], receipt["clean"]) == (3, 2, True)
    assert (texts(db), facts(db)) == (["elsewhere"], [])
    assert read(db, "SELECT key FROM threads") == [("one",)]
    with pytest.raises(NotFound, match="nothing that is retained matches"):
        asked(db, path, workspace="work")


# Texts and names -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "mention", "other", "fact"),
    [
        ("Melanie", "I had lunch with melanie", "See you", "Melanie paints"),
        ("陈梅", "我和陈梅吃了午饭", "再见", "陈梅会画画"),
    ],
)
def test_forgetting_a_name_takes_what_its_bearer_said_and_what_taught_facts_about_it(
    db: Database, path: Path, name: str, mention: str, other: str, fact: str
) -> None:
    [mentioned] = say(db, mention)
    [theirs] = say(db, other, role="participant", speaker=f"{name} Smith")
    [implied] = say(db, "She paints")
    learn(db, fact, implied, subject="she", entities=(name,))
    [kept] = say(db, "Nothing about her")
    shown = preview(db, ForgetTarget(words=(name,)))
    assert [(item.id, item.held) for item in shown.items] == [
        (mentioned, "text"),
        (theirs, "speaker"),
        (implied, "fact"),
    ]
    assert shown.items[1] == PreviewItem(
        theirs, "participant", f"{name} Smith", "2024-03-01T13:33:20Z", other, "speaker"
    )
    receipt = forget(db, path, shown)
    assert isinstance(receipt, Receipt)
    assert receipt.is_clean
    assert public(db, *[row[0] for row in read(db, "SELECT id FROM sources")]) == [kept]
    assert name.encode() not in db.path.read_bytes()


@pytest.mark.parametrize("word", ["owner", "assistant", "participant", "pikobot"])
def test_what_nobody_was_named_is_no_name(db: Database, word: str) -> None:
    exchange(db, "hello", "hi")
    say(db, "good morning", role="assistant", speaker="assistant")
    say(db, "hey", role="participant", speaker="participant")
    assert preview(db, ForgetTarget(words=(word,))).total == 0


@pytest.mark.parametrize("field", ["value", "subject", "tags", "entities", "text"])
def test_a_text_is_found_in_everything_that_a_fact_holds(db: Database, path: Path, field: str) -> None:
    [said] = say(db, "it is so")
    marked = {"value": "quux", "subject": "Quux", "tags": ("quux-tag",), "entities": ("QUUX",)}
    changes = {field: marked[field]} if field in marked else {}
    if field == "value":
        changes["attribute"] = "nickname"
    learn(db, "says quux" if field == "text" else "is so", said, **changes)
    shown = preview(db, ForgetTarget(words=("quux",)))
    assert [item.held for item in shown.items] == ["fact"]
    forget(db, path, shown)
    assert (texts(db), facts(db), b"quux" in db.path.read_bytes().lower()) == ([], [], False)


def test_several_words_have_to_be_there_all(db: Database) -> None:
    say(db, "I moved to Porto", "I moved house", "Porto is nice", "搬到波尔图")
    assert [item.beginning for item in preview(db, ForgetTarget(words=("PORTO", "moved"))).items] == [
        "I moved to Porto"
    ]


def test_labels_that_keep_a_text_are_told_with_what_removes_them(db: Database, path: Path) -> None:
    say(db, "Melanie called")
    say(db, "see you", thread="Melanie and me")
    [by_id] = say(db, "ok", external_id="melanie-17", thread="other")
    thread = read(db, "SELECT public_id FROM threads WHERE key = 'Melanie and me'")[0][0]
    names = {
        "threads": {"total": 1, "items": [{"id": thread, "name": "Melanie and me"}]},
        "externalIds": {"total": 1, "items": [{"id": by_id, "externalId": "melanie-17"}]},
    }
    shown = asked(db, path, query="melanie", dryRun=True)
    assert (shown["total"], shown["names"]) == (1, names)
    assert asked(db, path, query="melanie", token=shown["token"])["names"] == names
    asked(db, path, thread=thread)
    asked(db, path, sources=[by_id])
    assert b"elanie" not in db.path.read_bytes()


def test_the_labels_are_lines_in_english_and_chinese(db: Database, path: Path) -> None:
    say(db, "波尔图很美")
    say(db, "see you", thread="波尔图", external_id="波尔图-1")
    receipt = forget(db, path, ForgetTarget(words=("波尔图",)))
    assert isinstance(receipt, Receipt)
    thread = read(db, "SELECT public_id FROM threads WHERE key = '波尔图'")[0][0]
    source = read(db, "SELECT public_id FROM sources")[0][0]
    assert receipt.render_lines()[3:5] == [
        f"The name of a conversation keeps it until the conversation is forgotten: “波尔图” (/forget {thread})",
        f"An id from outside keeps it until its message is forgotten: “波尔图-1” (/forget {source})",
    ]
    assert receipt.render_lines("zh")[3:5] == [
        f"话题名称中仍有该文字，删除话题才会消失：“波尔图” (/忘记 {thread})",
        f"外部编号中仍有该文字，删除那条消息才会消失：“波尔图-1” (/忘记 {source})",
    ]


def test_a_thread_of_which_only_erased_things_are_left_loses_its_name(db: Database, path: Path) -> None:
    for text in ("zanzibarite one", "zanzibarite two"):
        say(db, text, thread="about quokkasnout 短尾矮袋鼠")
    shown = asked(db, path, query="zanzibarite", dryRun=True)
    assert [each["name"] for each in shown["threads"]["items"]] == ["about quokkasnout 短尾矮袋鼠"]
    asked(db, path, query="zanzibarite", token=shown["token"])
    data = db.path.read_bytes()
    assert not any(mark.encode() in data for mark in ("quokkasnout", "矮袋鼠", "zanzibarite"))


# Along ---------------------------------------------------------------------------------------------


def test_the_request_that_asks_goes_along_unshown_with_what_was_made_of_it(db: Database, path: Path) -> None:
    say(db, "I moved to Porto", thread="old")
    request = exchange(db, "forget that I moved to Porto")
    [asking] = public(db, request.request)
    target = ForgetTarget(words=("Porto",), along=(asking,))
    shown = preview(db, target)
    assert [item.beginning for item in shown.items] == ["I moved to Porto"]
    attach(db, request.request, b"Porto", "porto.txt")
    assert isinstance(forget(db, path, shown), Receipt)
    assert texts(db) == []


def test_what_has_been_forgotten_meanwhile_is_told(db: Database, path: Path) -> None:
    [said] = say(db, "4711")
    shown = preview(db, ForgetTarget(words=("4711",)))
    forget(db, path, [said])
    assert forget(db, path, shown) == AlreadyErased(1)
    say(db, "4711 again")
    assert forget(db, path, shown) == Changed()


@pytest.mark.parametrize(
    ("name", "statements", "question", "quoted"),
    [
        (
            "Ben",
            "Ben likes tea {}",
            "What does Ben like {}?",
            "This is what was said:\n\n- “Ben likes tea 0”",
        ),
        ("阿杰", "阿杰喜欢喝茶{}", "阿杰喜欢什么{}？", "我找到的原话：\n\n- “阿杰喜欢喝茶0”"),
    ],
)
def test_a_preview_lists_what_people_said_and_counts_questions_and_answers_that_quote(
    db: Database, name: str, statements: str, question: str, quoted: str
) -> None:
    for number in range(7):
        say(db, question.format(number))
        say(db, quoted, role="assistant", speaker="pikobot", origin="recall")
    say(db, f"{name}!!", role="assistant", speaker="pikobot", origin="model")
    said = [statements.format(number) for number in range(12)]
    say(db, *said)
    say(db, f"{name}.", role="participant", speaker="Kim")
    shown = preview(db, ForgetTarget(words=(name,)))
    listed = [*said, f"{name}.", f"{name}!!"]
    assert [item.beginning for item in shown.items] == listed
    assert (shown.total, shown.told, shown.exchanges) == (28, 14, 14)
    every = preview(db, ForgetTarget(words=(name,)), shows_all=True)
    assert [item.beginning for item in every.items][:14] == listed
    assert (len(every.items), every.exchanges) == (28, 0)


def test_questions_are_listed_where_nothing_else_would_be(db: Database) -> None:
    say(db, "Where is Ben?", "阿杰在哪里？")
    for name, question in (("Ben", "Where is Ben?"), ("阿杰", "阿杰在哪里？")):
        shown = preview(db, ForgetTarget(words=(name,)))
        assert ([item.beginning for item in shown.items], shown.exchanges) == ([question], 0)
