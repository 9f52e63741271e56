"""Captured programs against the modules that they were captured from: run again, they compute the same."""

import copy
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from headway.core.capture import CaptureRequest
from headway.core.errors import InvalidArgumentError
from headway.core.program import Program
from headway.core.unit_programs import layer_of, unit_programs
from headway.profiler.capture.capture import capture
from headway.profiler.capture.program import build_program, check_constants
from headway.profiler.capture.trace import trace
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find
from headway.programs.attention import FORWARD, gpu_functions
from headway.programs.module import _find, build_module
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import common_pb2

_CPU = torch.device("cpu")


def _captured(
    module: nn.Module, inputs: tuple[torch.Tensor, ...], *, train: bool
) -> tuple[Program, list[torch.Tensor]]:
    """The program, and what to give to it."""
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    traced = trace(copy.deepcopy(module), inputs, train=train, report=lambda _: None)
    given = [tensors[name].detach() if name in tensors else inputs[0] for name in traced.names]
    return build_program(traced), given


@pytest.mark.parametrize("name", ["gpt3-1b-small", "llama-7b-small"])
def test_a_program_computes_what_its_module_does(name: str) -> None:
    torch.manual_seed(7)
    model = find(name)
    module = make_network(model).to_empty(device=_CPU)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.normal_(std=0.1)
    module.eval()
    examples = model.example_inputs(batch=2, seq=None)
    tokens = torch.randint(0, 16, examples[0].shape)
    program, given = _captured(module, (tokens,), train=False)
    with torch.no_grad():
        (result,) = build_module(program, _CPU).forward(*given)
        torch.testing.assert_close(result, module(tokens))


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().sum()


def test_a_program_with_a_backward_pass_computes_the_gradients() -> None:
    torch.manual_seed(7)
    net, x = _Net(), torch.randn(4, 8)
    program, given = _captured(net, (x,), train=True)
    loss = net(x)
    loss.backward()
    with torch.no_grad():
        result, *gradients = build_module(program, _CPU).forward(*given)
    torch.testing.assert_close(result, loss.detach())
    for name, gradient in zip(program.gradients, gradients, strict=True):
        torch.testing.assert_close(gradient, net.get_parameter(name).grad)


def test_equal_layers_and_operators_are_one_program() -> None:
    made = capture(CaptureRequest(source="zoo:gpt3-1b-small", train=True, with_program=True), report=lambda _: None)
    assert made.graph is not None
    assert made.program is not None
    units = unit_programs(made.graph, made.program)
    subject = units.subject
    first, second = (layer for layer in subject.layers if layer.name.startswith("layers."))
    assert (first.forward_program, first.backward_program) == (second.forward_program, second.backward_program)
    assert first.forward == second.forward
    counted = [group for group in subject.operators if group.phase != "optimizer"]
    assert sum(group.count for group in counted) == len(made.graph.operators)
    assert sum(group.count * group.flops for group in counted) == made.graph.flops
    assert sum(sum(layer.forward.values()) for layer in subject.layers) == sum(
        not operator.is_backward for operator in made.graph.operators
    )
    assert sum(layer.weight_bytes for layer in subject.layers) == made.graph.parameter_bytes
    assert sum(layer.activation_bytes for layer in subject.layers) == made.graph.activation_bytes
    assert sum(sum(layer.optimizer.values()) for layer in subject.layers) == len(made.graph.trained)
    assert units.programs.keys() == subject.program_names().keys()


def test_indices_know_how_many_there_are_also_through_views() -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 4)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids.reshape(-1))

    program, _ = _captured(Lookup(), (torch.zeros(2, 3, dtype=torch.int64),), train=False)
    assert [value.bound for value in program.inputs if value.dtype == "int64"] == [50]


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("layers.3.mlp.fc", "layers.3"),
        ("stages.2.5.conv", "stages.2.5"),
        ("head", "head"),
        ("", "(model)"),
        ("0.1.weight", "0.1"),
    ],
)
def test_layers_are_the_modules_that_repeat(path: str, layer: str) -> None:
    assert layer_of(path) == layer


@pytest.mark.parametrize("name", ["gpt3-1b-small", "wide-resnet-250m-small"])
def test_a_captured_training_step_trains(name: str) -> None:
    """The loss and the gradients of a program that goes to a worker and runs there are those of PyTorch."""
    made = capture(CaptureRequest(source=f"zoo:{name}", batch=2, train=True, with_program=True), report=lambda _: None)
    assert made.graph is not None
    assert made.program is not None
    received = common_pb2.Program.FromString(to_pb(made.program, common_pb2.Program).SerializeToString())
    program = from_pb(received, Program)
    assert program == made.program
    module, inputs, targets = _trainable(name)
    given = {name: tensor.detach().clone() for name, tensor in (*module.named_parameters(), *module.named_buffers())}
    given |= dict(zip([name for name in program.names if name not in given], (*inputs, targets), strict=True))
    with torch.no_grad():
        loss, *gradients = build_module(program, _CPU).forward(*(given[name] for name in program.names))
    scores = module(*inputs)
    expected = functional.cross_entropy(scores.flatten(0, -2), targets.flatten())
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-5, atol=1e-6)
    parameters = dict(module.named_parameters())
    assert set(program.gradients) == set(made.graph.trained) == set(parameters)
    for parameter, gradient in zip(program.gradients, gradients, strict=True):
        torch.testing.assert_close(gradient, parameters[parameter].grad, rtol=1e-3, atol=1e-5)


def _trainable(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...], torch.Tensor]:
    """A model with seeded weights, examples and their classes."""
    torch.manual_seed(7)
    model = find(name)
    module = make_network(model).to_empty(device=_CPU).train()
    for child in module.modules():
        if hasattr(child, "reset_parameters"):
            child.reset_parameters()
    targets = model.example_targets(batch=2, device=_CPU)
    assert targets is not None
    return module, model.example_inputs(batch=2, device=_CPU), targets


def test_what_a_program_gives_is_held_to_its_end() -> None:
    program, _ = _captured(_Net(), (torch.randn(4, 8),), train=True)
    anonymous = replace(program, results=(), gradients={})
    assert program.peak_bytes > anonymous.peak_bytes
    assert program.content_hash == anonymous.content_hash
    assert program.part(range(3), with_views=True).gradients == {}


def test_attention_that_was_captured_on_a_cpu_runs_elsewhere() -> None:
    """Where nothing reads its sums, by whatever kernel torch has for a device."""
    here, elsewhere = _find(FORWARD), gpu_functions(Program(inputs=(), instructions=()))[FORWARD]
    query, key, value = torch.randn(3, 2, 4, 9, 16)
    for arguments, options in (((0.0, True), {}), ((), {"attn_mask": torch.randn(9, 9), "scale": 0.3})):
        expected = here(query, key, value, *arguments, **options)[0]
        torch.testing.assert_close(elsewhere(query, key, value, *arguments, **options)[0], expected)


@pytest.mark.parametrize("is_buffer", [False, True])
def test_a_tensor_that_only_the_code_has_is_told_of(*, is_buffer: bool) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("scales", torch.tensor([1.0, 5.0, 0.2]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scales = self.scales if is_buffer else torch.tensor([1.0, 5.0, 0.2])
            return (self.linear(x) * scales).mean()

    traced = trace(Scaled(), (torch.randn(2, 4),), train=True, report=lambda _: None)
    expected = nullcontext() if is_buffer else pytest.raises(InvalidArgumentError, match=r"\[3\] torch.float32")
    with expected:
        check_constants(traced)
