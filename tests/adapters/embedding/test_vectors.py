import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pikobot.adapters.embedding.vectors import Float32s, unit_rows
from pikobot.adapters.embedding.vocabulary import EmbeddingFailed, EmbeddingFailure

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
ROWS = arrays(np.float32, 5, elements=FINITE).filter(lambda row: bool(row.any()))


@given(st.lists(ROWS, max_size=4))
def test_every_row_has_length_one_and_its_direction(rows: list[Float32s]) -> None:
    units = unit_rows(rows, 5)
    assert (units.shape, str(units.dtype)) == ((len(rows), 5), "float32")
    for row, unit in zip(rows, units, strict=True):
        exact = row.astype(np.longdouble)
        exact /= np.abs(exact).max()
        np.testing.assert_allclose(unit, exact / np.sqrt((exact**2).sum()), atol=1e-6)


@pytest.mark.parametrize(
    ("row", "code", "is_about_text"),
    [
        ([1, 2], EmbeddingFailure.WRONG_DIMENSION, False),
        ([1, 2, 3, 4], EmbeddingFailure.WRONG_DIMENSION, False),
        ([], EmbeddingFailure.WRONG_DIMENSION, False),
        ([0, 0, 0], EmbeddingFailure.UNUSABLE_VECTOR, True),
        ([1, np.nan, 0], EmbeddingFailure.UNUSABLE_VECTOR, True),
        ([1, np.inf, 0], EmbeddingFailure.UNUSABLE_VECTOR, True),
    ],
)
def test_a_vector_that_is_none_is_refused(row: list[float], code: str, is_about_text: bool) -> None:
    good = np.ones(3, np.float32)
    with pytest.raises(EmbeddingFailed) as failed:
        unit_rows([good, np.array(row, np.float32)], 3)
    assert (failed.value.code, failed.value.is_about_text) == (code, is_about_text)


def test_another_dimension_names_the_setting_and_the_size() -> None:
    with pytest.raises(EmbeddingFailed, match=r"of 384 numbers, not 1536: set embedding\.dimension to 384"):
        unit_rows([np.ones(384, np.float32)], 1536)
