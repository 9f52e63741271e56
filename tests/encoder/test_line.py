"""Deadlines, policies and turns of one-pass engines whose steps take known times."""

from dataclasses import dataclass

import pytest

from headway.core.infer import InferOutput, InferRequest, InferSequence
from headway.core.latency import LatencyModel
from headway.core.line import QueuePolicy
from headway.encoder.engine import EncoderEngine
from headway.encoder.group_line import GroupLine
from headway.encoder.limits import EncoderLimits
from headway.runner.emulated.encoder_runner import EmulatedEncoderRunner
from headway.runner.emulated.line import Line
from tests.planner.placement.serving_plane import ENCODER

# 1 s, and 0.5 s for each further sequence of one token.
LATENCY = LatencyModel(
    base_s=0.5, per_prefill_token_s=0.5, per_prefill_pair_s=0.0, per_decode_s=0.0, per_context_token_s=0.0
)


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


class Worker:
    """Engines that share a group's devices, each as if in a thread of its own."""

    def __init__(self, *names: str, policy: QueuePolicy = QueuePolicy.FCFS, max_num_seqs: int = 4) -> None:
        self.clock, self.line, self.woken = Clock(), GroupLine(), []
        pipeline = Line(num_stages=1, clock=self.clock)
        limits = EncoderLimits(
            max_num_seqs=max_num_seqs, max_num_batched_tokens=8, max_model_len=4, vocab_size=9, num_token_types=0
        )
        self.engines: dict[str, EncoderEngine] = {}
        for name in names:
            runner = EmulatedEncoderRunner(ENCODER, stage_latencies=[LATENCY], line=pipeline)
            engine = EncoderEngine(limits, runner=runner, clock=self.clock, queue_policy=policy)
            engine.join(self.line, wake=lambda name=name: self.woken.append(name))
            self.engines[name] = engine

    def submit(self, request_id: str, *, model: str = "a", slo_s: float | None = None, priority: int = 0) -> None:
        sequences = (InferSequence(token_ids=(1,)),)
        self.engines[model].submit(
            InferRequest(request_id=request_id, model=model, sequences=sequences, slo_s=slo_s, priority=priority)
        )

    def run(self) -> dict[str, float]:
        """When each request was answered; infinite where it was given up."""
        ended: dict[str, float] = {}
        while any(engine.has_work for engine in self.engines.values()):
            self.clock.now_s = max(self.clock.now_s, min(engine.next_s for engine in self.engines.values()))
            for engine in reversed(self.engines.values()):
                ended |= {output.request_id: self._time(output) for output in engine.step()}
        return ended

    def _time(self, output: InferOutput) -> float:
        return float("inf") if output.is_late else self.clock.now_s


def test_a_batch_grows_as_long_as_every_deadline_in_it_holds() -> None:
    worker = Worker("a")
    worker.submit("first")
    worker.engines["a"].step()
    for name, slo_s in (("b", 3.0), ("c", 2.5), ("d", 9.0)):
        worker.submit(name, slo_s=slo_s)
    assert worker.run() == {"first": 1.0, "b": 2.5, "c": 2.5, "d": 3.5}


def test_who_cannot_be_in_time_any_more_is_given_up_and_holds_nobody_up() -> None:
    worker = Worker("a", max_num_seqs=1)
    for name, slo_s in (("a", 1.0), ("b", 1.9), ("c", 2.0)):
        worker.submit(name, slo_s=slo_s)
    assert worker.run() == {"a": 1.0, "b": float("inf"), "c": 2.0}


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        (QueuePolicy.FCFS, ["a", "b", "c", "d"]),
        (QueuePolicy.LEAST_SLACK, ["c", "b", "a", "d"]),
        (QueuePolicy.PRIORITY, ["d", "a", "b", "c"]),
    ],
)
def test_requests_begin_in_the_order_of_the_policy(policy: QueuePolicy, order: list[str]) -> None:
    worker = Worker("a", policy=policy, max_num_seqs=1)
    for name, slo_s, priority in (("a", None, 0), ("b", 20.0, 0), ("c", 10.0, 0), ("d", None, -1)):
        worker.submit(name, slo_s=slo_s, priority=priority)
    assert list(worker.run()) == order


def test_models_of_one_group_are_one_line() -> None:
    worker = Worker("a", "b")
    for name, model in (("1", "a"), ("2", "b"), ("3", "a"), ("4", "b")):
        worker.submit(name, model=model)
        worker.clock.now_s += 0.1
    assert worker.run() == pytest.approx({"1": 1.7, "3": 1.7, "2": 3.2, "4": 3.2})


def test_the_engine_whose_turn_comes_is_woken_and_one_that_leaves_holds_nobody_up() -> None:
    worker = Worker("a", "b")
    worker.submit("1", model="a")
    worker.submit("2", model="b")
    assert worker.engines["b"].pause_s == float("inf")
    worker.engines["a"].leave()
    assert worker.woken == ["b"]
    assert worker.engines["b"].pause_s == 0.0


def test_who_has_no_objective_is_not_starved_by_those_who_have_a_loose_one() -> None:
    worker = Worker("a", policy=QueuePolicy.LEAST_SLACK, max_num_seqs=1)
    for name, slo_s in (("loose", 50.0), ("unbound", None), ("tight", 10.0)):
        worker.submit(name, slo_s=slo_s)
    assert list(worker.run()) == ["tight", "unbound", "loose"]
