import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.channels.terminal.explaining import why_lines
from pikobot.channels.terminal.wording import EN, ZH, Wording
from pikobot.memory.assertions import Assertion, CurrentMessage, correct
from pikobot.memory.imports import import_jsonl
from pikobot.memory.why import Explanation, explain_last_answer
from pikobot.store.connection import Database
from pikobot.store.facts import cite_facts
from pikobot.store.scopes import owner_scopes
from tests.memory.conversing import exchange, read, write
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, MINUTE_MS, NOW_MS, opened, say

from .fakes import THREAD_ID, answer, scripted
from .test_once import run


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as db:
        yield db


def explain(db: Database) -> Explanation:
    with db.read() as conn:
        found = explain_last_answer(conn, None, scope_ids=owner_scopes(conn), now_ms=db.clock.now_ms())
    assert found is not None
    return found


def story(db: Database) -> None:
    """A home that was corrected, an answer that confirms a question, a third party's word, a preference at hand."""
    [lisbon] = say(db, "I live in\nLisbon", thread="t0", at_ms=NOW_MS - 700 * DAY_MS)
    old = learn(db, "The owner lives in Lisbon", lisbon, attribute="home_city", value="Lisbon")
    asked = exchange(db, "不对，我住在波尔图", thread="t1", is_leased=True)
    done = db.perform(
        correct,
        old,
        Assertion(text="我住在波尔图", value="波尔图"),
        CurrentMessage(asked.lease, asked.request),
    )
    assert done is not None
    [question] = say(
        db, "Do you like it?", role="assistant", speaker="pikobot", thread="t2", at_ms=NOW_MS - DAY_MS
    )
    [reply] = say(db, "Yes, since May", thread="t2", at_ms=NOW_MS - DAY_MS + MINUTE_MS)
    likes = learn(db, "The owner has liked Porto since May", reply, depends_on=(question,))
    [ana] = say(db, "Miso eats fish", role="participant", speaker="Ana", thread="t3")
    brief = learn(
        db, "wants short answers", *say(db, "Keep it short, please", thread="t4"), kind="preference"
    )
    read_ids = [row[0] for row in read(db, "SELECT id FROM sources WHERE text <> 'x' ORDER BY id")]
    answered = exchange(db, "Tell me about home", "You live in Porto.", thread="chat", reads=read_ids)
    write(db, cite_facts, answered.run, [done.fact.public_id, likes])
    write(db, cite_facts, answered.run, [brief], is_given=True)
    ids = {lisbon: "src_lisbon", question: "src_question", reply: "src_reply", ana: "src_ana"}
    ids[read(db, "SELECT public_id FROM sources WHERE text LIKE '不对%'")[0][0]] = "src_correction"
    ids[read(db, "SELECT public_id FROM sources WHERE text LIKE 'Keep%'")[0][0]] = "src_short"
    for public_id, name in ids.items():
        write(
            db,
            lambda tx, *values: tx.execute("UPDATE sources SET public_id = ? WHERE public_id = ?", values),
            name,
            public_id,
        )


def test_every_memory_stands_with_quote_day_speaker_and_how_to_forget_it(db: Database) -> None:
    story(db)
    assert "\n".join(why_lines(explain(db), EN)) == (
        """\
The last answer, of 2024-03-01 13:33, had this before it, beside the conversation itself:

Looked up in memory:
• 我住在波尔图 [you asked to remember it]
    2024-03-01, you: “我住在波尔图”  (/forget src_correction)
    it replaced: The owner lives in Lisbon — 2022-04-01, you: “I live in Lisbon”  (/forget src_lisbon)
• The owner has liked Porto since May [drawn from what was said]
    2024-02-29, you: “Yes, since May”  (/forget src_reply)
    understood from: 2024-02-29, the assistant: “Do you like it?”  (/forget src_question)

Statements that were read:
• 2024-03-01, Ana: “Miso eats fish”  (/forget src_ana)

At hand in every answer:
• wants short answers [drawn from what was said]
    2024-03-01, you: “Keep it short, please”  (/forget src_short)

Forgetting a statement forgets everything that was made from it."""
    )


def test_it_is_said_in_chinese_as_well(db: Database) -> None:
    story(db)
    assert "\n".join(why_lines(explain(db), ZH)) == (
        """\
上一个回答（2024-03-01 13:33）除对话本身外，还依据了：

查到的记忆：
• 我住在波尔图 ［你要求记住的］
    2024-03-01，你：“我住在波尔图”（/忘记 src_correction）
    取代了：The owner lives in Lisbon — 2022-04-01，你：“I live in Lisbon”（/忘记 src_lisbon）
• The owner has liked Porto since May ［从说过的话中得出］
    2024-02-29，你：“Yes, since May”（/忘记 src_reply）
    联系上文：2024-02-29，助手：“Do you like it?”（/忘记 src_question）

读过的原话：
• 2024-03-01，Ana：“Miso eats fish”（/忘记 src_ana）

每次回答都带着的：
• wants short answers ［从说过的话中得出］
    2024-03-01，你：“Keep it short, please”（/忘记 src_short）

忘记一条原话，会一并忘记由它得出的一切。"""
    )


def test_a_contradiction_and_a_later_correction_are_named(db: Database) -> None:
    lisbon, porto = say(db, "I live in Lisbon", "I live in Porto", thread="t0")
    facts = [
        learn(db, f"lives in {city}", said, attribute="home_city", value=city)
        for said, city in ((lisbon, "Lisbon"), (porto, "Porto"))
    ]
    answered = exchange(db, "Where?", "In Lisbon or Porto.")
    write(db, cite_facts, answered.run, facts[:1])
    conflict = [line.strip() for line in why_lines(explain(db), EN)]
    assert (
        f"contradicted by: lives in Porto — 2024-03-01, you: “I live in Porto”  (/forget {porto})" in conflict
    )
    assert db.perform(correct, facts[0], Assertion(text="I live in Braga", value="Braga")) is not None
    lines = [line.strip() for line in why_lines(explain(db), EN)]
    [replaced] = [line for line in lines if line.startswith("replaced since by: ")]
    assert replaced.startswith(
        "replaced since by: I live in Braga — 2024-03-01, you: “I live in Braga”  (/forget "
    )


@pytest.mark.parametrize(("words", "said"), [(EN, "no date, you: “swims”"), (ZH, "日期不明，你：“swims”")])
def test_what_was_imported_without_a_date_is_explained_without_one(
    db: Database, words: Wording, said: str
) -> None:
    import_jsonl(db, io.BytesIO(b'{"thread":"t0","role":"user","text":"swims"}'))
    exchange(db, "Do I swim?", "Yes.", reads=[row[0] for row in read(db, "SELECT id FROM sources")])
    assert any(said in line for line in why_lines(explain(db), words))


def test_much_is_bounded_and_says_how_much_is_left_out(db: Database) -> None:
    sources = say(db, *(f"{number} " + "long " * 400 for number in range(30)), thread="t0")
    ids = [row[0] for row in read(db, "SELECT id FROM sources ORDER BY id")]
    exchange(db, "Tell me", "Much.", reads=ids)
    lines = why_lines(explain(db), EN)
    assert sum(line.startswith("• ") for line in lines) == 20
    assert "… and 10 more" in lines
    assert max(map(len, lines)) < 400
    assert len(sources) == 30


def test_an_answer_without_memory_and_no_answer_at_all_are_said_plainly(db: Database) -> None:
    exchange(db, "hello", "hi")
    assert why_lines(explain(db), EN) == ["The last answer used no memory: nothing but this conversation."]
    assert why_lines(explain(db), ZH) == ["上一个回答没有使用记忆，只用了这段对话。"]
    assert why_lines(None, EN) == ["There is no answer to explain here yet."]


def test_the_command_explains_the_named_thread_or_the_newest_answer() -> None:
    instance = scripted(answer("never"))
    instance.threads = [{"id": THREAD_ID, "key": "porto"}]
    instance.explanation = Explanation("2024-03-01T13:33:20Z")
    assert run(instance, "/why", thread="porto") == (0, EN.why_conversation_alone + "\n", "")
    assert run(instance, "/为什么") == (0, ZH.why_conversation_alone + "\n", "")
    assert run(instance, "/why", thread="unheard of") == (0, EN.why_no_answer + "\n", "")
    assert instance.explained == [THREAD_ID, None]
    assert instance.runner.asked == []
