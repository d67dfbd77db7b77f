"""How much of the gold evidence `memory.search` finds: by words and meaning, by each alone, and beside its peers.

Each conversation is imported into a database of its own, its texts are embedded by the background indexer with local
E5, as in an instance, and every question with evidence is asked once of each side, in turns. Peers are FTS5 with its
default tokenizer (unicode61) over the texts, the words of the question OR-ed, ordered by bm25; and, where it is
installed, Mem0's own search over the same messages with the same vectors. The vector of a question is made before its
clock starts, for both. R@k is the mean over questions of the share of gold evidence among the first k results, hit@k
the share of questions with any of it there. Latency is that of the search with ten results, records included, inside
this process.
"""

import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, quantiles

import apsw

from pikobot.agent.indexer import Indexer
from pikobot.clock import SystemClock
from pikobot.memory.embedding.contract import EmbeddingLimits, QueryVector
from pikobot.memory.imports import import_jsonl
from pikobot.memory.search import SearchParams, search
from pikobot.store.connection import Database
from pikobot.store.prepare import open_database
from pikobot.store.sources import SourceId, load_sources
from pikobot.store.vectors.profiles import active_set
from pikobot.store.vectors.scan import scan
from scripts.benchmarks import mem0_peer
from scripts.benchmarks.local_e5 import LocalE5, local_e5
from scripts.benchmarks.report import Figure, Report
from scripts.benchmarks.shared_data import FOLDERS, Conversation, Question, load_conversations

DEPTHS = (5, 10, 20, 50)
ABSTAIN = 5  # LoCoMo's category of questions that can't be answered from the conversation
WANTED = {"locomo": 0.76, "lifebench-zh": 0.85}
WANTED_P50_MS = 5.0
BOTH, WORDS, MEANING, PLAIN, MEM0 = (
    "pikobot",
    "pikobot, words alone",
    "pikobot, meaning alone",
    "plain FTS5",
    "Mem0",
)

Ask = Callable[[str, int], list[str]]
Score = Callable[[Question, Sequence[str]], float]


def run(data: Path) -> Report:
    """The Markdown tables over the directory of shared conversations."""
    if not all((data / folder / "questions.jsonl").is_file() for folder in FOLDERS):
        return Report(f"recall: skipped, {data} does not hold {' and '.join(FOLDERS)}")
    made = local_e5()
    parts = [f"By words alone: {made}.", ""] if isinstance(made, str) else []
    figures: list[Figure] = []
    with contextlib.ExitStack() as stack:
        e5 = None if isinstance(made, str) else stack.enter_context(contextlib.closing(made))
        for folder in FOLDERS:
            asked = [_Asked(conversation, e5) for conversation in load_conversations(data, folder)]
            parts += _locomo_tables(asked) if folder == "locomo" else _lifebench_tables(asked)
            figures += _figures(folder, asked)
    return Report("\n".join(parts), figures)


class _Asked:
    """A conversation with what each side answered and how long it took."""

    def __init__(self, conversation: Conversation, e5: LocalE5 | None) -> None:
        self.conversation = conversation
        self.answers: dict[str, list[list[str]]] = {}
        self.elapsed_ms: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory() as directory:
            db = open_database(Path(directory) / "bench.sqlite3", SystemClock())
            try:
                with conversation.file.open("rb") as stream:
                    import_jsonl(db, stream)
                self._ask(_sides(conversation, db, e5, Path(directory)))
            finally:
                db.close()

    def _ask(self, sides: dict[str, Ask]) -> None:
        self.answers = {side: [] for side in sides}
        self.elapsed_ms = {side: [] for side in sides}
        for question in self.conversation.questions:
            for side, ask in sides.items():
                start = time.perf_counter()
                ask(question.text, 10)
                self.elapsed_ms[side].append((time.perf_counter() - start) * 1_000)
                self.answers[side].append(ask(question.text, max(DEPTHS)))


def _sides(conversation: Conversation, db: Database, e5: LocalE5 | None, directory: Path) -> dict[str, Ask]:
    if e5 is None:
        return {BOTH: _pikobot(db, None), PLAIN: _plain(conversation, directory)}
    limits = EmbeddingLimits(day_microusd=0, workspace_month_microusd=0)
    indexer = Indexer(db, e5.engine, limits)
    e5.run(indexer.serve(until_idle=True))
    if indexer.problem is not None:
        raise RuntimeError(indexer.problem)
    texts = [question.text for question in conversation.questions]
    vectors = dict(zip(texts, e5.vectors(texts, is_query=True), strict=True))

    def vector_of(question: str) -> QueryVector:
        return QueryVector(e5.engine.profile, vectors[question])

    sides = {
        BOTH: _pikobot(db, vector_of),
        WORDS: _pikobot(db, None),
        MEANING: _meaning_alone(db, vector_of),
        PLAIN: _plain(conversation, directory),
    }
    if mem0_peer.is_installed():
        sides[MEM0] = mem0_peer.Mem0Peer(conversation, e5).ask
    return sides


def _pikobot(db: Database, vector_of: Callable[[str], QueryVector] | None) -> Ask:
    def ask(question: str, limit: int) -> list[str]:
        params = SearchParams(query=question, types=["source"], limit=limit)
        with db.read() as conn:
            page = search(
                conn,
                params,
                allowed_scopes=None,
                now_ms=db.clock.now_ms(),
                query_vector=None if vector_of is None else vector_of(question),
            )
        if page.degraded is not None:
            raise RuntimeError(page.degraded)
        return [record.source.external_id or "" for record in page.records]

    return ask


def _meaning_alone(db: Database, vector_of: Callable[[str], QueryVector]) -> Ask:
    """The nearest vectors, as they come out of the scan."""

    def ask(question: str, limit: int) -> list[str]:
        with db.read() as conn:
            serving = active_set(conn)
            if serving is None:
                raise RuntimeError("nothing is embedded")
            hits = scan(conn, serving.id, vector_of(question).values, k=limit) or []
            sources = load_sources(conn, [SourceId(hit.owner.id) for hit in hits], now_ms=db.clock.now_ms())
        return [source.external_id or "" for source in sources.values()]

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
    verdicts = _verdicts(
        asked, "R@10 of categories 1-4", lambda question: question.category != ABSTAIN, _recall_at(10)
    )
    reached = _mean(asked, BOTH, lambda question: question.category != ABSTAIN, _recall_at(10))
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
        *verdicts,
        *_latency(asked),
        "",
    ]


def _lifebench_tables(asked: Sequence[_Asked]) -> list[str]:
    reached = {one.conversation.name: _mean([one], BOTH, lambda question: True, _hit_at(10)) for one in asked}
    return [
        "LifeBench-zh:",
        "",
        *_rows(asked, lambda question: True, _hit_at, "hit"),
        "",
        *_rows(asked, lambda question: True, _recall_at, "R"),
        "",
        *(_verdict(f"hit@10 of {name}", value, WANTED["lifebench-zh"]) for name, value in reached.items()),
        *_verdicts(asked, "hit@10", lambda question: True, _hit_at(10)),
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
    for peer in (PLAIN, MEM0):
        if peer in values:
            pairs = zip(values[BOTH], values[peer], strict=True)
            values[f"ratio to {peer}"] = [a / b if b else float("inf") for a, b in pairs]
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
        if side == BOTH:
            lines.append(f"p50 within {WANTED_P50_MS:.0f} ms: {'yes' if cuts[9] <= WANTED_P50_MS else 'no'}.")
    return lines


def _figures(folder: str, asked: Sequence[_Asked]) -> Iterator[Figure]:
    """R@10 of what can be answered in LoCoMo, hit@10 of everything in LifeBench, and the latency, beside each peer."""
    is_locomo = folder == "locomo"
    score = _recall_at(10) if is_locomo else _hit_at(10)
    name = f"{'R' if is_locomo else 'hit'}@10 of {folder}"

    def admits(question: Question) -> bool:
        return not is_locomo or question.category != ABSTAIN

    def latency(side: str) -> float:
        return median(ms for one in asked for ms in one.elapsed_ms[side])

    for peer in asked[0].answers:
        if peer in (PLAIN, MEM0):
            ours, theirs = (_mean(asked, side, admits, score) for side in (BOTH, peer))
            yield Figure(what=name, peer=peer, ours=ours, theirs=theirs, unit="", is_less_better=False)
            ours, theirs = latency(BOTH), latency(peer)
            yield Figure(what=f"latency in {folder}", peer=peer, ours=ours, theirs=theirs, unit="ms")


def _verdicts(
    asked: Sequence[_Asked], what: str, admits: Callable[[Question], bool], score: Score
) -> list[str]:
    """Whether both together do better than each of the other sides."""
    ours = _mean(asked, BOTH, admits, score)
    others = {side: _mean(asked, side, admits, score) for side in asked[0].answers if side != BOTH}
    return [
        f"{what} better than {side}: {'yes' if ours > value else 'no'} ({ours:.3f} to {value:.3f})."
        for side, value in others.items()
    ]


def _verdict(what: str, reached: float, wanted: float) -> str:
    return f"{what} at least {wanted:.2f}: {'yes' if reached >= wanted else 'no'} ({reached:.3f})."
