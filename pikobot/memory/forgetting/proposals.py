"""Forgetting that is asked for in conversation: proposed, shown, and carried out only on the owner's own word.

    request ─▶ what it means (`search`) ─▶ propose (ids, on the run) ─▶ show (text and token, with the answer)
    next message in the same place ─▶ waiting ─▶ yes ─▶ carry_out ─▶ receipt, or shown again when it has changed
                                              └▶ anything else drops it

Nothing that a model says reaches `carry_out`: its caller holds a message that a human has sent. What is shown names the
sources and facts that it quotes as read by the run, so that its answer goes when one of them does. The request and
its answer go along.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from pikobot.errors import NotFound
from pikobot.memory.forgetting import wording
from pikobot.memory.forgetting.forget import forget
from pikobot.memory.forgetting.preview import ForgetPreview, preview_in
from pikobot.memory.forgetting.receipts import Changed, Receipt
from pikobot.memory.forgetting.requests import means_to_forget
from pikobot.memory.forgetting.search import NOTHING, Asked
from pikobot.memory.forgetting.target import ForgetTarget
from pikobot.memory.language.questions import Language
from pikobot.store import leases, proposals
from pikobot.store.connection import Connection, Database
from pikobot.store.erasing import targets
from pikobot.store.leases import Lease
from pikobot.store.proposals import Place, Proposal
from pikobot.store.runs import RunId, cite_sources
from pikobot.store.scopes import Scope, find_scope
from pikobot.store.threads import find_thread_by_key, find_thread_by_public_id

CONFIRM_WITHIN_MS = 3_600_000


@dataclass(frozen=True)
class Carried:
    """What the owner reads after a yes. ``is_clean`` as of the receipt."""

    text: str
    has_erased: bool
    is_shown_again: bool = False
    is_clean: bool = True


def propose(db: Database, lease: Lease, asked: Asked) -> bool:
    """Keep with a run what it proposes to forget, in place of what it has proposed before; False when it is lost."""
    with db.write("propose to forget") as tx:
        if not leases.holds(tx, lease):
            return False
        proposals.save_proposal(
            tx,
            RunId(lease.row_id),
            source_ids=asked.source_ids,
            fact_ids=asked.fact_ids,
            now_ms=db.clock.now_ms(),
        )
        return True


def show(db: Database, lease: Lease, language: Language, asked: Asked = NOTHING) -> str | None:
    """What a run has to show at the end of its answer: empty without a proposal; None when the run is lost.

    ``asked`` says how near that is to the words of a request that was read.
    """
    run_id = RunId(lease.row_id)
    with db.read() as conn:
        if not proposals.has_proposal(conn, run_id):
            return "" if leases.holds(conn, lease) else None
    with db.write("show what would be forgotten") as tx:
        if not leases.holds(tx, lease):
            return None
        proposal = proposals.proposal_of(tx, run_id)
        shown = None if proposal is None else _shown(tx, proposal)
        if shown is None or not shown.total:
            proposals.drop_proposal(tx, run_id)
            return ""
        proposals.set_token(tx, run_id, shown.token, now_ms=db.clock.now_ms())
        quoted = targets.find_ids(tx, [item.id for item in shown.items], None).values()
        under_facts = targets.sources_under_facts(tx, [fact.public_id for fact in shown.facts])
        cite_sources(tx, run_id, [*quoted, *under_facts])
        with_answer = replace(shown, along=shown.along + 1)  # the answer that shows it goes along as well
        return wording.proposal_text(with_answer, language, asked)


def waiting(conn: Connection, place: Place | None, *, now_ms: int) -> Proposal | None:
    """What the next message at a place may confirm."""
    return None if place is None else proposals.find_waiting(conn, place, since_ms=now_ms - CONFIRM_WITHIN_MS)


def was_about_forgetting(conn: Connection, place: Place | None, *, is_standalone: bool, now_ms: int) -> bool:
    """Whether a bare yes or no at a place can only mean what was to be forgotten, though nothing waits for it now.

    Between requests that stand alone there is nothing else to say yes to.
    """
    if is_standalone:
        return True
    if place is None:
        return False
    last = proposals.last_request(conn, place, now_ms=now_ms)
    has_lapsed = proposals.find_waiting(conn, place, since_ms=0) is not None
    return has_lapsed or (last is not None and means_to_forget(last))


def last_said(conn: Connection, place: Place | None, *, now_ms: int) -> str | None:
    """The last message of a place, which tells the language of what has none itself, such as a ``yes``."""
    return None if place is None else proposals.last_request(conn, place, now_ms=now_ms)


def place_of(
    conn: Connection,
    owner: Scope,
    *,
    thread_key: str | None,
    thread_id: str | None,
    is_standalone: bool,
) -> Place | None:
    """Where a message to a thread, or one that stands alone, comes next; None where nothing came before."""
    scope_id = find_scope(conn, owner)
    if scope_id is None or is_standalone:
        return None if scope_id is None else Place(scope_id, None)
    thread = None
    if thread_id is not None:
        thread = find_thread_by_public_id(conn, thread_id)
    elif thread_key is not None:
        thread = find_thread_by_key(conn, scope_id, thread_key)
    return None if thread is None or thread.scope_id != scope_id else Place(scope_id, thread.id)


def withdraw(db: Database, proposal: Proposal) -> None:
    """Drop a proposal that the owner has declined; as an operation on the writer thread."""
    with db.write("keep what was to be forgotten") as tx:
        proposals.drop_proposal(tx, proposal.run_id)


def carry_out(db: Database, ledger_path: Path, proposal: Proposal, language: Language) -> Carried:
    """Erase what was shown, on the owner's word, with the request that asked for it. Blocks until it is proved.

    When something else would go by now, nothing is erased, and it is shown again.
    """
    if not proposal.source_ids and not proposal.fact_ids:
        db.perform(withdraw, proposal)
        return Carried(wording.nothing_text(language), False)
    try:
        outcome = forget(db, ledger_path, _target(proposal), [proposal.scope_id], token=proposal.token or "")
    except NotFound:
        db.perform(withdraw, proposal)
        return Carried(wording.nothing_text(language), False)
    if isinstance(outcome, Changed):
        shown = db.perform(_show_again, proposal)
        if shown is None:
            return Carried(wording.nothing_text(language), False)
        return Carried(wording.changed_text(shown, language), False, is_shown_again=True)
    text = wording.outcome_text(outcome, language)
    return Carried(text, isinstance(outcome, Receipt), is_clean=outcome.is_clean)


def _show_again(db: Database, proposal: Proposal) -> ForgetPreview | None:
    with db.write("show again what would be forgotten") as tx:
        now = proposals.proposal_of(tx, proposal.run_id)
        shown = None if now is None else _shown(tx, now)
        if shown is None or not shown.total:
            proposals.drop_proposal(tx, proposal.run_id)
            return None
        proposals.set_token(tx, proposal.run_id, shown.token, now_ms=db.clock.now_ms())
        return shown


def _shown(conn: Connection, proposal: Proposal) -> ForgetPreview | None:
    if not proposal.source_ids and not proposal.fact_ids:
        return None
    return preview_in(conn, _target(proposal), [proposal.scope_id])


def _target(proposal: Proposal) -> ForgetTarget:
    return ForgetTarget(sources=proposal.source_ids, facts=proposal.fact_ids, along=(proposal.request_id,))
