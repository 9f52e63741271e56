"""Evaluates groups of models by simulation: only what changed is simulated, and no further than it matters.

A model's requests meet others only in groups that share models, so the connected components of models and groups are
simulated apart, and remembered.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.search.problem import Group, Groups, Problem, bits
from headway.planner.placement.simulator.batch_kernel import serve_batches
from headway.planner.placement.simulator.generation import (
    GenerationWorkload,
    generation_workload,
    simulate_as_far,
)
from headway.planner.placement.simulator.kernel import Floats, Ints
from headway.planner.placement.simulator.simulation import NO_FLOATS, NO_INTS, serve_one_by_one

NUM_PARTS = 24
SLACK_WEIGHT = 0.03
"""What a request that is served at the last moment costs, in missed requests. It makes placements with time to spare
win over equals, which keeps more SLOs on traffic that the search hasn't seen."""
RACE_SIGMAS = 2.0
"""How far a candidate may fall behind early in the trace before it is given up, in standard deviations of a count."""
CACHE_REQUESTS = 10_000_000
"""Kept as parts of the trace, at 20 bytes each."""


@dataclass(frozen=True, slots=True, eq=False)
class Component:
    """Groups that share models, directly or over others.

    Attributes:
        misses: up to the end of each part of the trace; int64 [num_parts].
        met: requests by model, int64 [num_models].
        served: requests by (group, model), int64 [num_groups, num_models].
    """

    groups: Groups
    misses: NDArray[np.int64]
    met: NDArray[np.int64]
    served: NDArray[np.int64]
    slack_cost: float

    @property
    def cost(self) -> float:
        return float(self.misses[-1]) + self.slack_cost


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A part of the trace: the requests of some models."""

    arrival_s: Floats
    model: Ints
    slo_s: Floats
    bounds: NDArray[np.int64]
    generation: GenerationWorkload | None


class Evaluator:
    """Simulates components of one problem.

    Attributes:
        evaluations: components simulated so far.
        simulated: requests simulated so far, at most: those that were given up early count whole.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.evaluations = 0
        self.simulated = 0
        workload = problem.workload
        cuts = np.linspace(0, len(workload), NUM_PARTS + 1)[1:].astype(np.int64)
        self._cut_s = workload.arrival_s[cuts[:-1] - 1] if len(workload) >= NUM_PARTS else np.empty(0)
        self._known: dict[Groups, Component] = {}
        self._least: dict[Groups, NDArray[np.int64]] = {}
        self._parts: dict[int, _Part] = {}
        self._cached_requests = 0
        self._slack_cost = SLACK_WEIGHT / self._typical_slo_s()
        self._stage_s = np.ascontiguousarray(problem.latencies.stage_s[:, :, 0, :])
        self._no_limits = np.full(NUM_PARTS, len(workload) + 1)
        self.absent = self._count_requests()

    def split(self, groups: Iterable[Group]) -> list[Groups]:
        """Components of groups; groups without a model are left out."""
        components: list[tuple[int, list[Group]]] = []
        for group in groups:
            if not group[1]:
                continue
            mask, members, apart = group[1], [group], []
            for component in components:
                if component[0] & mask:
                    mask |= component[0]
                    members += component[1]
                else:
                    apart.append(component)
            components = [*apart, (mask, members)]
        return [tuple(sorted(members)) for _, members in components]

    def weigh(self, groups: Groups, limits: NDArray[np.int64] | None = None) -> Component | None:
        """Simulate one component; None where it misses more than `limits` allows by the end of a part of the trace."""
        known = self._known.get(groups)
        if known is None:
            if limits is not None and groups in self._least and (self._least[groups] > limits).any():
                return None
            found = self._simulate(groups, self._no_limits if limits is None else limits)
            if not isinstance(found, Component):
                self._least[groups] = found
                return None
            known = self._known[groups] = found
        return None if limits is not None and known.misses[-1] > limits[-1] else known

    def missing(self, models: int) -> NDArray[np.int64]:
        """Requests of models that no group has, up to the end of each part."""
        missing: NDArray[np.int64] = self.absent[list(bits(models))].sum(axis=0)
        return missing

    def race(self, misses: NDArray[np.int64], tolerance: float) -> NDArray[np.int64]:
        """Limits for who wants to be as good as one that misses so many up to the end of each part, or to miss no more
        than `tolerance` more in all."""
        more = np.linspace(tolerance / NUM_PARTS, tolerance, NUM_PARTS)
        limits: NDArray[np.int64] = misses + (more + RACE_SIGMAS * np.sqrt(misses + 4.0)).astype(np.int64)
        limits[-1] = misses[-1] + int(tolerance)
        return limits

    def _simulate(self, groups: Groups, limits: NDArray[np.int64]) -> Component | NDArray[np.int64]:
        """Simulates groups and returns their value; for those given up, what they miss at least up to the end of each
        part.
        """
        problem, rules, latencies = self.problem, self.problem.rules, self.problem.latencies
        mask = 0
        for _, models in groups:
            mask |= models
        part = self._part(mask)
        self.evaluations += 1
        self.simulated += len(part.arrival_s)
        if part.generation is not None:
            return self._generate(groups, part.generation, part.bounds, limits)
        group_shape = np.array([shape for shape, _ in groups], np.int32)
        members = unpack([models for _, models in groups], problem.num_models)
        if rules.max_batch_size > 1:
            missed, met, _ = serve_batches(
                part.arrival_s,
                part.model,
                part.slo_s,
                group_shape,
                members,
                latencies.num_stages,
                latencies.stage_s,
                latencies.period_s,
                latencies.total_s,
                rules.request_overhead_s,
                rules.admission,
                NO_FLOATS,
                NO_INTS,
            )
            misses = np.linspace(0, missed, NUM_PARTS).astype(np.int64)
            served = members * met // np.maximum(members.sum(axis=0), 1)
            return Component(groups, misses, met, served, 0.0)
        misses, met, latency_s, served = serve_one_by_one(
            part.arrival_s,
            part.model,
            part.slo_s,
            group_shape,
            members,
            latencies.num_stages,
            self._stage_s,
            rules,
            part.bounds,
            limits,
            NO_FLOATS,
            NO_INTS,
        )
        if misses[-1] < 0:
            least: NDArray[np.int64] = np.maximum.accumulate(misses)
            return least
        return Component(groups, misses, met, served, float(latency_s @ self._slack_cost))

    def _generate(
        self,
        groups: Groups,
        workload: GenerationWorkload,
        bounds: NDArray[np.int64],
        limits: NDArray[np.int64],
    ) -> Component | NDArray[np.int64]:
        """Simulates groups where a model generates."""
        problem, num_models = self.problem, self.problem.num_models
        least = np.zeros(NUM_PARTS, np.int64)
        outcome = simulate_as_far(
            workload,
            [problem.co_located(group) for group in groups],
            admission=problem.rules.admission,
            overhead_s=problem.rules.request_overhead_s,
            bounds=bounds,
            limits=limits,
            missed=least,
        )
        if outcome is None:
            return least
        misses = np.concatenate([[0], np.cumsum(~outcome.is_met)])[bounds]
        is_served = outcome.group >= 0
        model, ttft_s = workload.model[is_served], outcome.ttft_s[is_served]
        served = np.zeros((len(groups), num_models), np.int64)
        np.add.at(served, (outcome.group[is_served], model), 1)
        met = np.bincount(workload.model[outcome.is_met], minlength=num_models)
        return Component(groups, misses, met, served, float(ttft_s @ self._slack_cost[model]))

    def _part(self, mask: int) -> _Part:
        part = self._parts.get(mask)
        if part is None:
            workload = self.problem.workload
            chosen = np.flatnonzero(unpack([mask], self.problem.num_models)[0][workload.model])
            arrival_s = workload.arrival_s[chosen]
            bounds = np.searchsorted(arrival_s, self._cut_s, side="right")
            part = _Part(
                arrival_s,
                workload.model[chosen],
                workload.slo_s[chosen],
                np.concatenate([bounds, np.full(NUM_PARTS - len(bounds), len(chosen))]).astype(np.int64),
                generation_workload(workload.take(chosen), self.problem.models)
                if any(mask >> model & 1 for model in self.problem.generating)
                else None,
            )
            if self._cached_requests > CACHE_REQUESTS:
                self._parts.clear()
                self._cached_requests = 0
            self._parts[mask] = part
            self._cached_requests += len(chosen)
        return part

    def _typical_slo_s(self) -> Floats:
        """By model; of those without SLO a hundred times the fastest latency, so that latency breaks their ties. Of
        models that generate it is that of the first token."""
        workload, latencies = self.problem.workload, self.problem.latencies
        typical: Floats = np.min(latencies.total_s, axis=0, initial=np.inf) * 100
        finite = np.isfinite(workload.slo_s)
        for model in range(self.problem.num_models):
            slos = workload.slo_s[finite & (workload.model == model)]
            if len(slos):
                typical[model] = np.median(slos)
        for model, placed in self.problem.generating.items():
            if placed.slo.ttft_s is not None:
                typical[model] = placed.slo.ttft_s
        return typical

    def _count_requests(self) -> NDArray[np.int64]:
        """Up to the end of each part, by model: [num_models, num_parts]."""
        workload = self.problem.workload
        ends = np.searchsorted(workload.arrival_s, self._cut_s, side="right")
        ends = np.concatenate([ends, np.full(NUM_PARTS - len(ends), len(workload))])
        counts = [np.bincount(workload.model[:end], minlength=self.problem.num_models) for end in ends]
        return np.stack(counts, axis=1)


def unpack(masks: list[int], num_models: int) -> NDArray[np.bool_]:
    """Sets as rows: bool [len(masks), num_models]."""
    width = num_models // 8 + 1
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), np.uint8)
    rows: NDArray[np.bool_] = np.unpackbits(packed.reshape(len(masks), width), axis=1, bitorder="little").astype(
        np.bool_
    )
    return rows[:, :num_models]
