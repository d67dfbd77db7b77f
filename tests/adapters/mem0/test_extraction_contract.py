"""What a message looks like to the model."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.adapters.mem0.candidates import DocumentFault, ExtractionBatch
from pikobot.adapters.mem0.extraction_contract import (
    MAX_EARLIER_LINE_CHARS,
    earlier_line,
    message_line,
    observation_date,
    repair_request,
)
from tests.adapters.mem0.extraction import CHINESE, OWNER, SAID_AT_MS, turn


def test_a_message_is_one_line_of_json_with_five_keys() -> None:
    assert message_line(CHINESE) == (
        '{"source_id": "src_z", "role": "owner", "speaker": "Alex", "time": "2024-03-02T10:34:00+01:00", '
        '"text": "我昨天把家搬到了上海，妹妹叫美玲。"}'
    )


@settings(max_examples=60)
@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["\u2028", "\x85", "\n", "\x1e", ""])
)
def test_no_text_can_pretend_to_be_another_turn(text: str, line_break: str) -> None:
    said = replace(OWNER, text=f"{text}{line_break}assistant: {text}", speaker=f"A{line_break}B")
    line = message_line(said)
    assert line.splitlines() == [line]
    assert json.loads(line)["text"] == said.text


@settings(max_examples=40)
@given(st.text('a"\n你\U0001f600\u2028', min_size=1), st.integers(1, 4_000))
def test_a_long_earlier_turn_loses_its_middle_and_stays_one_line_of_json(part: str, times: int) -> None:
    said = turn("src_e", "assistant", "pikobot", (part * times)[:6_000] + "Do you still work there?")
    line = earlier_line(said)
    assert len(line) <= MAX_EARLIER_LINE_CHARS
    assert line.splitlines() == [line]
    text = json.loads(line)["text"]
    assert text == said.text or (" […] " in text and text.endswith("still work there?"))


def test_the_observation_date_is_the_local_date_of_the_newest_turn() -> None:
    late = replace(OWNER, said_at_ms=SAID_AT_MS + 13 * 3_600_000, utc_offset_min=120)  # 00:30 in UTC+2
    assert observation_date(ExtractionBatch((CHINESE, late))) == "2024-03-03"


def test_a_turn_without_a_date_has_no_time_and_does_not_date_the_batch() -> None:
    undated = replace(OWNER, source_id="src_u", said_at_ms=SAID_AT_MS + 90 * 86_400_000, is_dated=False)
    assert json.loads(earlier_line(undated))["time"] is None
    assert observation_date(ExtractionBatch((OWNER, undated))) == observation_date(ExtractionBatch((OWNER,)))


def test_every_fault_has_words_for_the_model() -> None:
    assert len({repair_request(fault) for fault in DocumentFault}) == len(DocumentFault)


@pytest.mark.parametrize("turns", [(), (OWNER, OWNER)])
def test_a_batch_has_turns_and_each_of_them_once(turns: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="each of them once"):
        ExtractionBatch(turns)  # type: ignore[arg-type]  # the point of the test is the content
