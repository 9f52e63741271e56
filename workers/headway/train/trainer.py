"""One rank of a training run: the loop over steps."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite, sqrt

import torch
import torch.distributed as dist

from headway.checkpoint.tensors import read_tensors
from headway.core.codec import to_document
from headway.core.errors import FailedPreconditionError, UnavailableError
from headway.core.execution.execution import RUNS, Execution
from headway.core.execution.forward import forward_execution
from headway.core.execution.parts import StagePart, StepParts
from headway.core.execution.simulator import ExecutionTimes, Span, simulate
from headway.core.execution.specs import parameter_holders
from headway.core.program import Value
from headway.core.training_run import CHECKPOINTS_DIRECTORY, INITIAL_FILE, RankTrace, StepReport, trace_file
from headway.train.batch import Batch, make_batch
from headway.train.checkpoint import CheckpointFacts, Checkpoints
from headway.train.clock import clock_of
from headway.train.data import open_data
from headway.train.device import CPU
from headway.train.executor import Executor
from headway.train.gradients import Gradients, reduce_groups
from headway.train.links import Links
from headway.train.optimizer import Optimizer
from headway.train.parts import ComputingParts, PartRunner, TimedParts, stage_cuts
from headway.train.saving import Saver
from headway.train.setup import Setup
from headway.train.shard import PIECE
from headway.train.sharded_parameter import sharded_parameters, sharing_functions
from headway.train.team import all_rows, teams_of
from headway.train.tiles import Shared, Tiles
from headway.train.validation import Validation

_WARM_UP = {"cpu": 1, "cuda": 4}
"""Iterations before the one that is timed, by the type of device; a GPU that did nothing raises its clocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Attributes:
    iteration_s: without its update.
    bubble: the share of the ranks' time in which they run no part.
    times: that it was simulated with.
    """

    iteration_s: float = 0.0
    bubble: float = 0.0
    times: ExecutionTimes = field(default_factory=lambda: ExecutionTimes(parts=()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A step that was done; `update_s` is when its update began."""

    loss: float
    norm: float
    stops: bool
    bubble: float
    began_s: float
    update_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


class Trainer:
    """Args:
    should_stop: asked in each step; once any rank says so, all end behind the same step.
    device: that this rank computes on.
    """

    def __init__(
        self,
        setup: Setup,
        rank: int,
        *,
        store: dist.Store,
        should_stop: Callable[[], bool],
        blocks: bool = False,
        device: torch.device = CPU,
    ) -> None:
        job, execution = setup.job, setup.execution
        self._setup, self._rank, self._should_stop = setup, rank, should_stop
        self._device, self._clock = device, clock_of(device)
        kept = job.checkpoint
        checkpoints = Checkpoints(setup.directory / CHECKPOINTS_DIRECTORY, keep=kept.keep, best=kept.best)
        self._links = Links(
            rank,
            len(execution.ranks),
            store=store,
            groups=reduce_groups(execution),
            rows=all_rows(execution),
            timeout_s=job.timeout_s,
            blocks=blocks,
            device=device,
        )
        each_flops = setup.gpu_flops if device.type == "cuda" else setup.thread_flops * torch.get_num_threads()
        self._peak_flops = each_flops * self._links.num_devices
        self._teams = teams_of(execution, rank, self._links)
        self._tiles = Tiles(execution, self._teams)
        cuts = stage_cuts(execution, setup.programs, rank)
        latest = checkpoints.latest()
        given = read_tensors([setup.directory / INITIAL_FILE]) if latest is None else latest.state()
        read = {(part.stage, n) for cut in cuts.values() for part in cut.parts for n in _read(cut, part)}
        idle = set(given) - {name for _, name in read} if rank == 0 else set()
        names = {name for stage, name in read if stage in cuts} | idle  # what nothing reads is kept by rank 0
        trained = {name for number in cuts for name in execution.stages[number].parameters}
        dtypes = setup.dtypes
        own = {name: self._tiles.own(name, given[name]) for name in sorted(names & given.keys())}
        self._sharded = sharded_parameters(execution, rank, own, device)
        of_gradients = {name: own[name] for name in sorted(trained)}
        of_gradients |= {name: each.part for name, each in self._sharded.items()}
        self._gradients = Gradients(execution, rank, of_gradients, device=device)
        held = {name: each.held for name, each in self._sharded.items()}
        for shard in self._gradients.shards:
            held |= shard.parameters
        self._masters = {name: held[name] if name in held else each.to(device, copy=True) for name, each in own.items()}
        self._state = {name: each.to(dtypes.get(name, each.dtype)) for name, each in self._masters.items()}
        self._parameters = {name: self._masters[name] for name in sorted(trained)}
        self._owned, self._kept = _first_of(execution, rank)
        changed, self._changes = self._changed()
        self._optimizer = Optimizer(job.optimizer, changed, self._changes, num_steps=job.steps)
        self._first = 0
        if latest is not None:
            self._first = latest.facts.step
            self._optimizer.restore(self._tiles.own_state(latest.optimizer(), given))
        inputs = setup.inputs(set(given))
        self._data = open_data(job.data, inputs, batch=job.batch, seed=job.seed)
        self._functions = sharing_functions(self._sharded, self._links)
        self._runner: PartRunner = ComputingParts(
            execution, cuts, sums=self._gradients.by_name, teams=self._teams, functions=self._functions, device=device
        )
        self._cuts = cuts
        self._saver = Saver(checkpoints, kept, rank, self._links)
        self._validation = self._validated(inputs)
        self._phase = "the iterations that are timed before the first step"

    def run(self) -> Iterator[StepReport]:
        """Trains to the last step, or to the one behind which it is to stop; the caller takes all reports.

        Raises:
            FailedPreconditionError: the loss is no finite number, or a checkpoint cannot be written.
            UnavailableError: another rank gives no answer; says who waited for it, in which step.
        """
        try:
            yield from self._reports()
        except UnavailableError as error:
            raise UnavailableError(f"Rank {self._rank} in {self._phase}: {error.message}", hint=error.hint) from error

    def _reports(self) -> Iterator[StepReport]:
        job = self._setup.job
        timed = TimedParts(self._runner, self._clock)
        executor = self._executor(timed)
        predicted = self._predict(executor, timed) if self._first < job.steps else Prediction()
        for step in range(self._first, job.steps):
            self._phase = f"step {step + 1}"
            timed.begin()
            done = self._step(executor, timed, step)
            is_last = done.stops or step + 1 == job.steps
            validation_loss = self._validate(step + 1, is_last=is_last)
            is_saved = self._saver.is_due(step + 1, validation_loss) or is_last
            if self._is_traced(step):
                self._trace(step + 1, timed, done, predicted.times)
            if is_saved:
                self._save(step + 1, validation_loss)
            if is_last:
                self._saver.finish()
            yield StepReport(
                step=step + 1,
                loss=done.loss,
                grad_norm=done.norm,
                seconds=done.seconds,
                predicted_s=predicted.iteration_s,
                is_saved=is_saved,
                validation_loss=validation_loss,
                tokens_s=job.batch * self._setup.num_tokens / done.seconds,
                mfu=self._setup.flops / (done.seconds * self._peak_flops) if self._peak_flops else 0.0,
                bubble=done.bubble,
                predicted_bubble=predicted.bubble,
            )
            if is_last:
                break
        self._links.close()

    def _predict(self, executor: Executor, timed: TimedParts) -> "Prediction":
        """An iteration without its update: the lists simulated with what parts and actions take here, all ranks at
        work. Nothing is changed by it.
        """
        began_s = 0.0
        for _ in range(_WARM_UP[self._device.type] + 1):
            timed.begin()
            began_s = time.process_time()
            executor.step(self._batch(self._first))
        own_s = time.process_time() - began_s - timed.host_s
        sums = torch.zeros(2, len(self._setup.execution.parts) + 1, dtype=torch.float64)
        for part, start_s, end_s in timed.runs:
            sums[:, part] += torch.tensor([end_s - start_s, 1.0])
        sums[:, -1] = torch.tensor([max(0.0, own_s), float(len(self._setup.execution.ranks[self._rank].actions))])
        sums = sums.to(self._device)
        self._links.add_up_everywhere(sums)
        *parts, action_s = (sums[0] / sums[1].clamp(min=1)).tolist()
        times = ExecutionTimes(parts=tuple(parts), action_s=action_s)
        simulated = simulate(self._setup.execution, times)
        bubble = 1 - sum(simulated.busy_s) / (len(simulated.busy_s) * simulated.iteration_s)
        return Prediction(iteration_s=simulated.iteration_s, bubble=bubble, times=times)

    def _is_traced(self, step: int) -> bool:
        every = self._setup.job.trace_every
        return every > 0 and (step - self._first) % every == min(1, every - 1)

    def _trace(self, step: int, timed: TimedParts, done: "_Done", times: ExecutionTimes) -> None:
        actions = self._setup.execution.ranks[self._rank].actions
        places = [at for at, action in enumerate(actions) if action.kind in RUNS]
        zero_s = time.time() - time.monotonic()  # machines have their monotonic clocks each from its own start on
        runs = [(at, start_s, end_s) for at, (_, start_s, end_s) in zip(places, timed.runs, strict=True)]
        spans = [
            Span(rank=self._rank, at=at, start_s=zero_s + start_s, end_s=zero_s + end_s)
            for at, start_s, end_s in [*runs, (len(actions) - 1, done.update_s, done.ended_s)]
        ]
        trace = RankTrace(
            rank=self._rank,
            step=step,
            began_s=zero_s + done.began_s,
            ended_s=zero_s + done.ended_s,
            spans=tuple(spans),
            times=times,
        )
        path = self._setup.directory / trace_file(self._rank)
        path.with_suffix(".tmp").write_text(json.dumps(to_document(trace)))
        path.with_suffix(".tmp").rename(path)

    def _changed(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """What this rank changes, and its gradients: whole parameters, and pieces of those that ranks share."""
        shared = {name for shard in self._gradients.shards for name in shard.parameters} | self._sharded.keys()
        changed = {name: each for name, each in self._parameters.items() if name not in shared}
        gradients = {name: self._gradients.by_name[name] for name in changed}
        for shard in self._gradients.shards:
            for name, piece, gradient in shard.pieces():
                changed[name], gradients[name] = piece, gradient
        for name, each in self._sharded.items():
            for key, piece, gradient in each.pieces(self._gradients.by_name[name]):
                changed[key], gradients[key] = piece, gradient
        return changed, gradients

    def _counts(self, name: str) -> bool:
        """Whether a gradient is this rank's to count, of all that hold it."""
        return name in self._owned or PIECE in name

    def _keeps(self, name: str) -> bool:
        """Whether a checkpoint has this rank's state of a parameter."""
        return name in self._kept or PIECE in name

    def _validated(self, inputs: Mapping[str, Value]) -> Validation | None:
        """What validates the model; None where the job has no data for it."""
        job, settings = self._setup.job, self._setup.job.validation
        if settings is None:
            return None
        lists = forward_execution(self._setup.execution)
        data = open_data(settings.data, inputs, batch=job.batch, seed=job.seed)
        batches = [make_batch(lists, number, data.batch(number)).on(self._device) for number in range(settings.batches)]
        runner = ComputingParts(
            lists, self._cuts, sums={}, teams=self._teams, functions=self._functions, trains=False, device=self._device
        )
        return Validation(self._executor(runner, lists), self._links, batches)

    def _validate(self, step: int, *, is_last: bool) -> float | None:
        settings = self._setup.job.validation
        if self._validation is None or settings is None or (step % settings.every and not is_last):
            return None
        return self._validation.loss()

    def _executor(self, runner: PartRunner, execution: Execution | None = None) -> Executor:
        return Executor(
            execution or self._setup.execution,
            self._rank,
            self._cuts,
            runner=runner,
            links=self._links,
            state=self._state,
            gradients=self._gradients,
            seed=self._setup.job.seed,
        )

    def _batch(self, step: int) -> Batch:
        return make_batch(self._setup.execution, step, self._data.batch(step)).on(self._device)

    @torch.no_grad()
    def _step(self, executor: Executor, timed: TimedParts, step: int) -> "_Done":
        began_s = time.monotonic()
        loss = executor.step(self._batch(step))
        own_changes = (change for name, change in self._changes.items() if self._counts(name))
        squares = [torch.dot(flat, flat).double() for flat in map(torch.flatten, own_changes)]
        square = sum(squares, torch.zeros((), dtype=torch.float64, device=self._device))
        busy_s = timed.busy_s
        own = [self._should_stop(), self._saver.is_written(), busy_s, time.monotonic() - began_s]
        sums = torch.cat([torch.stack([loss, square]), torch.tensor(own, dtype=torch.float64, device=self._device)])
        self._links.add_up_everywhere(sums)
        total, squared, stops, num_written, busy_s, took_s = sums.tolist()
        self._saver.advance(int(num_written))
        if not (isfinite(total) and isfinite(squared)):
            raise self._diverged(step + 1, total)
        update_s = time.monotonic()
        self._optimizer.step(step, sqrt(squared))
        changed = [shard.gather(self._links) for shard in self._gradients.shards]
        changed += [each.gather(self._links) for each in self._sharded.values() if each.keeps_whole]
        for gathered in changed:
            gathered.wait("changed parameters")
        for name, master in self._parameters.items():
            if self._state[name] is not master:
                self._state[name].copy_(master)
        self._clock.wait()
        return _Done(
            loss=total,
            norm=sqrt(squared),
            stops=stops > 0,
            bubble=1 - busy_s / took_s,
            began_s=began_s,
            update_s=update_s,
            ended_s=time.monotonic(),
        )

    def _diverged(self, step: int, loss: float) -> FailedPreconditionError:
        """Names the stages whose gradients are no numbers; all ranks come here together."""
        execution = self._setup.execution
        bad = torch.zeros(len(execution.stages), device=self._device)
        for number in self._cuts:
            gradients = [self._gradients.by_name[name] for name in execution.stages[number].parameters]
            bad[execution.planned_stage(number)] += sum(not bool(gradient.isfinite().all()) for gradient in gradients)
        self._links.add_up_everywhere(bad)
        where = ", ".join(str(number) for number, count in enumerate(bad.tolist()) if count)
        gradients_are = f"gradients of stage {where} are no finite numbers" if where else "their squares are too large"
        return FailedPreconditionError(
            f"Step {step}: the loss is {loss:g}, and {gradients_are}.",
            hint="Lower optimizer.rate or set optimizer.clip; data that is no number does this too.",
            field="loss",
        )

    def _save(self, step: int, validation_loss: float | None) -> None:
        held = {name: each.whole(self._links) for name, each in self._sharded.items()}
        masters = self._tiles.whole(self._masters | held)
        own = {name: each for name, each in masters.items() if name in self._kept or name in self._buffers}
        shared: list[Shared] = [*self._gradients.shards, *self._sharded.values()]
        state = self._tiles.whole_state(self._optimizer.state(), step, self._optimizer.kinds, shared, self._links)
        kept = {key: value for key, value in state.items() if self._keeps(key.partition("/")[2])}
        job = self._setup.job
        facts = CheckpointFacts(
            step=step, seed=job.seed, batch=job.batch, model=job.model, validation_loss=validation_loss
        )
        self._saver.begin(facts, own, kept)

    @property
    def _buffers(self) -> set[str]:
        return set(self._state) - set(self._parameters)


def _read(cuts: StepParts, part: StagePart) -> list[str]:
    return [cuts.names[number] for number in part.cut.reads if number < len(cuts.names)]


def _first_of(execution: Execution, rank: int) -> tuple[set[str], set[str]]:
    """Parameters of which this rank is the first that holds its part, and those of which it is the first at all."""
    groups = parameter_holders(execution.stages)
    own = {name for name, tiles in groups.items() if any(rank == ranks[0] for ranks in tiles)}
    return own, {name for name in own if rank == min(ranks[0] for ranks in groups[name])}
