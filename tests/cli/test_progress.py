import io
import sys

import pytest

from pikobot.cli.progress import describe_waiting, waiting_work


def test_what_waits_is_said_in_numbers() -> None:
    status = {
        "counts": {"runs": {"queued": 1}},
        "extraction": {"queued": 2},
        "embedding": {"serving": {"waiting": 7}, "building": {"waiting": 30}},
    }
    assert describe_waiting(status) == (
        "waiting: 1 request, 2 messages to learn from, 30 texts to embed; "
        "Ctrl-C stops, the rest is done the next time"
    )
    status["embedding"] = {"serving": None, "building": None}
    assert "0 texts to embed" in describe_waiting(status)


@pytest.mark.parametrize("is_wanted", [True, False])
def test_nothing_is_shown_where_no_terminal_is(is_wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with waiting_work(is_wanted) as show:
        assert show is None
