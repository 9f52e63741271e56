"""Micro-batches of sizes of their own for the stages of a graph (GraphPipe section 6; thesis section 3.6). Pure.

A stage with larger micro-batches computes its examples faster, and lets its neighbours wait and hold more. Stages and
their devices stay; sizes change in one stage, or in one and a stage behind it, as long as the simulated iteration gets
shorter. How a stage is sharded, and whether it recomputes, is chosen anew for each size.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from headway.core.plan.training import TrainingStage, stage_successors
from headway.planner.graphpipe.in_flight import shortest_warm_up
from headway.planner.graphpipe.pipeline import StageChoice
from headway.planner.graphpipe.schedule import ScheduledStage, in_front, iteration_s, kfkb
from headway.planner.training.alpa import AlpaSearch
from headway.planner.training.graph_cut import FoundGraph, GraphCut
from headway.planner.training.stages import StageLayout

_GAIN = 1 - 1e-4  # less is not worth sizes that differ
_MOST_TRIES = 64

Sizes = tuple[int, ...]


def with_own_sizes(found: FoundGraph, search: AlpaSearch, *, should_stop: Callable[[], bool]) -> FoundGraph:
    """The graph with the sizes that no single change makes faster; itself where those that it has are.

    It is compared by simulation with itself, and with what equation 3.2 says of it.

    Args:
        search: of the same problem and layers.
    """
    sizing = _Sizing(found, search)
    own = sizing.sizes
    best, least_s = found, min(sizing.simulated_s(found.stages, own), found.iteration_s - sizing.once_s)
    tried, is_better = {own}, True
    while is_better and not should_stop():
        is_better = False
        for sizes in sizing.neighbours(own):
            if sizes in tried or len(tried) >= _MOST_TRIES or should_stop():
                continue
            tried.add(sizes)
            made = sizing.at(sizes)
            if made is not None and made.simulated_s is not None and made.simulated_s < least_s * _GAIN:
                best, own, least_s, is_better = made, sizes, made.simulated_s, True
                break
    return best


@dataclass(slots=True)
class _Tail:
    """The stages from one on, with what they take.

    Attributes:
        scheduled: their successors are places among them.
    """

    layouts: tuple[StageLayout, ...] = ()
    stages: tuple[TrainingStage, ...] = ()
    scheduled: list[ScheduledStage] = field(default_factory=list)


class _Sizing:
    """A graph of stages with other sizes of micro-batches; what is known of the last stages is kept."""

    def __init__(self, found: FoundGraph, search: AlpaSearch) -> None:
        self._found, self._search = found, search
        self._batch = found.num_micro_batches * found.step.training.graph.batch
        self._successors = stage_successors(found.stages)
        self._cuts: dict[int, GraphCut] = {}
        self._tails: dict[Sizes, _Tail | None] = {(): _Tail()}
        self._allowed = {self._batch // number for number in search.numbers_of_micro_batches()}

    @property
    def sizes(self) -> Sizes:
        """Those that the graph has."""
        return (self._found.step.training.graph.batch,) * len(self._found.stages)

    @property
    def once_s(self) -> float:
        return max(stage.once_s for stage in self._found.stages)

    def neighbours(self, own: Sizes) -> Iterator[Sizes]:
        """Twice or half of the size in one stage, or in one and a successor of it, the slowest stages first."""
        slowest = sorted(range(len(own)), key=lambda number: -self._found.stages[number].latency_s)
        groups: list[tuple[int, ...]] = [(number,) for number in slowest]
        groups += [(number, later) for number in slowest for later in self._successors[number]]
        for group in groups:
            for double in (True, False):
                sizes = tuple(
                    (size * 2 if double else size // 2) if number in group else size for number, size in enumerate(own)
                )
                if set(sizes) <= self._allowed:
                    yield sizes

    def simulated_s(self, stages: Sequence[TrainingStage], sizes: Sizes) -> float:
        """Until the last pass has ended, by 1F1B with those in flight that stages have."""
        scheduled = [
            replace(
                _scheduled(stage, size, later),
                passes=kfkb(self._batch // size, warm_up=stage.in_flight),
            )
            for stage, size, later in zip(stages, sizes, self._successors, strict=True)
        ]
        return iteration_s(scheduled)

    def at(self, sizes: Sizes) -> FoundGraph | None:
        """The graph with these sizes; None where it does not fit, or where they are all the same."""
        tail = self._tail(sizes)
        if tail is None or len(set(sizes)) == 1:
            return None
        largest = max(sizes)
        tables = self._cut(largest).tables
        return replace(
            self._found,
            step=tables.step,
            prices=tables.prices,
            num_micro_batches=self._batch // largest,
            stages=tail.stages,
            layouts=tail.layouts,
            simulated_s=iteration_s(tail.scheduled),
        )

    def _tail(self, sizes: Sizes) -> _Tail | None:
        """The last stages with these sizes, each with as few micro-batches in flight as lets it end as early as it
        can."""
        if sizes not in self._tails:
            behind = self._tail(sizes[1:])
            self._tails[sizes] = None if behind is None else self._longer(sizes[0], behind)
        return self._tails[sizes]

    def _longer(self, size: int, behind: _Tail) -> _Tail | None:
        number = len(self._found.stages) - 1 - len(behind.stages)
        layout, later = self._found.layouts[number], self._successors[number]
        choice = StageChoice(tuple(range(layout.first, layout.last + 1)), layout.mesh.num_devices)
        cut, in_flight = self._cut(size), 1
        while (made := next(cut.fitting(choice, layout.first_device, in_flight=in_flight), None)) is not None:
            layout, stage = made
            scheduled = _scheduled(stage, size, tuple(each - number - 1 for each in later))
            wanted = shortest_warm_up(scheduled, behind.scheduled, batch=self._batch)
            if wanted <= in_flight:
                passes = kfkb(self._batch // size, warm_up=in_flight)
                return _Tail(
                    layouts=(layout, *behind.layouts),
                    stages=(replace(stage, successors=later, micro_batch=size), *behind.stages),
                    scheduled=in_front(replace(scheduled, passes=passes), behind.scheduled),
                )
            in_flight = wanted
        return None

    def _cut(self, size: int) -> GraphCut:
        """Of micro-batches of a size."""
        if size not in self._cuts:
            number = self._batch // size
            self._cuts[size] = GraphCut(self._search.cluster.groups[0], self._search.tables(number), number)
        return self._cuts[size]


def _scheduled(stage: TrainingStage, size: int, successors: tuple[int, ...]) -> ScheduledStage:
    """A stage to simulate, without its passes: half of what it hands over goes either way, and counts as its work."""
    return ScheduledStage(
        micro_batch=size,
        forward_s=stage.forward_s + stage.handover_s / 2,
        backward_s=stage.backward_s + stage.handover_s / 2,
        passes=(),
        successors=successors,
    )
