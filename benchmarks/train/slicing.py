"""TeraPipe's published schemes of slices, on ranks that sleep (dissertation, chapter 2, tables 2.2 and 2.3).

What a slice takes of a stage is a law that is fitted to all published latencies of a model: so much for each slice, for
each token of it, of which there are as many as fill a device at least, and for each pair of tokens that attend. By it
schemes are ranked: on as many stages as were published, and on fewer ranks, which are simulated and slept through.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.train.sleeping import asleep
from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import ActionKind, Execution, StageSpec
from headway.core.execution.orders import stage_orders
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.execution.slices import slice_step
from headway.core.program import Program
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.tokens import first_tokens
from headway.profiler.capture.trace import trace

_SEQ, _STEP = 2048, 8
"""Tokens of a sequence, and the greatest number that divides all published slices: each is as many tokens here."""
_FORWARD_SHARE = 1 / 3
_WIDTH, _VOCABULARY = 4, 8
_NUM_RANKS = 8
_APART = 1.02
_LEAST = range(8, 257, 8)
_ITERATION_S = 2.0
"""Of the quickest scheme, asleep; long beside what a busy machine delays."""

Slices = tuple[int, ...]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A model's schemes, each of single sequences.

    Attributes:
        uniform: published seconds of an iteration by the number of equal slices.
        searched: slices and published seconds of the scheme that the search found.
        others: schemes of the model's other settings, which have other numbers of stages.
    """

    model: str
    num_stages: int
    num_sequences: int
    uniform: dict[int, float]
    searched: tuple[Slices, float]
    others: tuple[Slices, ...] = ()

    @property
    def measured(self) -> list[tuple[Slices, float]]:
        """Schemes and their published seconds."""
        return [*(((_SEQ // count,) * count, seconds) for count, seconds in self.uniform.items()), self.searched]


PUBLISHED = (
    Published(
        model="GPT3-44B",
        num_stages=48,
        num_sequences=8,
        uniform={1: 2.662, 4: 1.241, 8: 1.255, 16: 1.241},
        searched=((384, 384, 368, 320, 296, 296), 1.111),
        others=((368, 384, 384, 368, 256, 288), (64,) * 26 + (56,) * 6 + (48,)),
    ),
    Published(
        model="GPT3-175B",
        num_stages=96,
        num_sequences=2,
        uniform={1: 9.990, 4: 2.902, 8: 1.892, 16: 1.547, 32: 1.593, 64: 2.227, 128: 3.252},
        searched=((120,) * 4 + (112,) * 6 + (104,) * 8 + (64,), 1.481),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicingRow:
    """Attributes:
    published_s, fitted_s: of an iteration on as many stages as were published; as it was measured, and by the law.
    simulated_s, slept_s: of the same slices on fewer ranks; slept, the least.
    """

    model: str
    slices: Slices
    published_s: float | None
    fitted_s: float
    simulated_s: float
    slept_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Seconds of a slice on one stage, forward and backward.

    Attributes:
        numbers: for each slice, each token and each pair of tokens.
        least: tokens that a shorter slice takes as long as.
    """

    numbers: tuple[float, float, float]
    least: int

    @classmethod
    def fitted(cls, given: Published) -> "Law":
        """With the least squares of relative errors; no number is below 0."""
        laws = [law for least in _LEAST for law in cls._fitted(given, least)]
        return min(laws, key=lambda law: law.error(given))

    @classmethod
    def _fitted(cls, given: Published, least: int) -> Iterator["Law"]:
        for count in (3, 2):  # without pairs where these would be negative
            law = cls(numbers=(1.0, 0.0, 0.0), least=least)
            for _ in range(2):  # which of a scheme's slices is the slowest goes by the law
                rows = np.array([law._totals(slices, given) / seconds for slices, seconds in given.measured])
                found = np.linalg.lstsq(rows[:, :count], np.ones(len(rows)), rcond=None)[0]
                a, b, c = [*found.tolist(), 0.0][:3]
                law = cls(numbers=(a, b, c), least=least)
            if min(law.numbers) >= 0:
                yield law

    def seconds(self, slices: Slices) -> list[float]:
        """Of each slice, in order."""
        return (self._terms(slices) @ np.array(self.numbers)).tolist()  # type: ignore[no-any-return]

    def iteration_s(self, slices: Slices, given: Published) -> float:
        return float(self._totals(slices, given) @ np.array(self.numbers))

    def _terms(self, slices: Slices) -> Floats:
        placed = zip(slices, accumulate((0, *slices)), strict=False)
        return np.array([(1.0, max(own, self.least), own * (before + own / 2)) for own, before in placed])

    def _totals(self, slices: Slices, given: Published) -> Floats:
        """Equation 2.5: the slowest slice once for each stage but one, every slice once for each sequence."""
        terms = self._terms(slices)
        slowest = len(slices) - 1 - int(np.argmax(self.seconds(slices)[::-1]))
        totals: Floats = (given.num_stages - 1) * terms[slowest] + given.num_sequences * terms.sum(0)
        return totals

    def error(self, given: Published) -> float:
        """Squares of relative errors, added up."""
        return sum((self.iteration_s(slices, given) / seconds - 1) ** 2 for slices, seconds in given.measured)


class Layers(nn.Module):
    """A small language model: attention in its first layer only, so that slices take little to compile."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.qkv = nn.Embedding(_VOCABULARY, _WIDTH), nn.Linear(_WIDTH, 3 * _WIDTH)
        self.layers = nn.ModuleList(nn.Linear(_WIDTH, _WIDTH) for _ in range(_NUM_RANKS - 1))
        self.head = nn.Linear(_WIDTH, _VOCABULARY)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        q, k, v = self.qkv(self.tokens(tokens)).unsqueeze(1).chunk(3, dim=-1)
        x = functional.scaled_dot_product_attention(q, k, v, is_causal=True).squeeze(1)
        for layer in self.layers:
            x = layer(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def slicing_rows(repeats: int) -> list[SlicingRow]:
    """Each scheme on a pipeline of sleeping ranks, a sequence an iteration. A stage's times are by the law, as much
    longer as makes the quickest scheme's iteration take `_ITERATION_S`."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Layers()
    state = {name: parameter.detach() for name, parameter in model.named_parameters()}
    rows = []
    for given in PUBLISHED:
        law = Law.fitted(given)
        schemes = [*given.measured, *((each, None) for each in given.others)]
        scale = _ITERATION_S / min(_units_s(law.seconds(slices)) for slices, _ in schemes)
        for slices, published_s in schemes:
            execution, program = _execution(model, slices)
            own = [scale * seconds for seconds in law.seconds(slices)]
            seconds = [
                own[part.stage % execution.num_slices]
                * (_FORWARD_SHARE if part.kind is ActionKind.FORWARD else 1 - _FORWARD_SHARE)
                for part in execution.parts
            ]
            found = asleep(execution, {1: program}, state, seconds, repeats)
            rows.append(
                SlicingRow(
                    model=given.model,
                    slices=slices,
                    published_s=published_s,
                    fitted_s=law.iteration_s(slices, given),
                    simulated_s=simulate(execution, ExecutionTimes(parts=tuple(seconds))).iteration_s,
                    slept_s=min(found.iterations),
                )
            )
    return rows


def _units_s(seconds: Sequence[float]) -> float:
    return (_NUM_RANKS - 1) * max(seconds) + sum(seconds)


def kept_pairs(rows: Sequence[SlicingRow]) -> dict[str, dict[str, tuple[int, int]]]:
    """Of each model how many pairs of schemes, and of how many that lie 2 % apart at least, are in the right order:
    slept, beside the simulation; and by the law on as many stages as were published, beside what was measured."""
    found = {}
    for given in PUBLISHED:
        own = [row for row in rows if row.model == given.model]
        measured = [row for row in own if row.published_s is not None]
        found[given.model] = {
            "slept": _in_order([(row.simulated_s, row.slept_s) for row in own]),
            "published": _in_order([(row.published_s or 0.0, row.fitted_s) for row in measured]),
        }
    return found


def _in_order(pairs: Sequence[tuple[float, float]]) -> tuple[int, int]:
    apart = [(a, b) for a, b in combinations(pairs, 2) if max(a[0], b[0]) >= _APART * min(a[0], b[0])]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in apart), len(apart)


def _execution(model: nn.Module, slices: Slices) -> tuple[Execution, Program]:
    """A stage for each layer, of one sequence in slices; where there is one, whole."""
    lengths = [length // _STEP for length in slices]
    tokens = torch.zeros(1, _SEQ // _STEP, dtype=torch.long)
    traced = trace(copy.deepcopy(model), (tokens, tokens), train=True, report=lambda _: None)
    graph, program = build_graph(traced, name="layers", is_training=True, batch=1), build_program(traced)
    place: dict[str, int] = {}
    maker = {name: op.name for op in graph.operators for name in op.outputs}
    for op in graph.operators:
        if not op.is_backward:
            before = max((place[maker[name]] for name in op.inputs if name in maker), default=0)
            _, *layer = op.module.split(".")
            place[op.name] = max(before, int(layer[0]) + 1 if op.module.startswith("layers.") else 0)
    stages = [
        StageSpec(
            forward=tuple(op.name for op in graph.operators if place.get(op.name) == number),
            backward=tuple(op.name for op in graph.operators if op.is_backward and place[op.forward] == number),
            ranks=(number,),
            micro_batch=1,
        )
        for number in range(_NUM_RANKS)
    ]
    successors = [(number + 1,) if number + 1 < _NUM_RANKS else () for number in range(_NUM_RANKS)]
    orders = stage_orders("1f1b", stages, successors, batch=1, num_slices=len(slices))
    specs, sums_losses = tuple(stages), False
    if len(slices) > 1:
        shorter = {count: _program(model, first_tokens((tokens, tokens), count)) for count in sorted(set(lengths))}
        sliced = slice_step(program, shorter, lengths)
        program, specs, sums_losses = sliced.program, sliced.stages([stages] * len(slices)), sliced.sums_losses
    found = compile_execution(
        {1: program},
        specs,
        orders,
        batch=1,
        splits=False,
        optimizer="sgd",
        slices=lengths if len(slices) > 1 else (),
        sums_losses=sums_losses,
    )
    assert certify(found).faults == ()
    return found, program


def _program(model: nn.Module, given: Sequence[Tensor]) -> Program:
    return build_program(trace(copy.deepcopy(model), given, train=True, report=lambda _: None))
