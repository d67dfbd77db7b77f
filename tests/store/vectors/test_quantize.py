import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.errors import InvalidParams
from pikobot.store.vectors.quantize import (
    are_bounds_true,
    checked_vector,
    cosines,
    lengths,
    normalized,
    quantize,
)
from tests.store.vectors.embeddings import embedded


@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.0, 0.0],
        [math.nan, 1.0, 0.0],
        [math.inf, 1.0, 0.0],
        [1e39, 1.0, 0.0],
        [10**400, 1, 0],
        [1e-42, 0.0, 0.0],
        [1e-60, 1e-60, 1e-60],
        [1.0, 2.0],
        [1.0, 2.0, 3.0, 4.0],
        [[1.0, 2.0, 3.0]],
        [],
        ["1", "2", "3"],
        "123",
        [None, 1.0, 2.0],
        [1j, 1.0, 2.0],
        None,
        np.array([1.0, np.nan, 0.0], np.float16),
    ],
    ids=str,
)
def test_what_has_no_direction_in_float32_is_refused(values: object) -> None:
    with pytest.raises(InvalidParams):
        checked_vector(values, 3)  # type: ignore[arg-type]  # what an embedder may send


@pytest.mark.parametrize(
    "values", [[1, 2, 3], (0.5, 0.0, -0.5), [1e-37, 0, 0], [3e38, 3e38, 3e38], np.arange(3, dtype=np.float64)]
)
def test_any_finite_length_is_normalised(values: object) -> None:
    vector = checked_vector(values, 3)  # type: ignore[arg-type]  # lists and arrays alike
    assert abs(lengths(normalized(vector[None, :]))[0] - 1) < 1e-6


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32), dimension=st.integers(1, 700), count=st.integers(1, 40))
def test_the_score_is_the_cosine_and_depends_on_no_other_row(seed: int, dimension: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((count, dimension)).astype(np.float32)
    query = generator.standard_normal(dimension).astype(np.float32)
    together = cosines(query, rows)
    alone = np.array([cosines(query, row[None, :])[0] for row in rows])
    assert together.tolist() == alone.tolist()
    for row, score in zip(rows.astype(float), together, strict=True):
        wide = query.astype(float)
        exact = math.fsum(row * wide) / math.sqrt(math.fsum(row * row) * math.fsum(wide * wide))
        assert abs(score - exact) < 1e-14


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32),
    dimension=st.integers(1, 700),
    outlier=st.sampled_from([0.0, 1.0, 1e3, 1e30]),
    is_centred=st.booleans(),
)
def test_the_bounds_of_a_quantised_vector_hold(
    seed: int, dimension: int, outlier: float, is_centred: bool
) -> None:
    generator = np.random.default_rng(seed)
    rows = embedded(generator, 8, dimension)
    rows[:, 0] += np.float32(outlier)
    units = normalized(rows)
    mean = units.mean(axis=0).astype(np.float32).astype(np.float64) if is_centred else None
    quantized = quantize(units, mean)
    scale, error, norm = quantized.bounds.astype(np.float64)
    assert are_bounds_true(units, mean, quantized.codes, quantized.bounds)
    assert np.abs(quantized.codes.astype(int)).max() <= 127
    query = normalized(generator.standard_normal((1, dimension)).astype(np.float32))
    guessed = (quantized.codes @ query[0].astype(np.float64)) * scale
    guessed += 0.0 if mean is None else float(mean @ query[0])
    assert (np.abs(guessed - cosines(query[0], units)) <= error + 1e-6).all()
    assert (norm <= 2.1).all()


def test_a_vector_that_equals_the_mean_keeps_a_positive_scale() -> None:
    units = normalized(np.ones((1, 16), np.float32))
    exact = units[0].astype(np.float64) / lengths(units)[0]
    assert quantize(units, exact).bounds[0, 0] > 0
    assert are_bounds_true(units, exact, quantize(units, exact).codes, quantize(units, exact).bounds)
