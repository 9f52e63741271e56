"""The production code as the simulator must have it where models generate: dispatcher, admission, lease table, engines,
line.

Nothing here decides anything: it carries messages between them at the times of a virtual clock, without delay. Each
model that generates has a thread of its own, as in a worker, in which its engine sleeps until its batches are due.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from headway.core.errors import ResourceExhaustedError
from headway.core.generation import GenerationProfile
from headway.core.infer import InferRequest, InferSequence
from headway.core.load import LoadReport
from headway.core.parallel_config import ParallelConfig
from headway.core.plan.serving import Assignment, ModelDeployment, Prediction, ServingPlan
from headway.core.request import GenerationRequest, SamplingParams, SequenceOutput
from headway.core.slo import Slo
from headway.encoder.engine import EncoderEngine
from headway.encoder.group_line import GroupLine
from headway.encoder.limits import EncoderLimits
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.planner.placement.simulator.generation import (
    CoLocatedModels,
    GenerationOutcome,
    GenerationWorkload,
    OnePass,
)
from headway.router.dispatcher import Dispatcher
from headway.router.lease import Lease, LeaseOutcome, Release
from headway.router.policies.registry import make_policy
from headway.router.queued_request import QueuedRequest
from headway.router.request import RoutingRequest
from headway.runner.emulated.encoder_runner import EmulatedEncoderRunner
from headway.runner.emulated.line import Line
from headway.runner.emulated.model_runner import EmulatedModelRunner
from tests.planner.placement.serving_plane import ENCODER, constant
from tests.planner.placement.virtual_thread import VirtualClock, VirtualThread
from tests.router.harness import SPEC

LONGEST = 10**6


@dataclass
class Generator:
    """A model that generates, at a group's leader. What comes during a step waits for its end."""

    model: str
    profile: GenerationProfile
    line: Line
    thread: VirtualThread
    inbox: list[GenerationRequest] = field(default_factory=list)
    num_preemptions: int = 0

    def __post_init__(self) -> None:
        profile, stages = self.profile, self.profile.stage_latencies
        runner = EmulatedModelRunner(SPEC, stage_latencies=stages, line=self.line)
        config = EngineConfig(
            num_blocks=profile.num_blocks,
            block_size=profile.block_size,
            max_num_seqs=profile.max_num_seqs,
            num_micro_batches=len(stages),
            max_num_batched_tokens=profile.max_num_batched_tokens,
            max_num_prefill_tokens=profile.max_num_prefill_tokens,
            max_model_len=LONGEST,
            watermark=profile.watermark,
            enable_prefix_cache=False,
            preemption="recompute",
        )
        self.engine = Engine(config, runner=runner, clock=self.line.clock.now_s)
        self.report = self._report()

    def begin(self) -> None:
        """A step, if there is one to take."""
        for request in self.inbox:
            self.engine.submit(request)
        self.inbox.clear()
        if self.engine.has_work:
            self.thread.begin(self.engine.step)
            self.engine.check_integrity()

    def resume(self) -> list[SequenceOutput] | None:
        """What the step brought; None where it goes on."""
        self.thread.resume()
        if self.thread.is_busy:
            return None
        self.report = self._report()
        outputs: list[SequenceOutput] = self.thread.result
        return outputs

    def _report(self) -> LoadReport:
        stats, profile = self.engine.stats(), self.profile
        self.num_preemptions = stats.num_preemptions
        return LoadReport(
            model=self.model,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_pending_prefill_tokens=stats.num_pending_prefill_tokens,
            num_context_tokens=stats.num_context_tokens,
            num_blocks=profile.num_blocks,
            num_free_blocks=stats.num_free_blocks,
            max_num_seqs=profile.max_num_seqs,
            max_num_batched_tokens=profile.max_num_batched_tokens,
            max_model_len=LONGEST,
            block_size=profile.block_size,
        )


@dataclass
class Encoder:
    """A model that answers in one pass, one request at a time."""

    model: str
    stage_s: OnePass
    line: Line
    turns: GroupLine

    def __post_init__(self) -> None:
        stages = [constant(each) for each in self.stage_s]
        runner = EmulatedEncoderRunner(ENCODER, stage_latencies=stages, line=self.line)
        limits = EncoderLimits(
            max_num_seqs=1, max_num_batched_tokens=1, max_model_len=1, vocab_size=2, num_token_types=0
        )
        self.engine = EncoderEngine(limits, runner=runner, clock=self.line.clock.now_s)
        self.engine.join(self.turns, wake=lambda: None)
        self.report = self._report()

    def step(self) -> list[tuple[str, bool]]:
        """The requests that ended, and whether with an answer."""
        outputs = self.engine.step()
        self.report = self._report()
        return [(output.request_id, not output.is_late) for output in outputs]

    def _report(self) -> LoadReport:
        stats = self.engine.stats()
        return LoadReport(
            model=self.model,
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            num_pending_prefill_tokens=stats.num_pending_tokens,
            max_num_seqs=1,
            max_num_batched_tokens=1,
            max_model_len=1,
            block_size=16,
        )


class VirtualWorker:
    """A group's leader: an engine for each of its models, which share the group's pipeline."""

    def __init__(self, worker_id: str, co_located: CoLocatedModels, clock: VirtualClock) -> None:
        self.worker_id = worker_id
        self.models: dict[str, Generator | Encoder] = {}
        line, turns = Line(num_stages=_num_stages(co_located), clock=clock), GroupLine()
        for number, profile in co_located.items():
            name = name_of(number)
            if isinstance(profile, GenerationProfile):
                self.models[name] = Generator(name, profile, line, VirtualThread(clock))
            else:
                self.models[name] = Encoder(name, profile, line, turns)

    @property
    def generators(self) -> list[Generator]:
        return [model for model in self.models.values() if isinstance(model, Generator)]

    @property
    def encoders(self) -> list[Encoder]:
        return [model for model in self.models.values() if isinstance(model, Encoder)]

    @property
    def next_s(self) -> float:
        """When there is something to do."""
        of_encoders = [encoder.engine.next_s for encoder in self.encoders]
        return min([*of_encoders, *(generator.thread.wake_s for generator in self.generators)])

    def step_encoders(self, now_s: float) -> list[tuple[str, bool]]:
        """All that is to be done now: the requests that ended, those first that were given up."""
        ended: list[tuple[str, bool]] = []
        while due := [encoder for encoder in self.encoders if encoder.engine.next_s <= now_s]:
            ended += due[0].step()
        return sorted(ended, key=lambda each: each[1])


class GenerationPlane:
    """A router and its workers."""

    def __init__(self, groups: Sequence[CoLocatedModels], *, answer_overhead_s: float = 0.0) -> None:
        self.clock = VirtualClock()
        self._answer_overhead_s = answer_overhead_s
        self.dispatcher = Dispatcher(
            policy=make_policy("balanced"),
            max_group_sequences=512,
            instance_id="test",
            clock=self.clock,
            answer_overhead_s=answer_overhead_s,
        )
        self.workers = [VirtualWorker(f"worker-{number}", each, self.clock) for number, each in enumerate(groups)]
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
        self._end()
        group[np.isinf(self._finish_s)] = -1
        gaps = np.where(self._num_tokens > 1, self._num_tokens - 1.0, np.nan)
        with np.errstate(invalid="ignore"):
            tpot_s = (self._finish_s - self._first_s) / gaps
        preemptions = sum(generator.num_preemptions for worker in self.workers for generator in worker.generators)
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
        model = name_of(int(workload.model[number]))
        generates = any(isinstance(worker.models.get(model), Generator) for worker in self.workers)
        num_prompt = int(workload.num_prompt_tokens[number]) if generates else 1
        num_output = int(workload.num_output_tokens[number]) if generates else 0
        slo_s, now_s = float(workload.slo_s[number]), self.clock.time_s
        slo = Slo(e2e_s=slo_s if slo_s < math.inf else None).over(workload.slos[workload.model[number]])
        request = RoutingRequest(
            request_id=str(number),
            model=model,
            gateway_id="gateway-0",
            num_prompt_tokens=num_prompt,
            max_output_tokens=num_output,
            slo=slo,
        )
        try:
            lease = self.dispatcher.place(QueuedRequest(request=request, arrived_s=now_s, failed_at_s=now_s))
        except ResourceExhaustedError:
            return None
        if not isinstance(lease, Lease):  # no group has the model
            return None
        self._leases[number] = lease
        there = next(each for each in self.workers if each.worker_id == lease.worker_id).models[model]
        if isinstance(there, Generator):
            there.inbox.append(
                GenerationRequest(
                    request_id=str(number),
                    model=model,
                    prompt_token_ids=(1,) * num_prompt,
                    sampling=SamplingParams(max_tokens=num_output, temperature=0.0, ignore_eos=True),
                )
            )
        else:
            there.engine.submit(
                InferRequest(
                    request_id=str(number),
                    model=model,
                    sequences=(InferSequence(token_ids=(1,)),),
                    slo_s=slo.wait_s - self._answer_overhead_s if slo else None,
                )
            )
        return lease

    def _run_until(self, until_s: float) -> None:
        """All that workers do by then, that moment included; who is idle begins with what came before it."""
        if self.clock.time_s < until_s:
            for generator in (each for worker in self.workers for each in worker.generators):
                if not generator.thread.is_busy and generator.inbox:
                    generator.begin()
        while (next_s := min(worker.next_s for worker in self.workers)) <= until_s and next_s < math.inf:
            self.clock.time_s = max(self.clock.time_s, next_s)
            for index, worker in enumerate(self.workers):
                if worker.next_s <= self.clock.time_s:
                    self._step(index, worker)
        self.clock.time_s = until_s

    def _step(self, index: int, worker: VirtualWorker) -> None:
        ended, has_stepped = [], False
        if any(encoder.engine.next_s <= self.clock.time_s for encoder in worker.encoders):
            ended, has_stepped = worker.step_encoders(self.clock.time_s), True
        for request_id, is_answered in ended:
            if is_answered:
                self._first_s[int(request_id)] = self._finish_s[int(request_id)] = self.clock.time_s
            self._release(int(request_id), LeaseOutcome.COMPLETE if is_answered else LeaseOutcome.ERROR)
        for generator in worker.generators:
            if generator.thread.wake_s > self.clock.time_s:
                continue
            outputs = generator.resume()
            if outputs is not None:
                has_stepped = True
                self._num_steps[index] += 1
                for output in outputs:
                    self._book(output)
                generator.begin()
        if has_stepped:
            self._report(worker)

    def _book(self, output: SequenceOutput) -> None:
        number, now_s = int(output.request_id), self.clock.time_s
        self._num_tokens[number] += len(output.token_ids)
        self._first_s[number] = min(self._first_s[number], now_s)
        if output.finish_reason is not None:
            self._finish_s[number] = now_s
            self._release(number, LeaseOutcome.COMPLETE)

    def _release(self, number: int, outcome: LeaseOutcome) -> None:
        lease_id, num_tokens = self._leases.pop(number).lease_id, int(self._num_tokens[number])
        self.dispatcher.release(Release(outcome=outcome, lease_id=lease_id, num_output_tokens=num_tokens))

    def _report(self, worker: VirtualWorker) -> None:
        fleet = self.dispatcher.fleet
        group = fleet.join(worker.worker_id, endpoint=worker.worker_id, group_id="")
        fleet.update(group, [model.report for model in worker.models.values()], now_s=self.clock.time_s)

    def _end(self) -> None:
        assert self.dispatcher.lease_table.num_in_flight == 0
        self.dispatcher.lease_table.check_integrity()
        for worker in self.workers:
            for generator in worker.generators:
                generator.thread.end()


def name_of(number: int) -> str:
    """Of a model."""
    return f"model-{number}"


def _num_stages(co_located: CoLocatedModels) -> int:
    profile = next(iter(co_located.values()))
    return len(profile.stage_latencies) if isinstance(profile, GenerationProfile) else len(profile)


def _plan(workers: Sequence[VirtualWorker]) -> ServingPlan:
    found = [(worker.worker_id, name, model) for worker in workers for name, model in worker.models.items()]
    specs = {name: SPEC if isinstance(model, Generator) else ENCODER for _, name, model in found}
    return ServingPlan(
        plan_id="plan",
        created_at_s=0.0,
        models=tuple(ModelDeployment(name=name, directory="", spec=spec) for name, spec in specs.items()),
        workers=(),
        assignments=tuple(_assignment(worker_id, model) for worker_id, _, model in found),
    )


def _assignment(worker_id: str, model: Generator | Encoder) -> Assignment:
    if isinstance(model, Generator):
        latency, stages = model.profile.latency, model.profile.stage_latencies
    else:
        latency, stages = constant(sum(model.stage_s)), tuple(constant(each) for each in model.stage_s)
    limits = model.report
    assignment = Assignment(
        group_id=worker_id,
        worker_id=worker_id,
        model=model.model,
        weight_bytes=1,
        kv_cache_bytes=limits.num_blocks and 1,
        reserved_bytes=1,
        num_blocks=limits.num_blocks,
        block_size=limits.block_size,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        enable_prefix_cache=False,
        prediction=Prediction(ttft_s=1.0, tpot_s=0.1, tpot_loaded_s=0.1, output_tokens_per_s=1.0, latency=latency),
        parallel=ParallelConfig(pp=len(stages)),
        stage_latencies=stages,
    )
    prefill = model.profile.max_num_prefill_tokens if isinstance(model, Generator) else None
    return replace(assignment, max_num_prefill_tokens=prefill)
