"""A text that is forgotten as whole words: what holds it inside other words stays, and the preview says so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pikobot.memory.forgetting.preview import preview
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.store.connection import Database
from tests.memory.conversing import read
from tests.memory.learning import learn
from tests.memory.remembering import opened, say


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path) as database:
        yield database


def target(text: str, *, is_quoted: bool = False) -> ForgetTarget:
    return ForgetTarget(words=(text,), whole_words=not is_quoted)


@pytest.mark.parametrize(
    ("text", "is_quoted", "found", "inside"),
    [
        ("tea", False, ["I like tea", "TEA, 茶"], (2, ("teaches", "steak"))),
        ("tea", True, ["I like tea", "She teaches me", "steak and teaches", "TEA, 茶"], (0, ())),
        ("茶", False, ["TEA, 茶", "我喜欢喝茶"], (0, ())),
        ("喜欢", False, ["我喜欢喝茶"], (0, ())),
    ],
)
def test_what_holds_a_text_inside_other_words_stays_and_is_told(
    db: Database, text: str, is_quoted: bool, found: list[str], inside: tuple[int, tuple[str, ...]]
) -> None:
    say(db, "I like tea", "She teaches me", "steak and teaches", "TEA, 茶", "我喜欢喝茶", "nothing")
    shown = preview(db, target(text, is_quoted=is_quoted))
    assert ([item.beginning for item in shown.items], shown.inside) == (found, inside)


def test_what_goes_along_for_another_reason_is_not_told_to_stay(db: Database) -> None:
    say(db, "tea and steak", "a steak", role="participant", speaker="Ana")
    say(db, "Anatomy")
    assert preview(db, target("tea")).inside == (1, ("steak",))
    shown = preview(db, target("ana"))
    assert ([item.held for item in shown.items], shown.inside) == (["speaker"] * 2, (1, ("Anatomy",)))


def test_names_in_facts_are_whole_words_too(db: Database) -> None:
    first, second = say(db, "She paints", "He cooks")
    learn(db, "Ana paints", first)
    learn(db, "Anatole cooks", second)
    shown = preview(db, target("Ana"))
    assert [(item.beginning, item.held) for item in shown.items] == [("She paints", "fact")]
    assert len(read(db, "SELECT id FROM facts")) == 2
