"""What a rank that does not lead does all its life."""

from headway.runner.parallel.listener import Listener
from headway.runner.parallel.parcels import Parcels
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import StepKind, StepMessage


def run_rank(listener: Listener, runner: ShardRunner) -> None:
    """Does what the leader announces, until it lets this rank go.

    Raises:
        RunnerLostError: the leader or another rank is gone.
    """
    parcels = Parcels(listener.group)
    while (message := listener.next()).kind is not StepKind.STOP:
        _follow(message, runner, parcels)


def _follow(message: StepMessage, runner: ShardRunner, parcels: Parcels) -> None:
    match message.kind:
        case StepKind.SCRATCH:
            runner.set_scratch(message.num_scratch_blocks)
        case StepKind.READ:
            parcels.send(runner.read_part(message.blocks), rank=0)
        case StepKind.WRITE:
            runner.write_part(message.blocks, parcels.receive(runner.part_room(message.blocks), rank=0))
        case _:
            _compute(message, runner)


def _compute(message: StepMessage, runner: ShardRunner) -> None:
    if message.facts is not None:
        runner.expect(message.facts)
    runner.copy_blocks(message.copies)
    if message.facts is not None:
        for _ in runner.logits(message.facts):
            pass  # the leader has them
