"""Traces a module to aten operators, the backward pass included where it is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._decomp import core_aten_decompositions
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils import _pytree as pytree

from headway.core.errors import InvalidArgumentError
from headway.profiler.capture.backward import GradientOf, gradients
from headway.profiler.capture.fake import empty_mode, fake_inputs, forget_values
from headway.profiler.capture.rules import is_known

TARGETS = "targets"
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A traced call of a module, and what its placeholders and outputs are.

    Attributes:
        graph: placeholders are the tensors of `names`, in order; outputs are `num_outputs` of the model, then
            gradients.
        names: paths of parameters and buffers, then names of inputs.
        parameters: which of the names are parameters.
        inputs: which of them are inputs.
        trained: the parameters that have a gradient, in the order of the gradients.
        gradient_of: what the nodes of the backward pass are gradients of.
    """

    graph: fx.GraphModule
    names: tuple[str, ...]
    parameters: frozenset[str]
    inputs: frozenset[str]
    trained: tuple[str, ...]
    num_outputs: int
    gradient_of: GradientOf = field(default_factory=dict)


def trace(
    module: nn.Module, inputs: Sequence[Any], *, train: bool, report: Report, targets: torch.Tensor | None = None
) -> Trace:
    """Traces one call. Values of parameters and inputs don't matter, and none is computed.

    Args:
        module: is changed: its tensors lose their values.
        train: trace the gradients of all parameters besides: of the loss where there are targets, else of the output
            where it is one number, else of the sum of all outputs.
        targets: the classes that the first output scores, an input named 'targets'. The output is then the loss alone:
            the mean cross-entropy in float32, as torchtitan computes it.

    Raises:
        InvalidArgumentError: the module can't be exported, or there is nothing to train.
    """
    mode = empty_mode()
    forget_values(module, mode)
    module.train(train)
    report("exporting")
    program = _export(module, fake_inputs(tuple(inputs), mode))
    report("tracing forward and backward" if train else "tracing")
    return _lower(program, train=train, targets=None if targets is None else fake_inputs(targets, mode))


def _export(module: nn.Module, inputs: tuple[Any, ...]) -> ExportedProgram:
    try:
        return torch.export.export(module, inputs, strict=False)
    except Exception as error:  # whatever the user's module raises
        where = _failing_module(module, error)
        first_line = next((line for line in str(error).splitlines() if line.strip()), "")
        raise InvalidArgumentError(
            f"{where} does not export: {type(error).__name__}: {first_line.strip()}",
            hint="Capture needs a forward pass whose shapes and branches don't depend on the values of tensors: no "
            "`.item()`, no `if tensor:`, no `nonzero`; gather over a fixed capacity instead.",
            field="source",
        ) from error


def _failing_module(root: nn.Module, error: BaseException) -> str:
    """Finds the innermost module of `root` whose forward is on the error's stack, with file and line."""
    paths = {id(child): path for path, child in root.named_modules()}
    found = f"The module {type(root).__name__}"
    frame = error.__traceback__
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        is_call = frame.tb_frame.f_code.co_name.startswith("_")  # torch's way to the module's own forward
        if isinstance(owner, nn.Module) and id(owner) in paths and not is_call:
            names = [name for name in (paths[id(owner)], type(owner).__name__) if name]
            place = f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
            found = f"The module {names[0]} ({', '.join([*names[1:], place])})"
        frame = frame.tb_next
    return found


def _lower(program: ExportedProgram, *, train: bool, targets: torch.Tensor | None) -> Trace:
    module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    tensors = dict(_unique_tensors(module))
    parameters = {name: tensor for name, tensor in tensors.items() if isinstance(tensor, nn.Parameter)}
    trained = [name for name, tensor in parameters.items() if tensor.requires_grad] if train else []
    inputs = pytree.tree_leaves(program.example_inputs)
    is_tensor = [isinstance(value, torch.Tensor) for value in inputs]
    input_names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    counts: dict[str, Any] = {}
    gradient_of: GradientOf = {}

    def run(state: dict[str, torch.Tensor], values: list[torch.Tensor]) -> list[torch.Tensor | None]:
        given = iter(values)
        arguments = [next(given) if flag else value for flag, value in zip(is_tensor, inputs, strict=True)]
        outputs = [o for o in _interpret(module, state, arguments) if isinstance(o, torch.Tensor)]
        outputs = outputs if targets is None else [_cross_entropy(outputs[0], *given)]
        counts["outputs"] = len(outputs)
        if not train:
            return list(outputs)
        found = gradients(_loss(outputs), [state[name] for name in trained], gradient_of)
        counts["trained"] = [name for name, gradient in zip(trained, found, strict=True) if gradient is not None]
        return [*outputs, *(gradient for gradient in found if gradient is not None)]

    fed = [value for value, flag in zip(inputs, is_tensor, strict=True) if flag]
    fed += [] if targets is None else [targets]
    mode = detect_fake_mode([*tensors.values(), *fed]) or empty_mode()
    decompositions = {op: rule for op, rule in dict(core_aten_decompositions()).items() if not is_known(op)}
    with mode, torch.set_grad_enabled(train), traceback.preserve_node_meta():
        graph = make_fx(run, decomposition_table=decompositions)(tensors, fed)
    graph.graph.eliminate_dead_code()
    fed_names = [name for name, flag in zip(input_names, is_tensor, strict=True) if flag]
    fed_names += [] if targets is None else [TARGETS]
    return Trace(
        graph=graph,
        names=(*tensors, *fed_names),
        parameters=frozenset(parameters),
        inputs=frozenset(fed_names),
        trained=tuple(counts.get("trained", ())),
        num_outputs=counts["outputs"],
        gradient_of=gradient_of,
    )


def _unique_tensors(module: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Collects parameters and buffers, each under the first of its names."""
    return [*module.named_parameters(), *module.named_buffers()]


def _interpret(module: fx.GraphModule, state: dict[str, torch.Tensor], arguments: list[Any]) -> list[Any]:
    """Computes the outputs node by node, so that each node of the trace knows the module that it came from."""
    originals = {id(tensor): state[name] for name, tensor in _unique_tensors(module)}

    class Interpreter(fx.Interpreter):
        def fetch_attr(self, target: str) -> Any:
            attribute = super().fetch_attr(target)
            return originals.get(id(attribute), attribute)

    outputs = Interpreter(module).run(*arguments, enable_io_processing=False)
    return list(pytree.tree_leaves(outputs))


def _cross_entropy(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean over all examples, or all their tokens, of scores [..., classes] for targets [...]."""
    return functional.cross_entropy(scores.flatten(0, -2).float(), targets.flatten())


def _loss(outputs: list[torch.Tensor]) -> torch.Tensor:
    floating = [output for output in outputs if output.is_floating_point() and output.requires_grad]
    if not floating:
        raise InvalidArgumentError(
            "There is nothing to train: no floating-point output depends on a parameter that requires a gradient.",
            hint="Leave out --train, or let the factory return a module whose forward gives a loss.",
            field="train",
        )
    scalars = [output for output in floating if output.ndim == 0]
    return scalars[0] if scalars else torch.stack([output.float().sum() for output in floating]).sum()
