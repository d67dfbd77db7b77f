from pathlib import Path

import pytest

from pikobot.instance import Instance
from tests.channels.operator.serving import make_instance


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance(tmp_path / "i", "I moved to Porto in March 2024", "请修改youer服务端")
