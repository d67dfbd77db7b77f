"""One element of an answer against the sources it quotes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.adapters.mem0 import candidates as c
from pikobot.adapters.mem0.candidates import Candidate, Dropped, Evidence, Rejection, RejectionReason
from pikobot.adapters.mem0.validation import Validated, validate_elements
from tests.adapters.mem0.extraction import BATCH, CHINESE_TEXT, OWNER_TEXT, element, evidence, turn


def judged(*elements: Any) -> Validated:
    return validate_elements(elements, BATCH)


def candidate(**changes: Any) -> Candidate:
    """The one candidate of an element, which has nothing dropped."""
    validated = judged(element(**changes))
    assert (validated.rejections, validated.dropped, len(validated.candidates)) == ((), Dropped(), 1)
    return validated.candidates[0]


def rejection(**changes: Any) -> tuple[RejectionReason, str]:
    validated = judged(element(**changes))
    assert validated.candidates == ()
    assert validated.rejections[0].element == 0
    return validated.rejections[0].reason, validated.rejections[0].key


def test_a_whole_element_becomes_a_candidate_with_byte_ranges() -> None:
    quote = "“I'd never move”, then moved to Lyon"
    start = len(OWNER_TEXT[: OWNER_TEXT.index(quote)].encode())
    assert candidate(
        linked_memory_ids=["0"],
        attribute="home_city",
        value="Lyon",
        kind="event",
        evidence=evidence(("src_o", quote)),
        depends_on=["src_q"],
        entities=["Lyon"],
        event_time="2024-03-01",
        valid_until="2025-03-01T00:00:00Z",
        tags=["home", "moving-house"],
    ) == Candidate(
        text="User moved to Lyon on 2024-03-01",
        subject="owner",
        attribute="home_city",
        value="Lyon",
        kind=c.FactKind.EVENT,
        evidence=(Evidence("src_o", quote, start, start + len(quote.encode())),),
        depends_on=("src_q",),
        entities=("Lyon",),
        event_time="2024-03-01",
        valid_until="2025-03-01T00:00:00Z",
        tags=("home", "moving-house"),
        attributed_to="owner",
        speaker="Alex",
        linked_fact_ids=("fact_cat",),
    )


def test_a_chinese_statement_keeps_its_words_and_its_bytes() -> None:
    found = candidate(
        text="用户的妹妹叫美玲",
        subject="美玲",
        kind="relationship",
        evidence=evidence(("src_z", "妹妹叫美玲")),
        entities=["美玲"],
    )
    [item] = found.evidence
    assert CHINESE_TEXT.encode()[item.start_byte : item.end_byte].decode() == "妹妹叫美玲"
    assert (found.subject, found.attributed_to, found.speaker) == ("美玲", "owner", "Alex")


@pytest.mark.parametrize(
    "quote",
    [
        "moved to lyon",  # case
        "moved  to Lyon",
        "moved to Lyon!",
        "moved to Lyom",  # one byte
        '"I\'d never move"',  # straight for curly quotes
        "“I’d never move”",  # curly apostrophe
        "I sold my boat",  # another message
        "moved to Lyon.\n",
        "我昨天把家搬到了上海",  # another message
        "Ｌyon",
    ],
)
def test_a_quote_that_is_not_in_its_source_byte_for_byte_is_rejected(quote: str) -> None:
    assert rejection(evidence=evidence(("src_o", quote))) == (RejectionReason.QUOTE_NOT_FOUND, "evidence")


@pytest.mark.parametrize("quote", ["妹妹叫美铃", "我昨天把家搬到了上海,", "我昨天把家搬到了上 海"])
def test_a_chinese_quote_that_differs_is_rejected(quote: str) -> None:
    changes = {"evidence": evidence(("src_z", quote))}
    assert rejection(**changes) == (RejectionReason.QUOTE_NOT_FOUND, "evidence")


def test_a_quote_in_another_normal_form_is_rejected() -> None:
    found = rejection(
        subject="assistant", attributed_to="assistant", evidence=evidence(("src_g", "Cafe\u0301"))
    )
    assert found == (RejectionReason.QUOTE_NOT_FOUND, "evidence")


def test_one_wrong_quote_spoils_the_element() -> None:
    pair = evidence(("src_o", "moved to Lyon"), ("src_o", "moved to Nice"))
    assert rejection(evidence=pair) == (RejectionReason.QUOTE_NOT_FOUND, "evidence")


@pytest.mark.parametrize(
    ("changes", "reason", "key"),
    [
        ({"evidence": evidence(("src_x", "moved"))}, RejectionReason.UNKNOWN_SOURCE, "evidence"),
        ({"evidence": []}, RejectionReason.MISSING_EVIDENCE, "evidence"),
        ({"evidence": None}, RejectionReason.MISSING_EVIDENCE, "evidence"),
        ({"evidence": ...}, RejectionReason.MISSING_EVIDENCE, "evidence"),
        ({"evidence": evidence(("src_o", ""))}, RejectionReason.MISSING_EVIDENCE, "evidence"),
        ({"evidence": evidence(("src_o", " "))}, RejectionReason.MISSING_EVIDENCE, "evidence"),
        ({"evidence": [{"source_id": "src_o"}]}, RejectionReason.MISSING_EVIDENCE, "evidence"),
        ({"evidence": "moved to Lyon"}, RejectionReason.MALFORMED, "evidence"),
        ({"evidence": [{"source_id": 7, "quote": "moved"}]}, RejectionReason.MALFORMED, "evidence"),
        ({"evidence": evidence(("src_e", "Acme hired me."))}, RejectionReason.OLD_EVIDENCE, "evidence"),
        ({"evidence": evidence(("src_o", "moved")) * 21}, RejectionReason.TOO_LONG, "evidence"),
        ({"evidence": evidence(("src_o", "m" * 8_001))}, RejectionReason.TOO_LONG, "evidence"),
        ({"text": ...}, RejectionReason.MALFORMED, "text"),
        ({"text": " "}, RejectionReason.MALFORMED, "text"),
        ({"text": 7}, RejectionReason.MALFORMED, "text"),
        ({"text": "x" * 2_001}, RejectionReason.TOO_LONG, "text"),
        ({"subject": "x" * 201}, RejectionReason.TOO_LONG, "subject"),
        ({"subject": ["owner"]}, RejectionReason.MALFORMED, "subject"),
        ({"depends_on": ["src_x"]}, RejectionReason.UNKNOWN_DEPENDENCY, "depends_on"),
        ({"depends_on": "src_q"}, RejectionReason.MALFORMED, "depends_on"),
        ({"event_time": "yesterday"}, RejectionReason.BAD_DATE, "event_time"),
        ({"event_time": "2024-02-30"}, RejectionReason.BAD_DATE, "event_time"),
        ({"event_time": "2024-13"}, RejectionReason.BAD_DATE, "event_time"),
        ({"event_time": "20240301"}, RejectionReason.BAD_DATE, "event_time"),
        ({"event_time": "2024-03-01T25:00"}, RejectionReason.BAD_DATE, "event_time"),
        ({"event_time": "昨天"}, RejectionReason.BAD_DATE, "event_time"),
        ({"event_time": 1709371800}, RejectionReason.MALFORMED, "event_time"),
        ({"valid_until": "soon"}, RejectionReason.BAD_DATE, "valid_until"),
        (
            {"event_time": "2024-03-01", "valid_until": "2024-02-01"},
            RejectionReason.BAD_DATE,
            "valid_until",
        ),
    ],
)
def test_an_element_is_rejected_with_its_reason(
    changes: dict[str, Any], reason: RejectionReason, key: str
) -> None:
    assert rejection(**changes) == (reason, key)


@pytest.mark.parametrize("wrong", [None, 7, "text", [], ["text"], True])
def test_an_element_that_is_no_object_is_rejected_and_the_others_stand(wrong: Any) -> None:
    validated = judged(wrong, element())
    assert [rejection.reason for rejection in validated.rejections] == [RejectionReason.MALFORMED]
    assert len(validated.candidates) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        # The assistant guessed; whoever the element says it is about, the owner did not say it.
        ({"evidence": evidence(("src_g", "You must be a nurse"))}, RejectionReason.ASSISTANT_ONLY_EVIDENCE),
        (
            {"subject": ..., "evidence": evidence(("src_g", "You must be a nurse"))},
            RejectionReason.ASSISTANT_ONLY_EVIDENCE,
        ),
        (
            {"subject": "Alex", "attributed_to": ..., "evidence": evidence(("src_g", "You must be a nurse"))},
            RejectionReason.ASSISTANT_ONLY_EVIDENCE,
        ),
        (
            {"attributed_to": "assistant", "evidence": evidence(("src_g", "You must be a nurse"))},
            RejectionReason.ASSISTANT_ONLY_EVIDENCE,
        ),
        # Bob speaks about the owner.
        ({"evidence": evidence(("src_b", "Alex lives in Berlin now."))}, RejectionReason.WRONG_SPEAKER),
        (
            {"subject": "alex", "evidence": evidence(("src_b", "Alex lives in Berlin now."))},
            RejectionReason.WRONG_SPEAKER,
        ),
        ({"subject": "assistant"}, RejectionReason.WRONG_SPEAKER),
        ({"attributed_to": "assistant"}, RejectionReason.ATTRIBUTION_CONTRADICTS),
        ({"attributed_to": "participant"}, RejectionReason.ATTRIBUTION_CONTRADICTS),
        ({"attributed_to": "Bob"}, RejectionReason.ATTRIBUTION_CONTRADICTS),
        ({"attributed_to": "the owner"}, RejectionReason.ATTRIBUTION_CONTRADICTS),
        (
            {
                "subject": "Bob",
                "attributed_to": "assistant",
                "evidence": evidence(("src_b", "I sold my boat.")),
            },
            RejectionReason.ATTRIBUTION_CONTRADICTS,
        ),
        (
            {"subject": "Zola", "attributed_to": "user", "evidence": evidence(("src_g", "Café Zola"))},
            RejectionReason.ATTRIBUTION_CONTRADICTS,
        ),
    ],
)
def test_whose_words_they_are_decides_what_they_establish(
    changes: dict[str, Any], reason: RejectionReason
) -> None:
    assert rejection(**changes)[0] is reason


@pytest.mark.parametrize(
    ("changes", "subject", "role", "speaker"),
    [
        ({"subject": ..., "attributed_to": ...}, "owner", "owner", "Alex"),
        ({"subject": None, "attributed_to": None}, "owner", "owner", "Alex"),
        ({"subject": "User"}, "owner", "owner", "Alex"),
        ({"subject": "用户"}, "owner", "owner", "Alex"),
        ({"subject": "ALEX", "attributed_to": "owner"}, "owner", "owner", "Alex"),
        ({"subject": "Lyon", "attributed_to": "alex"}, "Lyon", "owner", "Alex"),
        ({"evidence": evidence(("src_b", "I sold my boat.")), "subject": ...}, "Bob", "participant", "Bob"),
        ({"evidence": evidence(("src_b", "I sold my boat.")), "subject": "bob"}, "Bob", "participant", "Bob"),
        ({"subject": "Bob"}, "Bob", "owner", "Alex"),
        (
            {
                "evidence": evidence(("src_g", "I suggest Café Zola.")),
                "subject": "assistant",
                "attributed_to": "assistant",
            },
            "assistant",
            "assistant",
            "pikobot",
        ),
        (
            {"evidence": evidence(("src_g", "Café Zola")), "subject": ..., "attributed_to": ...},
            "assistant",
            "assistant",
            "pikobot",
        ),
    ],
)
def test_attribution_follows_from_the_evidence(
    changes: dict[str, Any], subject: str, role: str, speaker: str
) -> None:
    found = candidate(**changes)
    assert (found.subject, found.attributed_to, found.speaker) == (subject, role, speaker)


def test_an_assistants_question_is_context_of_the_owners_answer() -> None:
    pair = evidence(("src_q", "Do you still work at Acme?"), ("src_o", "Yes, since May."))
    found = candidate(text="User has worked at Acme since May", evidence=pair)
    assert [item.source_id for item in found.evidence] == ["src_o"]
    assert found.depends_on == ("src_q",)


def test_a_quote_of_an_earlier_turn_is_context_too() -> None:
    pair = evidence(("src_e", "Acme hired me."), ("src_o", "since May"))
    found = candidate(evidence=pair, depends_on=["src_o", "src_e", "src_q"])
    assert [item.source_id for item in found.evidence] == ["src_o"]
    assert found.depends_on == ("src_e", "src_q")


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (None, None),
        ("", None),
        ("2024-03-01", "2024-03-01"),
        ("2024-03-01T09:00", "2024-03-01T09:00:00+01:00"),  # the quoted speaker's zone
        ("2024-03-01 09:00:30", "2024-03-01T09:00:30+01:00"),
        ("2024-03-01T09:00:00Z", "2024-03-01T09:00:00Z"),
        ("2024-03-01T09:00:00-05:30", "2024-03-01T09:00:00-05:30"),
    ],
)
def test_a_time_is_a_date_or_a_moment_with_an_offset(written: str | None, kept: str | None) -> None:
    assert candidate(event_time=written).event_time == kept


def test_parts_that_change_no_meaning_are_dropped_and_counted() -> None:
    whole = element(
        kind="health",
        attribute="Home City",
        value="Lyon",
        tags=["ok", "Not OK", "naïve", "x" * 49, "ok", 7, "a-b", "-a", "标签"],
        entities=["Lyon", "", 7, "Lyon", "x" * 201],
        linked_memory_ids=["1", "2", 0, "fact_cat"],
        confidence=0.9,
        reasoning="none",
    )
    validated = judged(whole)
    [found] = validated.candidates
    assert (found.kind, found.attribute, found.value) == (c.FactKind.FACT, None, "Lyon")
    assert (found.tags, found.entities, found.linked_fact_ids) == (("ok", "a-b"), ("Lyon",), ("fact_boat",))
    assert validated.dropped == Dropped(unknown_keys=2, attributes=1, kinds=1, entities=4, tags=7, links=3)
    assert validated.rejections == ()


@pytest.mark.parametrize("subject", ["I", "me", "我", "The user", "用户"])
def test_who_speaks_of_themselves_is_named_by_role(subject: str) -> None:
    assert candidate(subject=subject).subject == "owner"


def test_at_most_eight_tags_are_kept() -> None:
    validated = judged(element(tags=[f"t{number}" for number in range(10)]))
    assert (len(validated.candidates[0].tags), validated.dropped) == (8, Dropped(tags=2))


def test_a_year_or_a_month_alone_is_no_time_and_costs_no_fact() -> None:
    validated = judged(element(event_time="2018", valid_until="2024-05"))
    [found] = validated.candidates
    assert (found.event_time, found.valid_until, validated.dropped) == (None, None, Dropped(dates=2))


@pytest.mark.parametrize(
    ("known", "said", "is_copied"),
    [
        ("User has passed the interviews with them", "I still have the bowl with a rim", True),
        ("User has passed the interviews", "They interviewed me and I passed", False),
        ("The owner lives in Porto", "As I said, I live in Porto", False),
        ("The owner lives in Porto", "I flew from Porto", True),
        ("User works on 2024 plans", "My plan of 20240 works", False),
        ("User was born in 2024", "It cost 20245", True),
        ("Alex is starting her own business", "Started hitting the gym last week", True),
        ("User 通过了领养面试", "我在医院陪爸爸做检查", True),
        ("用户通过了领养面试", "昨天的面试我过了", False),
        ("User is 34", "I'm still 34", False),
    ],
)
def test_a_known_fact_said_again_has_a_word_of_it_in_its_source(
    known: str, said: str, is_copied: bool
) -> None:
    batch = c.ExtractionBatch(
        (turn("src_n", "owner", "Alex", said),), (), (c.KnownFact("fact_k", known, "owner", "owner"),)
    )
    validated = validate_elements([element(text=known, evidence=evidence(("src_n", said)))], batch)
    expected = (Rejection(0, RejectionReason.COPIED, "text"),) if is_copied else ()
    assert (validated.rejections, len(validated.candidates)) == (expected, not is_copied)


def test_a_number_is_a_value_and_an_attribute_needs_one() -> None:
    assert candidate(attribute="age", value=34).value == "34"
    assert judged(element(attribute="age")).dropped == Dropped(attributes=1)


def test_the_same_statement_twice_is_one_with_the_evidence_of_both() -> None:
    again = element(evidence=evidence(("src_z", "上海"), ("src_o", "moved to Lyon")), depends_on=["src_q"])
    validated = judged(element(depends_on=["src_z"]), element(text="other"), again)
    assert [found.text for found in validated.candidates] == ["User moved to Lyon on 2024-03-01", "other"]
    first = validated.candidates[0]
    assert [item.source_id for item in first.evidence] == ["src_o", "src_z"]
    assert first.depends_on == ("src_q",)
    assert validated.rejections == (Rejection(2, RejectionReason.DUPLICATE, "text"),)


def test_the_same_words_about_another_subject_are_another_fact() -> None:
    bobs = element(text="Loves boats", subject="Bob", evidence=evidence(("src_b", "I sold my boat.")))
    assert len(judged(element(text="Loves boats"), bobs).candidates) == 2


def test_elements_beyond_the_limit_are_rejected() -> None:
    validated = judged(*[element(text=f"fact {number}") for number in range(c.MAX_ELEMENTS + 1)])
    assert len(validated.candidates) == c.MAX_ELEMENTS
    assert validated.rejections == (Rejection(c.MAX_ELEMENTS, RejectionReason.TOO_MANY, "memory"),)


@settings(max_examples=80)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), st.data())
def test_every_part_of_a_text_is_found_at_its_bytes_and_nothing_else_is(
    text: str, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    quote = text[start : data.draw(st.integers(start + 1, len(text)))]
    batch = c.ExtractionBatch((turn("src_t", "owner", "Alex", text),))
    found = validate_elements([element(evidence=evidence(("src_t", quote)))], batch)
    if not quote.strip():
        assert found.candidates == ()
        return
    [item] = found.candidates[0].evidence
    assert text.encode()[item.start_byte : item.end_byte] == quote.encode()
    assert text.encode().find(quote.encode()) == item.start_byte
    other = validate_elements([element(evidence=evidence(("src_t", quote + "\u2603")))], batch)
    assert bool(other.candidates) == (quote + "\u2603" in text)
