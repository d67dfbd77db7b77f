from pikobot.memory.why import Explanation, explain_last_answer
from pikobot.store.connection import Database
from pikobot.store.facts import cite_facts
from pikobot.store.scopes import owner_scopes
from pikobot.store.sources import SourceId
from tests.memory.conversing import exchange, read, write
from tests.memory.learning import fact, learn
from tests.memory.remembering import DAY_MS, MINUTE_MS, NOW_MS, say


def explain(db: Database, thread: str | None = "chat", *, now_ms: int = NOW_MS) -> Explanation | None:
    public_id = None
    if thread is not None:
        [(public_id,)] = read(db, "SELECT public_id FROM threads WHERE key = ?", thread)
    with db.read() as conn:
        return explain_last_answer(conn, public_id, scope_ids=owner_scopes(conn), now_ms=now_ms)


def ids_of(db: Database, *public_ids: str) -> list[SourceId]:
    return [read(db, "SELECT id FROM sources WHERE public_id = ?", each)[0][0] for each in public_ids]


def test_an_answer_from_the_conversation_alone_says_so(db: Database) -> None:
    first = exchange(db, "I moved to Porto", "Noted.")
    assert first.answer is not None
    exchange(db, "Where?", "To Porto.", reads=[first.answer])
    found = explain(db)
    assert found == Explanation("2024-03-01T13:33:20Z")
    assert found.is_conversation_alone


def test_facts_and_statements_that_were_read_are_told_apart_from_what_was_at_hand(db: Database) -> None:
    home, cat, old = say(db, "我住在波尔图", "My cat is called Miso", "I sold the car", thread="t0")
    at_hand, learned = learn(db, "住在波尔图", home), learn(db, "has a cat called Miso", cat)
    answered = exchange(db, "What about my life?", "Much.", reads=ids_of(db, home, cat, old))
    write(db, cite_facts, answered.run, [at_hand], is_given=True)
    write(db, cite_facts, answered.run, [learned])
    found = explain(db)
    assert found is not None
    assert [text.fact.public_id for text in found.facts] == [learned]
    assert [text.fact.public_id for text in found.at_hand] == [at_hand]
    assert [(each.id, each.role, each.quote) for each in found.statements] == [
        (old, "user", "I sold the car")
    ]
    assert found.facts == (fact(db, learned),)


def test_what_was_at_hand_and_looked_up_as_well_counts_as_looked_up(db: Database) -> None:
    [home] = say(db, "I live in Porto", thread="t0")
    learned = learn(db, "lives in Porto", home)
    answered = exchange(db, "Where?", "In Porto.", reads=ids_of(db, home))
    write(db, cite_facts, answered.run, [learned])
    write(db, cite_facts, answered.run, [learned], is_given=True)
    found = explain(db)
    assert found is not None
    assert ([text.fact.public_id for text in found.facts], found.at_hand) == ([learned], ())


def test_an_older_message_of_the_same_thread_counts_when_it_was_looked_up(db: Database) -> None:
    first = exchange(db, "I moved to Porto", "Noted.")
    second = exchange(db, "Thanks", "You're welcome.")
    assert second.answer is not None
    exchange(db, "Where?", "To Porto.", reads=[first.request, second.request, second.answer])
    found = explain(db)
    assert found is not None
    # The request of the exchange before counts as well: the conversation is what follows the last answer.
    assert [each.quote for each in found.statements] == ["I moved to Porto", "Thanks"]


def test_the_last_run_with_an_answer_is_explained(db: Database) -> None:
    [car] = say(db, "I sold the car", thread="t0")
    exchange(db, "What did I sell?", "The car.", reads=ids_of(db, car))
    exchange(db, "queued")
    exchange(db, "elsewhere", "Yes.", thread="other")
    found, newest = explain(db), explain(db, None)
    assert found is not None
    assert [each.quote for each in found.statements] == ["I sold the car"]
    assert newest is not None
    assert newest.is_conversation_alone


def test_what_is_not_there_is_not_explained(db: Database) -> None:
    assert explain(db, None) is None
    say(db, "I sold the car", thread="chat")
    assert explain(db) is None
    with db.read() as conn:
        assert explain_last_answer(conn, "thr_none", scope_ids=owner_scopes(conn), now_ms=NOW_MS) is None
        exchange(db, "hello", "hi")
        assert explain_last_answer(conn, None, scope_ids=[], now_ms=NOW_MS) is None


def test_a_fact_of_several_statements_is_explained_once_with_all_of_them(db: Database) -> None:
    first, second = say(db, "I live in Porto", "我住在Porto", thread="t0")
    ids = [
        learn(db, "lives in Porto", each, attribute="home_city", value="Porto") for each in (first, second)
    ]
    answered = exchange(db, "Where?", "In Porto.", reads=ids_of(db, first, second))
    write(db, cite_facts, answered.run, ids)
    found = explain(db)
    assert found is not None
    [text] = found.facts
    assert sorted(each.id for each in text.evidence) == sorted([first, second])
    assert found.statements == ()


def test_what_expired_since_is_not_shown(db: Database) -> None:
    [car] = say(db, "I sold the car", thread="t0", expires_at_ms=NOW_MS + MINUTE_MS)
    exchange(db, "What did I sell?", "The car.", reads=ids_of(db, car))
    found = explain(db, now_ms=NOW_MS + DAY_MS)
    assert found is not None
    assert found.is_conversation_alone
