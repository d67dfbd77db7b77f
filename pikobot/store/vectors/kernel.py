"""The inner loop of a scan: integer products of one int8 query with a block of int8 rows, rounded once to float32.

NumKong's compiled kernel does it where there is a wheel and where it proves exact on this machine; numpy does
it everywhere else, three to five times slower and with the same result.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from pikobot.store.vectors.profiles import MAX_DIMENSION
from pikobot.store.vectors.quantize import MAX_CODE
from pikobot.store.vectors.records import Float32s, Int8s

try:
    import numkong
except ImportError:  # no wheel for this platform
    numkong = None  # type: ignore[assignment]  # the one module that may be missing

Kernel = Callable[[Int8s, Int8s, Float32s], None]

# Sums of this many products of int8 stay below 2**24: exact in float32, in whatever order they are added.
EXACT_TERMS = 1024
PORTABLE_ROWS = 256


@cache
def choose_kernel() -> Kernel:
    """The fastest kernel that proves exact here: ``kernel(query (1, dim), rows (n, dim), out (1, n))``."""
    return native_dots if numkong is not None and _is_exact(native_dots) else portable_dots


def native_dots(query: Int8s, rows: Int8s, out: Float32s) -> None:
    numkong.cdist(query, rows, metric="dot", threads=1, out=out)


def portable_dots(query: Int8s, rows: Int8s, out: Float32s) -> None:
    wide = query[0].astype(np.float32)
    for begin in range(0, len(rows), PORTABLE_ROWS):
        part = rows[begin : begin + PORTABLE_ROWS].astype(np.float32)
        sums = np.zeros(len(part))
        for first in range(0, len(wide), EXACT_TERMS):
            sums += part[:, first : first + EXACT_TERMS] @ wide[first : first + EXACT_TERMS]
        out[0, begin : begin + PORTABLE_ROWS] = sums


def _is_exact(kernel: Kernel) -> bool:
    """Compare with integer arithmetic, on the largest products and across the kernel's remainders."""
    generator = np.random.default_rng(1)
    for dimension in (1, 31, 384, 1536, 4099, MAX_DIMENSION):
        rows = generator.integers(-MAX_CODE, MAX_CODE + 1, (5, dimension), dtype=np.int8)
        rows[0], rows[1] = MAX_CODE, -MAX_CODE
        for query in (rows[:1], rows[1:2], rows[2:3]):
            out = np.empty((1, len(rows)), np.float32)
            kernel(np.ascontiguousarray(query), rows, out)
            exact = rows.astype(np.int64) @ query[0].astype(np.int64)
            if not np.array_equal(out[0], exact.astype(np.float32)):
                return False
    return True
