"""What embedding failed at last, said in words and kept, so that a process that comes later can say it as well.

Two are kept: of texts and of questions, each until the next call that succeeds. Kept is a code and when, never the
message: it may hold what a provider said.
"""

from enum import StrEnum

from pikobot.clock import iso_time
from pikobot.store.connection import Connection
from pikobot.store.settings import delete_setting, read_setting, write_setting

BUDGET = "budget"


class Failing(StrEnum):
    """What fails, as the key of its setting."""

    TEXTS = "embedding_problem"
    QUESTIONS = "question_embedding_problem"


_WORDS = {
    "unreachable": "no connection; check the network and embedding.base_url",
    "rate_limited": "the provider limits the rate; it is asked again later",
    "refused_request": "the provider refused the request; check embedding.model and embedding.dimension",
    "unauthorized": "the provider refused the key; check PIKOBOT_EMBEDDING_API_KEY",
    "payment_required": "the provider wants to be paid; top up the account there",
    "not_found": "the provider knows no such model or path; check embedding.base_url and embedding.model",
    "server_error": "the provider failed; it is asked again later",
    "timed_out": "no answer came in time; it is asked again later",
    "truncated": "the connection broke; it is asked again later",
    "malformed": "the answer was no list of embeddings; check embedding.base_url",
    "too_large": "the answer was too large; check embedding.base_url and embedding.dimension",
    "wrong_dimension": "the vectors have another length; set embedding.dimension to that of the model",
    "unusable_vector": "the model made a vector that is none; check embedding.model",
    "not_started": "the local model could not be loaded; check embedding.provider and embedding.path",
    "crashed": "the process of the local model ended; it is started again",
    BUDGET: "a budget is spent; budget.background_usd_per_day and budget.workspace_usd_per_month say how much",
}


def failed(code: str) -> str:
    """The sentence for a failure, with its remedy; nothing of a text or an answer is in it."""
    words = _WORDS.get(code)
    return f"embedding failed ({code})" + (f": {words}" if words else "")


def note(conn: Connection, what: Failing, *, provider: str, code: str, now_ms: int) -> None:
    """Keep a failure, instead of the one before. Caller holds write."""
    write_setting(conn, what, f"{now_ms} {code} {provider}")


def clear(conn: Connection, what: Failing) -> None:
    """It works again. Caller holds write."""
    delete_setting(conn, what)


def is_noted(conn: Connection, what: Failing) -> bool:
    return read_setting(conn, what) is not None


def noted(conn: Connection, what: Failing, *, provider: str) -> str | None:
    """The sentence for what the provider failed at last, with the time of it; None when it worked."""
    kept = read_setting(conn, what)
    if kept is None:
        return None
    at_ms, code, by = kept.split(" ", 2)
    return f"{failed(code)} (last tried {iso_time(int(at_ms))})" if by == provider else None
