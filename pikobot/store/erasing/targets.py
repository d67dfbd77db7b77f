"""What somebody may ask to forget: sources and facts by id, by what they hold, by when and where they were said.

Expired sources are found too: until they are pruned they can be forgotten like any other. A fact is found with the
sources that it quotes, for those say it.
"""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pikobot.store.connection import Connection
from pikobot.store.erasing.erasures import Tombstone
from pikobot.store.facts import FactId, text_identity
from pikobot.store.scopes import ScopeId
from pikobot.store.sources import Origin, Role, SourceId
from pikobot.store.text.index import IS_DATED
from pikobot.store.text.literal import folded
from pikobot.store.threads import ThreadId

Holder = Literal["text", "speaker", "fact"]
"""Where a literal was found: in what was said, in who said it, in what was learned from it."""

# Speakers that nobody has named: their names are not what somebody looks for.
UNNAMED_SPEAKERS = ("owner", "pikobot", "assistant", "participant")
UNNAMED_SUBJECTS = ("owner", "assistant")

IN_BOUNDS = f"""
    (:scopes IS NULL OR s.scope_id IN (SELECT value FROM json_each(:scopes)))
    AND (:thread IS NULL OR s.thread_id = :thread)
    AND (:role IS NULL OR s.role = :role)
    AND (:from_ms IS NULL OR s.said_at_ms >= :from_ms)
    AND (:to_ms IS NULL OR s.said_at_ms < :to_ms)
    AND ((:from_ms IS NULL AND :to_ms IS NULL) OR {IS_DATED})
"""
_FACTS_HOLDING = """
    SELECT id FROM facts
    WHERE {contains}(text, :folded) OR (value IS NOT NULL AND {contains}(value, :folded))
      OR (subject NOT IN (SELECT value FROM json_each(:subjects)) AND {contains}(subject, :folded))
    UNION SELECT fact_id FROM fact_tags WHERE {contains}(tag, :folded)
    UNION SELECT fact_id FROM entity_aliases WHERE {contains}(folded, :folded)
    UNION SELECT fe.fact_id FROM entities AS n CROSS JOIN fact_entities AS fe ON fe.entity_id = n.id
        WHERE {contains}(n.name, :folded)
"""


@dataclass(frozen=True)
class Bounds:
    """Which sources are meant: of these scopes (None: all), said in [from_ms, to_ms), in a thread, by a role.

    What nobody knows the time of was said in no range of time.
    """

    scope_ids: Collection[ScopeId] | None = None
    thread_id: ThreadId | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    role: Role | None = None

    @property
    def bindings(self) -> dict[str, int | str | None]:
        return {
            "scopes": _json(self.scope_ids),
            "thread": self.thread_id,
            "role": self.role,
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
        }


class Moment(NamedTuple):
    """When a source was said, and at what offset from UTC."""

    source_id: SourceId
    said_at_ms: int
    utc_offset_min: int


@dataclass(frozen=True)
class SourceGlance:
    """As much of a source as somebody needs to recognise it."""

    public_id: str
    role: str
    speaker: str
    said_at_ms: int
    utc_offset_min: int
    beginning: str
    is_dated: bool


@dataclass(frozen=True)
class FactGlance:
    """As much of a fact as somebody needs to recognise it."""

    public_id: str
    text: str


@dataclass(frozen=True)
class FactTarget:
    """A fact as it is forgotten: every row that states the same, and the sources that they quote.

    A tombstone keeps the statement out, another one the wording, which a model may file under another attribute.
    """

    public_ids: tuple[str, ...]
    tombstones: tuple[Tombstone, ...]
    source_ids: tuple[SourceId, ...]


@dataclass(frozen=True)
class Labels:
    """Names that hold a literal and are nothing that was said: of threads, and ids given from outside.

    The first few of each, as (public id, name), and how many there are.
    """

    threads: tuple[tuple[str, str], ...] = ()
    external_ids: tuple[tuple[str, str], ...] = ()
    thread_count: int = 0
    external_id_count: int = 0


def find_ids(
    conn: Connection, public_ids: Iterable[str], scope_ids: Collection[ScopeId] | None
) -> dict[str, SourceId]:
    """The sources of those public ids in the scopes (None: all), those that exist."""
    found = {}
    for public_id in public_ids:
        row = conn.execute(
            """
            SELECT id FROM sources
            WHERE public_id = :id AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
            """,
            {"id": public_id, "scopes": _json(scope_ids)},
        ).fetchone()
        if row is not None:
            found[public_id] = SourceId(row[0])
    return found


def find_facts(
    conn: Connection, public_ids: Iterable[str], scope_ids: Collection[ScopeId] | None
) -> dict[str, FactTarget]:
    """The facts of those public ids in the scopes (None: all), those that exist, each with all that says the same."""
    found = {}
    for public_id in public_ids:
        row = conn.execute(
            """
            SELECT scope_id, identity FROM facts
            WHERE public_id = :id AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
            """,
            {"id": public_id, "scopes": _json(scope_ids)},
        ).fetchone()
        if row is not None:
            found[public_id] = _fact_target(conn, ScopeId(row[0]), bytes(row[1]))
    return found


def _fact_target(conn: Connection, scope_id: ScopeId, identity: bytes) -> FactTarget:
    rows = [
        (FactId(row[0]), str(row[1]), str(row[2]), str(row[3]))
        for row in conn.execute(
            "SELECT id, public_id, subject, text FROM facts WHERE scope_id = ? AND identity = ? ORDER BY id",
            (scope_id, identity),
        )
    ]
    tombstones = [Tombstone("fact", public_id, identity) for _, public_id, _, _ in rows]
    wordings = {text_identity(conn, scope_id, subject, text): name for _, name, subject, text in rows}
    tombstones += [Tombstone("fact", f"{name}:text", wording) for wording, name in wordings.items()]
    quoted = sources_of_facts(conn, [fact_id for fact_id, _, _, _ in rows])
    return FactTarget(tuple(row[1] for row in rows), tuple(tombstones), tuple(quoted))


def sources_under_facts(conn: Connection, public_ids: Iterable[str]) -> list[SourceId]:
    """All that the facts of those public ids rest on: what they quote, and what they need as context."""
    rows = conn.execute(
        """
        WITH named (id) AS (
            SELECT id FROM facts WHERE public_id IN (SELECT value FROM json_each(?))
        )
        SELECT e.source_id FROM named CROSS JOIN fact_evidence AS e ON e.fact_id = named.id
        UNION
        SELECT c.source_id FROM named CROSS JOIN fact_context AS c ON c.fact_id = named.id
        ORDER BY 1
        """,
        (json.dumps(list(public_ids)),),
    )
    return [SourceId(row[0]) for row in rows]


def sources_of_facts(conn: Connection, fact_ids: Iterable[FactId]) -> list[SourceId]:
    """The sources that the facts quote; what they only need as context says nothing of them."""
    rows = conn.execute(
        """
        SELECT DISTINCT source_id FROM fact_evidence
        WHERE fact_id IN (SELECT value FROM json_each(?)) ORDER BY source_id
        """,
        (json.dumps(list(fact_ids)),),
    )
    return [SourceId(row[0]) for row in rows]


def find_in(conn: Connection, bounds: Bounds) -> list[SourceId]:
    """All sources in the bounds."""
    rows = conn.execute(f"SELECT s.id FROM sources AS s WHERE {IN_BOUNDS} ORDER BY s.id", bounds.bindings)
    return [SourceId(row[0]) for row in rows]


def find_holding(
    conn: Connection, literals: Sequence[str], bounds: Bounds, *, whole_words: bool = False
) -> dict[SourceId, Holder]:
    """Sources in the bounds that hold every one of the literals in any case, with where the first one stands.

    With ``whole_words`` not inside other words, as far as a script separates words (`contains_word_folded`).

    A source holds a literal in its text, in the name of its speaker, or in what a fact that quotes it says or names.
    Reads every text of the scopes.
    """
    found: dict[SourceId, Holder] | None = None
    for literal in literals:
        holders = _holders(conn, folded(literal), bounds, whole_words)
        found = (
            holders if found is None else {each: where for each, where in found.items() if each in holders}
        )
    return found or {}


def fact_ids_of(conn: Connection, public_ids: Iterable[str]) -> list[FactId]:
    """The facts of those public ids that exist, in the order of their ids."""
    rows = conn.execute(
        "SELECT id FROM facts WHERE public_id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(list(public_ids)),),
    )
    return [FactId(row[0]) for row in rows]


def find_labels(
    conn: Connection,
    literal: str,
    scope_ids: Collection[ScopeId] | None,
    *,
    without: Collection[str],
    at_most: int,
) -> Labels:
    """Names of threads and ids from outside that hold the literal in any case, but for those of the public ids."""
    bindings = {"scopes": _json(scope_ids), "folded": folded(literal)}
    threads = conn.execute(
        """
        SELECT public_id, key FROM threads
        WHERE key IS NOT NULL AND contains_folded(key, :folded)
          AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
        ORDER BY id
        """,
        bindings,
    )
    left = [(str(row[0]), str(row[1])) for row in threads if row[0] not in without]
    external = conn.execute(
        """
        SELECT public_id, external_id FROM sources
        WHERE external_id IS NOT NULL AND contains_folded(external_id, :folded)
          AND (:scopes IS NULL OR scope_id IN (SELECT value FROM json_each(:scopes)))
        ORDER BY id
        """,
        bindings,
    )
    ids = [(str(row[0]), str(row[1])) for row in external if row[0] not in without]
    return Labels(tuple(left[:at_most]), tuple(ids[:at_most]), len(left), len(ids))


def find_last_exchange(
    conn: Connection, thread_id: ThreadId, *, before: SourceId | None = None
) -> list[SourceId]:
    """The thread's last request and what came after it, or those before a source; empty when nobody has asked."""
    rows = conn.execute(
        """
        SELECT id FROM sources
        WHERE thread_id = :thread AND (:before IS NULL OR id < :before) AND id >= (
            SELECT max(id) FROM sources
            WHERE thread_id = :thread AND (:before IS NULL OR id < :before) AND role = 'user' AND kind = 'message'
        )
        ORDER BY id
        """,
        {"thread": thread_id, "before": before},
    )
    return [SourceId(row[0]) for row in rows]


def moments_of(
    conn: Connection, source_ids: Iterable[SourceId], *, without_own_answers: bool = False
) -> list[Moment]:
    """When each was said, in the order of the ids; of what pikobot answered without a model nothing, if so told."""
    rows = conn.execute(
        """
        SELECT id, said_at_ms, utc_offset_min FROM sources
        WHERE id IN (SELECT value FROM json_each(:ids))
          AND NOT (:without_own AND role = 'assistant' AND origin = 'recall')
        ORDER BY id
        """,
        {"ids": json.dumps(list(source_ids)), "without_own": int(without_own_answers)},
    )
    return [Moment(SourceId(row[0]), int(row[1]), int(row[2])) for row in rows]


def fingerprints_of(conn: Connection, source_ids: Iterable[SourceId]) -> list[tuple[str, bytes]]:
    """Public id and hash of the text of each, in the order of the ids."""
    rows = conn.execute(
        "SELECT public_id, content_hash FROM sources WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(list(source_ids)),),
    )
    return [(str(row[0]), bytes(row[1])) for row in rows]


def requests_of(
    conn: Connection, source_ids: Iterable[SourceId], *, max_chars: int
) -> list[tuple[SourceId, str]]:
    """Those of the sources that were said in a run whose request is no longer than that, each with its text."""
    rows = conn.execute(
        """
        SELECT s.id, request.text FROM json_each(:ids) AS asked CROSS JOIN sources AS s ON s.id = asked.value
        CROSS JOIN sources AS request ON request.run_id = s.run_id
        WHERE request.role = 'user' AND request.kind = 'message' AND length(request.text) <= :max_chars
        ORDER BY s.id
        """,
        {"ids": json.dumps(list(source_ids)), "max_chars": max_chars},
    )
    return [(SourceId(row[0]), str(row[1])) for row in rows]


def messages_of(
    conn: Connection, source_ids: Iterable[SourceId], *, max_chars: int
) -> list[tuple[SourceId, Role, Origin, str]]:
    """Those of the sources that are messages no longer than that: role, origin and text, in the order of the ids."""
    rows = conn.execute(
        """
        SELECT id, role, origin, text FROM sources
        WHERE id IN (SELECT value FROM json_each(?)) AND kind = 'message'
          AND (length(text) <= ? OR origin = 'recall')
        ORDER BY id
        """,
        (json.dumps(list(source_ids)), max_chars),
    )
    return [(SourceId(row[0]), row[1], row[2], str(row[3])) for row in rows]


def texts_of(conn: Connection, source_ids: Iterable[SourceId]) -> list[str]:
    """The texts of the sources, in the order of the ids."""
    rows = conn.execute(
        "SELECT text FROM sources WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id",
        (json.dumps(list(source_ids)),),
    )
    return [str(row[0]) for row in rows]


def glance_at(conn: Connection, source_ids: Iterable[SourceId], *, max_chars: int) -> list[SourceGlance]:
    """The sources in the order given, their texts cut."""
    glances = []
    for source_id in source_ids:
        row = conn.execute(
            f"""
            SELECT public_id, role, speaker, said_at_ms, utc_offset_min, substr(text, 1, ?), {IS_DATED}
            FROM sources AS s WHERE id = ?
            """,
            (max_chars, source_id),
        ).fetchone()
        if row is not None:
            glances.append(SourceGlance(*row))
    return glances


def glance_at_facts(conn: Connection, fact_ids: Iterable[FactId], *, max_chars: int) -> list[FactGlance]:
    """The facts in the order given, their texts cut."""
    glances = []
    for fact_id in fact_ids:
        row = conn.execute(
            "SELECT public_id, substr(text, 1, ?) FROM facts WHERE id = ?", (max_chars, fact_id)
        ).fetchone()
        if row is not None:
            glances.append(FactGlance(*row))
    return glances


def emptied_threads(conn: Connection, source_ids: Collection[SourceId]) -> list[tuple[str, str | None]]:
    """Threads of which no source is left without these, as (public id, name), in the order they were made."""
    rows = conn.execute(
        """
        WITH gone (id) AS (SELECT value FROM json_each(?)),
            touched (id, count) AS (
                SELECT s.thread_id, count(*) FROM gone CROSS JOIN sources AS s ON s.id = gone.id GROUP BY s.thread_id
            )
        SELECT t.public_id, t.key FROM touched CROSS JOIN threads AS t ON t.id = touched.id
        WHERE touched.count = (SELECT count(*) FROM sources AS s WHERE s.thread_id = t.id)
        ORDER BY t.id
        """,
        (json.dumps(list(source_ids)),),
    )
    return [(str(row[0]), row[1]) for row in rows]


def _holders(conn: Connection, folded: str, bounds: Bounds, whole_words: bool) -> dict[SourceId, Holder]:
    contains = "contains_word_folded" if whole_words else "contains_folded"
    found: dict[SourceId, Holder] = {}
    bindings = {**bounds.bindings, "folded": folded, "unnamed": json.dumps(UNNAMED_SPEAKERS)}
    rows = conn.execute(
        f"""
        SELECT s.id, {contains}(s.text, :folded) FROM sources AS s
        WHERE {IN_BOUNDS} AND (
            {contains}(s.text, :folded) OR (
                s.speaker NOT IN (SELECT value FROM json_each(:unnamed)) AND {contains}(s.speaker, :folded)
            )
        )
        ORDER BY s.id
        """,
        bindings,
    )
    for source_id, is_in_text in rows:
        found[SourceId(source_id)] = "text" if is_in_text else "speaker"
    rows = conn.execute(
        f"""
        SELECT DISTINCT s.id FROM fact_evidence AS e CROSS JOIN sources AS s ON s.id = e.source_id
        WHERE e.fact_id IN ({_FACTS_HOLDING.format(contains=contains)}) AND {IN_BOUNDS} ORDER BY s.id
        """,
        {**bindings, "subjects": json.dumps(UNNAMED_SUBJECTS)},
    )
    for (source_id,) in rows:
        found.setdefault(SourceId(source_id), "fact")
    return found


def _json(scope_ids: Collection[ScopeId] | None) -> str | None:
    return None if scope_ids is None else json.dumps(sorted(scope_ids))
