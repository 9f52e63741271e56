"""The production code as the simulator must have it: dispatcher, admission, lease table and the workers' one-pass
engines.

Nothing here decides anything: it carries messages between them at the times of a virtual clock, without delay.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from headway.core.encoder import EncoderSpec
from headway.core.errors import ResourceExhaustedError
from headway.core.infer import InferRequest, InferSequence
from headway.core.latency import LatencyModel
from headway.core.line import QueuePolicy
from headway.core.load import LoadReport
from headway.core.parallel_config import ParallelConfig
from headway.core.placement import PlacedModel, Placement
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.core.slo import Slo
from headway.encoder.engine import EncoderEngine
from headway.encoder.group_line import GroupLine
from headway.encoder.limits import EncoderLimits
from headway.planner.placement.workload import Workload
from headway.router.dispatcher import Dispatcher
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.policies.registry import make_policy
from headway.router.queued_request import QueuedRequest
from headway.router.request import RoutingRequest
from headway.runner.emulated.encoder_runner import EmulatedEncoderRunner
from headway.runner.emulated.line import Line
from tests.router.harness import SPEC

NUM_TOKENS = 1
"""Of each request. A batch of n is n tokens, so a latency model may be anything that is linear in the batch."""

StageLatencies = Mapping[tuple[str, int, int], tuple[LatencyModel, ...]]
"""Of a model on a group of pp stages of op devices."""

ENCODER = replace(SPEC, hidden_size=1, encoder=EncoderSpec(num_positions=NUM_TOKENS, labels=("answer",)))


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class VirtualWorker:
    """A group's leader: an engine for each of its models, which share the group's pipeline."""

    worker_id: str
    clock: Clock
    queue_policy: QueuePolicy = QueuePolicy.FCFS
    line: GroupLine = field(default_factory=GroupLine)
    engines: dict[str, EncoderEngine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pipeline = Line(num_stages=1, clock=self.clock)

    def load(self, model: str, stage_latencies: tuple[LatencyModel, ...], *, max_batch_size: int) -> None:
        if self.pipeline.num_stages != len(stage_latencies):
            self.pipeline = Line(num_stages=len(stage_latencies), clock=self.clock)
        runner = EmulatedEncoderRunner(ENCODER, stage_latencies=stage_latencies, line=self.pipeline)
        limits = EncoderLimits(
            max_num_seqs=max_batch_size,
            max_num_batched_tokens=max_batch_size * NUM_TOKENS,
            max_model_len=NUM_TOKENS,
            vocab_size=2,
            num_token_types=0,
        )
        self.engines[model] = EncoderEngine(limits, runner=runner, clock=self.clock, queue_policy=self.queue_policy)
        self.engines[model].join(self.line, wake=lambda: None)

    @property
    def next_s(self) -> float:
        """When there is a step to take."""
        return min((engine.next_s for engine in self.engines.values()), default=math.inf)

    def step(self) -> list[tuple[str, bool]]:
        """What is to be done now: the requests that ended, and whether with an answer."""
        ended = []
        while self.next_s <= self.clock.now_s:
            for engine in self.engines.values():
                if engine.next_s <= self.clock.now_s:
                    ended += [(output.request_id, not output.is_late) for output in engine.step()]
        return ended

    def reports(self) -> list[LoadReport]:
        return [
            LoadReport(
                model=model,
                num_running=engine.stats().num_running,
                num_waiting=engine.stats().num_waiting,
                num_pending_prefill_tokens=engine.stats().num_pending_tokens,
                max_num_seqs=engine._limits.max_num_seqs,
                max_num_batched_tokens=engine._limits.max_num_batched_tokens,
                max_model_len=NUM_TOKENS,
                block_size=16,
            )
            for model, engine in self.engines.items()
        ]


class ServingPlane:
    """A router and its workers.

    Args:
        latencies: as plans have them.
    """

    def __init__(
        self,
        placement: Placement,
        latencies: StageLatencies,
        *,
        max_batch_size: int,
        answer_overhead_s: float = 0.0,
        queue_policy: QueuePolicy = QueuePolicy.FCFS,
    ) -> None:
        self.clock = Clock()
        self._answer_overhead_s = answer_overhead_s
        self.dispatcher = Dispatcher(
            policy=make_policy("balanced"),
            max_group_sequences=512,
            instance_id="test",
            clock=self.clock,
            answer_overhead_s=answer_overhead_s,
            queue_policy=queue_policy,
        )
        self.workers: dict[str, VirtualWorker] = {}
        assignments = []
        for number, placed in enumerate(placement.groups):
            worker = VirtualWorker(f"worker-{number}", self.clock, queue_policy)
            self.workers[worker.worker_id] = worker
            for model in placed.models:
                stages = latencies[model, placed.shape.pp, placed.shape.op]
                worker.load(model, stages, max_batch_size=max_batch_size)
                assignments.append(_assignment(worker.worker_id, model, stages, max_batch_size=max_batch_size))
        self.dispatcher.fleet.apply(_plan(assignments))
        for worker in reversed(self.workers.values()):  # they register in any order
            if worker.engines:
                self._report(worker)
        self._leases: dict[str, Lease] = {}

    def play(self, workload: Workload) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """Finish of each request, infinite where it was refused or dropped, and its group, then -1."""
        finish_s = np.full(len(workload), np.inf)
        group = np.full(len(workload), -1, np.int32)
        for number in range(len(workload)):
            self._run_until(float(workload.arrival_s[number]), finish_s)
            lease = self._arrive(number, workload.models[workload.model[number]], float(workload.slo_s[number]))
            if lease is not None:
                group[number] = int(lease.worker_id.removeprefix("worker-"))
        self._run_until(math.inf, finish_s)
        group[np.isinf(finish_s)] = -1
        assert self.dispatcher.lease_table.num_in_flight == 0
        self.dispatcher.lease_table.check_integrity()
        return finish_s, group

    def _arrive(self, number: int, model: str, slo_s: float) -> Lease | None:
        request = RoutingRequest(
            request_id=str(number),
            model=model,
            gateway_id="gateway-0",
            num_prompt_tokens=NUM_TOKENS,
            max_output_tokens=0,
            slo=Slo(ttft_s=slo_s if slo_s < math.inf else None),
        )
        now_s = self.clock.now_s
        try:
            lease = self.dispatcher.place(QueuedRequest(request=request, arrived_s=now_s, failed_at_s=now_s))
        except ResourceExhaustedError:
            return None
        if not isinstance(lease, Lease):
            return None
        self._leases[request.request_id] = lease
        worker = self.workers[lease.worker_id]
        worker.engines[model].submit(
            InferRequest(
                request_id=request.request_id,
                model=model,
                sequences=(InferSequence(token_ids=(1,) * NUM_TOKENS),),
                slo_s=request.slo.wait_s - self._answer_overhead_s if request.slo else None,
            )
        )
        return lease

    def _run_until(self, until_s: float, finish_s: NDArray[np.float64]) -> None:
        """All that workers do by then, that moment included."""
        while (next_s := min((worker.next_s for worker in self.workers.values()), default=math.inf)) <= until_s:
            if next_s == math.inf:
                return
            self.clock.now_s = max(self.clock.now_s, next_s)
            for worker in self.workers.values():
                if worker.next_s <= self.clock.now_s:
                    self._step(worker, finish_s)
        self.clock.now_s = until_s

    def _step(self, worker: VirtualWorker, finish_s: NDArray[np.float64]) -> None:
        for request_id, is_answered in worker.step():
            if is_answered:
                finish_s[int(request_id)] = self.clock.now_s + self._answer_overhead_s
            outcome = LeaseOutcome.COMPLETE if is_answered else LeaseOutcome.ERROR
            self.dispatcher.release(Release(outcome=outcome, lease_id=self._leases.pop(request_id).lease_id))
        self._report(worker)

    def _report(self, worker: VirtualWorker) -> None:
        fleet = self.dispatcher.fleet
        group = fleet.join(worker.worker_id, endpoint=worker.worker_id, group_id="")
        fleet.update(group, worker.reports(), now_s=self.clock.now_s)


def latencies_of(models: list[PlacedModel]) -> StageLatencies:
    """Of one request at a time."""
    return {
        (model.name, profile.pp, profile.op): tuple(constant(each) for each in profile.batches[0].stage_latency_s)
        for model in models
        for profile in model.profiles
    }


def constant(base_s: float, *, per_request_s: float = 0.0) -> LatencyModel:
    """Of a batch: `base_s`, and so much for each request."""
    return LatencyModel(
        base_s=base_s,
        per_prefill_token_s=per_request_s / NUM_TOKENS,
        per_prefill_pair_s=0.0,
        per_decode_s=0.0,
        per_context_token_s=0.0,
    )


def _assignment(worker_id: str, model: str, stages: tuple[LatencyModel, ...], *, max_batch_size: int) -> Assignment:
    return Assignment(
        group_id=worker_id,
        worker_id=worker_id,
        model=model,
        weight_bytes=1,
        kv_cache_bytes=0,
        reserved_bytes=1,
        num_blocks=0,
        block_size=16,
        max_num_seqs=max_batch_size,
        max_num_batched_tokens=max_batch_size * NUM_TOKENS,
        max_model_len=NUM_TOKENS,
        enable_prefix_cache=False,
        prediction=Prediction(
            ttft_s=1.0, tpot_s=0.0, tpot_loaded_s=0.0, output_tokens_per_s=0.0, latency=stages[0], profile_id="test"
        ),
        parallel=ParallelConfig(pp=len(stages)),
        stage_latencies=stages,
    )


def _plan(assignments: list[Assignment]) -> ServingPlan:
    names = dict.fromkeys(assignment.model for assignment in assignments)
    return ServingPlan(
        plan_id="plan",
        created_at_s=0.0,
        models=tuple(ModelDeployment(name=name, directory="", spec=ENCODER) for name in names),
        workers=(),
        assignments=tuple(assignments),
    )
