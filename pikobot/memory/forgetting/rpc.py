"""``memory.forget`` for the operator, who may forget in every scope."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from pikobot.errors import InvalidParams
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.preview import preview
from pikobot.memory.forgetting.receipts import Changed
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.params import MomentText, Name, Params, storable
from pikobot.store.connection import Database

MAX_IDS = 10_000
MAX_QUERY_CHARS = 10_000

Ids = Annotated[list[Name], Field(min_length=1, max_length=MAX_IDS)]


class ForgetParams(Params):
    """Parameters of ``memory.forget``: ids of one kind, or what was said, which may be narrowed (`ForgetTarget`).

    A query needs the token of its dry run; the others may have one, and are then erased only as they were shown.
    """

    sources: Ids | None = None
    facts: Ids | None = None
    query: (
        Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARS), AfterValidator(storable)] | None
    ) = None
    thread: Name | None = None
    workspace: Name | None = None
    from_: MomentText | None = Field(default=None, alias="from")
    to: MomentText | None = None
    token: Name | None = None
    dry_run: bool = Field(default=False, alias="dryRun")

    def target(self) -> ForgetTarget:
        """Raises `InvalidParams` when it names nothing, or two things that exclude each other."""
        return ForgetTarget(
            sources=tuple(self.sources or ()),
            facts=tuple(self.facts or ()),
            words=() if self.query is None else (self.query,),
            thread=self.thread,
            workspace=self.workspace,
            from_=self.from_,
            to=self.to,
        )


def forget_rpc(db: Database, ledger_path: Path, given: ForgetParams) -> dict[str, object]:
    """A preview, a receipt or "alreadyErased". Blocks until the erasure is proved.

    Raises `InvalidParams`, also when what would go is not what the token stands for, and what `forget` raises.
    """
    target = given.target()
    if given.dry_run:
        return preview(db, target).as_json()
    if target.words and given.token is None:
        raise InvalidParams(
            "token: a query is forgotten with the token of its preview; ask with dryRun first"
        )
    outcome = forget(db, ledger_path, target, token=given.token)
    if isinstance(outcome, Changed):
        raise InvalidParams(
            "token: it is not of this preview, or what would go has changed since; nothing was forgotten, preview "
            "again with dryRun"
        )
    return outcome.as_json()
