"""Followed views against torch: every element of a view is where its strands say."""

from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.profiler.capture.view import BROADCAST, Strand, View


def element(view: View, index: tuple[int, ...]) -> int:
    """The flat index in the base of one element of a view that begins with the base's first element."""
    assert view.strands is not None
    coordinates = [0] * len(view.base_shape)
    for position, strands in zip(index, view.strands, strict=True):
        rest = position
        for strand in reversed(strands):
            if strand.dim != BROADCAST:
                coordinates[strand.dim] += rest % strand.size * strand.step
            rest //= strand.size
    flat = 0
    for coordinate, size in zip(coordinates, view.base_shape, strict=True):
        flat = flat * size + coordinate
    return flat


def factorings(number: int) -> st.SearchStrategy[list[int]]:
    """Shapes of so many elements."""
    factors, rest = [], number
    for prime in range(2, number + 1):
        while rest % prime == 0:
            factors.append(prime)
            rest //= prime

    @st.composite
    def draw_shape(draw: st.DrawFn) -> list[int]:
        shape = [1] * draw(st.integers(1, 4))
        for factor in draw(st.permutations(factors)):
            shape[draw(st.integers(0, len(shape) - 1))] *= factor
        return shape

    return draw_shape()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_views_are_followed_element_for_element(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=3))
    tensor = torch.arange(torch.Size(shape).numel()).reshape(shape)
    view = View.whole("x", shape, "int64")
    for _ in range(data.draw(st.integers(0, 5))):
        match data.draw(st.sampled_from(["permute", "reshape", "narrow", "select", "expand"])):
            case "permute":
                order = data.draw(st.permutations(range(tensor.ndim)))
                tensor, view = tensor.permute(order), view.permute(order)
            case "reshape":
                sizes = data.draw(factorings(tensor.numel()))
                tensor, view = tensor.reshape(sizes), view.reshape(sizes)
            case "narrow" if tensor.ndim:
                dim = data.draw(st.integers(0, tensor.ndim - 1))
                step = data.draw(st.integers(1, 2))
                stop = data.draw(st.integers(1, tensor.shape[dim]))
                tensor = tensor[(slice(None),) * dim + (slice(0, stop, step),)]
                view = view.narrow(dim, tensor.shape[dim], step=step)
            case "select" if tensor.ndim:
                dim = data.draw(st.integers(0, tensor.ndim - 1))
                tensor, view = tensor.select(dim, 0), view.select(dim)
            case "expand":
                sizes = [2, *(3 if size == 1 else size for size in tensor.shape)]
                tensor, view = tensor.expand(sizes), view.expand(sizes)
    assert view.shape == tuple(tensor.shape)
    if view.strands is not None:
        for index in product(*map(range, view.shape)):
            assert element(view, index) == tensor[index]
        assert view.num_distinct == tensor.unique().numel()


def test_a_reshape_that_cuts_across_dims_is_given_up() -> None:
    assert View.whole("x", (4, 3), "float32").permute((1, 0)).reshape((2, 6)).strands is None


def test_merging_and_splitting_come_back_to_the_whole() -> None:
    whole = View.whole("x", (2, 6), "float32")
    assert whole.reshape((12,)).strands == ((Strand(0, 2, 1), Strand(1, 6, 1)),)
    assert whole.reshape((12,)).reshape((2, 3, 2)).reshape((2, 6)).num_distinct == 12
