"""The erasure ledgers that a restore finds, and the union of them that it obeys.

Ledgers of one instance are chains with the same beginning. Usually one continues the other: then the longest is
the union. Where two have gone different ways (an old backup was restored without the newest ledger, and both went on
forgetting) no erasure of either is dropped: the rows of the other way are appended to the chain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pikobot.errors import UsageError
from pikobot.memory.forgetting import ledger
from pikobot.memory.forgetting.ledger import Chain
from pikobot.store.erasing.erasures import Erasure
from pikobot.store.snapshot import chain_of, describe, open_unchanging


@dataclass(frozen=True)
class Union:
    """What has to be erased in a database besides its own ledger. ``continuing`` keeps positions and hashes."""

    continuing: tuple[Erasure, ...]
    elsewhere: tuple[Erasure, ...]

    def __bool__(self) -> bool:
        return bool(self.continuing or self.elsewhere)


def chain_in(database: Path) -> Chain:
    """The ledger in a database that nobody writes to; its instance is empty for one that was never prepared.

    Raises `DamagedData`.
    """
    with open_unchanging(database) as conn:
        description = describe(conn)
        return Chain("", ()) if description is None else Chain(description.instance, tuple(chain_of(conn)))


def chain_at(path: Path) -> Chain | None:
    """The ledger in a file, None when there is none or only the beginning of its first line.

    Raises `DamagedData` naming the file when its chain is broken.
    """
    try:
        whole = ledger.read_whole_lines(path)
    except FileNotFoundError:
        return None
    return ledger.parse_chain(path, whole) if whole else None


def given_chain(path: Path, instance: str) -> Chain:
    """The ledger that somebody names. Raises `UsageError` when there is none or it is another instance's."""
    chain = None if path.is_dir() else chain_at(path)
    if chain is None:
        raise UsageError(f"{path}: there is no erasure ledger; name an erasures.jsonl")
    if chain.instance != instance:
        raise UsageError(
            f"{path} is the ledger of {chain.instance}, the backup is of {instance}: "
            "name the ledger of that instance, or leave --ledger out"
        )
    return chain


def continues(longer: Chain, shorter: Chain) -> bool:
    """Whether one chain is the other one, or the other one with more behind it."""
    if longer.instance != shorter.instance or len(longer.erasures) < len(shorter.erasures):
        return False
    return not shorter.erasures or longer.erasures[len(shorter.erasures) - 1] == shorter.erasures[-1]


def unite(own: Chain, others: Iterable[Chain]) -> Union:
    """What ``own`` lacks of the others, all of one instance."""
    others = list(others)
    longest = max(
        (one for one in others if continues(one, own)), key=lambda one: len(one.erasures), default=own
    )
    known = {erasure.public_id for erasure in longest.erasures}
    elsewhere: list[Erasure] = []
    for chain in others:
        if not continues(longest, chain):
            elsewhere += _unknown(chain.erasures, known)
    return Union(longest.erasures[len(own.erasures) :], tuple(elsewhere))


def _unknown(erasures: Sequence[Erasure], known: set[str]) -> list[Erasure]:
    """Those not known yet; they are from now on."""
    fresh = [erasure for erasure in erasures if erasure.public_id not in known]
    known.update(erasure.public_id for erasure in fresh)
    return fresh
