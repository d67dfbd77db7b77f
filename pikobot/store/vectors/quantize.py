"""Vectors as numbers: checked, normalised, compared exactly, and rounded to int8 with a proven error.

A stored vector x (float32, unit up to rounding) is quantised as

    x / |x|  =  mean + scale * codes + rest        with  error >= |rest|  and  norm >= |scale * codes|

so that for every unit query q, by Cauchy-Schwarz,  |cos(q, x) - q.mean - q.(scale * codes)| <= error.
All of it is computed in float64 from the stored float32 values; `error` and `norm` are rounded up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pikobot.errors import InvalidParams
from pikobot.store.vectors.records import Float32s, Float64s, Int8s

MAX_CODE = 127  # -128 is never used: its product with itself would not fit what some kernels assume
# Keeps the scale of a vector that equals the mean above zero: a slot with scale zero is an empty one.
MIN_SCALE = 1e-12
# Below it float32 has lost digits, and the direction is no longer the caller's.
MIN_LENGTH = float(np.finfo(np.float32).tiny)
# Far below any error of int8, far above what float64 sums differ by between machines.
BOUND_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class Quantized:
    """``codes`` int8 (n, dim); ``bounds`` float32 (3, n): scale, error, norm."""

    codes: Int8s
    bounds: Float32s


def checked_vector(values: npt.ArrayLike, dimension: int) -> Float32s:
    """Return the numbers as float32 (dimension,), as given, not normalised.

    Raises `InvalidParams` unless they are as many as the dimension, finite, and of a length that float32 can
    express.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        try:
            vector = np.asarray(values).astype(np.float32, casting="same_kind", copy=True)
        except (TypeError, ValueError):
            vector = _from_numbers(values)
    if vector.shape != (dimension,):
        raise InvalidParams(f"a vector of shape {vector.shape} was given where ({dimension},) is needed")
    if not np.isfinite(vector).all():
        raise InvalidParams("a vector holds a number that is not finite in float32")
    if not lengths(vector[None, :])[0] >= MIN_LENGTH:
        raise InvalidParams("a vector without a direction (all zero, or too small for float32) was given")
    return vector


def normalized(vectors: Float32s) -> Float32s:
    """Unit float32 (n, dim) of checked float32 (n, dim)."""
    wide = vectors.astype(np.float64)
    return (wide / lengths(vectors)[:, None]).astype(np.float32)


def lengths(vectors: Float32s) -> Float64s:
    """Euclidean lengths, float64 (n,). Each depends on its own row only, to the last bit."""
    return _row_lengths(vectors.astype(np.float64))


def cosines(query: Float32s, vectors: Float32s) -> Float64s:
    """The score that ranks: cosine of the query (dim,) and each row (n, dim), in float64.

    Products of two float32 are exact in float64, and a row's sum never depends on the other rows, so equal
    vectors score equal to the last bit in whatever company they are scored.
    """
    wide = query.astype(np.float64)
    rows = vectors.astype(np.float64)
    dots: Float64s = (rows * wide).sum(axis=1)
    dots /= np.sqrt(np.square(rows, out=rows).sum(axis=1))
    dots /= lengths(query[None, :])[0]
    return dots


def quantize(units: Float32s, mean: Float64s | None) -> Quantized:
    """Quantise stored vectors, float32 (n, dim), around the mean, float64 (dim,)."""
    rest = units.astype(np.float64)
    rest /= lengths(units)[:, None]
    if mean is not None:
        rest -= mean
    scale = np.maximum(np.abs(rest).max(axis=1) / MAX_CODE, MIN_SCALE).astype(np.float32)
    wide_scale = scale.astype(np.float64)[:, None]
    rounded = np.clip(np.rint(rest / wide_scale), -MAX_CODE, MAX_CODE)
    codes = rounded.astype(np.int8)
    rounded *= wide_scale
    rest -= rounded
    bounds = np.stack([scale, _rounded_up(_row_lengths(rest)), _rounded_up(_row_lengths(rounded))])
    return Quantized(codes, bounds)


def are_bounds_true(units: Float32s, mean: Float64s | None, codes: Int8s, bounds: Float32s) -> bool:
    """Whether what `quantize` promises holds for these codes and bounds, as far as this machine can tell."""
    scale, error, norm = bounds.astype(np.float64)
    rounded = codes * scale[:, None]
    rest = units.astype(np.float64) / lengths(units)[:, None] - rounded
    if mean is not None:
        rest -= mean
    return bool(
        (scale > 0).all()
        and (_row_lengths(rest) <= error + BOUND_TOLERANCE).all()
        and (_row_lengths(rounded) <= norm + BOUND_TOLERANCE).all()
    )


class QuantizedQuery:
    """A unit query as int8 codes twice over: coarse, and fine for what the coarse ones leave out.

        query / |query|  =  scale * codes + fine_scale * fine_codes + rest

    ``coarse_rest`` and ``fine_rest`` are the lengths of what each leaves out: times a vector's norm, how far a
    product with its codes may be from that with the query.
    """

    def __init__(self, vector: Float32s) -> None:
        self.unit: Float64s = vector.astype(np.float64) / lengths(vector[None, :])[0]
        self.scale, self.codes, rest = _rounded_off(self.unit)
        self.coarse_rest = float(_row_lengths(rest[None, :])[0])
        self.fine_scale, self.fine_codes, rest = _rounded_off(rest)
        self.fine_rest = float(_row_lengths(rest[None, :])[0])

    def dot(self, mean: Float64s | None) -> float:
        return 0.0 if mean is None else float((self.unit * mean).sum())


def _rounded_off(values: Float64s) -> tuple[float, Int8s, Float64s]:
    """Scale and codes, int8 (1, dim), and what they leave out."""
    scale = max(float(np.abs(values).max()) / MAX_CODE, MIN_SCALE)
    rounded = np.rint(values / scale)
    return scale, rounded.astype(np.int8)[None, :], values - rounded * scale


def _row_lengths(rows: Float64s) -> Float64s:
    squared: Float64s = np.square(rows).sum(axis=1)
    return np.sqrt(squared)


def _rounded_up(values: Float64s) -> Float32s:
    """The next float32 above, with room for the rounding of the float64 sums behind the value."""
    return np.nextafter((values * (1 + 1e-12)).astype(np.float32), np.float32(np.inf))


def _from_numbers(values: npt.ArrayLike) -> Float32s:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise InvalidParams("a vector must be a sequence of numbers")
    if not all(isinstance(value, int | float) for value in values):
        raise InvalidParams("a vector must hold numbers only")
    try:
        return np.array([float(value) for value in values if isinstance(value, int | float)], np.float32)
    except OverflowError as error:
        raise InvalidParams("a vector holds a number that is not finite in float32") from error
