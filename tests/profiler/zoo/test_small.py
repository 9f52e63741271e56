"""The small variant of each model computes forward and backward, and torch.export traces it."""

import pytest
import torch

from headway.profiler.zoo.model import ZooModel
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find, models

DISTINCT = list({small.config: small for small in (model.small() for model in reversed(models()))}.values())
"""Models that differ only in sizes have one small variant."""

BATCH = 2


def outputs_of(result: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return (result,) if isinstance(result, torch.Tensor) else result


@pytest.mark.parametrize("model", DISTINCT, ids=lambda model: model.name)
def test_every_parameter_has_a_gradient(model: ZooModel) -> None:
    torch.manual_seed(0)
    network = make_network(model, "cpu").train()
    inputs = model.example_inputs(batch=BATCH, device="cpu")
    sum(output.square().mean() for output in outputs_of(network(*inputs))).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("model", DISTINCT, ids=lambda model: model.name)
def test_the_exported_program_computes_the_same(model: ZooModel) -> None:
    torch.manual_seed(0)
    network = make_network(model, "cpu").eval()
    inputs = model.example_inputs(batch=BATCH, device="cpu")
    exported = torch.export.export(network, inputs).module()
    for traced, direct in zip(outputs_of(exported(*inputs)), outputs_of(network(*inputs)), strict=True):
        torch.testing.assert_close(traced, direct)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("gpt3-175b", [(2, 2048, 50257)]),
        ("alpa-moe-70b", [(2, 1024, 32000)]),
        ("bert-base", [(2, 512, 768), (2, 768)]),
        ("llama-70b", [(2, 4096, 32000)]),
        ("qwen1.5-moe-a2.7b", [(2, 8192, 151936)]),
        ("tessel-mt5-88b", [(2, 1024, 1_500_000)]),
        ("tessel-flava", [(2, 14 * 14 + 1 + 512, 4096)]),
        ("mmt", [(2, 256, 4 * 1024)]),
        ("two-branch", [(2, 256, 2 * 1024)]),
        ("dlrm", [(2, 1)]),
        ("candle-uno-16", [(2, 1)]),
        ("wide-resnet-13b", [(2, 1024)]),
        ("resnet3d-50", [(2, 400)]),
        ("nasnet-a-large", [(2, 1000)]),
        ("nasnet-a-mobile", [(2, 1000)]),
        ("dcgan", [(2, 3, 64, 64)]),
    ],
)
def test_outputs_in_full_size_have_the_shapes_of_the_source(name: str, shapes: list[tuple[int, ...]]) -> None:
    model = find(name)
    outputs = outputs_of(make_network(model)(*model.example_inputs(batch=2)))
    assert [tuple(output.shape) for output in outputs] == shapes
