"""What ranks of a group do in tests of the runner.

Apart from the tests, since a rank's process imports this and nothing more: not transformers.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from torch import Tensor

from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams
from headway.engine.batch import RunnerLostError, StepBatch
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.shard_runner import ShardRunner
from tests.runner.stepper import Stepper, is_done
from tests.worker.workload import Group, Run, generate

NUM_BLOCKS = 64
Outcome = tuple[list[list[int]], list[float]]
PROMPT = [7 * index % 512 for index in range(33)]


def make_stepper(runner: ModelRunner) -> Stepper:
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    stepper.add(PROMPT, SamplingParams(max_tokens=8, temperature=0.0))
    return stepper


def generate_in(
    group: RankGroup, directory: Path, groups: list[Group], limits: dict[str, int], quantization: str | None = None
) -> Run | None:
    """What came out, at the leader."""
    checkpoint = read_checkpoint(directory, quantization=quantization)
    if group.rank == 0:
        return generate(checkpoint, groups, ranks=group, **limits)
    num_shards = group.parallel.cp
    num_blocks, num_host_blocks = (
        limits.get("num_blocks", 512) // num_shards,
        limits.get("num_host_blocks", 0) // num_shards,
    )
    runner = ShardRunner(checkpoint, group=group, num_blocks=num_blocks, num_host_blocks=num_host_blocks)
    run_rank(Listener(group), {0: runner})
    return None


def measure_in(group: RankGroup, directory: Path) -> tuple[float, list[int], list[int]] | None:
    """Seconds of a step, and what a sequence gets, undisturbed and with the measurement in the middle of it."""
    checkpoint = read_checkpoint(directory)
    if group.rank > 0:
        run_rank(Listener(group), {0: ShardRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS)})
        return None
    runner = ModelRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS)
    (undisturbed,) = make_stepper(runner).run()
    stepper = make_stepper(runner)
    stepper.step()
    step_s = runner.measure(prefill_tokens=24, num_decodes=3, context_tokens=40)
    (disturbed,) = stepper.run()
    runner.close()
    return step_s, undisturbed, disturbed


def sizes_in(group: RankGroup, directory: Path) -> tuple[int, int, int]:
    runner = ShardRunner(read_checkpoint(directory), group=group, num_blocks=NUM_BLOCKS)
    return runner.weight_bytes, runner.kv_bytes_per_block, runner._pool.memory.nbytes


def make_sampling_stepper(runner: ModelRunner) -> Stepper:
    """Six sequences, whose prompts are scored, in chunks."""
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS, chunk_size=20)
    for index in range(6):
        sampling = SamplingParams(max_tokens=6, temperature=0.7, seed=index, num_logprobs=1, num_prompt_logprobs=2)
        stepper.add(PROMPT[: 5 * index + 3], sampling)
    return stepper


def overlap_in(group: RankGroup, directory: Path) -> Outcome | None:
    """Each stage has a batch of its own; where one is finished, copies alone are started before the next."""
    checkpoint = read_checkpoint(directory)
    if group.rank > 0:
        run_rank(Listener(group), {0: ShardRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS, num_host_blocks=1)})
        return None
    runner = ModelRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS, num_host_blocks=1)
    stepper = make_sampling_stepper(runner)
    spare = stepper.take_block()
    num_batches = group.parallel.pp
    while not all(map(is_done, stepper.sequences)):
        batches = [stepper.schedule(stepper.sequences[index::num_batches]) for index in range(num_batches)]
        for batch in batches:
            runner.start(batch)
        stepper.commit(batches[0], runner.finish())
        runner.start(StepBatch([], 0, swap_out=[(spare, 0)], swap_in=[(0, spare)]))
        for batch in batches[1:]:
            stepper.commit(batch, runner.finish())
        assert runner.finish().copy_s > 0
    outcome = outcome_of(stepper)
    late = stepper.add(PROMPT, SamplingParams(max_tokens=1, temperature=0.0))
    runner.start(stepper.schedule([late]))
    runner.close()
    return outcome


def outcome_of(stepper: Stepper) -> Outcome:
    """Tokens, and log probabilities of prompts and outputs."""
    tokens = [list(sequence.output_token_ids) for sequence in stepper.sequences]
    entries = [
        entry for by_name in (stepper.prompt_logprobs, stepper.logprobs) for part in by_name.values() for entry in part
    ]
    return tokens, [entry.logprob for entry in entries]


def lose_in(group: RankGroup, directory: Path, victim: int, fate: signal.Signals) -> float:
    """Seconds from the signal that the victim gets in its third step to this rank's RunnerLostError."""
    checkpoint = read_checkpoint(directory)
    loaded = (ModelRunner if group.rank == 0 else ShardRunner)(checkpoint, group=group, num_blocks=NUM_BLOCKS)
    shard = loaded._shard if isinstance(loaded, ModelRunner) else loaded
    note = directory / f"victim-{group.epoch}"
    if group.rank == victim:
        shard._forward = _Fate(shard._forward, fate, note)  # type: ignore[method-assign]
    run = (
        partial(run_rank, Listener(group), {0: loaded}) if isinstance(loaded, ShardRunner) else make_stepper(loaded).run
    )
    with pytest.raises(RunnerLostError):
        run()
    pid, struck_s = note.read_text().split()
    duration_s = time.monotonic() - float(struck_s)
    with suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGKILL)
    return duration_s


class _Fate:
    """Computes twice, and then sends its own process a signal."""

    def __init__(self, compute: Callable[..., Tensor], fate: signal.Signals, note: Path) -> None:
        self._compute = compute
        self._fate = fate
        self._note = note
        self._num_left = 2

    def __call__(self, *arguments: object, **options: object) -> Tensor:
        if self._num_left == 0:
            self._note.write_text(f"{os.getpid()} {time.monotonic()}")
            os.kill(os.getpid(), self._fate)
        self._num_left -= 1
        return self._compute(*arguments, **options)


def traffic_in(group: RankGroup, directory: Path) -> dict[str, tuple[int, int]]:
    """(calls, bytes) by site of one decode of three sequences."""
    checkpoint = read_checkpoint(directory)
    if group.rank > 0:
        run_rank(Listener(group), {0: ShardRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS)})
    else:
        runner = ModelRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS)
        stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
        for token in range(3):
            stepper.add([token], SamplingParams(max_tokens=1, temperature=0.0))
        stepper.run()
        runner.close()
    return {key.site: (count.num_calls, count.num_bytes) for key, count in group.traffic.totals().items()}


def fail_in(group: RankGroup, directory: Path, failing_rank: int) -> str | None:
    """What the leader raises when a rank's network fails."""
    checkpoint = read_checkpoint(directory)
    runner = ModelRunner if group.rank == 0 else ShardRunner
    loaded = runner(checkpoint, group=group, num_blocks=NUM_BLOCKS)
    shard = loaded._shard if isinstance(loaded, ModelRunner) else loaded
    if group.rank == failing_rank:
        shard._forward = _fail  # type: ignore[method-assign]
    if isinstance(loaded, ShardRunner):
        with pytest.raises((RunnerLostError, ZeroDivisionError)):
            run_rank(Listener(group), {0: loaded})
        return None
    with pytest.raises(RunnerLostError) as fault:
        make_stepper(loaded).step()
    return str(fault.value)


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("nothing to share")
