import json
from io import BytesIO
from pathlib import Path

import pytest

from pikobot.memory.assertions import Assertion, correct
from pikobot.memory.imports import import_jsonl
from pikobot.memory.recall.answers import MemoryAnswer, answer_from_memory
from pikobot.memory.recall.wording import spoken_date
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, find_scope, owner_scope
from pikobot.store.sources import NewSource, insert_source
from pikobot.store.threads import ensure_thread
from tests.memory.learning import learn
from tests.memory.remembering import DAY_MS, NOW_MS, StillClock, opened, say

NOTHING = (
    "I found no statement about that. That does not mean that it was never said: other words may find it."
)
NOTHING_ZH = "没有找到相关的原话。这不表示从未说过，换个说法也许能找到。"


def ask(db: Database, text: str, *, now_ms: int = NOW_MS) -> MemoryAnswer:
    with db.read() as conn:
        scope_id = find_scope(conn, owner_scope())
        return answer_from_memory(conn, text, scope_id=scope_id, request_id=None, now_ms=now_ms)


def quote_back(db: Database, text: str) -> None:
    """What a question in recall mode leaves behind: an answer that quotes."""

    def store(db: Database) -> None:
        with db.write("answer") as tx:
            scope_id = find_scope(tx, owner_scope())
            assert scope_id is not None
            thread = ensure_thread(tx, scope_id, "t1", db.clock)
            insert_source(
                tx,
                NewSource(
                    role="assistant",
                    speaker="pikobot",
                    scope_id=scope_id,
                    thread_id=thread.id,
                    text=text,
                    origin="recall",
                    said_at_ms=NOW_MS,
                ),
                db.clock,
            )

    db.perform(store)


def test_a_question_is_answered_with_the_statement_and_the_day_it_was_said(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [moved] = say(db, "I moved to Porto in March 2024", utc_offset_min=-60)
        say(db, "The cat is called Miso")
        assert ask(db, "Where did I move?") == MemoryAnswer(
            "This is what was said:\n- 1 March 2024, you: “I moved to Porto in March 2024”", (moved,)
        )


def test_a_chinese_question_is_answered_in_chinese(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        [moved] = say(db, "2024年3月我搬到了波尔图", utc_offset_min=480)
        say(db, "猫叫米粒")
        assert ask(db, "我搬到哪里了？") == MemoryAnswer(
            "找到这些原话：\n- 2024年3月1日，你：“2024年3月我搬到了波尔图”", (moved,)
        )


def test_what_is_not_kept_is_acknowledged_as_such_in_its_own_language(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        assert [ask(db, text).text for text in ("I moved to Porto", "我搬到波尔图了")] == [
            "Understood, and not kept.",
            "知道了，没有保存。",
        ]


def test_a_few_bare_words_look_up_what_was_said_about_them(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "We went to Rome in spring", "周五去医院做体检", "Rome")
        for text, told in (("Rome", "We went to Rome in spring"), ("体检", "周五去医院做体检")):
            answer = ask(db, text).text
            assert told in answer
            assert answer.count("“") == 1  # the bare word that was typed before tells nothing


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Has Ana called?", "Ana called"),
        ("妹妹住布拉加吗？", "妹妹住布拉加"),
        ("安娜打电话了吗？", "安娜打电话了"),
    ],
)
def test_what_says_just_what_is_asked_is_an_answer(tmp_path: Path, question: str, told: str) -> None:
    with opened(tmp_path) as db:
        say(db, told, "The boiler leaks 锅炉漏水")
        assert [line.partition("“")[2] for line in ask(db, question).text.splitlines()] == ["", f"{told}”"]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Where did I lose my keys?", "I lost them near the river"),
        ("When did I buy it?", "I bought a boat in May"),
        ("Which tea 茶 do I like?", "我最喜欢绿茶"),
    ],
)
def test_other_forms_of_a_word_and_lone_characters_find_the_statement(
    tmp_path: Path, question: str, told: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, "The cat is called Miso")
        assert f"“{told}”" in ask(db, question).text


def test_a_name_alone_does_not_quote_what_its_bearer_said_about_other_things(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "See you tomorrow. Bye!", role="participant", speaker="Gina")
        assert ask(db, "Does Gina have a dog?").text == NOTHING


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where is my passport?", NOTHING),
        ("我的护照在哪里？", NOTHING_ZH),
        ("Who am I?", NOTHING),
        ("是吗？", NOTHING_ZH),
    ],
)
def test_what_was_never_said_is_not_invented(tmp_path: Path, question: str, answer: str) -> None:
    with opened(tmp_path) as db:
        assert ask(db, question) == MemoryAnswer(answer, ())
        say(db, "The cat is called Miso", "猫叫米粒")
        assert ask(db, question) == MemoryAnswer(answer, ())


@pytest.mark.parametrize(
    ("statement", "question"),
    [("I moved to Porto in March 2024", "Where did I move?"), ("2024年3月我搬到了波尔图", "我搬到哪里了？")],
)
def test_a_hundred_earlier_questions_and_answers_do_not_hide_the_statement(
    tmp_path: Path, statement: str, question: str
) -> None:
    with opened(tmp_path) as db:
        say(db, statement)
        first = ask(db, question)
        for _ in range(100):
            say(db, question)
            quote_back(db, first.text)
        assert ask(db, question) == first


def test_the_same_words_said_twice_are_quoted_once_and_the_best_comes_first(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(
            db,
            "My sister lives in Braga",
            "My sister lives in Braga",
            "My sister Ana moved house and lives in Faro",
        )
        lines = ask(db, "Where in Braga does my sister live?").text.splitlines()
        assert lines[1:] == ["- 1 March 2024, you: “My sister lives in Braga”", *lines[2:]]
        assert len({line.partition("“")[2] for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            "What did I say yesterday?",
            "From 29 February 2024, or about it:\n"
            "- 29 February 2024, you: “Ana called”\n- 29 February 2024, you: “体检改到周五”",
        ),
        (
            "昨天我说了什么？",
            "2024年2月29日说的，或关于那段时间的原话：\n"
            "- 2024年2月29日，你：“Ana called”\n- 2024年2月29日，你：“体检改到周五”",
        ),
        (
            "What did I do in March 2023?",
            "From March 2023, or about it:\n- 26 January 2024, you: “I moved to Porto in March 2023”",
        ),
        (
            "去年三月我做了什么？",
            "2023年3月说的，或关于那段时间的原话：\n- 2024年1月26日，你：“I moved to Porto in March 2023”",
        ),
        (
            "Did Ana call last year?",
            "Nothing about that is from 2023. At other times this was said:\n"
            "- 29 February 2024, you: “Ana called”",
        ),
        ("去年体检了吗？", "2023年没有相关的原话。其他时间说过：\n- 2024年2月29日，你：“体检改到周五”"),
        (
            "What happened in 2019?",
            "I found no statement from 2019, nor about it. Other words for the time, or a subject, may find it.",
        ),
        (
            "2019年发生了什么？",
            "没有找到2019年说的原话，也没有关于那段时间的。换个时间说法，或说出主题，也许能找到。",
        ),
        (
            "Where was the passport last week?",
            "I found no statement about that, neither from 19 February 2024 to 25 February 2024 nor from another "
            "time. That does not mean that it was never said: other words may find it.",
        ),
        (
            "yesterday Ana",
            "Understood, and not kept.\nFrom 29 February 2024, or about it:\n"
            "- 29 February 2024, you: “Ana called”",
        ),
    ],
)
def test_a_time_in_the_question_is_understood_and_said(tmp_path: Path, question: str, answer: str) -> None:
    with opened(tmp_path) as db:
        say(db, "I moved to Porto in March 2023", at_ms=NOW_MS - 35 * DAY_MS)
        say(db, "Ana called", "What did I say?", "体检改到周五", at_ms=NOW_MS - DAY_MS)
        say(db, "It snows")
        assert ask(db, question).text == answer


def test_the_day_of_a_statement_is_that_of_the_place_where_it_was_said(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "late in Porto", at_ms=NOW_MS - DAY_MS + 10 * 3_600_000)
        say(db, "early in Beijing", at_ms=NOW_MS - DAY_MS + 10 * 3_600_000, utc_offset_min=480)
        assert "early" not in ask(db, "What did I say on 29 February 2024?").text
        assert "late" not in ask(db, "What did I say on 1 March 2024?").text


def test_of_a_long_time_the_last_statements_are_quoted_in_order_and_more_is_announced(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, *(f"note {number}" for number in range(12)), at_ms=NOW_MS - DAY_MS)
        lines = ask(db, "What did I write yesterday?").text.splitlines()
        assert [line.partition("“")[2] for line in lines[1:-1]] == [
            f"note {number}”" for number in range(2, 12)
        ]
        assert lines[-1] == "There is more from that time; name a subject to find it."


def test_at_most_five_statements_are_quoted(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(
            db,
            *(f"Walk number {word} along the river" for word in "one two three four five six seven".split()),
        )
        assert len(ask(db, "Which walks along the river?").source_ids) == 5


def test_a_long_statement_is_quoted_around_the_match_on_one_line(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "x\n" * 600 + "the boiler was repaired in May" + "\ny" * 600)
        line = ask(db, "When was the boiler repaired?").text.splitlines()[1]
        assert line.startswith("- 1 March 2024, you: “…x x")
        assert line.endswith("y y…”")
        assert "the boiler was repaired in May" in line
        assert len(line) < 450


def test_other_speakers_are_named_and_earlier_answers_of_a_model_are_marked(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "The boiler leaks", role="participant", speaker="Ana")
        say(db, "Your boiler is a Vaillant", role="assistant", speaker="pikobot")
        assert set(ask(db, "Which boiler?").text.splitlines()[1:]) == {
            "- 1 March 2024, Ana: “The boiler leaks”",
            "- 1 March 2024, assistant: “Your boiler is a Vaillant”",
        }


def test_expired_statements_and_those_of_other_scopes_are_not_quoted(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "The alarm code hangs in the hall", expires_at_ms=NOW_MS + DAY_MS)
        say(db, "The alarm code is in the safe", scope=Scope("private", "main", "b", "c", "u"))
        assert ask(db, "Where is the alarm code?").text.count("“") == 1
        assert ask(db, "Where is the alarm code?", now_ms=NOW_MS + DAY_MS) == MemoryAnswer(NOTHING, ())


def test_nothing_is_found_before_anything_was_said(tmp_path: Path) -> None:
    with opened(tmp_path, StillClock()) as db:
        assert ask(db, "我的护照在哪里？") == MemoryAnswer(NOTHING_ZH, ())


def test_the_day_is_the_one_of_the_place_where_it_was_said() -> None:
    new_year = 1_704_067_200_000  # 2024-01-01T00:00:00Z
    assert spoken_date(new_year, -60, "en") == "31 December 2023"
    assert spoken_date(new_year, 480, "zh") == "2024年1月1日"
    assert spoken_date(-86_400_000, 0, "en") == "31 December 1969"


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("Where did I move?", ("I moved to Porto", "I moved to Lisbon")),
        ("我搬到哪里了？", ("我搬到波尔图了", "我搬到里斯本了")),
    ],
)
def test_facts_change_nothing_of_what_is_quoted(tmp_path: Path, question: str, said: tuple[str, str]) -> None:
    with opened(tmp_path) as db:
        ids = say(db, *said)
        before = ask(db, question)
        assert set(before.source_ids) == set(ids)
        old = learn(db, "搬到 moved to Braga, a machine thinks", ids[0], attribute="home_city", value="Braga")
        learn(db, "moved moved moved 搬到哪里", ids[1])
        assert ask(db, question) == before
        assert db.perform(correct, old, Assertion(text="I never moved 没搬到"), None) is not None
        after = ask(db, question)
        assert set(ids) < set(after.source_ids)  # the correction is a statement itself; none is lost
        assert "a machine thinks" not in after.text


@pytest.mark.parametrize(
    ("asked", "told", "question"),
    [
        (
            ("What did Ana and I cook at Easter?", "Please forget that Ana and I cook at home"),
            "Ana and I cook soup on Sundays",
            "What did Ana and I cook in March 2024?",
        ),
        (
            (
                "三月中旬，我和家人一起进行了哪些具体的家庭活动？",
                "在家庭活动期间，我家去了哪些地方？",
                "请列出家庭活动",
            ),
            "家庭活动是放风筝",
            "2024年3月有哪些家庭活动？",
        ),
        (("/forget boiler", "The boiler is old. Where is its manual?"), "The boiler leaks", "Which boiler?"),
    ],
)
def test_what_was_asked_or_told_to_forget_is_no_answer_and_hides_none(
    tmp_path: Path, asked: tuple[str, ...], told: str, question: str
) -> None:
    with opened(tmp_path) as db:
        say(db, told, at_ms=NOW_MS - 90 * DAY_MS)
        say(db, *asked)
        answer = ask(db, question).text
        assert answer.count("“") == 1
        assert f"“{told}”" in answer


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("The boiler is a Vaillant. Where is its manual?", "Which boiler do I have?"),
        ("锅炉是威能牌的。说明书在哪里？", "锅炉是什么牌子？"),
    ],
)
def test_what_is_told_beside_a_question_is_quoted_where_nothing_else_is(
    tmp_path: Path, said: str, question: str
) -> None:
    with opened(tmp_path) as db:
        say(db, said)
        assert f"“{said}”" in ask(db, question).text


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (
            "What did I do in January?",
            "From January of any year, or about it:\n"
            "- 11 January 2022, you: “Skiing with Ana 滑雪”\n- 1 March 2023, you: “In January 2023 we bought a house”\n"
            "- 11 January 2024, you: “去了新学校”",
        ),
        (
            "一月我滑雪了吗？",
            "历年1月说的，或关于那段时间的原话：\n- 2022年1月11日，你：“Skiing with Ana 滑雪”",
        ),
        (
            "Where did Ana and I go skiing on 11 January?",
            "From 11 January of any year, or about it:\n- 11 January 2022, you: “Skiing with Ana 滑雪”",
        ),
        (
            "What did I do from October to November?",
            "I found no statement from October to November of any year, nor about it. "
            "Other words for the time, or a subject, may find it.",
        ),
        (
            "Where did I go skiing in January 2024?",
            "Nothing about that is from January 2024. At other times this was said:\n"
            "- 11 January 2022, you: “Skiing with Ana 滑雪”",
        ),
        (
            "今年1月中旬我做了什么？",
            "2024年1月11日至2024年1月20日说的，或关于那段时间的原话：\n- 2024年1月11日，你：“去了新学校”",
        ),
    ],
)
def test_a_month_without_a_year_is_that_of_any_year(tmp_path: Path, question: str, answer: str) -> None:
    with opened(tmp_path) as db:
        say(db, "Skiing with Ana 滑雪", at_ms=NOW_MS - 780 * DAY_MS)
        say(db, "In January 2023 we bought a house", at_ms=NOW_MS - 366 * DAY_MS)
        say(db, "去了新学校", at_ms=NOW_MS - 50 * DAY_MS)
        assert ask(db, question).text == answer


@pytest.mark.parametrize(
    ("said", "question"),
    [
        (("My sister lives in Braga.", "my sister lives in  Braga"), "Where does my sister live?"),
        (("妹妹住在布拉加", "妹妹住在布拉加。"), "妹妹住在哪里？"),
    ],
)
def test_the_same_sentence_written_otherwise_is_quoted_once(
    tmp_path: Path, said: tuple[str, str], question: str
) -> None:
    with opened(tmp_path) as db:
        say(db, *said)
        assert ask(db, question).text.count("“") == 1


def test_the_kind_that_a_question_asks_for_is_not_its_subject(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "Ana paints landscapes, that is her art")
        say(db, "Thanks, Ana, those are kind words", "Ana is so kind", "What a kind woman Ana is")
        lines = ask(db, "What kind of art does Ana like?").text.splitlines()
        assert "landscapes" in lines[1]
        assert "kind" not in lines[1]


@pytest.mark.parametrize(
    ("speaker", "question", "line"),
    [
        ("Caroline", "Who paints?", "- 1 March 2024, Caroline: “I paint 画画”"),
        ("me", "Who paints?", "- 1 March 2024, you: “I paint 画画”"),
        ("Caroline", "谁画画？", "- 2024年3月1日，Caroline：“I paint 画画”"),
        ("我", "谁画画？", "- 2024年3月1日，你：“I paint 画画”"),
    ],
)
def test_whoever_spoke_in_an_imported_conversation_is_named(
    tmp_path: Path, speaker: str, question: str, line: str
) -> None:
    record = {"thread": "t", "role": "user", "speaker": speaker, "text": "I paint 画画"}
    with opened(tmp_path) as db:
        import_jsonl(db, BytesIO(json.dumps(record | {"time": "2024-03-01T10:00:00Z"}).encode()))
        assert ask(db, question).text.splitlines()[1:] == [line]


def test_a_month_without_a_year_that_only_the_last_one_answers_is_said_with_its_year(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        say(db, "去了新学校", at_ms=NOW_MS - 50 * DAY_MS)
        assert ask(db, "What did I do in January?").text.startswith("From January 2024, or about it:")
