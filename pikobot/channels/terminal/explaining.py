"""`/why`: what the last answer was made from, in plain words.

Every quote stands with its day, its speaker and the command that forgets it. Ids stand nowhere else.
"""

from collections.abc import Iterable, Iterator, Sequence

from pikobot.channels.terminal.wording import Wording
from pikobot.memory.lineage import FactText
from pikobot.memory.records import Evidence, evidence_quote
from pikobot.memory.why import Explanation
from pikobot.store.facts import Fact

MAX_SHOWN = 20  # facts, or statements, of one kind
MAX_QUOTES = 5  # of one fact
MAX_QUOTE_CHARS = 300


def why_lines(explanation: Explanation | None, words: Wording) -> list[str]:
    """The lines to print; without an answer the one that says so."""
    if explanation is None:
        return [words.why_no_answer]
    if explanation.is_conversation_alone:
        return [words.why_conversation_alone]
    lines = [words.why_heading.format(time=explanation.answered_at[:16].replace("T", " "))]
    if explanation.facts:
        lines += ["", words.why_facts, *_facts(explanation.facts, words)]
    if explanation.statements:
        lines += ["", words.why_statements, *_statements(explanation.statements, words)]
    if explanation.at_hand:
        lines += ["", words.why_at_hand, *_facts(explanation.at_hand, words)]
    return [*lines, "", words.why_forgetting]


def _facts(facts: Sequence[FactText], words: Wording) -> Iterator[str]:
    for text in facts[:MAX_SHOWN]:
        fact = text.fact
        basis = words.why_explicit if fact.basis == "explicit" else words.why_inferred
        yield f"• {_flat(fact.text)} {basis}"
        yield from _quotes("", text.evidence, words)
        yield from _quotes(words.why_context, text.context, words)
        yield from _glances(words.why_replaced, text.replaced, words)
        yield from _glances(words.why_replaced_by, [text.replaced_by] if text.replaced_by else [], words)
        yield from _glances(words.why_conflict, text.conflicts, words)
    yield from _more(facts, MAX_SHOWN, "", words)


def _statements(statements: Sequence[Evidence], words: Wording) -> Iterator[str]:
    for evidence in statements[:MAX_SHOWN]:
        yield f"• {_said(evidence, words)}"
    yield from _more(statements, MAX_SHOWN, "", words)


def _quotes(label: str, evidence: Sequence[Evidence], words: Wording) -> Iterator[str]:
    for each in evidence[:MAX_QUOTES]:
        yield f"    {label}{_said(each, words)}"
    yield from _more(evidence, MAX_QUOTES, "    ", words)


def _glances(label: str, facts: Iterable[Fact], words: Wording) -> Iterator[str]:
    for fact in facts:
        said = _said(evidence_quote(fact.evidence[0]), words)
        yield f"    {label}{_flat(fact.text)} — {said}"


def _more(shown: Sequence[object], limit: int, indent: str, words: Wording) -> Iterator[str]:
    if len(shown) > limit:
        yield indent + words.forget_more.format(count=len(shown) - limit)


def _said(evidence: Evidence, words: Wording) -> str:
    speaker = {"user": words.why_you, "assistant": words.why_assistant}.get(evidence.role, evidence.speaker)
    return words.why_said.format(
        day=words.no_date if evidence.time is None else evidence.time[:10],
        speaker=speaker,
        quote=_flat(evidence.quote),
        id=evidence.id,
    )


def _flat(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_QUOTE_CHARS else flat[:MAX_QUOTE_CHARS] + "…"
