"""What a rank that does not lead does all its life."""

from headway.runner.parallel.listener import Listener
from headway.runner.shard_runner import ShardRunner
from headway.runner.step_message import StepKind, StepMessage


def run_rank(listener: Listener, runner: ShardRunner) -> None:
    """Does what the leader announces, until it lets this rank go.

    Raises:
        RunnerLostError: the leader or another rank is gone.
    """
    while (message := listener.next()).kind is not StepKind.STOP:
        _follow(message, runner)


def _follow(message: StepMessage, runner: ShardRunner) -> None:
    if message.kind is StepKind.SCRATCH:
        runner.set_scratch(message.num_scratch_blocks)
        return
    if message.facts is not None:
        runner.expect(message.facts)
    runner.copy_blocks(message.copies)
    if message.facts is not None:
        for _ in runner.logits(message.facts):
            pass  # the leader has them
