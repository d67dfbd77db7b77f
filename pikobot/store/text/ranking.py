"""The order of text hits once BM25 has chosen them: what the conversation around a hit says about it.

BM25 sees one message at a time, but in a dialogue the words of a question stand in one message and its
answer in the next. So within a pool of the best hits (`POOL`) each message passes a part of its score on to
its neighbours in the thread, most of it to the reply when it is a question; a reply joins the pool even if
it shares no word with the query. Then messages of a speaker whom the query names gain, and questions lose,
as they rarely hold answers. Hits after the pool keep their order: the ranking doesn't depend on how many
results are asked for.

Weights were chosen on two of five LoCoMo conversations and one of two LifeBench-zh people and confirmed on
the rest; around each value the figures are flat. Recall@10 of LoCoMo categories 1-4 and hit@10 of
LifeBench-zh over everything, in a pool of 200: all together 0.749 and 0.853; BM25 alone, without neighbours,
0.666 and 0.832; a reply sharing no more than any next message 0.718 and 0.855; replies that share no word
kept out 0.737 and 0.858; named speakers not favoured 0.733 and 0.847; questions not discounted 0.745 and
0.860. A pool of 100 gives 0.745 and 0.842 at two thirds of the time of 200, one of 300 gives 0.751 and
0.858.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

POOL = 100
REPLY_SHARE = 0.7
NEXT_SHARE = 0.3
PREVIOUS_SHARE = 0.2
NAMED_SPEAKER_GAIN = 1.4
QUESTION_DISCOUNT = 0.8


class Match(NamedTuple):
    """A source in a ranking, with what ranking needs to know of it."""

    source_id: int
    score: float
    said_at_ms: int
    speaker: str
    is_question: bool


Following = Mapping[int, int | None]
"""What was said next in the thread of a source."""


def replies(pool: Sequence[Match], following: Following) -> set[int]:
    """Return the ids of what was said right after a question of the pool."""
    next_ids = (following[match.source_id] for match in pool if match.is_question)
    return {source_id for source_id in next_ids if source_id is not None}


def rerank(
    pool: Sequence[Match],
    joined: Sequence[Match],
    following: Following,
    is_named: Callable[[str], bool],
) -> list[tuple[int, float]]:
    """Return ids and new scores of the pool and the joined replies, best first, equals newest first.

    ``joined`` have no score of their own; ``following`` is of both; ``is_named`` tells whether the query names a
    speaker.
    """
    everything = (*pool, *joined)
    scores: dict[int | None, float] = {source_id: score for source_id, score, *_ in everything}
    previous = {next_id: source_id for source_id, next_id in following.items()}
    for source_id, score, _, _, is_question in pool:
        next_id = following[source_id]
        if next_id in scores:
            scores[next_id] += score * (REPLY_SHARE if is_question else NEXT_SHARE)
        if source_id in previous:
            scores[previous[source_id]] += score * PREVIOUS_SHARE
    gains = {speaker: NAMED_SPEAKER_GAIN if is_named(speaker) else 1.0 for _, _, _, speaker, _ in everything}
    ranked = [
        (
            scores[source_id] * (gains[speaker] * QUESTION_DISCOUNT if is_question else gains[speaker]),
            said_at_ms,
            source_id,
        )
        for source_id, _, said_at_ms, speaker, is_question in everything
    ]
    ranked.sort(reverse=True)
    return [(source_id, score) for score, _, source_id in ranked]
