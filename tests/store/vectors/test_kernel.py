import numpy as np
import pytest

from pikobot.store.vectors import kernel
from pikobot.store.vectors.records import Float32s, Int8s


@pytest.mark.parametrize("dimension", [1, 3, 64, 384, 1023, 1025, 1536, 3072])
def test_both_kernels_give_integer_products(dimension: int) -> None:
    generator = np.random.default_rng(dimension)
    rows = generator.integers(-127, 128, (517, dimension), dtype=np.int8)
    rows[0], rows[1] = 127, -127
    exact = (rows.astype(np.int64) @ rows[0].astype(np.int64)).astype(np.float32)
    for chosen in (kernel.portable_dots, kernel.choose_kernel()):
        out = np.full((1, 517), np.nan, np.float32)
        chosen(rows[:1].copy(), rows, out)
        assert out[0].tolist() == exact.tolist()


def test_a_kernel_that_is_not_exact_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def nearly(query: Int8s, rows: Int8s, out: Float32s) -> None:
        kernel.portable_dots(query, rows, out)
        out[0, -1] += 1

    monkeypatch.setattr(kernel, "native_dots", nearly)
    kernel.choose_kernel.cache_clear()
    try:
        assert kernel.choose_kernel() is kernel.portable_dots
    finally:
        kernel.choose_kernel.cache_clear()
