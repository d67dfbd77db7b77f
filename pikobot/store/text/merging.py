"""Keeps the text indexes in few pieces, for a search and above all an erasure has to look into every one.

FTS5 adds a piece with every commit and merges four of a kind meanwhile, so that about ten are left. `merge_step` goes
on with that: afterwards there is one of each size, mostly two or three. What was written is written again once for
each doubling of the index. An erasure then looks up a third as many pages. A step that ends within a merge leaves
nothing of what it has read, for what is erased before the next one would stay there (`index_pages`).
"""

from pikobot.store.connection import Connection, Database
from pikobot.store.text.index_pages import INDEXES, settle

PAGES_A_STEP = 500  # of FTS5, 4 KB each: 2 MB are written, in about 30 ms


def merge_step(db: Database) -> bool:
    """Merge some pages, as an operation on the writer thread; False when nothing is left to be merged."""
    with db.write("merge the text indexes") as tx:
        return any(_merged(tx, index) for index in INDEXES)


def _merged(conn: Connection, index: str) -> bool:
    """Whether the merging of this index has gone on; one that has nothing to merge changes one row at most."""
    (pieces,) = conn.execute(f"SELECT v FROM {index}_config WHERE k = 'usermerge'").fetchone() or (None,)
    if pieces != 2:
        conn.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('usermerge', 2)")
    before = conn.total_changes()
    conn.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('merge', {PAGES_A_STEP})")
    has_gone_on = conn.total_changes() - before >= 2
    settle(conn, index)
    return has_gone_on
