import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.errors import InvalidParams
from pikobot.store.connection import Database
from pikobot.store.scopes import Scope, ScopeId, ensure_scope, find_scope, load_scope, owner_scope
from tests.store import rows
from tests.store.rows import GROUP

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def test_a_scope_is_written_with_its_kind_and_parts() -> None:
    assert str(owner_scope()) == "private:main:local:terminal:owner"
    assert str(GROUP) == "shared:main:bot:-100:7"
    assert str(Scope("private", "工作", "a:b", "1/2", "%")) == "private:%E5%B7%A5%E4%BD%9C:a%3Ab:1%2F2:%25"


@given(st.sampled_from(["private", "shared"]), names, names, names, names)
@settings(max_examples=100)
def test_a_written_scope_is_read_back(kind: str, workspace: str, bot: str, chat: str, last: str) -> None:
    scope = Scope("private" if kind == "private" else "shared", workspace, bot, chat, last)
    assert Scope.parse(str(scope)) == scope


@pytest.mark.parametrize(
    "text",
    [
        "",
        "private",
        "private:main",
        "private:a:b:c",
        "private:a:b:c:d:e",
        "public:a:b:c:d",
        "Private:a:b:c:d",
        "私人",
    ],
)
def test_what_is_no_scope_is_refused_with_the_form_that_is_expected(text: str) -> None:
    with pytest.raises(InvalidParams, match="expected private:WORKSPACE:BOT:CHAT:USER or shared:"):
        Scope.parse(text)


def test_a_scope_is_made_once_and_loaded_as_it_was(db: Database) -> None:
    assert rows.read(db, find_scope, owner_scope()) is None
    first = rows.write(db, ensure_scope, owner_scope())
    again = rows.write(db, ensure_scope, owner_scope())
    other = rows.write(db, ensure_scope, GROUP)
    assert (first, again, other) == (1, 1, 2)
    assert rows.read(db, find_scope, GROUP) == other
    assert [rows.read(db, load_scope, scope_id) for scope_id in (first, other)] == [owner_scope(), GROUP]


def test_scopes_that_differ_in_one_part_are_different(db: Database) -> None:
    parts = ("main", "bot", "chat", "7")
    kinds = [Scope("private", *parts), Scope("shared", *parts)]
    changed = [Scope("private", *(*parts[:at], "x", *parts[at + 1 :])) for at in range(4)]
    ids = {rows.write(db, ensure_scope, scope) for scope in kinds + changed}
    assert len(ids) == 6


def test_an_unknown_scope_id_is_a_lookup_error(db: Database) -> None:
    with pytest.raises(LookupError, match="scope 99"):
        rows.read(db, load_scope, ScopeId(99))
