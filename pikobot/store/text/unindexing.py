"""Takes sources out of the text index so that no term of them is left in it.

FTS5 overwrites the terms of a row in place, a millisecond a row; of many rows it is quicker to merge the index anew
without them, about 2 ms for each thousand rows that it holds. What FTS5 leaves beside that: see `index_pages`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pikobot.store.connection import Connection
from pikobot.store.text.index import rebuild_text_index, unindex_source
from pikobot.store.text.index_pages import erase_traces, read_structure, tokens_of
from pikobot.store.text.segmentation import segment

LEAST_MANY = 50
ROWS_MERGED_PER_DELETION = 500

Unindex = Callable[[int, str, str], None]
"""Takes a source out, given the text and the speaker that it was indexed with."""


@contextmanager
def unindexing(conn: Connection, count: int) -> Iterator[Unindex]:
    """Take so many sources out of the index. Caller holds write, and removes or changes their rows within."""
    row = conn.execute("SELECT max(id) FROM sources").fetchone()
    if row is None or count < max(LEAST_MANY, (row[0] or 0) // ROWS_MERGED_PER_DELETION):
        tokens: set[bytes] = set()

        def unindex(source_id: int, text: str, speaker: str) -> None:
            unindex_source(conn, source_id, text, speaker)
            tokens.update(tokens_of(conn, segment(text)), tokens_of(conn, segment(speaker)))

        yield unindex
        erase_traces(conn, "sources_text", tokens)
        return
    conn.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('secure-delete', 0)")
    yield lambda source_id, text, speaker: unindex_source(conn, source_id, text, speaker)
    conn.execute("INSERT INTO sources_text (sources_text) VALUES ('optimize')")
    conn.execute("INSERT INTO sources_text (sources_text, rank) VALUES ('secure-delete', 1)")
    if not read_structure(conn, "sources_text").is_one:  # only if all was of one level, thus little
        rebuild_text_index(conn)
