from pathlib import Path

import pytest

from pikobot.errors import InvalidParams, NotFound
from pikobot.memory.forgetting.rpc import ForgetParams, forget_rpc
from pikobot.memory.params import validated
from pikobot.store.connection import Database
from tests.memory.conversing import read
from tests.memory.remembering import say


def asked(db: Database, path: Path, params: object) -> dict[str, object]:
    return forget_rpc(db, path, validated(ForgetParams, params))


def test_rpc_forgets_sources_and_threads_at_once_and_a_query_with_its_token(db: Database, path: Path) -> None:
    [name, other, _] = say(db, "the code is 4711", "unrelated", "the rest")
    assert asked(db, path, {"sources": [name], "dryRun": True})["total"] == 1
    shown = asked(db, path, {"query": "4711", "dryRun": True})
    assert (shown["status"], shown["direct"], len(shown["items"])) == ("preview", 1, 1)  # type: ignore[arg-type]  # a list
    [again] = say(db, "4711 again")
    with pytest.raises(InvalidParams, match="what would go has changed since"):
        asked(db, path, {"query": "4711", "token": shown["token"]})
    assert asked(db, path, {"sources": [again]})["status"] == "erased"
    done = asked(db, path, {"query": "4711", "token": shown["token"]})
    assert (done["status"], done["removed"]) == ("erased", {"sources": 1})
    with pytest.raises(NotFound, match="nothing that is retained matches"):
        asked(db, path, {"query": "4711", "token": shown["token"]})
    assert asked(db, path, {"sources": [other]})["status"] == "erased"
    assert asked(db, path, {"sources": [other]}) == {"status": "alreadyErased", "ids": 1}
    thread = read(db, "SELECT public_id FROM threads")[0][0]
    assert asked(db, path, {"thread": thread})["removed"] == {"sources": 1, "threads": 1}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([], "params: expected an object"),
        ({}, "name one thing to forget"),
        ({"sources": []}, "sources: "),
        ({"sources": ["a"], "thread": "b"}, "name one thing"),
        ({"sources": [1]}, "sources.0: "),
        ({"query": "x"}, "token: a query is forgotten with the token of its preview"),
        ({"query": "x", "token": "00"}, "token: it is not of this preview"),
        ({"query": "x", "token": "é"}, "token: it is not of this preview"),
        ({"thread": "t1", "token": "00"}, "token: it is not of this preview"),
        ({"thread": "t1", "workspace": "main"}, "name one thing"),
        ({"from": "March"}, "from: expected ISO 8601"),
        ({"from": "2024-03-02", "to": "2024-03-01"}, "to: is before from"),
        ({"query": "a\0b", "dryRun": True}, "query: has a NUL"),
        ({"thread": "x", "dryRun": "yes"}, "dryRun: "),
        ({"fact": ["f"]}, "fact: unknown key"),
    ],
)
def test_rpc_refuses_wrong_parameters_by_name(db: Database, path: Path, params: object, message: str) -> None:
    say(db, "x")
    with pytest.raises(InvalidParams, match=message):
        asked(db, path, params)
    assert read(db, "SELECT count(*) FROM sources") == [(1,)]
