"""What ranks of a group do in tests of the runner.

Apart from the tests, since a rank's process imports this and nothing more: not transformers.
"""

from pathlib import Path

import pytest

from headway.core.request import SamplingParams
from headway.engine.batch import RunnerLostError
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.shard_runner import ShardRunner
from headway.store.checkpoint import read_checkpoint
from tests.runner.stepper import Stepper
from tests.worker.workload import Group, Run, generate

NUM_BLOCKS = 64
PROMPT = [7 * index % 512 for index in range(33)]


def make_stepper(runner: ModelRunner) -> Stepper:
    stepper = Stepper(runner, num_blocks=NUM_BLOCKS)
    stepper.add(PROMPT, SamplingParams(max_tokens=8, temperature=0.0))
    return stepper


def generate_in(group: RankGroup, directory: Path, groups: list[Group], limits: dict[str, int]) -> Run | None:
    """What came out, at the leader."""
    checkpoint = read_checkpoint(directory)
    if group.rank == 0:
        return generate(checkpoint, groups, ranks=group, **limits)
    num_blocks, num_host_blocks = limits.get("num_blocks", 512), limits.get("host_blocks", 0)
    runner = ShardRunner(checkpoint, group=group, num_blocks=num_blocks, num_host_blocks=num_host_blocks)
    run_rank(Listener(group), runner)
    return None


def measure_in(group: RankGroup, directory: Path) -> tuple[float, list[int], list[int]] | None:
    """Seconds of a step, and what a sequence gets, undisturbed and with the measurement in the middle of it."""
    checkpoint = read_checkpoint(directory)
    if group.rank > 0:
        run_rank(Listener(group), ShardRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS))
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


def traffic_in(group: RankGroup, directory: Path) -> dict[str, tuple[int, int]]:
    """(calls, bytes) by site of one decode of three sequences."""
    checkpoint = read_checkpoint(directory)
    if group.rank > 0:
        run_rank(Listener(group), ShardRunner(checkpoint, group=group, num_blocks=NUM_BLOCKS))
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
            run_rank(Listener(group), loaded)
        return None
    with pytest.raises(RunnerLostError) as fault:
        make_stepper(loaded).step()
    return str(fault.value)


def _fail(*_: object, **__: object) -> None:
    raise ZeroDivisionError("nothing to share")
