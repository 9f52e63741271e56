"""Runs a program on the backends that it is placed on."""

from collections.abc import Mapping, Sequence

import torch
from torch import fx

from headway.backends.libraries import Libraries
from headway.backends.library import CompileOptions, Run
from headway.core.program import Program
from headway.core.program_parts import EngineProgram, ProgramParts
from headway.programs.module import build_module


class PlacedModule:
    """A program's engines, compiled. Called with what is no constant it gives the program's results.

    Tensors go from engine to engine as pointers; each is dropped after its last use.
    """

    def __init__(self, program: Program, steps: Sequence["_Step"], results: Sequence[int]) -> None:
        assert program.placement is not None
        fixed = set(program.placement.constants)
        self._steps = steps
        self._results = results
        self._variables = [number for number in range(len(program.inputs)) if number not in fixed]

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = dict(zip(self._variables, inputs, strict=True))
        for step in self._steps:
            made = step.run(*(values[number] for number in step.inputs))
            values.update(zip(step.outputs, made, strict=True))
            for number in step.dropped:
                del values[number]
        return tuple(values[number] for number in self._results)


class _Step:
    def __init__(self, run: Run, inputs: Sequence[int], outputs: Sequence[int], dropped: Sequence[int]) -> None:
        self.run = run
        self.inputs = inputs
        self.outputs = outputs
        self.dropped = dropped


def build_placed(
    program: Program, tensors: Sequence[torch.Tensor], *, libraries: Libraries, num_threads: int
) -> PlacedModule:
    """Compiles a placed program's engines, one after the other.

    Args:
        tensors: of all its inputs: constants as they will be, all others as examples.

    Raises:
        FailedPreconditionError: a backend is not installed, or in another version.
        Exception: whatever a backend raises.
    """
    assert program.placement is not None
    constants = {number: tensors[number] for number in program.placement.constants}
    parts = ProgramParts(program)
    engines = parts.engines(program.placement)
    values = {number: tensor for number, tensor in enumerate(tensors) if number not in constants}
    last_use = {number: at for at, engine in enumerate(engines) for number in engine.inputs}
    steps = []
    for at, engine in enumerate(engines):
        module, read = _module(engine, constants, tensors[0].device if tensors else torch.device("cpu"))
        examples = [values[number] for number in read]
        options = CompileOptions(precision=engine.backend.precision, num_threads=num_threads)
        run = libraries.library(engine.backend).compile(module, examples, options)
        with torch.no_grad():
            values.update(zip(engine.outputs, module(*examples), strict=True))
        ended = [number for number in dict.fromkeys(read) if last_use[number] == at and number not in parts.results]
        steps.append(_Step(run, read, engine.outputs, ended))
    return PlacedModule(program, steps, parts.results)


def _module(
    engine: EngineProgram, constants: Mapping[int, torch.Tensor], device: torch.device
) -> tuple[fx.GraphModule, list[int]]:
    """An engine's module, constants inside, and the numbers of the values that it takes."""
    module = build_module(engine.program, device)
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    read = []
    for number, node in zip(engine.inputs, placeholders, strict=True):
        if number not in constants:
            read.append(number)
            continue
        name = f"constant_{number}"
        module.register_buffer(name, constants[number])
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(module.graph.get_attr(name))
        module.graph.erase_node(node)
    module.recompile()
    return module, read
