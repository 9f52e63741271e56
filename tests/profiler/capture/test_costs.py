"""FLOPs, parameters and bytes of captured modules against torch's own counter and counts by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from headway.core.graph import Graph, Operator, OperatorKind, TensorRole
from tests.profiler.capture.modules import (
    BATCH,
    CASES,
    HIDDEN,
    SEQ,
    VOCAB,
    ConvNet,
    Experts,
    Transformer,
    graph_of,
    tokens,
)


def counted_flops(module: nn.Module, inputs: tuple[Tensor, ...], *, train: bool) -> int:
    with FlopCounterMode(display=False) as counter:
        output = module(*inputs)
        if train:
            output.sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_flops_and_parameters_are_those_that_torch_counts(name: str, train: bool) -> None:
    make, inputs = CASES[name]
    with torch.device("meta"):
        module = make().train(train)
    flops = counted_flops(module, inputs, train=train)
    num_parameters = sum(parameter.numel() for parameter in module.parameters())
    graph = graph_of(module, *inputs, train=train)
    assert graph.flops == flops
    assert graph.parameters == num_parameters
    assert graph.parameter_bytes == 4 * num_parameters
    assert graph.unknown_operators == {}


def test_backward_products_cost_twice_the_forward_ones() -> None:
    graph = graph_of(Transformer(), tokens(), train=True)
    assert graph.flops == 3 * graph.forward_flops
    assert any(operator.is_backward for operator in graph.operators)
    assert graph.forward_flops == graph_of(Transformer(), tokens()).flops


def test_a_transformer_by_hand() -> None:
    graph = graph_of(Transformer(), tokens())
    num_tokens = BATCH * SEQ
    block = 2 * num_tokens * 12 * HIDDEN**2 + 4 * num_tokens * SEQ * HIDDEN
    assert graph.flops == 2 * block + 2 * num_tokens * HIDDEN * VOCAB
    assert graph.parameters == VOCAB * HIDDEN + 2 * (12 * HIDDEN**2 + 11 * HIDDEN)


def by_kind(graph: Graph, kind: OperatorKind, *, is_backward: bool = False) -> list[Operator]:
    return [op for op in graph.operators if op.kind is kind and op.is_backward == is_backward]


def test_shared_parameters_are_there_once_and_get_one_gradient() -> None:
    graph = graph_of(Transformer(), tokens(), train=True)
    names = [tensor.name for tensor in graph.tensors if tensor.role is TensorRole.PARAMETER]
    assert [name for name in names if "weight" in name and ("head" in name or "tokens" in name)] == ["tokens.weight"]
    assert sorted(graph.trained) == sorted(names)
    assert graph.gradient_bytes == graph.parameter_bytes
    assert graph.optimizer_bytes == 2 * graph.parameter_bytes


def test_bytes_of_a_product_with_views_are_those_of_its_operands() -> None:
    class Product(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.permute(0, 2, 1).reshape(6, 4) @ y[:, :5]

    graph = graph_of(Product(), torch.zeros(3, 4, 2), torch.zeros(4, 8))
    (product,) = by_kind(graph, OperatorKind.MATMUL)
    assert product.bytes_read == 4 * (24 + 4 * 5)
    assert product.bytes_written == 4 * 6 * 5
    assert graph.activation_bytes == 4 * (24 + 30)  # the reshape of a permuted tensor is a copy


def test_a_broadcast_operand_is_read_once() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x * y.expand(5, 7)

    (operator,) = graph_of(Scaled(), torch.zeros(5, 7), torch.zeros(7)).operators
    assert (operator.bytes_read, operator.bytes_written) == (4 * (35 + 7), 4 * 35)


def test_an_embedding_reads_the_rows_that_it_looks_up() -> None:
    graph = graph_of(nn.Embedding(1000, 8), tokens(2, 3))
    assert [(op.kind, op.bytes_read, op.bytes_written) for op in graph.operators] == [
        (OperatorKind.EMBEDDING, 6 * 8 * 4 + 6 * 8, 6 * 8 * 4)
    ]


class FusedAttention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def test_attention_stays_fused_and_knows_shared_heads() -> None:
    q, kv = torch.zeros(2, 8, 6, 16), torch.zeros(2, 2, 10, 16)
    (attention,) = by_kind(graph_of(FusedAttention(), q, kv, kv.clone()), OperatorKind.ATTENTION)
    assert attention.flops == 4 * 2 * 8 * 6 * 10 * 16
    assert attention.space is not None
    assert {dim.name: dim.size for dim in attention.space.dims} | {"h": 4} == {
        "b": 2, "g": 2, "h": 4, "q": 6, "k": 10, "d": 16, "e": 16,
    }  # fmt: skip


def test_fused_attention_computes_five_products_backward() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q = nn.Parameter(torch.zeros(1, 2, 6, 16))

        def forward(self) -> Tensor:
            return functional.scaled_dot_product_attention(self.q, self.q, self.q)

    graph = graph_of(Attention(), train=True)
    (forward,) = by_kind(graph, OperatorKind.ATTENTION)
    (backward,) = by_kind(graph, OperatorKind.ATTENTION, is_backward=True)
    assert backward.flops == 5 * forward.flops // 2


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_grouped_convolution_by_hand(groups: int) -> None:
    """Torch's counter takes the gradient of grouped weights for that of full ones; this is the product's own size."""
    graph = graph_of(nn.Conv2d(4, 8, 3, groups=groups, stride=2), torch.zeros(2, 4, 9, 9), train=True)
    forward = 2 * 2 * 8 * (4 // groups) * 9 * 4 * 4
    assert graph.forward_flops == forward
    assert graph.flops == 2 * forward  # the input needs no gradient


def test_what_backward_reads_of_forward_is_kept() -> None:
    class Squares(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 8, bias=False), nn.Linear(8, 2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x).sigmoid())

    graph = graph_of(Squares(), torch.zeros(3, 4), train=True)
    tensors = graph.tensors_by_name()
    kept = [tensors[name].shape for name in graph.saved if tensors[name].num_elements > 1]
    assert kept == [(3, 8)]  # the sigmoid, of which its gradient is made too; the input is no activation


def test_inference_holds_the_largest_set_of_live_activations() -> None:
    graph = graph_of(nn.Sequential(nn.Linear(4, 100), nn.ReLU(), nn.Linear(100, 2)), torch.zeros(3, 4))
    assert graph.activation_bytes == 2 * 3 * 100 * 4


def test_convolutional_kinds() -> None:
    with torch.device("meta"):
        module = ConvNet()
    kinds = [op.kind.value for op in graph_of(module, torch.zeros(2, 3, 8, 8)).operators]
    assert kinds == [
        "convolution", "normalization", "elementwise", "pooling", "convolution", "convolution", "reduction",
    ]  # fmt: skip


def test_gathers_by_what_a_router_chose_are_dispatch() -> None:
    graph = graph_of(Experts(), torch.zeros(16, HIDDEN), train=True)
    forward = [op.target for op in by_kind(graph, OperatorKind.DISPATCH)]
    assert forward == ["aten.index.Tensor", "aten.index_add.default"]
    assert by_kind(graph, OperatorKind.DISPATCH, is_backward=True)


def test_backward_operators_belong_to_the_module_of_their_forward_one() -> None:
    graph = graph_of(Transformer(), tokens(), train=True)
    products = [op for op in graph.operators if op.kind is OperatorKind.MATMUL]
    forward = {op.module for op in products if not op.is_backward}
    assert {op.module for op in products if op.is_backward} == forward
    assert {"blocks.0.qkv", "blocks.1.down", "head"} <= forward


def test_a_parameter_that_is_not_used_counts_but_is_not_trained() -> None:
    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(2, 2), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    graph = graph_of(Idle(), torch.zeros(1, 2), train=True)
    assert graph.parameters == 6 + 12
    assert sorted(graph.trained) == ["used.bias", "used.weight"]
