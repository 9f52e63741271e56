"""Memory that is handed out again: never twice at once, never lost."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from headway.kernels import Arena


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3)), max_size=60))
def test_tensors_that_live_share_no_byte(orders: list[tuple[int, int]]) -> None:
    """Each order takes a tensor, then drops a quarter of those that live, or fewer."""
    arena, living = Arena(), dict[int, Tensor]()
    for number, (size, remainder) in enumerate(orders):
        living[number] = arena.empty((size,), torch.float32).fill_(number)
        for old in [old for old in living if old % 4 == remainder and old != number]:
            del living[old]
        for value, tensor in living.items():
            assert torch.equal(tensor, torch.full_like(tensor, value))


def test_what_was_dropped_is_handed_out_again() -> None:
    arena = Arena()
    first = arena.empty((100, 30), torch.bfloat16)
    address = first.data_ptr()
    del first
    assert arena.empty((50, 30), torch.float32).data_ptr() == address


def test_a_view_keeps_its_memory() -> None:
    arena = Arena()
    part = arena.empty((8, 6), torch.float32)[2:4].view(3, 4)
    part.fill_(7)
    others = [arena.empty((8, 6), torch.float32).fill_(1) for _ in range(4)]
    assert torch.equal(part, torch.full((3, 4), 7.0))
    assert len({other.data_ptr() for other in others}) == 4


def test_pieces_are_aligned_and_of_any_shape() -> None:
    arena = Arena()
    tensors = [arena.empty(shape, torch.bfloat16) for shape in ((), (0, 3), (1,), (3, 5), (2, 3, 7))]
    assert [tuple(tensor.shape) for tensor in tensors] == [(), (0, 3), (1,), (3, 5), (2, 3, 7)]
    assert all(tensor.data_ptr() % 64 == 0 for tensor in tensors if tensor.numel())


def test_the_same_work_again_takes_no_more_memory() -> None:
    arena, sizes = Arena(), set()
    for num_rows in (1, 64, 7, 64, 33):
        kept = [arena.empty((num_rows, 5000), torch.float32) for _ in range(3)]
        del kept
        sizes.add(arena.num_bytes)
    assert len(sizes) == 2, "for one row, and for all others"


def test_more_than_there_is_comes_from_the_system() -> None:
    arena = Arena()
    large = arena.empty((3 << 20,), torch.float32).fill_(2)
    assert arena.num_bytes >= large.nbytes
    assert bool((large == 2).all())
