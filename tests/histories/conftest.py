import pytest

for name in ("world", "operations"):
    pytest.register_assert_rewrite(f"tests.histories.{name}")
