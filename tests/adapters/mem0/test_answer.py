"""What is one document of the contract, and the fault of everything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.adapters.mem0.answer import InvalidDocument, is_refusal, read_elements
from pikobot.adapters.mem0.candidates import DocumentFault

VALID = '{"memory":[{"id":"0","text":"User is allergic to nuts"}]}'
NOTHING = '{"memory":[]}'
FENCE = "```"


def fenced(text: str) -> str:
    return f"{FENCE}json\n{text}\n{FENCE}"


# The names say what somebody reported of lenient readers; the text is what the model answered.
MALFORMED = {
    "a fence": (fenced(VALID), DocumentFault.FENCED),
    "a draft fence, then a corrected one": (f"{fenced(VALID)}\nNo:\n{fenced(NOTHING)}", DocumentFault.FENCED),
    "a pasted document quoted first": (f"You wrote {fenced(VALID)}\n{NOTHING}", DocumentFault.PROSE),
    "a pasted document in front": (f"{VALID}\n{NOTHING}", DocumentFault.MORE_AFTER_IT),
    "a thought in front": (f"<think>{VALID}</think>{NOTHING}", DocumentFault.PROSE),
    "a thought behind": (f"{NOTHING}<think>hm</think>", DocumentFault.MORE_AFTER_IT),
    "braces in prose in front": (f"The set {{a}} says: {VALID}", DocumentFault.PROSE),
    "prose with braces behind": (f"{VALID} I left out {{b}}.", DocumentFault.MORE_AFTER_IT),
    "the same object twice": (VALID + VALID, DocumentFault.MORE_AFTER_IT),
    "a key twice at the top": ('{"memory":[],"memory":[{"text":"x"}]}', DocumentFault.DUPLICATE_KEY),
    "a key twice in an element": ('{"memory":[{"text":"x","text":"y"}]}', DocumentFault.DUPLICATE_KEY),
    "a key twice, once escaped": ('{"memory":[{"text":"x","te\\u0078t":"y"}]}', DocumentFault.DUPLICATE_KEY),
    "a NUL": (VALID.replace("nuts", "nu\0ts"), DocumentFault.NUL_CHARACTER),
    "an escaped NUL": (VALID.replace("nuts", "nu\\u0000ts"), DocumentFault.NUL_CHARACTER),
    "an escaped NUL in a key": (VALID.replace("text", "te\\u0000xt"), DocumentFault.NUL_CHARACTER),
    "half a surrogate pair": (VALID.replace("nuts", "\\ud83d"), DocumentFault.LONE_SURROGATE),
    "cut inside a string": (VALID[:40], DocumentFault.ENDS_EARLY),
    "cut after a colon": (VALID[:10], DocumentFault.ENDS_EARLY),
    "cut before the last brace": (VALID[:-1], DocumentFault.ENDS_EARLY),
    "a trailing comma": ('{"memory":[{"text":"x"},]}', DocumentFault.NOT_JSON),
    "single quotes": ("{'memory': []}", DocumentFault.NOT_JSON),
    "a raw line break in a string": (VALID.replace("to nuts", "to\nnuts"), DocumentFault.NOT_JSON),
    "a comment": ('{"memory":[] // none\n}', DocumentFault.NOT_JSON),
    "another key": ('{"memories":[]}', DocumentFault.WRONG_KEYS),
    "a key beside it": ('{"memory":[],"reasoning":"none"}', DocumentFault.WRONG_KEYS),
    "the key in upper case": ('{"Memory":[]}', DocumentFault.WRONG_KEYS),
    "no key": ("{}", DocumentFault.WRONG_KEYS),
    "null inside": ('{"memory":null}', DocumentFault.WRONG_KEYS),
    "an object inside": ('{"memory":{"text":"x"}}', DocumentFault.WRONG_KEYS),
    "a list at the top": ('[{"text":"x"}]', DocumentFault.NOT_AN_OBJECT),
    "null": ("null", DocumentFault.NOT_AN_OBJECT),
    "a number": ("42", DocumentFault.NOT_AN_OBJECT),
    "a string": (json.dumps(VALID), DocumentFault.NOT_AN_OBJECT),
    "nothing": ("", DocumentFault.EMPTY),
    "white space": (" \r\n\t", DocumentFault.EMPTY),
    "prose": ("I found nothing to remember.", DocumentFault.PROSE),
    "Chinese prose": ("没有值得记住的内容。", DocumentFault.PROSE),
    "NaN": ('{"memory":[{"score":NaN}]}', DocumentFault.NOT_A_NUMBER),
    "minus infinity": ('{"memory":[{"score":-Infinity}]}', DocumentFault.NOT_A_NUMBER),
    "a number beyond floats": ('{"memory":[{"score":1e999}]}', DocumentFault.NOT_A_NUMBER),
    "a number of 5,000 digits": ('{"memory":[' + "9" * 5_000 + "]}", DocumentFault.NOT_A_NUMBER),
    "100,000 brackets": ('{"memory":' + "[" * 100_000, DocumentFault.TOO_DEEP),
    "a byte order mark": ("\ufeff" + NOTHING, DocumentFault.PROSE),
    "a no-break space in front": ("\u00a0" + NOTHING, DocumentFault.PROSE),
}


@pytest.mark.parametrize(("text", "fault"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_answer_is_refused_with_its_own_fault(text: str, fault: DocumentFault) -> None:
    with pytest.raises(InvalidDocument) as refused:
        read_elements(text)
    assert refused.value.fault is fault


def test_white_space_around_the_one_document_is_no_fault() -> None:
    assert read_elements(f" \n{VALID}\r\n\t") == [{"id": "0", "text": "User is allergic to nuts"}]


def test_text_that_looks_like_a_fence_is_text_inside_a_string() -> None:
    pasted = fenced(VALID)
    assert read_elements(json.dumps({"memory": [{"text": pasted}]})) == [{"text": pasted}]


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot assist.",
        "很抱歉，我无法处理这些内容。",
        "作为一个AI，我不能这样做",
    ],
)
def test_a_model_that_declines_is_recognised_in_english_and_chinese(text: str) -> None:
    assert is_refusal(text)


@pytest.mark.parametrize("text", ["", "Sorry, here it is: {}", NOTHING, "Nothing to remember.", "没有内容"])
def test_other_answers_are_no_refusals(text: str) -> None:
    assert not is_refusal(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_characters="\0")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["memory", "text"]), inner),
    max_leaves=8,
)


@settings(max_examples=60)
@given(JSON, st.sampled_from(["", " ", "x", "{}", "null"]))
def test_only_one_object_with_the_one_key_and_a_list_is_read(value: object, behind: str) -> None:
    is_document = isinstance(value, dict) and list(value) == ["memory"] and isinstance(value["memory"], list)
    text = json.dumps(value) + behind
    if is_document and not behind.strip():
        assert isinstance(value, dict)
        assert read_elements(text) == value["memory"]
    else:
        with pytest.raises(InvalidDocument):
            read_elements(text)
