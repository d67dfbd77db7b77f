"""The model as Mem0 sees it: one call becomes one answer that is valid, or the batch ends here.

The caller's callable makes the provider calls and accounts for them. An answer that is no document of the
contract is repaired once at most, by a second call that names the fault. Truncation and refusal end the batch at
once: the same request would meet them again. Mem0 gets its own part of the accepted elements alone.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pikobot.adapters.chat import Completion, Message, StopReason
from pikobot.adapters.mem0.answer import InvalidDocument, is_refusal, read_elements
from pikobot.adapters.mem0.candidates import (
    DocumentFault,
    ExtractionBatch,
    NothingToRemember,
    Refused,
    Truncated,
    Unparsable,
)
from pikobot.adapters.mem0.extraction_contract import mem0_role, mem0_subject, repair_request
from pikobot.adapters.mem0.seams import Ended, carrying
from pikobot.adapters.mem0.validation import Validated, validate_elements

MAX_CALLS = 2
MAX_QUOTED_ANSWER_CHARS = 20_000


@dataclass(frozen=True)
class ModelRequest:
    """One provider call, for which the answer should be constrained to a JSON object where that is possible."""

    messages: tuple[Message, ...]
    is_repair: bool


ModelCall: TypeAlias = Callable[[ModelRequest], Completion]


class ExtractionLlm:
    """For one batch; ``validated`` and ``calls`` are there after Mem0 has asked."""

    def __init__(self, call: ModelCall, batch: ExtractionBatch) -> None:
        self._call = call
        self._batch = batch
        self.calls = 0
        self.validated: Validated | None = None

    def generate_response(
        self, messages: Sequence[Mapping[str, str]], response_format: Mapping[str, str]
    ) -> str:
        """Mem0's one question. Raises Ended, or Carried with what the callable raised."""
        elements = self._elements([_message(wire) for wire in messages])
        if not elements:
            raise Ended(NothingToRemember(self.calls))
        self.validated = validate_elements(elements, self._batch)
        return json.dumps({"memory": self._for_mem0(self.validated)})

    def _elements(self, messages: list[Message]) -> list[Any]:
        faults: list[DocumentFault] = []
        while True:
            completion = self._ask(messages, is_repair=bool(faults))
            fault: DocumentFault
            if completion.stop_reason is StopReason.TOOL_CALLS:
                fault = DocumentFault.TOOL_CALL
            else:
                try:
                    return read_elements(completion.text)
                except InvalidDocument as invalid:
                    fault = invalid.fault
            faults.append(fault)
            if self.calls >= MAX_CALLS:
                raise Ended(Unparsable(tuple(faults), self.calls))
            messages = [*messages, *_repair(completion.text, fault)]

    def _ask(self, messages: Sequence[Message], *, is_repair: bool) -> Completion:
        self.calls += 1
        with carrying():
            completion = self._call(ModelRequest(tuple(messages), is_repair))
        if completion.stop_reason is StopReason.LENGTH:
            raise Ended(Truncated(self.calls))
        if completion.stop_reason is StopReason.CONTENT_FILTER or is_refusal(completion.text):
            raise Ended(Refused(self.calls))
        return completion

    def _for_mem0(self, validated: Validated) -> list[dict[str, Any]]:
        positions = {fact.fact_id: str(position) for position, fact in enumerate(self._batch.known_facts)}
        return [
            {
                "id": str(index),
                "text": candidate.text,
                "attributed_to": mem0_role(candidate.attributed_to),
                "subject": mem0_subject(candidate.attributed_to, candidate.subject),
                "linked_memory_ids": [positions[fact_id] for fact_id in candidate.linked_fact_ids],
            }
            for index, candidate in enumerate(validated.candidates)
        ]


def _message(wire: Mapping[str, str]) -> Message:
    return Message("system" if wire["role"] == "system" else "user", wire["content"])


def _repair(answer: str, fault: DocumentFault) -> list[Message]:
    """The invalid answer and what is wrong with it; an empty answer is no message."""
    said = [Message("assistant", answer[:MAX_QUOTED_ANSWER_CHARS])] if answer.strip() else []
    return [*said, Message("user", repair_request(fault))]
