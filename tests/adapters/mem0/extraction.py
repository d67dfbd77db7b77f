"""A batch with every kind of speaker, and models that answer what a test says."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from pikobot.adapters.chat import Completion, StopReason
from pikobot.adapters.mem0.candidates import ExtractionBatch, ExtractionOutcome, KnownFact, SourceTurn
from pikobot.adapters.mem0.embedder import Embedder
from pikobot.adapters.mem0.engine import MemoryExtractor
from pikobot.adapters.mem0.llm import ModelRequest

SAID_AT_MS = 1_709_371_800_000  # 2024-03-02T10:30:00+01:00, a Saturday
UTC_OFFSET_MIN = 60
OWNER_TEXT = "Yes, since May. Yesterday I said “I'd never move”, then moved to Lyon."
CHINESE_TEXT = "我昨天把家搬到了上海，妹妹叫美玲。"


def turn(source_id: str, role: Any, speaker: str, text: str, minute: int = 0) -> SourceTurn:
    return SourceTurn(source_id, role, speaker, SAID_AT_MS + minute * 60_000, UTC_OFFSET_MIN, text)


QUESTION = turn("src_q", "assistant", "pikobot", "Do you still work at Acme?", 0)
OWNER = turn("src_o", "owner", "Alex", OWNER_TEXT, 1)
GUESS = turn("src_g", "assistant", "pikobot", "You must be a nurse, then. I suggest Café Zola.", 2)
BOB = turn("src_b", "participant", "Bob", "I sold my boat. Alex lives in Berlin now.", 3)
CHINESE = turn("src_z", "owner", "Alex", CHINESE_TEXT, 4)
EARLIER = turn("src_e", "owner", "Alex", "Acme hired me.", -60)
TURNS = (QUESTION, OWNER, GUESS, BOB, CHINESE)
FACTS = (
    KnownFact("fact_cat", "User has a cat", "owner", "owner"),
    KnownFact("fact_boat", "Bob has a boat", "participant", "Bob"),
)
BATCH = ExtractionBatch(TURNS, (EARLIER,), FACTS)


def element(**changes: Any) -> dict[str, Any]:
    """A valid one of the owner; ``None`` as a change removes nothing, ``...`` removes the key."""
    whole = {
        "id": "0",
        "text": "User moved to Lyon on 2024-03-01",
        "attributed_to": "user",
        "subject": "owner",
        "evidence": [{"source_id": "src_o", "quote": "moved to Lyon"}],
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not ...}


def evidence(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"source_id": source_id, "quote": quote} for source_id, quote in pairs]


def document(*elements: Any) -> str:
    return json.dumps({"memory": elements}, ensure_ascii=False)


def completion(text: str, stop_reason: StopReason = StopReason.STOP) -> Completion:
    return Completion(text, (), stop_reason, None)


class ScriptedModel:
    """Answers in order, and keeps the requests; one call too many is an error."""

    def __init__(self, *answers: str | Completion | BaseException) -> None:
        self._answers = list(answers)
        self.requests: list[ModelRequest] = []

    def __call__(self, request: ModelRequest) -> Completion:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return completion(answer) if isinstance(answer, str) else answer


class LengthEmbedder:
    """Vectors of two numbers that tell the texts apart; keeps what it was asked."""

    dimension = 2

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.asked.append(tuple(texts))
        return [(float(len(text)), 1.0) for text in texts]


@cache
def extractor() -> MemoryExtractor:
    return MemoryExtractor()


def extract(
    *answers: str | Completion | BaseException,
    batch: ExtractionBatch = BATCH,
    embedder: Embedder | None = None,
) -> ExtractionOutcome:
    """The outcome of one batch; every scripted answer must have been asked for."""
    model = ScriptedModel(*answers)
    outcome = extractor().extract(batch, model, embedder)
    assert len(model.requests) == len(answers) == outcome.calls
    return outcome
