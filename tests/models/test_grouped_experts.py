"""Experts that are multiplied together: the results are those of one expert after the other, and no step waits for the
device."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from headway import kernels
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.model import ExpertsSpec, ModelSpec
from headway.core.parallel_config import Span
from headway.kernels import devices
from headway.models import grouped_experts
from headway.models.experts import MixtureOfExperts
from headway.models.grouped_experts import GroupedExperts, groups_experts
from headway.models.layout import alone
from headway.runner.cuda_graph import launches_whole_steps
from tests.checkpoints import make_checkpoint

CPU = torch.device("cpu")
BFLOAT16 = torch.bfloat16


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    directory = make_checkpoint(tmp_path_factory.mktemp("mixtral"), "mixtral")
    experts = ExpertsSpec(num_experts=8, num_experts_per_tok=3, intermediate_size=24)
    return replace(read_checkpoint(directory, dtype="bfloat16").spec, experts=experts)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU counts as one."""
    monkeypatch.setitem(devices.KERNEL_SETS, "cpu", devices.KernelSet.CUDA)
    monkeypatch.setattr(grouped_experts, "_has_grouped_products", lambda device: True)


def make_layer(spec: ModelSpec, **options: object) -> MixtureOfExperts:
    assert spec.experts is not None
    experts = replace(spec.experts, **options)
    layout = alone(replace(spec, experts=experts))
    layer = MixtureOfExperts(spec, experts, layout=layout, dtype=BFLOAT16, device=CPU)
    generator = torch.Generator().manual_seed(3)
    for _, part in layer.named():
        part.view.copy_(torch.randn(part.view.shape, generator=generator) / 4)
    return layer


def one_by_one(grouped: GroupedExperts, x: Tensor, chosen: Tensor, numbers: Span) -> Tensor:
    out = x.new_zeros((*chosen.shape, x.shape[1]))
    for place in torch.cartesian_prod(torch.arange(chosen.shape[0]), torch.arange(chosen.shape[1])).tolist():
        number = int(chosen[tuple(place)])
        if number in numbers:
            gate_up, down = grouped.weights(number)
            gate, value = (x[place[0]] @ gate_up.T).float().chunk(2)
            inner = (torch.nn.functional.silu(gate) * value).to(BFLOAT16)
            out[tuple(place)] = inner @ down.T
    return out


@pytest.mark.parametrize("num_rows", [1, 2, 37])
@pytest.mark.parametrize("numbers", [Span(0, 8), Span(0, 3), Span(3, 6), Span(7, 8)], ids=str)
@torch.inference_mode()
def test_equal_one_after_the_other(spec: ModelSpec, numbers: Span, num_rows: int) -> None:
    """On each rank of a group too: what other ranks' experts give is zero there."""
    assert spec.experts is not None
    grouped = GroupedExperts(spec, spec.experts, numbers, dtype=BFLOAT16, device=CPU)
    for number in numbers:
        for weight in grouped.weights(number):
            weight.copy_(torch.randn(weight.shape) / 4)
    x = torch.randn(num_rows, spec.hidden_size).to(BFLOAT16)
    chosen = torch.rand(num_rows, 8).topk(3).indices
    torch.testing.assert_close(grouped(x, chosen), one_by_one(grouped, x, chosen, numbers), rtol=2**-6, atol=2**-6)


@torch.inference_mode()
def test_all_rows_can_go_to_one_expert(spec: ModelSpec) -> None:
    assert spec.experts is not None
    grouped = GroupedExperts(spec, spec.experts, Span(0, 8), dtype=BFLOAT16, device=CPU)
    for number in range(8):
        for weight in grouped.weights(number):
            weight.copy_(torch.randn(weight.shape) / 4)
    x, chosen = torch.randn(5, spec.hidden_size).to(BFLOAT16), torch.full((5, 1), 6)
    expected = one_by_one(grouped, x, chosen, Span(0, 8))
    torch.testing.assert_close(grouped(x, chosen), expected, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("shared_size", [0, 16])
@torch.inference_mode()
def test_a_layer_gives_the_same_with_it(spec: ModelSpec, shared_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(40, spec.hidden_size).to(BFLOAT16)
    apart = make_layer(spec, shared_intermediate_size=shared_size)(x)
    monkeypatch.setattr("headway.models.experts.groups_experts", lambda spec, device: True)
    layer = make_layer(spec, shared_intermediate_size=shared_size)
    assert layer._grouped is not None
    torch.testing.assert_close(layer(x), apart, rtol=2**-6, atol=2**-5)
    assert torch.equal(layer(x[7:9]), layer(x)[7:9]), "a token does not depend on its batch"


def test_the_host_does_not_look_at_what_the_device_computes(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without content: whatever needs theirs raises. The kernel, which wants an address, is left out."""
    assert spec.experts is not None
    monkeypatch.setattr(kernels, "silu_mul", lambda x: x[:, : x.shape[1] // 2])
    with FakeTensorMode(), torch.inference_mode():
        for numbers in (Span(0, 8), Span(2, 5)):
            grouped = GroupedExperts(spec, spec.experts, numbers, dtype=BFLOAT16, device=torch.device("cuda"))
            x = torch.empty(16, spec.hidden_size, dtype=BFLOAT16, device="cuda")
            out = grouped(x, torch.zeros(16, 3, dtype=torch.int64, device="cuda"))
            assert out.shape == (16, 3, spec.hidden_size)


def test_experts_are_grouped_where_the_device_can(spec: ModelSpec, hopper: None) -> None:
    assert spec.experts is not None
    assert groups_experts(spec, CPU)
    for other in (
        replace(spec, dtype="float16"),
        replace(spec, quantization="int8"),
        replace(spec, experts=None),
        replace(spec, experts=replace(spec.experts, intermediate_size=20)),
    ):
        assert not groups_experts(other, CPU)


def test_only_experts_whose_rows_the_host_counts_keep_it_waiting(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = torch.device("cuda")
    monkeypatch.setattr(grouped_experts, "_has_grouped_products", lambda device: True)
    assert launches_whole_steps(spec, gpu)
    assert launches_whole_steps(replace(spec, experts=None, dtype="float16"), gpu)
    assert not launches_whole_steps(replace(spec, dtype="float16"), gpu)
    assert not launches_whole_steps(replace(spec, experts=None), CPU)
