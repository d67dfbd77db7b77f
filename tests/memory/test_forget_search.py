"""What a request to forget in the owner's own words proposes, without a model."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from pikobot.memory.forgetting.preview import ForgetPreview
from pikobot.memory.forgetting.requests import read_request
from pikobot.memory.forgetting.search import Asked, Reach, find_asked
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.forgetting.wording import proposal_text
from pikobot.memory.forgetting.words import ForgetRequest
from pikobot.memory.language.questions import language_of
from pikobot.store.connection import Database
from pikobot.store.scopes import find_scope, owner_scope
from pikobot.store.sources import find_source
from pikobot.store.threads import find_thread_by_key
from tests.memory.remembering import DAY_MS, NOW_MS, opened, say

TODAY = date(2024, 3, 1)
PREVIEW = ForgetPreview(target=ForgetTarget(sources=("src_1",)), scope_ids=None, token="t")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def found(db: Database, asked: str) -> tuple[Reach, list[str]]:
    hits, texts = asked_in(db, asked)
    return hits.reach, texts


def asked_in(db: Database, asked: str) -> tuple[Asked, list[str]]:
    [asking] = say(db, asked, thread="asking")
    request = read_request(asked, TODAY, is_alone=True)
    assert request is not None
    with db.read() as conn:
        scope_id = find_scope(conn, owner_scope())
        assert scope_id is not None
        thread = find_thread_by_key(conn, scope_id, "asking")
        assert thread is not None
        hits = find_asked(conn, request, asking=asking, thread=thread, workspace="main", now_ms=NOW_MS)
        texts = {row[0]: str(row[1]) for row in conn.execute("SELECT id, text FROM sources").fetchall()}
        assert find_source(conn, asking, now_ms=NOW_MS) is not None
        by_id = {row[0]: row[1] for row in conn.execute("SELECT id, public_id FROM sources").fetchall()}
    loose = [each for each in hits.source_ids if by_id[each] in hits.loose]
    assert (len(loose), bool(loose)) == (len(hits.loose), hits.reach is not Reach.ALL)
    return hits, [texts[each] for each in hits.source_ids]


@pytest.mark.parametrize(
    ("statement", "question", "asked"),
    [
        ("Plan: ski week in Serra", "Where are we skiing?", "forget about skiing"),
        ("The dentists moved to Rua Nova", "When is the dentist?", "forget my dentist"),
        ("我搬到了波尔图", "我什么时候搬到波尔图？", "请忘记我搬到波尔图的事"),
    ],
)
def test_a_question_in_the_very_words_hides_no_statement(
    db: Database, statement: str, question: str, asked: str
) -> None:
    say(db, statement, "something else", "别的事", question)
    assert found(db, asked) == (Reach.ALL, [statement, question])


@pytest.mark.parametrize(
    ("corrected", "correction", "asked"),
    [
        ("借给张伟两千五", "更正：张伟借的是三千", "忘掉张伟借钱的事"),
        ("12月12日上午九点要去陈医生看牙", "牙医改到12月15日", "忘记我的牙医"),
        ("Marco owes me 250", "Correction: Marco's debt is 300", "forget Marco's debt"),
    ],
)
def test_what_was_corrected_is_shown_with_its_correction(
    db: Database, corrected: str, correction: str, asked: str
) -> None:
    say(db, corrected, "My cat is Miso", correction, "今天天气不错")
    reach, texts = found(db, asked)
    assert (reach, sorted(texts)) == (Reach.SOME, sorted([corrected, correction]))


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("could you delete my wifi password hint?", "The wifi password is the name of our first dog"),
        ("Can you forget my knee pain?", "My knee hurts when I run"),
        ("forget my mom's birthday", "Mother's birthday is 12 May"),
        ("forget the money I lent to Marco", "Lent Marco 250 euros"),
        ("忘掉我借给张伟的钱", "借给张伟两千五"),
        ("请忘记我家的备用钥匙放在哪里", "家里的备用钥匙在花盆下面"),
    ],
)
def test_where_nothing_holds_all_the_words_the_nearest_is_shown_as_such(
    db: Database, asked: str, nearest: str
) -> None:
    say(
        db,
        "The wifi password is the name of our first dog",
        "My knee hurts when I run",
        "Mother's birthday is 12 May",
        "Lent Marco 250 euros",
        "借给张伟两千五",
        "家里的备用钥匙在花盆下面",
        "我喜欢喝茶",
    )
    assert found(db, asked) == (Reach.NEAREST, [nearest])
    assert found(db, asked)[1][-1] == nearest  # also beside the request before, which holds all of the words


def test_what_holds_nothing_of_the_words_is_not_near(db: Database) -> None:
    say(db, "I like tea", "我喜欢喝茶")
    assert found(db, "forget my dentist") == (Reach.ALL, [])
    assert found(db, "忘掉我的牙医") == (Reach.ALL, [])


@pytest.mark.parametrize(
    ("asked", "texts"),
    [
        ("忘掉小美说的话", ["我下个月要搬去上海", "小美说她要辞职"]),
        ("忘掉小美的话", ["我下个月要搬去上海", "小美说她要辞职"]),
        ("忘掉小美说过的一切", ["我下个月要搬去上海", "小美说她要辞职"]),
        ("把小美跟我说的都忘了", ["我下个月要搬去上海", "小美说她要辞职"]),
        ("忘掉小美和她说的一切", ["我下个月要搬去上海", "小美说她要辞职", "小美的生日是五月"]),
        ("forget what Gina said", ["I quit my job", "Gina told me a secret"]),
        ("forget everything Gina told me", ["I quit my job", "Gina told me a secret"]),
        ("delete Gina's messages", ["I quit my job", "Gina told me a secret"]),
        ("forget Gina and everything she said", ["I quit my job", "Gina told me a secret", "Gina is 40"]),
    ],
)
def test_what_somebody_said_is_found_by_who_spoke(db: Database, asked: str, texts: list[str]) -> None:
    say(db, "我下个月要搬去上海", role="participant", speaker="小美")
    say(db, "I quit my job", role="participant", speaker="Gina")
    say(db, "我不信", role="participant", speaker="阿强")
    say(db, "小美说她要辞职", "Gina told me a secret", "小美的生日是五月", "Gina is 40")
    assert found(db, asked) == (Reach.ALL, texts)


@pytest.mark.parametrize("asked", ["forget what Rui said", "忘掉小红说的话"])
def test_of_somebody_who_never_spoke_what_tells_of_that_one_is_shown(db: Database, asked: str) -> None:
    say(db, "Rui is my brother", "小红是我妹妹")
    assert found(db, asked)[1] == (["Rui is my brother"] if asked.isascii() else ["小红是我妹妹"])


def test_a_part_of_a_word_is_near_where_nothing_has_it_as_a_word(db: Database) -> None:
    say(db, "I saw a Quokkasnout", "Quokkas are small", "别的事")
    assert found(db, "forget Quokkasn") == (Reach.NEAREST, ["I saw a Quokkasnout"])
    say(db, "Quokkasn is a nickname")
    assert found(db, "forget the Quokkasn")[1][-1] == "Quokkasn is a nickname"


def test_a_request_that_names_nothing_finds_nothing(db: Database) -> None:
    [asking] = say(db, "forget", thread="asking")
    with db.read() as conn:
        scope_id = find_scope(conn, owner_scope())
        assert scope_id is not None
        thread = find_thread_by_key(conn, scope_id, "asking")
        assert thread is not None
        empty = ForgetRequest(is_said_by=True)
        hits = find_asked(conn, empty, asking=asking, thread=thread, workspace="main", now_ms=NOW_MS)
    assert hits.is_nothing


def test_words_are_not_found_inside_other_words(db: Database) -> None:
    say(db, "I like tea", "Who teaches me Portuguese?", "steak", "我喜欢喝茶")
    assert found(db, "forget tea") == (Reach.ALL, ["I like tea"])
    assert found(db, "忘掉喝茶的事") == (Reach.ALL, ["我喜欢喝茶"])


@pytest.mark.parametrize(
    ("asked", "texts"),
    [
        ("forget everything I said in February", ["I had soup", "Coffee is bitter"]),
        ("请忘掉我二月说过的话", ["I had soup", "Coffee is bitter"]),
        ("forget what I said in February about soup", ["I had soup"]),
        ("forget anything about soup that I said in February", ["I had soup"]),
        ("忘掉我二月说的关于 soup 的话", ["I had soup"]),
        ("forget what Gina said in February", ["No, tea"]),
        ("forget everything I said in February 2024", ["Coffee is bitter"]),
    ],
)
def test_a_month_without_a_year_is_that_of_every_year(db: Database, asked: str, texts: list[str]) -> None:
    say(db, "I had soup", at_ms=NOW_MS - 375 * DAY_MS)
    say(db, "No, tea", at_ms=NOW_MS - 374 * DAY_MS, role="participant", speaker="Gina")
    say(db, "Soup again", "Gina said so", at_ms=NOW_MS - 200 * DAY_MS)
    say(db, "Coffee is bitter", at_ms=NOW_MS - 20 * DAY_MS)
    say(db, "It is March")
    hits, shown = asked_in(db, asked)
    assert (hits.reach, shown) == (Reach.ALL, texts)
    assert hits.is_sure == ("2024" in asked)
    days = {"en": "The days that are meant: February", "zh": "所指的日期：历年2月。"}
    assert hits.period is not None
    assert proposal_text(PREVIEW, language_of(asked), hits).startswith(days[language_of(asked)])


@pytest.mark.parametrize("asked", ["forget my walrus", "忘掉我的海象"])
def test_what_pikobot_answered_itself_is_not_looked_for(db: Database, asked: str) -> None:
    say(db, "My walrus is Zed, 海象叫泽德")
    say(db, "This is what was said: “My walrus is Zed, 海象叫泽德”", role="assistant", origin="recall")
    say(db, "A walrus, 海象, eats clams", role="assistant")
    assert found(db, asked) == (
        Reach.ALL,
        ["My walrus is Zed, 海象叫泽德", "A walrus, 海象, eats clams"],
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [("forget the last message", "forget what I just said"), ("删掉最后一条消息", "忘掉刚才说的话")],
)
def test_what_was_last_said_is_not_the_request_to_forget_it(db: Database, first: str, then: str) -> None:
    say(db, "My zebra is Zed", thread="asking")
    say(db, "Noted.", thread="asking", role="assistant", origin="recall")
    assert found(db, first) == (Reach.ALL, ["My zebra is Zed", "Noted."])
    say(db, "This would be erased", thread="asking", role="assistant", origin="recall")
    assert found(db, then)[1] == ["My zebra is Zed", "Noted.", first, "This would be erased"]


def test_where_only_requests_to_forget_were_said_the_last_one_is_the_last_message(db: Database) -> None:
    assert found(db, "删掉最后一条消息") == (Reach.ALL, [])
    assert found(db, "把上一句删了") == (Reach.ALL, ["删掉最后一条消息"])


@pytest.mark.parametrize("asked", ["forget ok", "forget oke", "忘掉 ok"])
def test_a_few_letters_inside_a_word_are_not_near(db: Database, asked: str) -> None:
    say(db, "I smoke, and I like the joke", "我讲了一个 joke")
    assert found(db, asked) == (Reach.ALL, [])
