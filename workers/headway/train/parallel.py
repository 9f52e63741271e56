"""A user's own module, run by a training plan inside the user's own loop.

By itself the module's process runs the whole plan, micro-batch after micro-batch; under a launcher that sets RANK and
WORLD_SIZE, such as torchrun, each process runs its rank's stages.
"""

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree as pytree

from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.execution.certifier import certify
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.orders import stage_orders
from headway.core.execution.slices import slice_step
from headway.core.graph import Graph
from headway.core.plan.document import Plan
from headway.core.plan.training import TrainingPlan
from headway.core.program import Program
from headway.core.training_run import plan_stages, slice_stages
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.mean_loss import check_mean_loss
from headway.profiler.capture.program import build_program, check_constants
from headway.profiler.capture.tokens import first_tokens
from headway.profiler.capture.trace import trace
from headway.train.batch import make_batch
from headway.train.device import CPU
from headway.train.executor import Executor
from headway.train.gradients import Gradients, reduce_groups
from headway.train.links import Links
from headway.train.parts import ComputingParts, stage_cuts
from headway.train.team import all_rows, teams_of

_PLANNED_BATCH = 2
_TIMEOUT_S = 60.0


def parallelize(
    module: nn.Module,
    plan: Plan,
    inputs: Sequence[torch.Tensor],
    *,
    schedule: str = "1f1b",
    seed: int = 0,
    timeout_s: float = _TIMEOUT_S,
) -> "ParallelModule":
    """Captures a module and runs it by a plan that was made of the same code.

    Args:
        module: gives its loss, one number, the mean over its examples. Its parameters are trained in place, on the
            device that they are on.
        plan: as `headway plan train` makes it and `headway.read_plan` reads it.
        inputs: of the module, with examples along dim 0; how many does not matter.
        schedule: the order of forward and backward passes.
        seed: of everything random in the module.
        timeout_s: a rank that gives no answer for so long fails the step.

    Raises:
        InvalidArgumentError: the module cannot be captured, its loss is no mean over its examples, or the plan is not
            of its operators or of training.
        FailedPreconditionError: there are not as many processes as the plan has devices, or it has what workers cannot
            run.
    """
    if not isinstance(plan, TrainingPlan):
        raise InvalidArgumentError(
            f"A {type(plan).__name__} trains nothing.", hint="Make one with `headway plan train`.", field="plan"
        )
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if world not in (1, plan.cluster.num_devices):
        raise FailedPreconditionError(
            f"The plan is for {plan.cluster.num_devices} devices, and there are {world} processes.",
            hint="Launch as many, or one for all.",
            field="plan",
        )
    check_mean_loss(module, inputs, field="module")
    graph, first = _captured(module, inputs, _PLANNED_BATCH)
    stages = tuple(map(_with_whole_parameters, plan_stages(plan, graph, zero=0)))
    successors: Sequence[Sequence[int]] = plan.successors
    by_slice = [tuple(map(_with_whole_parameters, each)) for each in slice_stages(plan, graph, zero=0)]
    if world == 1:
        stages, successors = (_together(stages),), ((),)
        by_slice = [(_together(each),) for each in by_slice]
    programs = {
        count: first if count == _PLANNED_BATCH else _captured(module, inputs, count)[1]
        for count in sorted({stage.examples for stage in stages})
    }
    num_slices = len(plan.slices) or 1
    orders = stage_orders(schedule, stages, successors, batch=plan.batch, num_slices=num_slices)
    sums_losses = False
    if plan.slices:
        sliced = {
            count: slice_step(
                whole,
                {tokens: _captured(module, inputs, count, tokens)[1] for tokens in sorted(set(plan.slices))},
                plan.slices,
            )
            for count, whole in programs.items()
        }
        programs = {count: each.program for count, each in sliced.items()}
        one = next(iter(sliced.values()))
        stages, sums_losses = one.stages(by_slice), one.sums_losses
    execution = compile_execution(
        programs, stages, orders, batch=plan.batch, splits=False, slices=plan.slices, sums_losses=sums_losses
    )
    faults = certify(execution).faults
    assert not faults, f"the compiler makes lists that are right: {faults[0]}"
    device = next((each.device for each in module.parameters()), CPU)
    links = _links(execution, timeout_s, device)
    return ParallelModule(module, execution, programs, rank=rank, links=links, seed=seed)


class ParallelModule:
    """A module that computes losses and gradients by a plan; made by `parallelize`.

    Attributes:
        execution: the lists of all ranks.
        rank: this process's.
    """

    def __init__(
        self,
        module: nn.Module,
        execution: Execution,
        programs: Mapping[int, Program],
        *,
        rank: int,
        links: Links,
        seed: int,
    ) -> None:
        self.execution, self.rank = execution, rank
        self._links, self._step = links, 0
        cuts = stage_cuts(execution, programs, rank)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        program = next(iter(programs.values()))
        self._names = [name for name in program.names if name not in tensors]
        own = {name for number in cuts for name in execution.stages[number].parameters}
        self._parameters = {name: each for name, each in module.named_parameters() if name in own}
        state = {name: tensor.detach() for name, tensor in tensors.items()}
        device = links.device
        self._gradients = Gradients(execution, rank, {name: state[name] for name in self._parameters}, device=device)
        self._executor = Executor(
            execution,
            rank,
            cuts,
            runner=ComputingParts(
                execution, cuts, sums=self._gradients.by_name, teams=teams_of(execution, rank, links), device=device
            ),
            links=links,
            state=state,
            gradients=self._gradients,
            seed=seed,
        )

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those that this process holds: what an optimizer of the user's gets."""
        return iter(self._parameters.values())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The same, by their names in the module."""
        return iter(self._parameters.items())

    @torch.no_grad()
    def step(self, *inputs: torch.Tensor) -> float:
        """Computes the loss of a whole batch, the same on all processes, and sets the `grad` of this one's parameters.

        Args:
            inputs: the whole batch on every process, in the order of the module's arguments.

        Raises:
            InvalidArgumentError: there are not as many, or not so many examples.
            UnavailableError: another process gives no answer.
        """
        if len(inputs) != len(self._names):
            raise InvalidArgumentError(
                f"The module has {len(self._names)} inputs, and {len(inputs)} are given.",
                hint=f"Give {', '.join(self._names)}.",
                field="inputs",
            )
        batch = make_batch(self.execution, self._step, dict(zip(self._names, inputs, strict=True)))
        loss = self._executor.step(batch.on(self._links.device))
        self._links.add_up_everywhere(loss)
        for name, parameter in self._parameters.items():
            parameter.grad = self._gradients.by_name[name]
        self._step += 1
        return float(loss)

    def close(self) -> None:
        """Leaves the other processes."""
        self._links.close()


def _captured(
    module: nn.Module, inputs: Sequence[torch.Tensor], count: int, tokens: int | None = None
) -> tuple[Graph, Program]:
    """The step with so many examples, which are those given, again and again, or the first tokens of these."""
    rows = torch.arange(count)
    given = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[rows % len(tensor)], tuple(inputs))
    given = given if tokens is None else first_tokens(given, tokens)
    traced = trace(copy.deepcopy(module), given, train=True, report=lambda _: None)
    check_constants(traced)
    return build_graph(traced, name=type(module).__name__, is_training=True, batch=count), build_program(traced)


def _together(stages: Sequence[StageSpec]) -> StageSpec:
    """All stages as one, on one rank, with the smallest of their micro-batches."""
    return replace(
        stages[0],
        forward=tuple(name for stage in stages for name in stage.forward),
        backward=tuple(name for stage in stages for name in stage.backward),
        ranks=(0,),
        micro_batch=min(stage.examples for stage in stages),
        recomputes=all(stage.recomputes for stage in stages),
        zero=0,
        sharding=None,
    )


def _with_whole_parameters(stage: StageSpec) -> StageSpec:
    """The module's parameters are whole on each rank, also where several share operators."""
    return stage if stage.sharding is None else replace(stage, sharding=replace(stage.sharding, parameters=()))


def _links(execution: Execution, timeout_s: float, device: torch.device) -> Links:
    if dist.is_initialized():
        raise FailedPreconditionError(
            "torch.distributed is initialized already.", hint="Let parallelize do that, before anything else does."
        )
    groups, rows = reduce_groups(execution), all_rows(execution)
    if "WORLD_SIZE" in os.environ:
        shared, rank, world = next(dist.rendezvous("env://"))
        number = shared.add(f"headway/{rank}", 1)  # the same on all ranks, which make their modules in one order
        store = dist.PrefixStore(f"headway/module {number}", shared)
        return Links(rank, world, store=store, groups=groups, rows=rows, timeout_s=timeout_s, device=device)
    return Links(0, 1, store=dist.HashStore(), groups=groups, timeout_s=timeout_s, device=device)
