"""The shardings of one chosen stage as a choice of strategies with a bound on memory: equation 3.1 for all its layers
together. Pure.

What leaves a layer and what enters the next is one node. A strategy is an option of a node with the ZeRO stages of its
parameters. Held at each operator are all states, what is kept of the micro-batches in flight, and what is live of the
one that is computed, as `StageMemory` counts them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from headway.planner.intra.layer_table import table_of
from headway.planner.intra.problem import Edge, HeldTensor, StrategyProblem
from headway.planner.intra.quantities import Floats, Quantity
from headway.planner.training.memory import StageMemory
from headway.planner.training.stages import ChosenLayer

_SECONDS = (Quantity.FORWARD_S, Quantity.BACKWARD_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One strategy of a node.

    Attributes:
        option: of the node.
        zero_stages: of its parameters, by name.
        seconds: of a micro-batch, with its share of what happens once an iteration; without edges.
        state_bytes: of its parameters.
        gathered_bytes: whole parameters of which ZeRO 3 keeps a part.
        scattered_bytes: gradients that ZeRO 2 and 3 scatter when their layer is done.
    """

    option: int
    zero_stages: tuple[tuple[str, int], ...] = ()
    seconds: float
    state_bytes: float = 0.0
    gathered_bytes: float = 0.0
    scattered_bytes: float = 0.0

    def is_replaced_by(self, other: "Strategy") -> bool:
        return (
            other.seconds <= self.seconds
            and other.state_bytes <= self.state_bytes
            and other.gathered_bytes + other.scattered_bytes <= self.gathered_bytes + self.scattered_bytes
        )


@dataclass(frozen=True, kw_only=True)
class StageProblem:
    """Attributes:
    layers: of the stage, as they were chosen.
    memory: of the stage, as it was chosen.
    num_micro_batches, in_flight: see `TrainingPlan` and `TrainingStage`.
    memory_bytes: of a device.
    """

    layers: Sequence[ChosenLayer]
    memory: StageMemory
    num_micro_batches: int
    in_flight: int
    memory_bytes: int

    @cached_property
    def numbers(self) -> list[list[int]]:
        """Of each layer's nodes the numbers that they have here."""
        found: list[list[int]] = []
        count = 0
        for layer in self.layers:
            own = []
            for node in range(len(layer.problem.nodes)):
                if found and node == layer.problem.entering:
                    leaving = self.layers[len(found) - 1].problem.leaving
                    assert leaving is not None
                    own.append(found[-1][leaving])
                else:
                    own.append(count)
                    count += 1
            found.append(own)
        return found

    @cached_property
    def strategies(self) -> list[list[Strategy]]:
        """Of each node those that another one does not replace."""
        found: dict[int, list[Strategy]] = {}
        for layer, numbers in zip(self.layers, self.numbers, strict=True):
            for node, number in enumerate(numbers):
                own = list(self._strategies(layer, node))
                before = found.get(number)  # what left the last layer enters this one
                found[number] = own if before is None else list(_both(before, own))
        return [found[number] for number in range(len(found))]

    @cached_property
    def edges(self) -> list[Edge]:
        """Between options."""
        return [
            Edge(source=numbers[edge.source], target=numbers[edge.target], cost_s=edge.cost_s)
            for at, numbers in enumerate(self.numbers)
            for edge in self.edges_of(at)
        ]

    def edges_of(self, layer: int) -> Iterator[Edge]:
        """Between options of nodes as they are numbered in one layer."""
        for (a, b), seconds in self.layers[layer].problem.edges.items():
            yield Edge(source=a, target=b, cost_s=self._seconds(seconds))

    def num_pairs(self, kept: Sequence[Sequence[int]]) -> int:
        """Pairs of strategies of neighbours, among some strategies of each node: most of a program's variables."""
        return sum(len(kept[edge.source]) * len(kept[edge.target]) for edge in self.edges)

    def problem(self, kept: Sequence[Sequence[int]]) -> StrategyProblem:
        """The choice among some strategies of each node; a last node stands for what is held in any case."""
        chosen = [[own[at] for at in which] for own, which in zip(self.strategies, kept, strict=True)]
        options = [np.array([each.option for each in own], np.intp) for own in chosen]
        bounds = np.cumsum([0, *map(len, chosen), 1])
        tensors: list[HeldTensor] = []
        live: list[list[int]] = []
        for row in _undominated_rows(self._rows(chosen)):
            parts = enumerate(row[start:end] for start, end in pairwise(bounds))
            held = [HeldTensor(node=node, shard_bytes=part) for node, part in parts if part.any()]
            live.append(list(range(len(tensors), len(tensors) + len(held))))
            tensors += held
        return StrategyProblem(
            cost_s=[*(np.array([each.seconds for each in own]) for own in chosen), np.zeros(1)],
            edges=[
                Edge(
                    source=edge.source,
                    target=edge.target,
                    cost_s=edge.cost_s[np.ix_(options[edge.source], options[edge.target])],
                )
                for edge in self.edges
            ],
            tensors=tensors,
            live=live,
            memory_limit_bytes=float(self.memory_bytes),
        )

    def chosen(self, strategies: Sequence[Strategy]) -> list[ChosenLayer]:
        """The stage's layers with one strategy of each node."""
        found = []
        for layer, numbers in zip(self.layers, self.numbers, strict=True):
            own = [strategies[number] for number in numbers]
            zero_stages = {
                name: stage
                for node, strategy in zip(layer.problem.nodes, own, strict=True)
                for name, stage in strategy.zero_stages
                if name in node.parameters
            }
            options = [strategy.option for strategy in own]
            table = table_of(layer.problem, options, zero_stages, recomputes=self.memory.recomputes)
            found.append(replace(layer, table=table, entering=0, leaving=0, price=0))
        return found

    def kept_bytes(self, node: int) -> Floats:
        """[options]: what a node keeps of a micro-batch."""
        start = self._starts[node]
        return self._kept[start : start + self._num_options[node]]

    @property
    def constant_bytes(self) -> float:
        """What is held whatever is chosen: buffers, and what is kept and lies the same in any case."""
        return self.memory.buffer_bytes + self.in_flight * float(self._kept[-1])

    # What is held

    @cached_property
    def _num_options(self) -> list[int]:
        sizes = {
            number: node.num_options
            for layer, numbers in zip(self.layers, self.numbers, strict=True)
            for number, node in zip(numbers, layer.problem.nodes, strict=True)
        }
        return [sizes[number] for number in range(len(sizes))]

    @cached_property
    def _starts(self) -> list[int]:
        """The place of each node's options in a row of all of them; the last place is for what is the same for all."""
        return [0, *np.cumsum(self._num_options).tolist()]

    @cached_property
    def _homes(self) -> dict[str, tuple[slice, Floats]]:
        """Of all that the stage's operators make or receive the places in a row, and the bytes there."""
        found: dict[str, tuple[slice, Floats]] = {}
        for receives in (True, False):
            for at, layer in enumerate(self.layers):
                for name, alike in layer.names_received if receives else layer.names_made:
                    if receives and name not in self.memory.specs:
                        continue
                    node, specs = layer.problem.specs.get(alike, (None, ()))
                    whole = float(self.memory.training.tensors[name].num_bytes)
                    if node is None:
                        parts = specs[0].num_shards(self.memory.mesh_shape) if specs else 1
                        found[name] = slice(self._starts[-1], self._starts[-1] + 1), np.array([whole / parts])
                        continue
                    start = self._starts[self.numbers[at][node]]
                    shards = [spec.num_shards(self.memory.mesh_shape) for spec in specs]
                    found[name] = slice(start, start + len(shards)), whole / np.array(shards, np.float64)
        return found

    @cached_property
    def _kept(self) -> Floats:
        """[options of all nodes, and one more]: kept of a micro-batch."""
        row = np.zeros(self._starts[-1] + 1)
        for name in self.memory.kept:
            places, num_bytes = self._homes[name]
            row[places] += num_bytes
        return row

    @cached_property
    def _live(self) -> Floats:
        """[operators, options of all nodes, and one more]: live of a micro-batch."""
        changes = np.zeros((len(self.memory.layer_at) + 1, self._starts[-1] + 1))
        for name, (places, num_bytes) in self._homes.items():
            for first, last in self.memory.intervals(name):
                changes[first, places] += num_bytes
                changes[last + 1, places] -= num_bytes
        return np.asarray(changes.cumsum(axis=0)[:-1])

    def _rows(self, chosen: Sequence[Sequence[Strategy]]) -> Floats:
        """[times, strategies of all nodes, and one more]: what is held at each time."""
        places = np.array(
            [self._starts[node] + each.option for node, own in enumerate(chosen) for each in own] + [self._starts[-1]]
        )
        flat = [each for own in chosen for each in own]
        state = np.array([*(each.state_bytes for each in flat), self.memory.buffer_bytes])
        kept = self._kept[places]
        found = [state + self.in_flight * kept]
        layer_of = {number: at for at, numbers in enumerate(self.numbers) for number in numbers}
        own_layer = np.array([*(layer_of[node] for node, own in enumerate(chosen) for _ in own), -1])
        gathered = np.array([*(each.gathered_bytes for each in flat), 0.0])
        scattered = np.array([*(each.scattered_bytes for each in flat), 0.0])
        live = self._live[:, places]
        for at, layer in enumerate(self.memory.layer_at):
            row = state + (self.in_flight - 1) * kept + live[at] + (gathered + scattered) * (own_layer == layer)
            found += [row + gathered * (own_layer == beside) for beside in (layer - 1, layer + 1)]
        return np.array(found)

    # Strategies

    def _strategies(self, layer: ChosenLayer, node: int) -> Iterator[Strategy]:
        model = layer.problem.nodes[node]
        seconds = self._seconds(model.quantities[list(_SECONDS)])
        seconds = seconds + model.quantities[Quantity.ONCE_S] / self.num_micro_batches
        for option in range(model.num_options):
            front = [Strategy(option=option, seconds=float(seconds[option]))]
            for name, stages in model.parameters.items():
                ways = list(self._ways(layer, name, stages[:, :, option], option))
                front = list(_undominated([_joined(before, way) for before in front for way in ways]))
            yield from front

    def _ways(self, layer: ChosenLayer, name: str, stages: Floats, option: int) -> Iterator[Strategy]:
        """The ZeRO stages of one parameter.

        Args:
            stages: [stages, quantities].
        """
        training = self.memory.training
        whole = float(training.tensors[name].num_elements * self.memory.precision.weight_bytes)
        whole /= self._num_shards(layer, name, option)
        gradient = training.gradient_of.get(name)
        given = 0.0
        if gradient is not None:
            given = training.tensors[gradient].num_bytes / self._num_shards(layer, gradient, option)
        for stage, own in enumerate(stages):
            seconds = own[Quantity.FORWARD_S] + own[Quantity.BACKWARD_S] + own[Quantity.ONCE_S] / self.num_micro_batches
            if np.isfinite(seconds):
                yield Strategy(
                    option=option,
                    zero_stages=((name, stage),),
                    seconds=float(seconds),
                    state_bytes=float(own[Quantity.STATE_BYTES]),
                    gathered_bytes=whole if stage >= 3 else 0.0,
                    scattered_bytes=given if stage >= 2 else 0.0,
                )

    def _num_shards(self, layer: ChosenLayer, name: str, option: int) -> int:
        """Of a tensor, in an option of its node; 1 where nothing is known of it."""
        node, specs = layer.problem.specs.get(name, (None, ()))
        return specs[0 if node is None else option].num_shards(self.memory.mesh_shape) if specs else 1

    def _seconds(self, seconds: Floats) -> Floats:
        """Forward and backward together, [2, ...] to [...]; what recomputes runs forward twice."""
        total: Floats = seconds.sum(axis=0)
        return total + seconds[0] if self.memory.recomputes else total


def _joined(first: Strategy, second: Strategy) -> Strategy:
    return Strategy(
        option=first.option,
        zero_stages=(*first.zero_stages, *second.zero_stages),
        seconds=first.seconds + second.seconds,
        state_bytes=first.state_bytes + second.state_bytes,
        gathered_bytes=first.gathered_bytes + second.gathered_bytes,
        scattered_bytes=first.scattered_bytes + second.scattered_bytes,
    )


def _both(first: Sequence[Strategy], second: Sequence[Strategy]) -> Iterator[Strategy]:
    """Strategies of two nodes that always have the same option."""
    of_option: dict[int, list[Strategy]] = {}
    for each in second:
        of_option.setdefault(each.option, []).append(each)
    pairs: dict[int, list[Strategy]] = {}
    for each in first:
        pairs.setdefault(each.option, []).extend(_joined(each, other) for other in of_option[each.option])
    for joined in pairs.values():
        yield from _undominated(joined)


def _undominated(strategies: Sequence[Strategy]) -> Iterator[Strategy]:
    """Those that none which stays replaces."""
    left: list[Strategy] = []
    for each in sorted(strategies, key=lambda each: (each.seconds, each.state_bytes, each.gathered_bytes)):
        if not any(each.is_replaced_by(other) for other in left):
            left.append(each)
            yield each


def _undominated_rows(rows: Floats) -> Iterator[Floats]:
    """Those that hold no less than others everywhere."""
    left: list[Floats] = []
    for row in rows[np.argsort(-rows.sum(axis=1), kind="stable")]:
        if not any((row <= other).all() for other in left):
            left.append(row)
            yield row
