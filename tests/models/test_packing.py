import pytest
import torch

from headway.models.linear import Linear
from headway.models.packing import Packing
from headway.models.weights import Part, Piece, by_name

CPU = torch.device("cpu")


@pytest.fixture
def fused() -> Linear:
    return Linear(8, 12, bias=True, dtype=torch.float32, device=CPU)


def is_packed(linear: Linear) -> bool:
    return linear.weight.numel() == 0


def test_a_fused_layer_is_packed_with_its_last_part(fused: Linear) -> None:
    tensors = by_name(fused.named_parts(("gate", Piece.whole(5)), ("up", Piece.whole(7))))
    packing = Packing([fused], tensors, quantization=None)
    for name in sorted(tensors)[:-1]:
        packing.loaded(name)
        assert not is_packed(fused)
    packing.loaded(max(tensors))
    assert is_packed(fused)


def test_a_tied_head_is_packed_with_the_embedding_that_stays() -> None:
    embedding = torch.randn(12, 8)
    head = Linear(8, 12, bias=False, dtype=torch.float32, device=CPU, weight=embedding)
    tensors = by_name([("embed", Part.whole(embedding)), ("norm", Part.whole(torch.ones(8)))])
    packing = Packing([head], tensors, quantization="int8")
    packing.loaded("norm")
    assert not is_packed(head)
    packing.loaded("embed")
    assert is_packed(head)
    assert embedding.shape == (12, 8)


def test_layers_wait_for_their_own_tensors_only(fused: Linear) -> None:
    other = Linear(8, 4, bias=False, dtype=torch.float32, device=CPU)
    packing = Packing([fused, other], by_name([*fused.named("a"), *other.named("b")]), quantization=None)
    packing.loaded("b.weight")
    assert is_packed(other)
    assert not is_packed(fused)
