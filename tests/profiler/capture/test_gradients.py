"""Which gradient belongs to which tensor, against autograd's own gradients of the same numbers."""

from typing import Any

import pytest
import torch
from torch import fx

from headway.core.dataflow import Dataflow
from headway.core.gradients import primals
from headway.core.graph import OperatorKind, TensorRole
from headway.profiler.capture.trace import Trace
from tests.profiler.capture.zoo import FAMILIES, captured, traced

EXECUTED = ("alpa-gpt3-350m-small", "llama-7b-small", "wide-resnet-250m-small", "alpa-moe-380m-small", "dcgan-small")
JOINS = (OperatorKind.COPY, OperatorKind.SCATTER, OperatorKind.DISPATCH, OperatorKind.EMBEDDING)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_gradient_that_goes_from_one_operator_to_another_has_a_primal_of_its_size(name: str) -> None:
    graph = captured(name)
    found, tensors, flow = primals(graph), graph.tensors_by_name(), Dataflow(graph)
    forward = {name for operator in graph.operators if not operator.is_backward for name in operator.outputs}
    for gradient, primal in found.items():
        assert tensors[gradient].num_elements == tensors[primal].num_elements
        assert primal in forward or tensors[primal].role is TensorRole.PARAMETER
    for operator in graph.operators:
        for name in operator.inputs if operator.is_backward else ():
            maker = graph.operators[flow.producer[name]] if name in flow.producer else operator
            if maker.is_backward and maker.forward != operator.forward and name not in found:
                readers = [graph.operators[at] for at in flow.consumers[name]]
                assert all(reader.kind in JOINS for reader in readers), f"{name}, read by {readers}"


@pytest.mark.parametrize("name", FAMILIES)
def test_every_parameters_gradient_and_its_contributions_name_the_parameter(name: str) -> None:
    graph = captured(name)
    found, tensors = primals(graph), graph.tensors_by_name()
    for parameter, gradient in zip(graph.trained, graph.gradients, strict=True):
        assert found[gradient] == parameter
    sums = [operator for operator in graph.operators if operator.is_backward and operator.target == "aten.add.Tensor"]
    for operator in sums:
        (result,) = operator.outputs
        if result in found:
            assert all(name in found for name in operator.inputs if tensors[name].role is TensorRole.GRADIENT)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sum_of_gradients_belongs_to_the_operator_whose_gradient_comes_last(name: str) -> None:
    """A pipeline that is cut between the two then adds where the later contribution is made."""
    graph = captured(name)
    flow = Dataflow(graph)
    for operator in graph.operators:
        if operator.is_backward:
            makers = [graph.operators[flow.producer[name]] for name in operator.inputs if name in flow.producer]
            before = [flow.positions[maker.forward] for maker in makers if maker.is_backward]
            assert all(flow.positions[operator.forward] <= position for position in before), operator.name


@pytest.mark.parametrize("name", EXECUTED)
def test_gradients_equal_those_that_autograd_computes(name: str) -> None:
    graph = captured(name)
    values = _executed(traced(name))
    seed = next(operator for operator in graph.operators if operator.target == "aten.ones_like.default")
    order = {name: at for at, operator in enumerate(graph.operators) for name in operator.outputs}
    in_order = sorted(primals(graph).items(), key=lambda pair: order[pair[0]])
    gradients = {primal: gradient for gradient, primal in in_order}  # the last of each: others are contributions
    assert set(graph.trained) < set(gradients)
    right = torch.autograd.grad(values[seed.inputs[0]], [values[primal] for primal in gradients])
    for gradient, expected in zip(gradients.values(), right, strict=True):
        # It may have its primal's elements in another order, as heads before tokens.
        numbers, wanted = (tensor.detach().flatten().sort().values for tensor in (values[gradient], expected))
        torch.testing.assert_close(numbers, wanted, rtol=1e-3, atol=1e-5 + 1e-4 * float(wanted.abs().max()))


def _executed(trace: Trace) -> dict[str, Any]:
    """Runs a trace on random numbers, the forward pass with autograd, and returns its tensors by their names."""
    torch.manual_seed(0)
    values: dict[str, Any] = {}
    names = iter(trace.names)

    class Execution(fx.Interpreter):
        def placeholder(self, target: Any, args: Any, kwargs: Any) -> torch.Tensor:
            name = next(names)
            values[name] = _source(nodes[target], name, trace)
            return values[name]

        def run_node(self, n: fx.Node) -> Any:
            is_backward = bool(n.meta.get("autograd_backward")) or n.name == "ones_like"
            with torch.set_grad_enabled(not is_backward):
                result = super().run_node(n)
            parts = enumerate(result) if isinstance(result, tuple | list) else ()
            values.update({n.name: result} | {f"{n.name}.{index}": part for index, part in parts})
            return result

    nodes = {str(node.target): node for node in trace.graph.graph.nodes if node.op == "placeholder"}
    Execution(trace.graph).run(enable_io_processing=False)
    return values


def _source(node: fx.Node, name: str, trace: Trace) -> torch.Tensor:
    like = node.meta["val"]
    if not like.is_floating_point():
        return torch.randint(2, tuple(like.shape), dtype=like.dtype)
    return (0.5 * torch.randn(tuple(like.shape))).requires_grad_(name in trace.parameters)


@pytest.mark.parametrize("name", ["alpa-gpt3-350m-small", "dlrm-small"])  # of one result and of several
def test_the_seed_is_the_gradient_of_the_loss(name: str) -> None:
    graph = captured(name)
    seed = next(operator for operator in graph.operators if operator.target == "aten.ones_like.default")
    loss = max(seed.inputs, key=Dataflow(graph).producer.__getitem__)
    assert seed.is_backward
    assert seed.forward == graph.operators[Dataflow(graph).producer[loss]].name
    assert primals(graph)[seed.outputs[0]] == loss


def test_a_forward_pass_has_no_gradients() -> None:
    assert primals(captured("dlrm-small", train=False)) == {}
