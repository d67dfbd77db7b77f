"""How much of the gold evidence `memory.search` finds, beside a plain full-text search of the same records.

Each conversation is imported into a database of its own and every question with evidence is asked once of either
side, in turns. The peer is FTS5 with its default tokenizer (unicode61) over the texts, the words of the question
OR-ed, ordered by bm25. R@k is the mean over questions of the share of gold evidence among the first k results,
hit@k the share of questions with any of it there. Latency is that of the search with ten results, records included,
inside this process.
"""

import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, quantiles

import apsw

from pikobot.clock import SystemClock
from pikobot.memory.imports import import_jsonl
from pikobot.memory.search import SearchParams, search
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from scripts.benchmarks.shared_data import FOLDERS, Conversation, Question, load_conversations

DEPTHS = (5, 10, 20, 50)
ABSTAIN = 5  # LoCoMo's category of questions that can't be answered from the conversation
WANTED = {"locomo": 0.64, "lifebench-zh": 0.71}
WANTED_P50_MS = 5.0

Ask = Callable[[str, int], list[str]]
Score = Callable[[Question, Sequence[str]], float]


def run(data: Path) -> str:
    """The Markdown tables over the directory of shared conversations."""
    if not all((data / folder / "questions.jsonl").is_file() for folder in FOLDERS):
        return f"recall: skipped, {data} does not hold {' and '.join(FOLDERS)}\n"
    parts = []
    for folder in FOLDERS:
        asked = [_Asked(conversation) for conversation in load_conversations(data, folder)]
        parts += _locomo_tables(asked) if folder == "locomo" else _lifebench_tables(asked)
    return "\n".join(parts) + "\n"


class _Asked:
    """A conversation with what either side answered and how long it took."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.answers: dict[str, list[list[str]]] = {"pikobot": [], "plain FTS5": []}
        self.elapsed_ms: dict[str, list[float]] = {side: [] for side in self.answers}
        with tempfile.TemporaryDirectory() as directory:
            db = open_database(Path(directory) / "bench.sqlite3", SystemClock())
            try:
                with conversation.file.open("rb") as stream:
                    import_jsonl(db, stream)
                self._ask({"pikobot": _pikobot(db), "plain FTS5": _plain(conversation, Path(directory))})
            finally:
                db.close()

    def _ask(self, sides: dict[str, Ask]) -> None:
        for question in self.conversation.questions:
            for side, ask in sides.items():
                start = time.perf_counter()
                ask(question.text, 10)
                self.elapsed_ms[side].append((time.perf_counter() - start) * 1_000)
                self.answers[side].append(ask(question.text, max(DEPTHS)))


def _pikobot(db: Database) -> Ask:
    def ask(question: str, limit: int) -> list[str]:
        params = SearchParams(query=question, types=["source"], limit=limit)
        with db.read() as conn:
            page = search(conn, params, allowed_scopes=None, now_ms=db.clock.now_ms())
        return [record.source.external_id or "" for record in page.records]

    return ask


def _plain(conversation: Conversation, directory: Path) -> Ask:
    conn = apsw.Connection(str(directory / "plain.sqlite3"))
    conn.execute("CREATE VIRTUAL TABLE texts USING fts5 (text, external_id UNINDEXED)")
    with conn:
        rows = [(record["text"], record["id"]) for record in conversation.records]
        conn.executemany("INSERT INTO texts VALUES (?, ?)", rows)

    def ask(question: str, limit: int) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        found = conn.execute(
            "SELECT external_id FROM texts WHERE texts MATCH ? ORDER BY bm25(texts) LIMIT ?", (words, limit)
        )
        return [external_id for (external_id,) in found]

    return ask


def _recall_at(depth: int) -> Score:
    def score(question: Question, answer: Sequence[str]) -> float:
        first = set(answer[:depth])
        return fmean(not evidence.isdisjoint(first) for evidence in question.evidence)

    return score


def _hit_at(depth: int) -> Score:
    recall = _recall_at(depth)
    return lambda question, answer: float(recall(question, answer) > 0)


def _locomo_tables(asked: Sequence[_Asked]) -> list[str]:
    answerable = _rows(asked, lambda question: question.category != ABSTAIN, _recall_at, "R")
    everything = _rows(asked, lambda question: True, _recall_at, "R")
    reached = _mean(asked, "pikobot", lambda question: question.category != ABSTAIN, _recall_at(10))
    return [
        "LoCoMo, categories 1-4:",
        "",
        *answerable,
        "",
        "LoCoMo, all categories:",
        "",
        *everything,
        "",
        _verdict("R@10 of categories 1-4", reached, WANTED["locomo"]),
        *_latency(asked),
        "",
    ]


def _lifebench_tables(asked: Sequence[_Asked]) -> list[str]:
    reached = _mean(asked, "pikobot", lambda question: True, _hit_at(10))
    return [
        "LifeBench-zh:",
        "",
        *_rows(asked, lambda question: True, _hit_at, "hit"),
        "",
        *_rows(asked, lambda question: True, _recall_at, "R"),
        "",
        _verdict("hit@10", reached, WANTED["lifebench-zh"]),
        *_latency(asked),
    ]


def _rows(
    asked: Sequence[_Asked], admits: Callable[[Question], bool], score_at: Callable[[int], Score], name: str
) -> list[str]:
    """A table of one line a side, the ratio, and the value at ten of each conversation."""
    names = [one.conversation.name for one in asked]
    header = [*(f"{name}@{depth}" for depth in DEPTHS), *(f"@10 {conversation}" for conversation in names)]
    values = {
        side: [
            *(_mean(asked, side, admits, score_at(depth)) for depth in DEPTHS),
            *(_mean([one], side, admits, score_at(10)) for one in asked),
        ]
        for side in asked[0].answers
    }
    ours, plain = values.values()
    values["ratio"] = [a / b if b else float("inf") for a, b in zip(ours, plain, strict=True)]
    return [
        f"| recall | {' | '.join(header)} |",
        f"|---|{'---:|' * len(header)}",
        *(f"| {side} | {' | '.join(f'{value:.3f}' for value in row)} |" for side, row in values.items()),
    ]


def _mean(asked: Sequence[_Asked], side: str, admits: Callable[[Question], bool], score: Score) -> float:
    return fmean(
        score(question, answer)
        for one in asked
        for question, answer in zip(one.conversation.questions, one.answers[side], strict=True)
        if admits(question)
    )


def _latency(asked: Sequence[_Asked]) -> list[str]:
    lines = []
    for side in asked[0].elapsed_ms:
        elapsed = [ms for one in asked for ms in one.elapsed_ms[side]]
        cuts = quantiles(elapsed, n=20)
        lines.append(f"Latency, {side}: p50 {cuts[9]:.2f} ms, p95 {cuts[18]:.2f} ms.")
        if side == "pikobot":
            lines.append(f"p50 within {WANTED_P50_MS:.0f} ms: {'yes' if cuts[9] <= WANTED_P50_MS else 'no'}.")
    return lines


def _verdict(what: str, reached: float, wanted: float) -> str:
    return f"{what} at least {wanted:.2f}: {'yes' if reached >= wanted else 'no'} ({reached:.3f})."
