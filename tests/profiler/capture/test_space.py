"""Iteration spaces, evaluated loop by loop, compute what the operators compute."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headway.core.graph import OperatorKind
from headway.core.iteration import Access, IterationSpace, loops_of
from tests.profiler.capture.modules import Transformer, graph_of, tokens

CONTRACTIONS = (OperatorKind.MATMUL, OperatorKind.BATCHED_MATMUL)


def evaluate(space: IterationSpace, operands: dict[str, Any]) -> Any:
    """Sums the product of the operands over the reduced loops."""
    sizes = {dim.name: dim.size for dim in space.dims}
    letters = {name: chr(ord("a") + i) for i, name in enumerate(sizes)}

    def subscripts(access: Access) -> tuple[str, list[int]]:
        names = [name for dim in access.dims for name in loops_of(dim)]
        return "".join(letters[name] for name in names), [sizes[name] for name in names]

    reads = [(subscripts(access), operands[access.tensor]) for access in space.reads]
    (written,) = space.writes
    arrays = [np.asarray(array).reshape(shape) for (_, shape), array in reads]
    inputs = ",".join(text for (text, _), _ in reads)
    return np.einsum(f"{inputs}->{subscripts(written)[0]}", *arrays)


class Merged(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.flatten(0, 1) @ y.t()


class Split(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.reshape(6, 4) @ y.reshape(4, 6)


class Contracted(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bsh,bth->bst", x, y)


class Heads(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.unflatten(-1, (2, 2)).transpose(0, 1) @ y.unflatten(-1, (2, 2)).permute(1, 2, 0)


@pytest.mark.parametrize(
    ("module", "shapes"),
    [
        (Merged(), [(2, 3, 4), (5, 4)]),
        (Split(), [(2, 3, 4), (24,)]),
        (Contracted(), [(2, 3, 4), (2, 5, 4)]),
        (Heads(), [(3, 4), (5, 4)]),
    ],
    ids=["merged rows", "split operands", "einsum", "heads"],
)
def test_loops_over_real_operands_compute_the_product(module: nn.Module, shapes: list[tuple[int, ...]]) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    expected = module(*inputs)
    graph = graph_of(module, *inputs)
    (product,) = (op for op in graph.operators if op.kind in CONTRACTIONS)
    assert product.space is not None
    assert set(product.inputs) == {"x", "y"}
    result = evaluate(product.space, {"x": inputs[0].numpy(), "y": inputs[1].numpy()})
    # Summands are of the order of 1: where they cancel, the rest of their rounding is what remains.
    np.testing.assert_allclose(result.reshape(expected.shape), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert product.flops == 2 * product.space.volume


@pytest.mark.parametrize("train", [False, True])
def test_the_loops_of_every_product_have_its_flops(train: bool) -> None:
    graph = graph_of(Transformer(), tokens(), train=train)
    for operator in graph.operators:
        if operator.kind in CONTRACTIONS:
            assert operator.space is not None
            assert operator.flops == 2 * operator.space.volume
            assert operator.space.reduced


def test_loops_run_along_dims_of_their_size() -> None:
    graph = graph_of(Transformer(), tokens(), train=True)
    tensors = graph.tensors_by_name()
    for operator in graph.operators:
        assert operator.space is not None, operator.target
        sizes = {dim.name: dim.size for dim in operator.space.dims}
        for access in (*operator.space.reads, *operator.space.writes):
            assert len(access.dims) == len(tensors[access.tensor].shape)
            for loops, size in zip(access.dims, tensors[access.tensor].shape, strict=True):
                covered = int(np.prod([sizes[name] for name in loops_of(loops)]))
                assert covered <= size
                assert size % covered == 0  # a slice runs along a part


def test_batch_and_sequence_stay_apart_through_a_linear_layer() -> None:
    (product,) = graph_of(nn.Linear(4, 6), torch.zeros(2, 3, 4)).operators
    assert product.space is not None
    assert str(product.space) == "n, m0 m1 k, n k -> m0*m1 n"
    assert product.space.reduced == ("k",)


def test_a_convolution_slides_a_window() -> None:
    (operator,) = graph_of(nn.Conv2d(3, 8, 3, bias=False), torch.zeros(2, 3, 9, 9)).operators
    assert operator.space is not None
    assert str(operator.space) == "n i y0+r0 y1+r1, o i r0 r1 -> n o y0 y1"
    assert operator.space.reduced == ("i", "r0", "r1")
    assert operator.flops == 2 * operator.space.volume


def test_softmax_and_norm_meet_along_their_dim() -> None:
    graph = graph_of(nn.Sequential(nn.LayerNorm(4), nn.Softmax(dim=1)), torch.zeros(2, 3, 4))
    assert [op.space.reduced for op in graph.operators if op.space] == [("d2",), ("d1",)]
