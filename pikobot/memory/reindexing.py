"""Make everything again that is derived from what is stored: text indexes, and the blocks of the vectors.

One transaction for each kind: a search meanwhile sees the old or the new one. The means that vectors are quantised
with are made again as well, so that they hold nothing of forgotten ones. Vectors that stand for nothing go; what has
none is looked for anew, and gets one in the background. At the end nothing stands in the database outside of rows.
"""

from dataclasses import dataclass, replace

from pikobot.memory.forgetting.proof import remove_traces
from pikobot.store.connection import Database
from pikobot.store.embedding_jobs import lower_marks
from pikobot.store.fact_index import rebuild_fact_index
from pikobot.store.text.index import rebuild_text_index
from pikobot.store.vectors.profiles import active_set, building_set
from pikobot.store.vectors.rebuild import drop_strays, rebuild_blocks


@dataclass(frozen=True)
class Reindexed:
    """How many of each are in the new indexes. ``problem``: why something still stands outside of rows."""

    sources: int
    facts: int
    vectors: int
    problem: str | None = None


def reindex(db: Database) -> Reindexed:
    """Make all indexes again. Not from the event loop. Raises `DamagedData` when what is stored is damaged itself."""
    made = db.perform(_reindex)
    return replace(made, problem=remove_traces(db))


def _reindex(db: Database) -> Reindexed:
    with db.write("make the text index again") as tx:
        sources = rebuild_text_index(tx)
    with db.write("make the text index of facts again") as tx:
        facts = rebuild_fact_index(tx)
    vectors = 0
    with db.write("make the vector blocks again") as tx:
        for vector_set in (active_set(tx), building_set(tx)):
            if vector_set is not None:
                drop_strays(tx, vector_set.id)
                vectors += rebuild_blocks(tx, vector_set.id)
                lower_marks(tx, vector_set.id)
    return Reindexed(sources, facts, vectors)
