"""The search for the best backends of a model: a dialogue. Whoever measures tells what is known, and the search answers
with what it wants to know next, or with its choice."""

import json
from dataclasses import dataclass, field, replace

from headway.core.backend import Backend, BackendPlacement, Engine
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, TensorRole
from headway.core.model_profile import Cost
from headway.core.program import REFERENCE, Instruction, Program, Value
from headway.core.program_parts import ProgramParts

GRAPH, PROGRAM = "graph", "program"
"""Names of the files that go beside the request."""
MAX_ERROR = 1e-4
"""What float32 may differ by between libraries, as a share of the largest value."""
_ROW = Value(shape=(1, 64), stride=(64, 1), dtype="float32")
_MATRIX = Value(shape=(64, 64), stride=(64, 1), dtype="float32")
_PROBED = "aten.mm.default"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSearch:
    """What is known.

    Attributes:
        backends: that are offered.
        max_error: by how much results may differ from torch's, as a share of the largest.
        costs: of placed programs, by content hash.
        is_over_time: whether nothing more is looked for: each backend alone and the final are still measured.
        takes_best: whether nothing more can be measured.
        population, generations, seed: of the graph-level search; no generations for none.
    """

    model: str
    backends: tuple[Backend, ...]
    max_error: float = MAX_ERROR
    costs: dict[str, Cost] = field(default_factory=dict)
    is_over_time: bool = False
    takes_best: bool = False
    population: int = 6
    generations: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_error <= 0:
            raise InvalidArgumentError(
                f"max_error must be above 0, not {self.max_error}.",
                hint="1e-4 is float32's, 1e-2 allows bfloat16 and int8.",
                field="max_error",
            )
        if not self.backends:
            raise InvalidArgumentError("No backend is offered.", hint="'eager' runs anything.", field="backends")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is to be timed.

    Attributes:
        label: for people.
        engines: of the whole program, or of the probe; or one, of operators as a program of their own.
        is_whole: whether it is the whole program.
        trial: as of the placement.
        is_probe: whether it is of `probe`, and not of the model at all.
    """

    label: str
    engines: tuple[Engine, ...]
    is_whole: bool = False
    trial: int = 0
    is_probe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedEngine:
    """One engine of a choice.

    Attributes:
        operators: names of operators, in order.
        estimated_s: the sum of its kernels; None where one of them was not measured.
        measured_s: as timed by itself; None where it was not.
        others: what other backends would take for the same, by their names: as timed where it is the whole model, else
            the sum of its kernels.
    """

    operators: tuple[str, ...]
    backend: Backend
    estimated_s: float | None = None
    measured_s: float | None = None
    others: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """One of the last, timed in turns with the others, each in a process of its own.

    Attributes:
        name: of the backend that runs all, or 'the choice' of several engines.
        seconds, least_s: median and minimum of the runs that count.
        num_runs, num_contended: runs that count, and those that were dropped, as something else had the machine.
    """

    name: str
    seconds: float
    least_s: float
    num_runs: int
    num_contended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPlan:
    """A choice.

    Attributes:
        chosen_s, eager_s: measured, of the whole; None for eager where it was not offered.
        predicted_s: the sum of the kernels of the op-level placement with what it takes to change between them; None
            where that was not come to.
        op_level_s: the op-level placement, measured.
        single: seconds of each backend that runs the whole, by name.
        deviation: of the choice, as a share of the largest value.
        contest: the final; empty where nothing else came near.
        switch_s: context switch by backend, measured: what a kernel takes more in a row of others
            than by itself; below 0 where the start of a run, which it pays for by itself, is more than that.
        dropped: backends that don't run the whole, and why.
        num_measured: placed programs that the choice rests on.
        search_s: seconds that the searches took, without measuring.
    """

    model: str
    groups: tuple[PlannedEngine, ...]
    placement: BackendPlacement
    chosen_s: float
    eager_s: float | None = None
    predicted_s: float | None = None
    op_level_s: float | None = None
    single: dict[str, float] = field(default_factory=dict)
    deviation: float = 0.0
    contest: tuple[Finalist, ...] = ()
    switch_s: dict[str, float] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    num_measured: int = 0
    search_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendAnswer:
    """What the search wants to know, and the phase that this belongs to; or its choice.

    Attributes:
        is_search: whether a time limit ends the measuring of what is wanted.
    """

    phase: str = ""
    wanted: tuple[Candidate, ...] = ()
    is_search: bool = False
    plan: BackendPlan | None = None


def probe(length: int) -> Program:
    """A chain of products that are next to nothing, so that calling them is what takes time: of a row with one constant
    matrix, its second input, over and over."""
    rows = (0, *range(2, length + 1))
    instructions = tuple(
        Instruction(
            target=_PROBED,
            arguments=json.dumps({"args": [{REFERENCE: row}, {REFERENCE: 1}], "kwargs": {}}),
            results=(_ROW,),
        )
        for row in rows
    )
    return Program(inputs=(_ROW, _MATRIX), instructions=instructions, results=(length + 1,))


class CandidatePrograms:
    """Makes programs of candidates: the same on both sides of the dialogue."""

    def __init__(self, graph: Graph, program: Program) -> None:
        roles = {tensor.name: tensor.role for tensor in graph.tensors}
        self.parts = ProgramParts(program)
        self.constants = tuple(
            number for number, name in enumerate(program.names) if roles.get(name) is not TensorRole.INPUT
        )
        self._alone: dict[tuple[int, ...], tuple[Program, tuple[int, ...]]] = {}

    def program(self, candidate: Candidate) -> Program:
        """The placed program that is to be timed."""
        if candidate.is_probe:
            placement = BackendPlacement(engines=candidate.engines, constants=(1,))
            return replace(probe(sum(len(engine.positions) for engine in candidate.engines)), placement=placement)
        if candidate.is_whole:
            placement = BackendPlacement(engines=candidate.engines, constants=self.constants, trial=candidate.trial)
            return replace(self.parts.program, placement=placement)
        (engine,) = candidate.engines
        if engine.positions not in self._alone:
            self._alone[engine.positions] = self.parts.alone(engine.positions)
        part, inputs = self._alone[engine.positions]
        fixed = set(self.constants)
        constants = tuple(number for number, outer in enumerate(inputs) if outer in fixed)
        positions = tuple(at for at, each in enumerate(part.instructions) if not each.is_view)
        engines = (Engine(backend=engine.backend, positions=positions),)
        return replace(part, placement=BackendPlacement(engines=engines, constants=constants))
