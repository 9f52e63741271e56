"""Prices slices of tokens on chosen stages (TeraPipe): the same shardings, fewer tokens, and those before them. Pure.

Slices of a few lengths are priced, from the whole sequence down by halves, each without context and with as much as
there can be. In between seconds are linear, as in equation 2.9: in a slice's length, and in the tokens before it.
Backward operators, which no node stands for, are split as is best for a slice of that length.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from headway.core.device_mesh import DeviceMesh, handover_s
from headway.core.plan.training import SliceSeconds
from headway.core.token_slices import TokenSlices
from headway.planner.inter.stage_table import LayeredStep, layer_problems
from headway.planner.intra.layer_problem import LayerProblem
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.intra.strategies import Strategy
from headway.planner.terapipe.scheme import SliceTimes
from headway.planner.training.stages import ChosenLayer, StageLayout, StageMaker

STEP = 8  # tokens, as the dissertation's schemes have
_MOST_STEPS = 256
_WAYS = (Quantity.FORWARD_S, Quantity.BACKWARD_S)


@dataclass(frozen=True, kw_only=True, eq=False)
class StageTimes:
    """Seconds of all slices on one stage.

    Attributes:
        forward_s, backward_s, sent_s: [slice, context], of slices of 1, 2, ... steps after 0, 1, ... steps; infinite
            where that was not priced.
        step: tokens.
    """

    forward_s: Floats
    backward_s: Floats
    sent_s: Floats
    step: int

    def of(self, tokens: Sequence[int]) -> tuple[SliceSeconds, ...]:
        """Of each slice of a sequence, in order."""
        found = []
        begin = 0
        for size in tokens:
            at = size // self.step - 1, begin // self.step
            found.append(
                SliceSeconds(
                    forward_s=float(self.forward_s[at]),
                    backward_s=float(self.backward_s[at]),
                    handover_s=float(self.sent_s[at]),
                )
            )
            begin += size
        return tuple(found)


def joint_times(stages: Sequence[StageTimes]) -> SliceTimes:
    """Of each slice what it takes on the stage that it takes longest on."""
    seconds = np.max([each.forward_s + each.backward_s + each.sent_s for each in stages], axis=0)
    return SliceTimes(seconds=seconds[None], step=stages[0].step, num_stages=len(stages))


@dataclass(kw_only=True)
class SlicePricing:
    """Prices slices of micro-batches of one size.

    Attributes:
        maker: of the stages whose slices are priced.
    """

    slices: TokenSlices
    maker: StageMaker
    _known: dict[tuple[int, frozenset[str], DeviceMesh], list[LayerProblem | None]] = field(default_factory=dict)

    def times(self, layout: StageLayout) -> StageTimes:
        """The times of all slices on a stage."""
        layers = self.maker.layers(layout)
        kinds = self.maker.step.kinds_of(layout.first, layout.last)
        seconds = np.zeros((len(self._lengths), len(_WAYS)))
        for (kind, borrowed), layer in zip(kinds, layers, strict=True):
            for number, problem in enumerate(self._problems(kind, borrowed, layout.mesh)):
                seconds[number] += (
                    np.inf if problem is None else _seconds(problem, layer, recomputes=layout.variant.recomputes)
                )
        whole = self.maker.step.sent_bytes(layout.first, layout.last)
        shares = np.arange(1, self._seq_len // self.step + 1) * self.step / self._seq_len
        submesh = layout.mesh.submesh
        sent = np.array([2 * handover_s(self.maker.pricing[0].nodes, submesh, whole * share) for share in shares])
        forward_s, backward_s = (self._spread(seconds[:, way]) for way in range(len(_WAYS)))
        return StageTimes(
            forward_s=forward_s,
            backward_s=backward_s,
            sent_s=np.broadcast_to(sent[:, None], forward_s.shape),
            step=self.step,
        )

    @property
    def step(self) -> int:
        """Tokens that slices are multiples of."""
        return self._sizes[-1]

    @cached_property
    def _sizes(self) -> list[int]:
        """Lengths of the slices that are priced, descending."""
        sizes = [self._seq_len]
        least = max(STEP, self._seq_len // _MOST_STEPS)
        while sizes[-1] % 2 == 0 and sizes[-1] // 2 >= least:
            sizes.append(sizes[-1] // 2)
        return sizes

    @cached_property
    def _lengths(self) -> list[tuple[int, int]]:
        """(slice, context) of each slice that is priced."""
        return [
            (size, context)
            for size in self._sizes
            for context in ((0, self._seq_len - size) if size < self._seq_len else (0,))
        ]

    @cached_property
    def _steps(self) -> list[LayeredStep]:
        """The whole step, and that of each slice."""
        step = self.maker.step
        graphs = [self.slices.at(step.training.graph, *lengths) for lengths in self._lengths]
        return [
            step,
            *(
                replace(step, training=replace(step.training, graph=graph, tensors=graph.tensors_by_name()))
                for graph in graphs
            ),
        ]

    @property
    def _seq_len(self) -> int:
        return self.slices.seq_len

    def _problems(self, kind: int, borrowed: frozenset[str], mesh: DeviceMesh) -> list[LayerProblem | None]:
        """The sharding problem of a kind of layers for each slice; None where it cannot be split as whole micro-batches
        can."""
        if (kind, borrowed, mesh) not in self._known:
            placed = list(layer_problems(self._steps, [mesh], self.maker.pricing[0], kinds={(kind, borrowed)}))
            by_size = {each.size: each.problem for each in placed}
            whole = by_size[0]
            self._known[kind, borrowed, mesh] = [
                problem if _is_alike(problem, whole) else None
                for problem in (by_size[number] for number in range(1, len(self._steps)))
            ]
        return self._known[kind, borrowed, mesh]

    def _spread(self, priced_s: Floats) -> Floats:
        """[slice, context] out of the seconds of those that are priced. Where short ones cannot be split as the whole
        is, slices are multiples of the shortest that can."""
        known: list[tuple[int, float, float]] = []  # tokens, seconds, and seconds for each token before them
        seconds = dict(zip(self._lengths, priced_s.tolist(), strict=True))
        for size in self._sizes:
            alone_s, before = seconds[size, 0], self._seq_len - size
            after_s = seconds.get((size, before), alone_s)
            if not np.isfinite([alone_s, after_s]).all():
                break
            known.insert(0, (size, alone_s, (after_s - alone_s) / max(before, 1)))
        least = known[0][0] if known else self._seq_len + 1
        sizes = self.step * np.arange(1, self._seq_len // self.step + 1)
        contexts = sizes - self.step
        if not known:
            return np.full((len(sizes), len(sizes)), np.inf)
        lengths, alone, slopes = (list(column) for column in zip(*known, strict=True))
        slopes[-1] = 2 * slopes[-2] if len(slopes) > 1 else 0.0  # before a whole sequence there is nothing
        spread = np.interp(sizes, lengths, alone)[:, None] + np.interp(sizes, lengths, slopes)[:, None] * contexts
        possible = (sizes % least == 0)[:, None] & (contexts % least == 0)
        return np.asarray(np.where(possible, spread, np.inf))


def _is_alike(problem: LayerProblem, whole: LayerProblem) -> bool:
    """Whether nodes have the same choices, in the same order."""
    leading = {node.name for node in whole.nodes}
    return _choices(problem, leading) == _choices(whole, leading)


def _choices(problem: LayerProblem, leading: set[str]) -> list[tuple[str, int | None, list[Strategy]]]:
    return [(name, node, list(each)) for name, (node, each) in problem.strategies.items() if name in leading]


def _seconds(problem: LayerProblem, chosen: ChosenLayer, *, recomputes: bool) -> Floats:
    """[forward, backward] seconds of a layer with the choices of another size."""
    table = chosen.table
    options = [int(each[chosen.entering, chosen.leaving, chosen.price]) for each in table.options]
    seconds = np.zeros(len(_WAYS))
    for (a, b), edge in problem.edges.items():
        seconds += edge[:, options[a], options[b]]
    for node, option in zip(problem.nodes, options, strict=True):
        seconds += node.quantities[list(_WAYS), option]
    if recomputes:
        seconds[Quantity.BACKWARD_S] += seconds[Quantity.FORWARD_S]
    for node, option in zip(problem.nodes, options, strict=True):
        for name, stages in node.parameters.items():
            zero_stage = table.zero_stages[name][option, chosen.price]
            seconds += stages[zero_stage][list(_WAYS), option]
    return seconds
