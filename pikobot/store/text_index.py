"""The text index over sources: kept beside `sources` in the same transaction, searched with eligibility
first.

The index is contentless and deletes securely, so after a commit and a truncated WAL no term of a deleted
source is left in the file. That holds only while a row is deleted with exactly the text it was added with:
`sources` hands both functions the stored text and speaker, and a segmenter other than the recorded one means
that `rebuild_text_index` has to run first (`is_index_current`).

Ranking is FTS5's BM25 over the terms of the question; a higher score is better, and scores of different
queries don't compare.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from pikobot.store.connection import Connection
from pikobot.store.segmentation import SEGMENTER_ID, is_cjk, pairs, pieces, quoted, segment
from pikobot.store.settings import SEGMENTER, read_setting, write_setting


@dataclass(frozen=True)
class TextHit:
    """A source found by its words; the score is the negated BM25, higher is better."""

    source_id: int
    score: float


def index_source(conn: Connection, source_id: int, text: str, speaker: str) -> None:
    """Add a source that is not in the index. Caller holds write."""
    conn.execute(
        "INSERT INTO sources_text (rowid, text, speaker) VALUES (?, ?, ?)",
        (source_id, segment(text), segment(speaker)),
    )


def unindex_source(conn: Connection, source_id: int, text: str, speaker: str) -> None:
    """Remove a source, given the text and speaker it was indexed with. Caller holds write."""
    conn.execute(
        "INSERT INTO sources_text (sources_text, rowid, text, speaker) VALUES ('delete', ?, ?, ?)",
        (source_id, segment(text), segment(speaker)),
    )


def rebuild_text_index(conn: Connection) -> int:
    """Make the index again from all sources, row by row, and record the segmenter; returns how many rows.

    Caller holds write.
    """
    conn.execute("INSERT INTO sources_text (sources_text) VALUES ('delete-all')")
    count = 0
    for source_id, text, speaker in conn.execute("SELECT id, text, speaker FROM sources ORDER BY id"):
        index_source(conn, source_id, text, speaker)
        count += 1
    write_setting(conn, SEGMENTER, SEGMENTER_ID)
    return count


def is_index_current(conn: Connection) -> bool:
    """Whether the index was made by the segmenter of this program."""
    return read_setting(conn, SEGMENTER) == SEGMENTER_ID


def search_text(
    conn: Connection,
    *,
    query: str,
    scope_ids: Collection[int] | None,
    now_ms: int,
    limit: int,
    from_ms: int | None = None,
    to_ms: int | None = None,
    roles: Collection[str] | None = None,
    exclude_ids: Collection[int] = (),
) -> list[TextHit]:
    """Return the eligible sources that match the question best, best first, equals newest first.

    Eligible: in one of the scopes (None: all), said in [from_ms, to_ms), of one of the roles, not expired at
    now_ms, not excluded. An empty list when the query holds nothing searchable.
    """
    terms = [quoted(term) for piece in pieces(query) for term in (pairs(piece) if is_cjk(piece) else [piece])]
    if not terms:
        return []
    rows = conn.execute(
        """
        SELECT s.id, -bm25(sources_text) AS score
        FROM sources_text CROSS JOIN sources AS s ON s.id = sources_text.rowid
        WHERE sources_text MATCH :terms
          AND (:scopes IS NULL OR s.scope_id IN (SELECT value FROM json_each(:scopes)))
          AND (:roles IS NULL OR s.role IN (SELECT value FROM json_each(:roles)))
          AND (:from_ms IS NULL OR s.said_at_ms >= :from_ms)
          AND (:to_ms IS NULL OR s.said_at_ms < :to_ms)
          AND (s.expires_at_ms IS NULL OR s.expires_at_ms > :now_ms)
          AND s.id NOT IN (SELECT value FROM json_each(:excluded))
        ORDER BY bm25(sources_text), s.said_at_ms DESC, s.id DESC
        LIMIT :limit
        """,
        {
            "terms": " OR ".join(dict.fromkeys(terms)),
            "scopes": _json(scope_ids),
            "roles": _json(roles),
            "from_ms": from_ms,
            "to_ms": to_ms,
            "now_ms": now_ms,
            "excluded": _json(exclude_ids),
            "limit": limit,
        },
    )
    return [TextHit(source_id, score) for source_id, score in rows]


def _json(values: Collection[int] | Collection[str] | None) -> str | None:
    return None if values is None else json.dumps(list(values))
