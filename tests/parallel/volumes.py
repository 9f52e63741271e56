"""What a group sends while it computes steps of every kind, counted; imported by the ranks' processes."""

from pathlib import Path

from benchmarks.parallel.volume import StepShape, Volumes
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.request import SamplingParams
from headway.engine.batch import StepBatch
from headway.engine.sequence import Sequence
from headway.runner.model_runner import ModelRunner
from headway.runner.parallel.group import RankGroup
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.rank_loop import run_rank
from headway.runner.shard_runner import ShardRunner
from tests.runner.stepper import Stepper, is_done

NUM_BLOCKS = 24
NUM_HOST_BLOCKS = 4


def volumes_in(group: RankGroup, directory: Path) -> tuple[list[StepShape], Volumes]:
    """The shape of each step, at the leader, and what this rank sent in all of them."""
    checkpoint = read_checkpoint(directory)
    pool = {"num_blocks": NUM_BLOCKS, "num_host_blocks": NUM_HOST_BLOCKS}
    shapes: list[StepShape] = []
    if group.rank > 0:
        run_rank(Listener(group), {0: ShardRunner(checkpoint, group=group, **pool)})
    else:
        runner = ModelRunner(checkpoint, group=group, **pool)
        shapes = [StepShape.of(batch, **pool) for batch in _run(runner, num_shards=group.parallel.cp)]
        runner.close()
    return shapes, {key: count.num_bytes for key, count in group.traffic.totals().items() if count.num_bytes}


def _run(runner: ModelRunner, *, num_shards: int) -> list[StepBatch]:
    """Prompts in chunks, one of them scored, then decodes with and without drafts; then copies between all tiers."""
    num_blocks = num_shards * NUM_BLOCKS
    stepper = Stepper(
        runner, num_blocks=num_blocks, chunk_size=10, drafter=lambda each: (7,) * (len(each.token_ids) % 3)
    )
    for length, num_scored, num_logprobs in ((3, None, None), (12, 0, None), (33, None, 0)):
        sampling = SamplingParams(
            max_tokens=5, temperature=0.0, num_prompt_logprobs=num_scored, num_logprobs=num_logprobs
        )
        stepper.add([7 * index % 512 for index in range(length)], sampling)
    batches = []
    while not all(map(is_done, stepper.sequences)):
        batch = stepper.schedule(stepper.sequences)
        runner.start(batch)
        stepper.commit(batch, runner.finish())
        batches.append(batch)
    hosts, blocks = range(num_shards * NUM_HOST_BLOCKS), range(num_blocks)
    batches.append(
        StepBatch(
            [],
            0,
            swap_out=[(blocks[3], hosts[-1]), (blocks[1], hosts[0]), (blocks[-5], hosts[1])],
            swap_in=[(hosts[-1], blocks[0]), (hosts[0], blocks[-1])],
            block_copies=[(blocks[4], blocks[-2]), (blocks[5], blocks[6]), (blocks[-3], blocks[7])],
        )
    )
    runner.start(batches[-1])
    runner.finish()
    return batches


def _draft(sequence: Sequence) -> tuple[int, ...]:
    return (7,) * (len(sequence.token_ids) % 3)
