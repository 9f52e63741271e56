"""One rank of a training run: the loop over steps."""

import time
from collections.abc import Callable, Iterator
from math import isfinite, sqrt

import torch
import torch.distributed as dist
from safetensors.torch import load_file

from headway.core.errors import FailedPreconditionError
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.parts import StagePart, StepParts
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.training_run import CHECKPOINTS_DIRECTORY, INITIAL_FILE, StepReport
from headway.train.batch import make_batch
from headway.train.checkpoint import CheckpointFacts, Checkpoints
from headway.train.data import open_data
from headway.train.executor import Executor
from headway.train.gradients import Gradients
from headway.train.links import Links
from headway.train.optimizer import Optimizer
from headway.train.parts import ComputingParts, PartRunner, TimedParts, stage_cuts
from headway.train.setup import Setup


class Trainer:
    """Args:
    should_stop: asked in each step; once any rank says so, all end behind the same step.
    """

    def __init__(
        self,
        setup: Setup,
        rank: int,
        *,
        store: dist.Store,
        should_stop: Callable[[], bool],
        blocks: bool = False,
    ) -> None:
        job, execution = setup.job, setup.execution
        self._setup, self._rank, self._should_stop = setup, rank, should_stop
        self._checkpoints = Checkpoints(setup.directory / CHECKPOINTS_DIRECTORY, keep=job.checkpoint.keep)
        self._links = Links(
            rank,
            len(execution.ranks),
            store=store,
            groups=_groups(execution),
            timeout_s=job.timeout_s,
            blocks=blocks,
        )
        cuts = stage_cuts(execution, setup.programs, rank)
        latest = self._checkpoints.latest()
        given = load_file(setup.directory / INITIAL_FILE) if latest is None else latest.state()
        read = {(part.stage, n) for cut in cuts.values() for part in cut.parts for n in _read(cut, part)}
        idle = set(given) - {name for _, name in read} if rank == 0 else set()
        names = {name for stage, name in read if stage in cuts} | idle  # what nothing reads is kept by rank 0
        trained = {name for number in cuts for name in execution.stages[number].parameters}
        self._state = {name: tensor.clone() for name, tensor in given.items() if name in names}
        self._parameters = {name: self._state[name] for name in sorted(trained)}
        self._gradients = Gradients(execution, rank, self._parameters)
        self._optimizer = Optimizer(job.optimizer, self._parameters, self._gradients.by_name, num_steps=job.steps)
        self._first = 0
        if latest is not None:
            self._first = latest.facts.step
            self._optimizer.restore(latest.optimizer())
        self._data = open_data(job.data, setup.inputs(set(given)), batch=job.batch, seed=job.seed)
        self._runner: PartRunner = ComputingParts(execution, cuts)
        self._cuts = cuts
        self._owned = _owned(execution, rank)

    def run(self) -> Iterator[StepReport]:
        """Trains to the last step, or to the one behind which it is to stop; the caller takes all reports.

        Raises:
            FailedPreconditionError: the loss is no finite number, or a checkpoint cannot be written.
            UnavailableError: another rank gives no answer.
        """
        job = self._setup.job
        predicted_s = self.predict() if self._first < job.steps else 0.0
        executor = self._executor(self._runner)
        for step in range(self._first, job.steps):
            began_s = time.perf_counter()
            loss, norm, is_last = self._step(executor, step)
            is_last = is_last or step + 1 == job.steps
            every = job.checkpoint.every
            is_saved = is_last or (every > 0 and (step + 1) % every == 0)
            seconds = time.perf_counter() - began_s
            if is_saved:
                self._save(step + 1)
            yield StepReport(
                step=step + 1, loss=loss, grad_norm=norm, seconds=seconds, predicted_s=predicted_s, is_saved=is_saved
            )
            if is_last:
                break
        self._links.close()

    def predict(self) -> float:
        """Seconds of an iteration without its update: the lists simulated with what parts and actions take here, all
        ranks at work. Nothing is changed by it.
        """
        timed = TimedParts(self._runner)
        executor = self._executor(timed)
        began_s = 0.0
        for _ in range(2):  # the first one warms up
            timed.seconds.clear()
            began_s = time.process_time()
            executor.step(make_batch(self._setup.execution, self._first, self._data.batch(self._first)))
        own_s = time.process_time() - began_s - sum(map(sum, timed.seconds.values()))
        sums = torch.zeros(2, len(self._setup.execution.parts) + 1, dtype=torch.float64)
        for part, seconds in timed.seconds.items():
            sums[:, part] = torch.tensor([sum(seconds), float(len(seconds))])
        sums[:, -1] = torch.tensor([max(0.0, own_s), float(len(self._setup.execution.ranks[self._rank].actions))])
        self._links.add_up_everywhere(sums)
        *parts, action_s = (sums[0] / sums[1].clamp(min=1)).tolist()
        return simulate(self._setup.execution, ExecutionTimes(parts=tuple(parts), action_s=action_s)).iteration_s

    def _executor(self, runner: PartRunner) -> Executor:
        return Executor(
            self._setup.execution,
            self._rank,
            self._cuts,
            runner=runner,
            links=self._links,
            state=self._state,
            gradients=self._gradients,
            seed=self._setup.job.seed,
        )

    @torch.no_grad()
    def _step(self, executor: Executor, step: int) -> tuple[float, float, bool]:
        loss = executor.step(make_batch(self._setup.execution, step, self._data.batch(step)))
        squares = [self._gradients.by_name[name].double().square().sum() for name in self._owned]
        sums = torch.stack([loss, sum(squares, torch.zeros((), dtype=torch.float64)), torch.zeros_like(loss)])
        sums[2] = float(self._should_stop())
        self._links.add_up_everywhere(sums)
        total, square, stops = sums.tolist()
        if not (isfinite(total) and isfinite(square)):
            raise FailedPreconditionError(
                f"Step {step + 1}: the loss is {total}, and the gradient's square {square}.",
                hint="Lower optimizer.rate or set optimizer.clip.",
                field="loss",
            )
        self._optimizer.step(step, sqrt(square))
        return total, sqrt(square), stops > 0

    def _save(self, step: int) -> None:
        own = {name: self._state[name] for name in self._state if name in self._owned or name in self._buffers}
        state = self._optimizer.state()
        kept = {key: value for key, value in state.items() if key.partition("/")[2] in self._owned}
        self._checkpoints.write(step, self._rank, own, kept)
        self._links.wait_for_all()
        if self._rank == 0:
            job = self._setup.job
            self._checkpoints.commit(CheckpointFacts(step=step, seed=job.seed, batch=job.batch, model=job.model))
        self._links.wait_for_all()

    @property
    def _buffers(self) -> set[str]:
        return set(self._state) - set(self._parameters)


def _groups(execution: Execution) -> list[tuple[int, ...]]:
    actions = (action for each in execution.ranks for action in each.actions)
    return sorted({action.ranks for action in actions if action.kind is ActionKind.REDUCE})


def _read(cuts: StepParts, part: StagePart) -> list[str]:
    return [cuts.names[number] for number in part.cut.reads if number < len(cuts.names)]


def _owned(execution: Execution, rank: int) -> set[str]:
    """Parameters of which this rank is the first that holds them."""
    first: dict[str, int] = {}
    for stage in execution.stages:
        for name in stage.parameters:
            first[name] = min(first.get(name, stage.ranks[0]), *stage.ranks)
    return {name for name, owner in first.items() if owner == rank}
