"""The search problem: models, shapes and devices as numbers. A set of models is an integer with a bit for each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headway.core.device_kind import DeviceKind, first_fit
from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement
from headway.planner.placement.search.generating import can_keep, full_stage_s
from headway.planner.placement.simulator.generation import CoLocatedModels, co_located_models
from headway.planner.placement.simulator.latencies import Latencies, latencies_of
from headway.planner.placement.simulator.rules import Rules
from headway.planner.placement.simulator.simulation import rounded
from headway.planner.placement.workload import Workload

Group = tuple[int, int]
"""The index of a shape, and the set of models."""

Groups = tuple[Group, ...]
"""Sorted, so that what is alike is equal; ties between groups go to the earlier one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """Attributes:
    kinds: of devices.
    shapes: that fit some kind's machines and that some model can run on.
    kind_of: by shape, the number of its kind.
    weight_bytes: that a model needs on the fullest device, by its memory rule; int64 [num_shapes, num_models].
    able: by shape, the models that fit an empty group of it and can keep their SLO there.
    workload: requests whose `model` counts in `latencies.models`.
    models: in the order of `latencies.models`.
    generating: those that generate. Their latencies are what a request of mean lengths takes of a group that is full of
        them.
    """

    rules: Rules
    kinds: tuple[DeviceKind, ...]
    shapes: tuple[GroupShape, ...]
    kind_of: tuple[int, ...]
    latencies: Latencies
    weight_bytes: NDArray[np.int64]
    able: tuple[int, ...]
    workload: Workload
    models: tuple[PlacedModel, ...]
    generating: Mapping[int, PlacedModel]

    @cached_property
    def memory_bytes(self) -> list[int]:
        """The memory of a device in bytes, by shape."""
        return [self.kinds[kind].memory_bytes for kind in self.kind_of]

    @cached_property
    def spans(self) -> list[tuple[int, ...]]:
        """Devices in each machine, by shape."""
        return [
            self.kinds[kind].span(shape.pp, shape.op) for shape, kind in zip(self.shapes, self.kind_of, strict=True)
        ]

    @cached_property
    def num_models(self) -> int:
        return len(self.latencies.models)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """The number of requests by model."""
        return np.bincount(self.workload.model, minlength=self.num_models)

    @cached_property
    def load(self) -> NDArray[np.float64]:
        """Busy share of the slowest stage if a group of a shape served all of a model: [num_shapes, num_models]."""
        span_s = max(float(self.workload.arrival_s[-1]), 1e-9)
        return np.where(np.isfinite(self.latencies.period_s), self.latencies.period_s, 0.0) * self.counts / span_s

    @cached_property
    def weights(self) -> list[list[int]]:
        """`weight_bytes` as plain integers, which are quicker one by one."""
        return [[int(each) for each in row] for row in self.weight_bytes]

    @cached_property
    def everything(self) -> int:
        """The set of models that have requests and that some shape can serve."""
        anywhere = 0
        for able in self.able:
            anywhere |= able
        return anywhere & mask_of(np.flatnonzero(self.counts))

    def co_located(self, group: Group) -> CoLocatedModels:
        """Returns the problem with its models as they are beside each other."""
        known = self._co_located.get(group)
        if known is None:
            shape, mask = group
            known = co_located_models(self.shapes[shape], [self.models[model] for model in bits(mask)], self.latencies)
            self._co_located[group] = known
        return known

    @cached_property
    def _co_located(self) -> dict[Group, CoLocatedModels]:
        return {}

    def used_bytes(self, group: Group) -> int:
        weights = self.weights[group[0]]
        return sum(weights[model] for model in bits(group[1]))

    def free_bytes(self, group: Group) -> int:
        return self.memory_bytes[group[0]] - self.used_bytes(group)

    def fits(self, group: Group) -> bool:
        return group[1] & ~self.able[group[0]] == 0 and self.used_bytes(group) <= self.memory_bytes[group[0]]

    def packs(self, shapes: Sequence[int]) -> bool:
        """Whether groups of these shapes fit the nodes: first fit of what they have in each, largest first; exact if
        sizes divide one another."""
        sizes: list[list[int]] = [[] for _ in self.kinds]
        for shape in shapes:
            sizes[self.kind_of[shape]] += self.spans[shape]
        return all(
            first_fit(sorted(of_kind, reverse=True), kind.nodes) is not None
            for of_kind, kind in zip(sizes, self.kinds, strict=True)
        )

    def shapes_on(self, kind: int) -> list[int]:
        return [shape for shape, each in enumerate(self.kind_of) if each == kind]

    def devices_on(self, kind: int, groups: Sequence[Group]) -> int:
        """Returns the number of devices that the groups of a kind take."""
        return sum(self.shapes[shape].num_devices for shape, _ in groups if self.kind_of[shape] == kind)

    def groups_of(self, placement: Placement) -> Groups:
        number = {name: index for index, name in enumerate(self.latencies.models)}
        return tuple(
            sorted(
                (self.shapes.index(group.shape), mask_of([number[name] for name in group.models]))
                for group in placement.groups
            )
        )

    def placement(self, groups: Groups) -> Placement:
        names = self.latencies.models
        return Placement(
            groups=tuple(
                PlacedGroup(shape=self.shapes[shape], models=tuple(names[model] for model in bits(mask)))
                for shape, mask in groups
            )
        )


def bits(mask: int) -> Iterator[int]:
    """The members of a set, rising."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def mask_of(models: Sequence[int] | NDArray[np.int64]) -> int:
    mask = 0
    for model in models:
        mask |= 1 << int(model)
    return mask


def make_problem(
    models: Sequence[PlacedModel],
    workload: Workload,
    rules: Rules,
    kinds: Sequence[DeviceKind],
) -> Problem:
    """A group that the machines of its kind cannot hold is no shape of the problem; one that spans them serves no model
    that generates.

    Args:
        kinds: of devices; unlike names where there are several.
    """
    of_shape = {
        GroupShape(pp=each.pp, op=each.op, device=kind.device): number
        for model in models
        for each in model.profiles
        for number, kind in enumerate(kinds)
        if kind.device in ("", each.hardware) and kind.span(each.pp, each.op)
    }
    shapes = tuple(sorted(of_shape))
    memory_bytes = np.array([kinds[of_shape[shape]].memory_bytes for shape in shapes], np.int64)[:, None]
    latencies = latencies_of(models, shapes, rules)
    slowest = np.zeros(len(models))
    weight_bytes = np.zeros((len(shapes), len(models)), np.int64)
    index = {model.name: number for number, model in enumerate(models)}
    column = np.array([index[name] for name in workload.models], np.int32)
    remapped = replace(
        workload, models=latencies.models, model=column[workload.model], slo_s=rounded(workload.slo_s, rules)
    )
    np.maximum.at(slowest, remapped.model, remapped.slo_s)
    for row, shape in enumerate(shapes):
        for number, model in enumerate(models):
            needed_bytes = model.needed_bytes(shape, int(memory_bytes[row, 0]))
            weight_bytes[row, number] = memory_bytes[row, 0] + 1 if needed_bytes is None else needed_bytes
    able = (latencies.total_s + rules.request_overhead_s <= slowest) & (weight_bytes <= memory_bytes)
    able &= np.isfinite(latencies.total_s)
    generating = {number: model for number, model in enumerate(models) if model.generates}
    for number, model in generating.items():
        own = remapped.take(remapped.model == number)
        for row, shape in enumerate(shapes):
            profile = model.on(shape)
            if profile is not None and profile.generation is not None and len(own):
                latencies.stage_s[row, number] = 0.0
                latencies.stage_s[row, number, :, : shape.pp] = full_stage_s(own, profile.generation)
                able[row, number] = (
                    weight_bytes[row, number] <= memory_bytes[row, 0]
                    and shape.num_devices <= kinds[of_shape[shape]].largest_node
                    and can_keep(own, profile.generation, model.slo, overhead_s=rules.request_overhead_s)
                )
    return Problem(
        rules=rules,
        kinds=tuple(kinds),
        shapes=shapes,
        kind_of=tuple(of_shape[shape] for shape in shapes),
        latencies=latencies,
        weight_bytes=weight_bytes,
        able=tuple(mask_of(np.flatnonzero(row)) for row in able),
        workload=remapped,
        models=tuple(models),
        generating=generating,
    )
