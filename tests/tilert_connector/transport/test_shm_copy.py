"""The native copy: its checksum is the library's, its bytes are the source's, whatever the cut and the alignment."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tilert_connector.layout.views import Bytes
from tilert_connector.transport.announced_writer import Post
from tilert_connector.transport.checksum import begin_checksum
from tilert_connector.transport.hashed_copy import HashedCopy, kernel
from tilert_connector.transport.shm_copy import BUDGET, begin_copy

HEADER = bytes(range(40))
MOVE = kernel()  # here, so that no example pays for it


def noise(size: int) -> Bytes:
    return np.random.default_rng(size).integers(0, 256, size, np.uint8)


def expected(header: bytes, content: Bytes) -> int:
    digest = begin_checksum(header)
    digest.update(content.data)
    return int(digest.intdigest())


def lines_at(size: int, offset: int) -> Bytes:
    """uint8[size] that begins `offset` bytes after a cache line does, with 64 bytes after it."""
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + size + 64]


def finish(post: Post) -> int:
    """Calls of `advance` that it took."""
    calls = 1
    while not post.advance():
        calls += 1
    return calls


def test_kernel_is_there() -> None:
    assert MOVE is not None


@pytest.mark.contract("H4")
@given(
    data=st.data(),
    lines=st.lists(st.integers(1, 70), min_size=1, max_size=8),
    offset=st.sampled_from([0, 1, 8, 32]),
    native=st.booleans(),
    odd=st.sampled_from([0, 0, 0, 1, 63]),
)
def test_copies_what_it_sums(data: DataObject, lines: list[int], offset: int, native: bool, odd: int) -> None:
    sizes = [64 * count for count in lines]
    sizes[-1] += odd
    content = noise(sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    pieces = [part.data for part in np.split(content, cuts)]
    if data.draw(st.booleans()):
        pieces = [piece.toreadonly() for piece in pieces]
    room = lines_at(content.size, offset)
    middle = 64 * data.draw(st.integers(0, content.size // 64))
    targets = [view for view in (room[:middle], room[middle : content.size]) if view.size]
    post = begin_copy(MOVE if native else None, HEADER, pieces, targets)
    finish(post)
    assert np.array_equal(room[: content.size], content)
    assert not room[content.size :].any()
    assert post.checksum() == expected(HEADER, content)


@pytest.mark.parametrize("native", [True, False])
def test_one_call_moves_a_bounded_part(native: bool) -> None:
    content = noise(3 * BUDGET + 64)
    room = lines_at(content.size, 0)
    post = begin_copy(MOVE if native else None, HEADER, [content.data], [room[: content.size]])
    assert finish(post) >= 4
    assert np.array_equal(room[: content.size], content)
    assert post.checksum() == expected(HEADER, content)


def test_parts_of_a_transposed_tile() -> None:
    content = noise(64 * 32)
    tile = np.zeros((64, 128), np.uint8)
    post = begin_copy(MOVE, HEADER, [content.data], [tile[:, 32:64]])
    finish(post)
    assert np.array_equal(tile[:, 32:64], content.reshape(64, 32))
    assert post.checksum() == expected(HEADER, content)


@pytest.mark.contract("H4")
@given(bit=st.integers(0, 8 * 8192 - 1), first=st.integers(0, 127), second=st.integers(0, 127))
def test_damage_shows(bit: int, first: int, second: int) -> None:
    """A bit, a pair of cache lines in the other's place, a header of another frame."""
    content = noise(8192)
    assert MOVE is not None
    room = lines_at(content.size, 0)[: content.size]
    size = [content.size]
    copied = HashedCopy(MOVE, HEADER, [content.ctypes.data], size, [room.ctypes.data], size)
    assert copied.advance(content.size)
    found = copied.checksum()
    flipped, swapped = content.copy(), content.copy().reshape(-1, 64)
    flipped[bit // 8] ^= 1 << bit % 8
    swapped[[first, second]] = swapped[[second, first]]
    assert found == expected(HEADER, content)
    assert found != expected(HEADER, flipped)
    assert found != expected(HEADER[:-1] + b"\0", content)
    assert first == second or found != expected(HEADER, swapped.reshape(-1))
