"""The loop of a rank that does not lead: it receives step messages and carries them out."""

from collections import deque
from collections.abc import Callable, MutableMapping
from typing import TypeAlias

import torch

from headway.runner.encoder_shard import EncoderShard
from headway.runner.parallel.listener import Listener
from headway.runner.parallel.tensor_channel import TensorChannel
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import StepKind, StepMessage

Shard: TypeAlias = ShardRunner | EncoderShard
"""A rank's part of a model."""


def run_rank(
    listener: Listener,
    shards: MutableMapping[int, Shard],
    *,
    on_drop: Callable[[int], None] | None = None,
) -> None:
    """Does what the leader announces, until it lets this rank go.

    Steps are computed in the order in which they are announced, and so are heads, whichever model's they are. A head
    goes before the steps that a stage is not to have computed by then: what a stage begins, those before it have begun
    in the same order, and the leader, which comes last, never waits for a step that is held back here.

    Args:
        shards: this rank's part of each model, by its number; others may add to it, before they are announced.
        on_drop: called with the number of a model that is no longer among them.

    Raises:
        RunnerLostError: the leader or another rank is gone.
    """
    group, channel = listener.group, TensorChannel(listener.group)
    num_later_stages = group.parallel.pp - 1 - group.parallel.place(group.rank).stage
    steps: deque[StepMessage] = deque()
    wanted: deque[ShardRunner] = deque()  # whose heads are to come
    while (message := listener.next()).kind is not StepKind.STOP:
        match message.kind:
            case StepKind.STEP:
                steps.append(message)
                if message.model_input is not None:
                    shards[message.model].expect(message.model_input)
            case StepKind.HEAD:
                if wanted:  # the last stage has given them by itself
                    _give_logits(wanted.popleft())
            case StepKind.DROP:
                del shards[message.model]
                if on_drop is not None:
                    on_drop(message.model)
            case _:
                _serve(message, shards[message.model], channel)
        # The leader has its turn for a head when each later stage has computed one step more.
        while steps and len(wanted) <= num_later_stages:
            step = steps.popleft()
            _compute(step, shards[step.model], wanted)


def _serve(message: StepMessage, shard: Shard, channel: TensorChannel) -> None:
    assert isinstance(shard, ShardRunner), "an encoder has no blocks"
    match message.kind:
        case StepKind.SCRATCH:
            shard.set_scratch(message.num_scratch_blocks)
        case StepKind.READ:
            channel.send(shard.read_part(message.blocks), rank=0)
        case _:
            shard.write_part(message.blocks, channel.receive(shard.part_room(message.blocks), rank=0))


def _compute(message: StepMessage, shard: Shard, wanted: deque[ShardRunner]) -> None:
    if isinstance(shard, EncoderShard):
        assert message.model_input is not None, "an encoder has nothing else to do"
        shard.compute(message.model_input)
        return
    shard.copy_blocks(message.copies)
    if message.model_input is not None:
        shard.compute(message.model_input)
        if message.model_input.wants_logits and not shard.shard.is_last:
            wanted.append(shard)
    if shard.shard.is_last:
        _give_logits(shard)


@torch.inference_mode()
def _give_logits(shard: ShardRunner) -> None:
    for _ in shard.logits():
        pass  # the leader has them
