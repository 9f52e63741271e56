"""The production code as the simulator must have it for models that generate: dispatcher, admission, books, engines.

Nothing here decides anything: it carries messages between them at the times of virtual clocks, without delay.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headway.core.errors import ResourceExhaustedError
from headway.core.generation import GenerationProfile
from headway.core.load import LoadReport
from headway.core.mesh import ParallelConfig
from headway.core.plan import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.core.request import GenerationRequest, SamplingParams, SequenceOutput
from headway.core.slo import Slo
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.planner.placement.simulator.generation import GenerationOutcome, GenerationWorkload
from headway.router.dispatcher import Dispatcher
from headway.router.lease import Lease, Outcome, Release
from headway.router.policies.registry import make_policy
from headway.router.request import RoutingRequest
from headway.router.ticket import Ticket
from headway.runner.emulated.line import Line
from headway.runner.emulated.model_runner import EmulatedModelRunner
from tests.router.harness import SPEC

MODEL = "llama"


@dataclass
class Clock:
    time_s: float = 0.0

    def now_s(self) -> float:
        return self.time_s

    def sleep_until(self, due_s: float) -> None:
        self.time_s = max(self.time_s, due_s)


@dataclass
class VirtualWorker:
    """A group's leader. Its clock runs ahead to the end of the step that it is in; what comes meanwhile waits."""

    worker_id: str
    profile: GenerationProfile
    clock: Clock = field(default_factory=Clock)
    inbox: list[GenerationRequest] = field(default_factory=list)
    outputs: list[SequenceOutput] | None = None

    def __post_init__(self) -> None:
        profile, stages = self.profile, self.profile.stage_latencies
        runner = EmulatedModelRunner(SPEC, stage_latencies=stages, line=Line(num_stages=len(stages), clock=self.clock))
        config = EngineConfig(
            num_blocks=profile.num_blocks,
            block_size=profile.block_size,
            max_num_seqs=profile.max_num_seqs,
            num_micro_batches=len(stages),
            max_num_batched_tokens=profile.max_num_batched_tokens,
            max_num_prefill_tokens=profile.max_num_prefill_tokens,
            max_model_len=10**6,
            watermark=profile.watermark,
            enable_prefix_cache=False,
            preemption="recompute",
        )
        self.engine = Engine(config, runner=runner, clock=self.clock.now_s)

    @property
    def end_s(self) -> float:
        """Of the step that it is in; infinite for none."""
        return self.clock.time_s if self.outputs is not None else math.inf

    def begin(self, now_s: float) -> None:
        """A step, if there is one to take."""
        self.clock.sleep_until(now_s)
        for request in self.inbox:
            self.engine.submit(request)
        self.inbox.clear()
        if self.engine.has_work:
            self.outputs = self.engine.step()
            self.engine.check_integrity()

    def end(self) -> list[SequenceOutput]:
        assert self.outputs is not None
        outputs, self.outputs = self.outputs, None
        return outputs

    def report(self) -> LoadReport:
        stats, profile = self.engine.stats(), self.profile
        return LoadReport(
            model=MODEL,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_pending_prefill_tokens=stats.num_pending_prefill_tokens,
            num_context_tokens=stats.num_context_tokens,
            num_blocks=profile.num_blocks,
            num_free_blocks=stats.num_free_blocks,
            max_num_seqs=profile.max_num_seqs,
            max_num_batched_tokens=profile.max_num_batched_tokens,
            max_model_len=10**6,
            block_size=profile.block_size,
        )


class GenerationPlane:
    """A router and its workers."""

    def __init__(self, groups: Sequence[GenerationProfile], *, answer_overhead_s: float = 0.0) -> None:
        self.clock = Clock()
        self._answer_overhead_s = answer_overhead_s
        self.dispatcher = Dispatcher(
            policy=make_policy("balanced"),
            max_group_sequences=512,
            instance_id="test",
            clock=self.clock.now_s,
            answer_overhead_s=answer_overhead_s,
        )
        self.workers = [VirtualWorker(f"worker-{number}", profile) for number, profile in enumerate(groups)]
        self.dispatcher.fleet.apply(_plan(self.workers))
        for worker in self.workers:
            self._report(worker)

    def play(self, workload: GenerationWorkload) -> GenerationOutcome:
        count = len(workload.arrival_s)
        self._first_s, self._finish_s = np.full(count, np.inf), np.full(count, np.inf)
        self._num_steps = np.zeros(len(self.workers), np.int64)
        self._leases: dict[int, Lease] = {}
        self._num_tokens = np.zeros(count, np.int64)
        group = np.full(count, -1, np.int32)
        for number in range(count):
            self._run_until(float(workload.arrival_s[number]))
            lease = self._arrive(number, workload)
            if lease is not None:
                group[number] = int(lease.worker_id.removeprefix("worker-"))
        self._run_until(math.inf)
        assert self.dispatcher.books.num_in_flight == 0
        gaps = np.where((workload.num_output_tokens > 1) & (group >= 0), workload.num_output_tokens - 1.0, np.nan)
        with np.errstate(invalid="ignore"):
            tpot_s = (self._finish_s - self._first_s) / gaps
        preemptions = sum(worker.engine.stats().num_preemptions for worker in self.workers)
        return GenerationOutcome(
            ttft_s=self._first_s + self._answer_overhead_s - workload.arrival_s,
            e2e_s=self._finish_s + self._answer_overhead_s - workload.arrival_s,
            tpot_s=tpot_s,
            group=group,
            is_met=np.zeros(count, np.bool_),
            num_preemptions=np.full(count, preemptions, np.int32),
            num_steps=self._num_steps,
            busy_s=np.zeros(len(self.workers)),
        )

    def _arrive(self, number: int, workload: GenerationWorkload) -> Lease | None:
        num_prompt, num_output = int(workload.num_prompt_tokens[number]), int(workload.num_output_tokens[number])
        slo_s, now_s = float(workload.slo_s[number]), self.clock.time_s
        request = RoutingRequest(
            request_id=str(number),
            model=MODEL,
            gateway_id="gateway-0",
            num_prompt_tokens=num_prompt,
            max_output_tokens=num_output,
            slo=Slo(e2e_s=slo_s if slo_s < math.inf else None).over(workload.slo),
        )
        try:
            lease = self.dispatcher.place(Ticket(request=request, arrived_s=now_s, failed_at_s=now_s))
        except ResourceExhaustedError:
            return None
        assert isinstance(lease, Lease), lease
        self._leases[number] = lease
        worker = next(each for each in self.workers if each.worker_id == lease.worker_id)
        worker.inbox.append(
            GenerationRequest(
                request_id=str(number),
                model=MODEL,
                prompt_token_ids=(1,) * num_prompt,
                sampling=SamplingParams(max_tokens=num_output, temperature=0.0, ignore_eos=True),
            )
        )
        return lease

    def _run_until(self, until_s: float) -> None:
        """All that workers do by then, that moment included; who is idle begins with what came before it."""
        for worker in self.workers:
            if worker.outputs is None and worker.inbox and self.clock.time_s < until_s:
                worker.begin(self.clock.time_s)
        while (next_s := min(worker.end_s for worker in self.workers)) <= until_s and next_s < math.inf:
            self.clock.time_s = next_s
            index = next(index for index, each in enumerate(self.workers) if each.end_s == next_s)
            worker = self.workers[index]
            self._num_steps[index] += 1
            for output in worker.end():
                self._book(output)
            self._report(worker)
            worker.begin(next_s)
        self.clock.time_s = until_s

    def _book(self, output: SequenceOutput) -> None:
        number, now_s = int(output.request_id), self.clock.time_s
        self._num_tokens[number] += len(output.token_ids)
        self._first_s[number] = min(self._first_s[number], now_s)
        if output.finish_reason is not None:
            self._finish_s[number] = now_s
            lease, num_tokens = self._leases.pop(number), int(self._num_tokens[number])
            self.dispatcher.release(
                Release(outcome=Outcome.COMPLETE, lease_id=lease.lease_id, num_output_tokens=num_tokens)
            )

    def _report(self, worker: VirtualWorker) -> None:
        fleet = self.dispatcher.fleet
        group = fleet.join(worker.worker_id, endpoint=worker.worker_id, group_id="")
        fleet.update(group, [worker.report()], now_s=self.clock.time_s)


def _plan(workers: Sequence[VirtualWorker]) -> ServingPlan:
    return ServingPlan(
        plan_id="plan",
        created_at_s=0.0,
        models=(ModelDeployment(name=MODEL, directory="", spec=SPEC),),
        workers=(),
        assignments=tuple(_assignment(worker.worker_id, worker.profile) for worker in workers),
    )


def _assignment(worker_id: str, profile: GenerationProfile) -> Assignment:
    return Assignment(
        group_id=worker_id,
        worker_id=worker_id,
        model=MODEL,
        weight_bytes=1,
        kv_cache_bytes=1,
        reserved_bytes=1,
        num_blocks=profile.num_blocks,
        block_size=profile.block_size,
        max_num_seqs=profile.max_num_seqs,
        max_num_batched_tokens=profile.max_num_batched_tokens,
        max_model_len=10**6,
        enable_prefix_cache=False,
        prediction=Prediction(
            ttft_s=1.0, tpot_s=0.1, tpot_loaded_s=0.1, output_tokens_per_s=1.0, latency=profile.latency
        ),
        max_num_prefill_tokens=profile.max_num_prefill_tokens,
        parallel=ParallelConfig(pp=len(profile.stage_latencies)),
        stage_latencies=profile.stage_latencies,
    )
