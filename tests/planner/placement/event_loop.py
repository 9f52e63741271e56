"""The serving plane as a plain event loop: groups with queues and stages that hold requests. Oracle of the simulator.

It moves requests from stage to stage at events of a heap, and predicts by playing out what is in a group, where the
simulator keeps one clock a stage.
"""

import heapq
import itertools
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.simulator import Dispatch, Rules
from headway.planner.placement.workload import Workload


@dataclass
class Stage:
    queue: deque[int] = field(default_factory=deque)
    running: int = -1
    free_at_s: float = 0.0


@dataclass
class Group:
    stages: list[Stage]
    latency_s: dict[str, list[float]]
    promised_s: float = 0.0

    def predict(self, now_s: float, arrived: int, names: list[str]) -> float:
        """When a request that arrives now would leave: everything before it is played out stage by stage."""
        ready: list[tuple[float, int]] = []
        for index, stage in enumerate(self.stages):
            free_s = stage.free_at_s if stage.running >= 0 else now_s
            done = []
            if stage.running >= 0:
                done.append((stage.free_at_s, stage.running))
            for at_s, request in [(now_s, waiting) for waiting in stage.queue] + ready:
                free_s = max(free_s, at_s) + self.latency_s[names[request]][index]
                done.append((free_s, request))
            if index == 0:
                free_s = max(free_s, now_s) + self.latency_s[names[arrived]][0]
                done.append((free_s, arrived))
            ready = done
        return next(at_s for at_s, request in ready if request == arrived)


def play(  # noqa: C901 - one state, three events
    models: list[PlacedModel], placement: Placement, workload: Workload, rules: Rules
) -> tuple[list[float], list[int]]:
    """Finish of each request (infinite where refused) and its group (-1), batch size 1."""
    by_name = {model.name: model for model in models}
    names = [workload.models[index] for index in workload.model]
    groups = []
    for placed in placement.groups:
        latency_s = {
            name: [
                float(np.float32(each) if rules.single_precision else each)
                * (1 + rules.stage_overhead * placed.shape.pp)
                for each in by_name[name].on(placed.shape).batches[0].stage_latency_s
            ]
            for name in placed.models
        }
        groups.append(Group(stages=[Stage() for _ in range(placed.shape.pp)], latency_s=latency_s))
    finish, served_by = [np.inf] * len(workload), [-1] * len(workload)
    order = itertools.count()
    events: list[tuple[float, int, int, int, int]] = []

    def start(now_s: float, g: int, index: int) -> None:
        stage = groups[g].stages[index]
        if stage.running < 0 and stage.queue:
            stage.running = stage.queue.popleft()
            stage.free_at_s = now_s + groups[g].latency_s[names[stage.running]][index]
            heapq.heappush(events, (stage.free_at_s, next(order), g, index, stage.running))

    def run_until(until_s: float) -> None:
        while events and events[0][0] <= until_s:
            now_s, _, g, index, request = heapq.heappop(events)
            stage = groups[g].stages[index]
            stage.running = -1
            if index + 1 < len(groups[g].stages):
                groups[g].stages[index + 1].queue.append(request)
                start(now_s, g, index + 1)
            else:
                finish[request] = now_s + rules.request_overhead_s
            start(now_s, g, index)

    for request, name in enumerate(names):
        now_s = float(workload.arrival_s[request])
        run_until(now_s)
        candidates = [g for g, group in enumerate(groups) if name in group.latency_s]
        if not candidates:
            continue
        predicted = {g: groups[g].predict(now_s, request, names) for g in candidates}
        if rules.dispatch is Dispatch.EARLIEST_FINISH:
            g = min(candidates, key=lambda g: (predicted[g], g))
        else:
            g = min(candidates, key=lambda g: (groups[g].promised_s, g))
        slo_s = float(np.float32(workload.slo_s[request]) if rules.single_precision else workload.slo_s[request])
        if rules.admission and predicted[g] + rules.request_overhead_s - now_s > slo_s:
            continue
        groups[g].promised_s = predicted[g]
        served_by[request] = g
        groups[g].stages[0].queue.append(request)
        start(now_s, g, 0)
    run_until(np.inf)
    return finish, served_by
