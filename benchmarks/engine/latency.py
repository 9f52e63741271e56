"""The latency model of a runner on this machine, measured and fitted as the profiler does it."""

from collections.abc import Iterable
from statistics import median

from headway.core.latency import LatencyModel
from headway.core.profile import StepMeasurement
from headway.engine.config import EngineConfig
from headway.profiler.fit import fit_latency
from headway.profiler.grid import Point, WorkerLimits, choose_grid
from headway.runner.model_runner import ModelRunner

NUM_TIMINGS = 3


def measure_latency(runner: ModelRunner, config: EngineConfig) -> LatencyModel:
    """Times the profiler's grid of steps for such an engine; takes a few seconds on a small model."""
    limits = WorkerLimits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=config.max_model_len,
        num_blocks=config.num_blocks,
        block_size=config.block_size,
    )
    grid = choose_grid(limits)
    return fit_latency(_measure(runner, grid.fitted), held_out=_measure(runner, grid.held_out))


def _measure(runner: ModelRunner, points: Iterable[Point]) -> list[StepMeasurement]:
    return [
        StepMeasurement(
            prefill_tokens=point.prefill_tokens,
            num_decodes=point.num_decodes,
            context_tokens=point.context_tokens,
            step_s=median(
                runner.measure(
                    prefill_tokens=point.prefill_tokens,
                    num_decodes=point.num_decodes,
                    context_tokens=point.context_tokens,
                )
                for _ in range(NUM_TIMINGS)
            ),
        )
        for point in points
    ]
