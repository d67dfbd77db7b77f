from pathlib import Path

from tests.agent.learning import (
    element,
    extracting,
    jobs,
    learn,
    prompt_of,
    queue,
    rejections,
    section,
    stored,
)
from tests.memory.remembering import DAY_MS, NOW_MS, opened, say

LAST_WEEK_MS = NOW_MS - 7 * DAY_MS  # 2024-02-23, a Friday

# Which source an element quotes is told by its role and its number among those.
ELEMENTS = (
    element(
        "The owner moved to Porto on 2024-02-22",
        ("owner:0", "I moved to Porto yesterday"),
        kind="event",
        event_time="2024-02-22",
    ),
    element(
        "The owner has lived in Foz since May",
        ("owner:1", "Yes, since May"),
        depends_on=["assistant:0"],
    ),
    element("Ana sold her boat", ("participant:0", "I sold my boat."), subject="Ana", kind="event"),
    element("The owner lives in Berlin", ("participant:0", "The owner lives in Berlin.")),
    element("The owner is a nurse", ("assistant:1", "You must be a nurse")),
    element(
        "The owner prefers short answers",
        ("owner:2", "I’d rather have short answers"),
        kind="preference",
    ),
    element(
        "主人2024年2月22日和美玲去了上海",
        ("owner:3", "我昨天和美玲去了上海"),
        kind="event",
        event_time="2024-02-22",
        entities=["美玲", "上海"],
        tags=["travel"],
    ),
)
STORED = [
    (
        "The owner moved to Porto on 2024-02-22",
        "owner",
        "event",
        "2024-02-22",
        [("user", "owner", "I moved to Porto yesterday")],
        [],
    ),
    (
        "The owner has lived in Foz since May",
        "owner",
        "fact",
        None,
        [("user", "owner", "Yes, since May")],
        ["Do you live in Foz?"],
    ),
    ("Ana sold her boat", "Ana", "event", None, [("participant", "Ana", "I sold my boat.")], []),
    (
        "The owner prefers short answers",
        "owner",
        "preference",
        None,
        [("user", "owner", "I’d rather have short answers")],
        [],
    ),
    (
        "主人2024年2月22日和美玲去了上海",
        "owner",
        "event",
        "2024-02-22",
        [("user", "owner", "我昨天和美玲去了上海")],
        [],
    ),
]


def test_each_kind_of_statement_is_stored_attributed_and_dated_or_rejected(tmp_path: Path) -> None:
    with opened(tmp_path) as db:
        ids = [
            *say(db, "I moved to Porto yesterday", at_ms=LAST_WEEK_MS),
            *say(db, "Do you live in Foz?", role="assistant", speaker="pikobot", at_ms=LAST_WEEK_MS + 1),
            *say(db, "Yes, since May", at_ms=LAST_WEEK_MS + 2),
            *say(
                db,
                "I sold my boat. The owner lives in Berlin.",
                role="participant",
                speaker="Ana",
                at_ms=LAST_WEEK_MS + 3,
            ),
            *say(db, "You must be a nurse", role="assistant", speaker="pikobot", at_ms=LAST_WEEK_MS + 4),
            *say(db, "I’d rather have short answers", at_ms=LAST_WEEK_MS + 5),
            *say(db, "我昨天和美玲去了上海", at_ms=LAST_WEEK_MS + 6, utc_offset_min=480),
        ]
        assert queue(db, *ids) == 1
        model = extracting(*ELEMENTS)
        learn(db, model)
        assert stored(db) == STORED
        assert rejections(db) == {"assistant_only_evidence": 1, "wrong_speaker": 1}
        assert jobs(db) == [("succeeded", "stored", None, 5, 1)]
        prompt = prompt_of(model)
        assert section(prompt, "Observation Date") == "2024-02-23"  # not the day of extraction
        assert '"time": "2024-02-23T13:33:20Z", "text": "I moved to Porto yesterday"' in prompt
        assert "2024-03-01" not in prompt
