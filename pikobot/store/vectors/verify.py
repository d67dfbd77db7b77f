"""Hold the vector index against itself (rows, slots, bounds, the zeros that deletion leaves) and its owners."""

from collections.abc import Iterator, Mapping

import apsw
import numpy as np

from pikobot.errors import DamagedData
from pikobot.store.connection import Connection
from pikobot.store.vectors.blocks import Block, buffer_of, list_blocks
from pikobot.store.vectors.layout import Layout, block_data
from pikobot.store.vectors.means import load_mean
from pikobot.store.vectors.profiles import VectorSet, list_sets
from pikobot.store.vectors.quantize import are_bounds_true, lengths
from pikobot.store.vectors.reading import BlockView
from pikobot.store.vectors.rebuild import OWNER_TABLES, Stored, stored_vectors
from pikobot.store.vectors.records import Bools, Float64s
from pikobot.text import Count

UNIT_TOLERANCE = 1e-5
REMEDY = "run `pikobot reindex`"


def verify_vectors(conn: Connection) -> list[str]:
    """Return what is wrong with the vectors, one sentence a finding, [] when nothing is. Changes nothing.

    Checks that every vector is finite and unit and has one slot, in a block of its set, kind and scope, which
    describes it and whose bounds hold; and that every other slot is zero to the last byte.
    """
    findings = _check_rows(conn)
    for vector_set in list_sets(conn):
        for block in list_blocks(conn, vector_set.id):
            try:
                findings += [f"block {block.id} {what}; {REMEDY}" for what in _check(conn, vector_set, block)]
            except DamagedData as error:
                findings.append(str(error))
            except apsw.SQLError:
                findings.append(f"block {block.id} has no data; {REMEDY}")
    return findings


def verify_owners(conn: Connection) -> list[str]:
    """Return what is wrong with whom vectors stand for: all of sources and facts there are, in their scopes."""
    questions = {}
    for kind in OWNER_TABLES:
        questions[f"of a {kind} that does not exist"] = f"""
            SELECT count(*) FROM vectors
            WHERE owner_kind = '{kind}' AND owner_id NOT IN (SELECT id FROM {OWNER_TABLES[kind]})
        """
        questions[f"in another scope than the {kind}"] = f"""
            SELECT count(*) FROM vectors AS v JOIN {OWNER_TABLES[kind]} AS o ON o.id = v.owner_id
            WHERE v.owner_kind = '{kind}' AND v.scope_id <> o.scope_id
        """
    return _counted(conn, questions)


def _check_rows(conn: Connection) -> list[str]:
    return _counted(
        conn,
        {
            "without values": """
                SELECT count(*) FROM vectors WHERE id NOT IN (SELECT vector_id FROM vector_values)
            """,
            "in a block of another set, kind or scope": """
                SELECT count(*) FROM vectors AS v JOIN vector_blocks AS b ON b.id = v.block_id
                WHERE (v.set_id, v.owner_kind, v.scope_id) IS NOT (b.set_id, b.owner_kind, b.scope_id)
            """,
        },
    )


def _counted(conn: Connection, questions: Mapping[str, str]) -> list[str]:
    return [
        f"{Count(count):vector} {what}; {REMEDY}"
        for what, sql in questions.items()
        for (count,) in conn.execute(sql)
        if count
    ]


def _check(conn: Connection, vector_set: VectorSet, block: Block) -> Iterator[str]:
    dimension = vector_set.profile.dimension
    layout = Layout(dimension, block.capacity)
    data = np.empty(layout.total, np.uint8)
    with block_data(conn, block.id) as blob:
        if blob.length() != layout.total:
            yield f"has {blob.length()} bytes, not {layout.total}"
            return
        blob.read_into(buffer_of(data))
    view = BlockView(data, layout, block.capacity)
    slots = view.slots
    mean = load_mean(conn, block.mean_id, dimension)
    is_empty = np.ones(block.capacity, np.bool_)
    for stored in stored_vectors(conn, block.id, dimension):
        if stored.places[-1] >= block.used:
            yield "has a vector outside of the slots in use"
            return
        is_empty[stored.places] = False
        if not np.array_equal(slots[stored.places], stored.slots):
            yield "describes a vector otherwise than its row"
        yield from _check_values(stored, view, mean)
    if block.capacity - int(is_empty.sum()) != block.live:
        yield f"counts {Count(block.live):vector} and holds {block.capacity - int(is_empty.sum())}"
    if any(slots[is_empty].tobytes()) or not _are_zero(view, is_empty):
        yield "holds data in an empty slot"


def _check_values(stored: Stored, view: BlockView, mean: Float64s | None) -> Iterator[str]:
    if not np.abs(lengths(stored.units) - 1).max() <= UNIT_TOLERANCE:  # also when one is not a number
        yield "has a vector that is not normalised"
    elif not are_bounds_true(stored.units, mean, view.codes[stored.places], view.bounds[:, stored.places]):
        yield "has a bound that does not hold"


def _are_zero(view: BlockView, places: Bools) -> bool:
    return not view.codes[places].any() and not any(view.bounds[:, places].tobytes())
