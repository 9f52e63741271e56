"""Where time goes: every part once, nothing twice, and the code as it was before."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from rich.console import Console

from benchmarks import model
from benchmarks.model import BENCHMARK_SPEC, make_benchmark_model
from benchmarks.serve.outcome import Outcome
from benchmarks.serve.workload import Request
from benchmarks.steps.__main__ import cpu_table, step_table
from benchmarks.steps.engine import time_parts
from benchmarks.steps.part import Part, instrumented
from benchmarks.steps.rounds import ARITHMETIC, ENGINE, Round, median_parts_s, median_stack, processor_parts_s
from benchmarks.steps.stack import (
    COMPUTE,
    OTHER_THREADS,
    CpuSample,
    StackSteps,
    cpu_by_part,
    cpu_by_thread,
    span_samples,
    step_interval_s,
)
from benchmarks.steps.stopwatch import Stopwatch
from headway.engine.engine import Engine


def test_a_part_is_not_charged_for_what_it_calls() -> None:
    stopwatch = Stopwatch(clock=itertools.count().__next__)  # a second per reading
    inner = stopwatch.timed("inner", lambda: None)
    stopwatch.timed("outer", lambda: (inner(), inner()))()
    assert stopwatch.seconds == {"outer": 3, "inner": 2}


def test_a_part_that_raises_is_charged_and_left() -> None:
    stopwatch = Stopwatch(clock=itertools.count().__next__)
    with pytest.raises(ZeroDivisionError):
        stopwatch.timed("broken", lambda: 1 / 0)()
    stopwatch.timed("next", lambda: None)()
    assert stopwatch.seconds == {"broken": 1, "next": 1}


def test_instruments_are_taken_off() -> None:
    before = Engine.step
    with instrumented(Stopwatch()):
        assert Engine.step is not before
    assert Engine.step is before


def test_every_part_of_a_real_step_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "NUM_WORDS", 300)
    torch.set_num_threads(1)
    small = replace(BENCHMARK_SPEC, vocab_size=1000, hidden_size=64, num_layers=1, intermediate_size=96, head_dim=8)
    directory = make_benchmark_model(tmp_path / "model", spec=small)
    parts = time_parts(directory, dtype="float32", num_sequences=3, num_steps=5)
    assert parts.keys() == set(Part) - {Part.PUBLISHING}
    assert all(0 < seconds < 1 for seconds in parts.values())


def test_interval_counts_tokens_while_all_decode() -> None:
    def outcome(*times_s: float) -> Outcome:
        request = Request(0.0, (1,), len(times_s))
        return Outcome(request=request, sent_s=0, finished_s=9, token_times_s=times_s, num_tokens=len(times_s))

    assert step_interval_s([outcome(0, 1, 2, 3, 4, 5), outcome(1, 2, 3, 4, 5, 6)]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="did not all run at once"):
        step_interval_s([outcome(0, 1), outcome(2, 3)])


def test_compute_threads_of_the_worker_stand_apart() -> None:
    cpu_s = {
        ("headway.worker", 1): 0.5,
        ("headway.worker", 2): 4.0,
        ("headway.worker", 3): 3.0,
        ("headway.gateway", 4): 1.0,
    }
    assert cpu_by_part(cpu_s, num_compute=2) == {"gateway": 1.0, COMPUTE: 7.0, OTHER_THREADS: 0.5}


def test_threads_are_timed_more_finely_than_in_hundredths() -> None:
    process = psutil.Process()
    before_s = sum(cpu_by_thread([process]).values())
    until_s = time.process_time() + 0.003
    while time.process_time() < until_s:
        pass
    spent_s = sum(cpu_by_thread([process]).values()) - before_s
    assert spent_s > 0.002


def test_samples_are_taken_while_all_decode() -> None:
    samples = [CpuSample(at_s, {}) for at_s in (0.0, 1.0, 2.0, 3.0, 4.0)]
    first, last = span_samples(samples, 0.5, 3.5)
    assert (first.at_s, last.at_s) == (1.0, 3.0)
    with pytest.raises(ValueError, match=r"ran at once for 0\.9 s only"):
        span_samples(samples, 0.6, 1.5)


def test_processor_time_is_told_apart_by_process() -> None:
    """Of 20 ms in threads that compute, 1 ms is the engine's own; 3 of 23 are outside the model."""
    parts = {Part.MATMULS: 0.009, Part.SCHEDULER: 0.0004, Part.SAMPLING: 0.0006, Part.PUBLISHING: 0.005}
    stack = StackSteps(
        interval_s=0.012, cpu_s={COMPUTE: 0.020, OTHER_THREADS: 0.001, "gateway": 0.002}, output_tokens_per_s=1.0
    )
    cpu_s = processor_parts_s(parts, stack)
    assert cpu_s == pytest.approx({ARITHMETIC: 0.019, ENGINE: 0.001, OTHER_THREADS: 0.001, "gateway": 0.002})
    console = Console(record=True, width=100)
    console.print(cpu_table(cpu_s, interval_s=stack.interval_s))
    assert "17.4 %" in next(line for line in console.export_text().splitlines() if "outside the model" in line)


def test_each_round_is_compared_with_itself() -> None:
    """The middle one is on a machine half as fast."""
    speeds, outside_s = (1.0, 2.0, 1.0), (0.2, 0.5, 0.3)
    rounds = [
        Round(
            {Part.MATMULS: 3 * speed, Part.ATTENTION: speed},
            StackSteps(interval_s=4 * speed + outside, cpu_s={"gateway": speed}, output_tokens_per_s=64 / speed),
        )
        for speed, outside in zip(speeds, outside_s, strict=True)
    ]
    assert median_parts_s(rounds) == pytest.approx({Part.MATMULS: 3, Part.ATTENTION: 1, Part.PUBLISHING: 0.3})
    assert median_stack(rounds) == StackSteps(interval_s=4.3, cpu_s={"gateway": 1.0}, output_tokens_per_s=64.0)


def test_shares_outside_the_model_are_added_up() -> None:
    parts = {
        Part.MATMULS: 0.070,
        Part.ATTENTION: 0.012,
        Part.MODEL: 0.010,
        Part.SCHEDULER: 0.002,
        Part.PUBLISHING: 0.006,
    }
    console = Console(record=True, width=100)
    console.print(step_table(parts, num_sequences=64))
    assert "8.0 %" in next(line for line in console.export_text().splitlines() if "outside the model" in line)
