"""`headway.backends.compile`: a module as a callable that runs on the best backends of this machine."""

import copy
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from headway.backends.contest import Contest, rounds
from headway.backends.libraries import Libraries
from headway.backends.library import Library
from headway.backends.placed import PlacedModule, build_placed
from headway.core.backend import BackendPlacement
from headway.core.backend_package import BackendPackage
from headway.core.backend_search import MAX_ERROR, BackendPlan, BackendSearch, Candidate, CandidatePrograms
from headway.core.catalogue.figure import Provenance
from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph
from headway.core.model_profile import Cost
from headway.core.program import Program
from headway.core.timing import Timing
from headway.planner.backends.fusion import known_fusions
from headway.planner.backends.pattern import Pattern
from headway.planner.backends.rule import PatternRule
from headway.planner.backends.search import answer
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import Trace, trace

_MEMORY_BYTES = 1 << 40
"""As much as is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedModule:
    """A module's graph, the program that runs it again, and the tensors of all that program's inputs."""

    graph: Graph
    program: Program
    tensors: tuple[torch.Tensor, ...]


class CompiledModule:
    """Runs a module's forward pass, without gradients, on the backends that were chosen.

    Attributes:
        plan: the choice; None where the placement was given.
        placement: what runs.
    """

    def __init__(
        self,
        module: nn.Module,
        run: PlacedModule,
        inputs: Sequence[torch.Tensor],
        *,
        placement: BackendPlacement,
        plan: BackendPlan | None,
    ) -> None:
        self.plan = plan
        self.placement = placement
        self._module = module
        self._run = run
        self._specs = [(given.shape, given.dtype) for given in inputs]

    @torch.no_grad()
    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Gives the module's tensor, or a tuple where it gives several. Inputs of other shapes than it was compiled for
        run through the module itself."""
        if [(given.shape, given.dtype) for given in inputs] != self._specs:
            return self._module(*inputs)  # type: ignore[no-any-return]
        results = self._run(*inputs)
        return results[0] if len(results) == 1 else results


class Compiler:
    """Compiles modules, with backends and patterns of one's own. What it measured it keeps.

    Args:
        max_error: by how much results may differ from torch's, as a share of the largest value.
        num_threads: that a run computes with; None for torch's.
        generations: of the search over whole placements.
        time_limit_s: for what the search looks at; each backend alone and the final are timed whatever it is.
    """

    def __init__(
        self,
        *,
        max_error: float = MAX_ERROR,
        num_threads: int | None = None,
        generations: int = 3,
        time_limit_s: float = math.inf,
    ) -> None:
        self.libraries = Libraries()
        self.costs: dict[str, Cost] = {}
        self._registry = known_fusions()
        self._max_error = max_error
        self._num_threads = num_threads or torch.get_num_threads()
        self._generations = generations
        self._time_limit_s = time_limit_s

    def add_backend(self, package: BackendPackage, library: Library) -> None:
        """Registers a library; InvalidArgumentError where there is one of that name."""
        self.libraries.add(package, library)

    def add_backend_pattern(self, backend: str, pattern: Pattern, *, name: str = "") -> None:
        """Says that a backend runs what matches a pattern as one kernel; see `Registry.add_backend_pattern`."""
        self._registry.add_backend_pattern(backend, pattern, name=name)

    def add_backend_pattern_rule(self, backend: str, rule: PatternRule) -> None:
        """Says that a backend runs whatever a rule allows."""
        self._registry.add_backend_pattern_rule(backend, rule)

    def compile(
        self, module: nn.Module, example_inputs: Sequence[torch.Tensor], *, placement: BackendPlacement | None = None
    ) -> CompiledModule:
        """Chooses backends by measuring, and compiles for them.

        Args:
            module: is not changed; its weights must not change after.
            example_inputs: positional arguments of its forward pass, all tensors.
            placement: of a choice that was made before. Where a backend of it is missing now, a warning names it and
                the choice is made anew.

        Raises:
            InvalidArgumentError: the module can't be captured.
            FailedPreconditionError: no backend runs it within the error.
        """
        captured = capture_module(module, example_inputs)
        if placement is not None:
            try:
                return self._compiled(module, captured, example_inputs, placement, None)
            except FailedPreconditionError as error:
                warnings.warn(f"{error.message} The choice is made anew.", stacklevel=2)
        plan = self._plan(type(module).__name__, captured)
        return self._compiled(module, captured, example_inputs, plan.placement, plan)

    def _plan(self, name: str, captured: CapturedModule) -> BackendPlan:
        programs = CandidatePrograms(captured.graph, captured.program)
        contest = Contest(
            captured.tensors[0].device,
            memory_bytes=_MEMORY_BYTES,
            num_threads=self._num_threads,
            libraries=self.libraries,
        )
        search = BackendSearch(
            model=name,
            backends=tuple(each for each in self.libraries.installed() if self._allows(each.precision)),
            max_error=self._max_error,
            generations=self._generations,
        )
        ends_s = time.monotonic() + self._time_limit_s
        while True:
            known = replace(search, costs=self.costs, is_over_time=time.monotonic() > ends_s)
            found = answer(known, captured.graph, captured.program, self._registry)
            if found.plan is not None:
                return found.plan
            until_s = ends_s if found.is_search else math.inf
            self.costs |= dict(_measured(contest, programs, found.wanted, until_s=until_s))

    def _allows(self, precision: str) -> bool:
        return precision == "float32" or self._max_error > MAX_ERROR

    def _compiled(
        self,
        module: nn.Module,
        captured: CapturedModule,
        inputs: Sequence[torch.Tensor],
        placement: BackendPlacement,
        plan: BackendPlan | None,
    ) -> CompiledModule:
        placed = replace(captured.program, placement=placement)
        run = build_placed(placed, captured.tensors, libraries=self.libraries, num_threads=self._num_threads)
        return CompiledModule(module, run, inputs, placement=placement, plan=plan)


def compile(  # noqa: A001 - as torch has it
    module: nn.Module,
    example_inputs: Sequence[torch.Tensor],
    *,
    max_error: float = MAX_ERROR,
    num_threads: int | None = None,
    time_limit_s: float = math.inf,
    placement: BackendPlacement | None = None,
) -> CompiledModule:
    """Compiles a module with the built-in backends; see `Compiler`."""
    compiler = Compiler(max_error=max_error, num_threads=num_threads, time_limit_s=time_limit_s)
    return compiler.compile(module, example_inputs, placement=placement)


def capture_module(module: nn.Module, inputs: Sequence[torch.Tensor]) -> CapturedModule:
    """Captures a module's forward pass; InvalidArgumentError where that can't be."""
    traced = trace(copy.deepcopy(module), inputs, train=False, report=lambda _: None)
    graph = build_graph(traced, name=type(module).__name__, is_training=False, batch=inputs[0].shape[0])
    return CapturedModule(graph=graph, program=build_program(traced), tensors=_tensors(traced, module, inputs))


def _tensors(traced: Trace, module: nn.Module, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The program's inputs: the module's own tensors, the examples, and constants of its code."""
    known: Mapping[str, torch.Tensor] = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    given = iter(inputs)

    def found() -> Iterator[torch.Tensor]:
        names = iter(traced.names)
        for node in traced.graph.graph.nodes:
            if node.op == "placeholder":
                name = next(names)
                yield next(given) if name in traced.inputs else known[name].detach()
            elif node.op == "get_attr":
                yield getattr(traced.graph, str(node.target))

    return tuple(found())


def _measured(
    contest: Contest, programs: CandidatePrograms, wanted: Sequence[Candidate], *, until_s: float
) -> Iterator[tuple[str, Cost]]:
    """Yields hashes and costs of what was timed before the time was over."""
    for first, together in rounds([programs.program(candidate) for candidate in wanted]):
        if time.monotonic() > until_s:
            return
        for program, timing in zip(together, contest.times(together, first=first), strict=True):
            yield program.content_hash, _cost(timing)


def _cost(timing: Timing) -> Cost:
    if timing.fault:
        return Cost(note=timing.fault)
    return Cost(
        seconds=timing.seconds,
        provenance=Provenance.MEASURED,
        relative_error=timing.relative_error,
        deviation=timing.deviation,
    )
