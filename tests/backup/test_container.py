import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.backup import container

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(st.lists(st.tuples(NAMES, st.binary(max_size=1100), st.booleans()), max_size=4))
@settings(max_examples=60)
def test_any_tar_reads_what_is_written(members: list[tuple[str, bytes, bool]]) -> None:
    packed = b"".join(
        container.header(name, len(content), executable=executable)
        + content
        + container.padding(len(content))
        for name, content, executable in members
    )
    assert len(packed) == sum(container.stored_size(name, len(content)) for name, content, _ in members)
    with tarfile.open(fileobj=io.BytesIO(packed + container.END), encoding="utf-8") as tar:
        found = []
        for info in tar:
            file = tar.extractfile(info)
            assert file is not None
            found.append((info.name, file.read(), info.mode == 0o700))
    assert found == [(name.rstrip("/"), content, executable) for name, content, executable in members]


@pytest.mark.parametrize("size", [0, 8**11 - 1, 8**11, 1 << 40])
def test_a_header_holds_any_size(size: int) -> None:
    info = tarfile.TarInfo.frombuf(container.header("big", size), "utf-8", "strict")
    assert (info.name, info.size, info.mode) == ("big", size, 0o600)
    assert container.size_in(container.header("big", size)) == (size if size < 8**11 else None)


def test_a_checksum_tells_whether_it_is_itself_that_is_damaged() -> None:
    sums = container.sums_of(b"content", "name")
    assert len(sums) == container.sums_size("name")
    assert container.are_intact(sums)
    for at in range(len(sums)):
        for bit in range(8):
            damaged = sums[:at] + bytes([sums[at] ^ 1 << bit]) + sums[at + 1 :]
            assert not container.are_intact(damaged)
