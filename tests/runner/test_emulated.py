"""Emulated devices: batches take what the latency says, and answers are always the same; on a clock of our own."""

import struct
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.checkpoint.model_directory import read_spec
from headway.core.hf_config import spec_from_config
from headway.core.infer import InferRequest, InferSequence
from headway.core.latency import LatencyModel
from headway.core.pipeline import Pipeline
from headway.core.request import BeamSearch, FinishReason, GenerationRequest, Guide, GuideKind, SamplingParams
from headway.encoder.engine import EncoderEngine
from headway.encoder.group_line import GroupLine
from headway.encoder.limits import EncoderLimits
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.emulated.encoder_runner import EmulatedEncoderRunner
from headway.runner.emulated.line import Line
from headway.runner.emulated.model_runner import EmulatedModelRunner

STEP = LatencyModel(
    base_s=1.0, per_prefill_token_s=0.1, per_prefill_pair_s=0.001, per_decode_s=0.01, per_context_token_s=0.0001
)
PROMPT = tuple(range(20, 60))
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "eos_token_id": 25,
}
PROFILED_MODEL = Path("services/headway/cli/profiled_model")


@dataclass
class Clock:
    """Moves when somebody sleeps, or when told to."""

    time_s: float = 100.0

    def now_s(self) -> float:
        return self.time_s

    def sleep_until(self, due_s: float) -> None:
        self.time_s = max(self.time_s, due_s)


def constant(latency_s: float) -> LatencyModel:
    return LatencyModel(
        base_s=latency_s, per_prefill_token_s=0, per_prefill_pair_s=0, per_decode_s=0, per_context_token_s=0
    )


def make_engine(clock: Clock, *, stages: tuple[LatencyModel, ...] = (STEP,), **limits: object) -> Engine:
    spec = spec_from_config(LLAMA)
    usual = {"num_blocks": 64, "max_model_len": 200, "eos_token_ids": spec.eos_token_ids, "vocab_size": spec.vocab_size}
    config = EngineConfig(**(usual | limits), num_micro_batches=len(stages))  # type: ignore[arg-type]
    line = Line(num_stages=len(stages), clock=clock)
    return Engine(config, runner=EmulatedModelRunner(spec, stage_latencies=stages, line=line), clock=clock.now_s)


def ask(
    name: str, *, prompt: tuple[int, ...] = PROMPT, output: tuple[int, ...] = (), **sampling: object
) -> GenerationRequest:
    params = SamplingParams(**({"max_tokens": 12, "temperature": 0.0} | sampling))  # type: ignore[arg-type]
    return GenerationRequest(
        request_id=name, model="m", prompt_token_ids=prompt, output_token_ids=output, sampling=params
    )


def answer(engine: Engine, *requests: GenerationRequest) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    for request in requests:
        engine.submit(request)
    while engine.has_work:
        for output in engine.step():
            tokens[output.request_id] += output.token_ids
        engine.check_integrity()
    return tokens


def test_a_step_takes_what_the_latency_model_says() -> None:
    clock = Clock()
    engine = make_engine(clock)
    answer(engine, ask("a"))
    prefill_s = STEP.prefill_s(len(PROMPT), chunk_tokens=1024)
    contexts = range(len(PROMPT), len(PROMPT) + 11)
    decodes_s = sum(STEP.decode_s(num_decodes=1, context_tokens=context) for context in contexts)
    assert clock.time_s - 100 == pytest.approx(prefill_s + decodes_s)


def test_time_that_the_engine_takes_itself_does_not_add_up() -> None:
    """It is part of a step's latency: the next step of a running sequence is due as if it had begun at once."""
    clock = Clock()
    engine = make_engine(clock)
    engine.submit(ask("a", max_tokens=50))
    while engine.has_work:
        engine.step()
        clock.time_s += 0.5
    prefill_s = STEP.prefill_s(len(PROMPT), chunk_tokens=1024)
    decodes_s = sum(STEP.decode_s(num_decodes=1, context_tokens=len(PROMPT) + step) for step in range(49))
    assert clock.time_s - 100 == pytest.approx(prefill_s + decodes_s + 0.5)


def test_a_step_after_a_pause_begins_when_it_is_asked_for() -> None:
    clock = Clock()
    engine = make_engine(clock)
    answer(engine, ask("a", max_tokens=1))
    clock.time_s = 500.0
    answer(engine, ask("b", max_tokens=1, prompt=PROMPT[::-1]))
    assert clock.time_s == pytest.approx(500 + STEP.prefill_s(len(PROMPT), chunk_tokens=1024))


def test_two_stages_decode_two_batches_at_the_pace_of_the_slower() -> None:
    clock = Clock()
    slow, fast = replace(STEP, base_s=2.0), STEP
    engine = make_engine(clock, stages=(fast, slow), max_num_seqs=2)
    answer(engine, ask("a", max_tokens=1), ask("b", max_tokens=1, prompt=PROMPT[::-1]))
    alone = [stage.prefill_s(len(PROMPT), chunk_tokens=1024) for stage in (fast, slow)]
    assert clock.time_s - 100 <= sum(alone) + alone[1] + 1e-9
    assert clock.time_s - 100 > sum(alone)


def test_answers_are_the_same_alone_in_a_batch_after_preemption_and_elsewhere() -> None:
    alone = answer(make_engine(Clock()), ask("a"))["a"]
    assert len(alone) == 12
    assert set(alone) <= set(PROMPT) - {25}
    others = [ask(f"other-{n}", prompt=tuple(range(60 + n, 90 + n)), max_tokens=30) for n in range(6)]
    tight = make_engine(Clock(), num_blocks=11, watermark=0.0, enable_prefix_cache=False)
    assert answer(tight, *others, ask("a"))["a"] == alone
    assert tight.stats().num_preemptions > 0
    assert answer(make_engine(Clock()), ask("a", output=tuple(alone[:5])))["a"] == alone[5:]
    guessing = make_engine(Clock(), num_draft_tokens=3)
    assert answer(guessing, ask("a"))["a"] == alone


def test_sampled_answers_differ_by_their_seed_and_by_nothing_else() -> None:
    one, two, again = (
        answer(make_engine(Clock()), ask("a", temperature=1.0, seed=seed, max_tokens=30))["a"] for seed in (1, 2, 1)
    )
    assert one == again != two


def test_log_probabilities_and_beams_are_there_and_a_schema_is_refused() -> None:
    engine = make_engine(Clock())
    engine.submit(ask("a", num_logprobs=1, num_prompt_logprobs=0, max_tokens=1))
    (output,) = engine.step()
    assert [entry.logprob for entry in output.logprobs] == [0.0]
    assert [entry.token_id for entry in output.prompt_logprobs] == list(PROMPT[1:])
    engine.submit(ask("b", beam=BeamSearch(width=3, num_hypotheses=3), max_tokens=5))
    outputs = [output for _ in range(20) if engine.has_work for output in engine.step()]
    assert len(outputs[-1].hypotheses) == 3
    engine.submit(ask("c", guide=Guide(GuideKind.JSON_OBJECT)))
    (refused,) = engine.step()
    assert refused.finish_reason is FinishReason.ERROR
    assert "made" in refused.error or "makes" in refused.error


def brute_force(arrivals: list[float], stage_s: list[float]) -> list[float]:
    """Moves each request through the stages, stage by stage."""
    times = arrivals
    for duration_s in stage_s:
        left, free = [], float("-inf")
        for time_s in times:
            free = max(time_s, free) + duration_s
            left.append(free)
        times = left
    return times


@settings(derandomize=True, deadline=None)
@given(
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=20),
    stage_s=st.lists(st.floats(0.01, 2), min_size=1, max_size=5),
)
def test_a_pipeline_is_first_come_first_served_in_each_stage(gaps: list[float], stage_s: list[float]) -> None:
    arrivals = [sum(gaps[: number + 1]) for number in range(len(gaps))]
    pipeline = Pipeline(num_stages=len(stage_s))
    assert [pipeline.enter(arrival, stage_s) for arrival in arrivals] == pytest.approx(brute_force(arrivals, stage_s))


def test_the_one_pass_engine_takes_the_next_request_when_the_first_stage_is_free() -> None:
    clock, spec = Clock(), read_spec(PROFILED_MODEL)
    stages = [constant(latency_s) for latency_s in (1.0, 3.0, 2.0)]
    limits = EncoderLimits(
        max_num_seqs=1, max_num_batched_tokens=8, max_model_len=8, vocab_size=spec.vocab_size, num_token_types=2
    )
    runner = EmulatedEncoderRunner(spec, stage_latencies=stages, line=Line(num_stages=len(stages), clock=clock))
    engine = EncoderEngine(limits, runner=runner, clock=clock.now_s)
    arrivals, ended = [100.0, 100.5, 101.0, 120.0], {}
    waiting = [
        (arrival, InferRequest(request_id=str(arrival), model="m", sequences=(InferSequence(token_ids=(5, 6)),)))
        for arrival in arrivals
    ]
    while waiting or engine.has_work:
        pause_s = engine.pause_s
        if waiting and waiting[0][0] <= clock.time_s + pause_s:
            clock.time_s, request = waiting.pop(0)
            engine.submit(request)
            continue
        clock.time_s += pause_s
        ended |= {output.request_id: clock.time_s for output in engine.step()}
    assert list(ended.values()) == pytest.approx(brute_force(arrivals, [1.0, 3.0, 2.0]))


def test_a_batch_enters_behind_requests_that_came_before_it_and_ahead_of_those_that_came_after() -> None:
    line = Line(num_stages=1, clock=Clock())
    line.wait("encoder", 100.0)
    batch, next_batch = line.queue(100.5, [2.0]), line.queue(101.5, [4.0])
    assert (batch.due_s, next_batch.due_s) == (None, None)
    assert line.start(100.0, [1.0]) == 101.0
    line.wait("encoder", 101.2)
    assert (batch.due_s, next_batch.due_s) == (103.0, None)
    line.leave("encoder")
    assert line.sleep_until_due(next_batch) == 107.0 == line.clock.now_s()


def test_a_request_that_is_cancelled_in_the_pipeline_brings_nothing_and_the_next_one_does() -> None:
    clock, spec = Clock(), read_spec(PROFILED_MODEL)
    stages = [constant(1.0)] * 2
    limits = EncoderLimits(
        max_num_seqs=1, max_num_batched_tokens=8, max_model_len=8, vocab_size=spec.vocab_size, num_token_types=2
    )
    runner = EmulatedEncoderRunner(spec, stage_latencies=stages, line=Line(num_stages=len(stages), clock=clock))
    engine = EncoderEngine(limits, runner=runner, clock=clock.now_s)
    for name in "ab":
        engine.submit(InferRequest(request_id=name, model="m", sequences=(InferSequence(token_ids=(5,)),)))
    engine.step()
    assert (engine.stats().num_running, engine.stats().num_waiting) == (1, 1)
    assert engine.cancel("a")
    outputs = []
    while engine.has_work:
        clock.time_s += engine.pause_s
        outputs += engine.step()
    assert [output.request_id for output in outputs] == ["b"]
    values = struct.unpack("<64f", outputs[0].vectors[0])
    assert sum(value * value for value in values) == pytest.approx(1.0, rel=1e-5)
    assert clock.time_s == pytest.approx(103.0)


def test_an_emulated_worker_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, headway.worker.__main__, headway.worker.emulated_loading; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "numpy", "transformers", "safetensors"}.isdisjoint(loaded)


def test_models_of_a_group_share_its_stages_first_come_first_served() -> None:
    """Two encoders, whose requests go through one pipeline in the order in which they came, whoever asks first."""
    clock, spec = Clock(), read_spec(PROFILED_MODEL)
    line = Line(num_stages=2, clock=clock)
    limits = EncoderLimits(
        max_num_seqs=1, max_num_batched_tokens=8, max_model_len=8, vocab_size=spec.vocab_size, num_token_types=2
    )
    stages = [constant(1.0), constant(2.0)]
    engines = [
        EncoderEngine(limits, runner=EmulatedEncoderRunner(spec, stage_latencies=stages, line=line), clock=clock.now_s)
        for _ in range(2)
    ]
    turns = GroupLine()
    for engine in engines:
        engine.join(turns, wake=lambda: None)
    arrivals = [(100.0, 0), (100.1, 0), (100.2, 0), (100.3, 1), (100.4, 0), (100.5, 1), (120.0, 1)]
    waiting, ended = list(arrivals), dict[float, float]()
    while waiting or any(engine.has_work for engine in engines):
        pauses_s = [engine.pause_s if engine.has_work else float("inf") for engine in engines]
        if waiting and waiting[0][0] <= clock.time_s + min(pauses_s):
            clock.time_s, model = waiting.pop(0)
            sequences = (InferSequence(token_ids=(5, 6)),)
            engines[model].submit(InferRequest(request_id=str(clock.time_s), model="m", sequences=sequences))
            continue
        clock.time_s += min(pauses_s)
        for engine in engines if len(ended) % 2 else engines[::-1]:
            ended |= {float(output.request_id): clock.time_s for output in engine.step()}
    times = [ended[arrival] for arrival, _ in arrivals]
    assert times == pytest.approx(brute_force([arrival for arrival, _ in arrivals], [1.0, 2.0]), abs=0.01)
