"""What ranks that share operators compute together is what the part computes: all of a step's parts, run by threads."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from headway.core.device_mesh import DeviceMesh
from headway.core.errors import FailedPreconditionError
from headway.core.execution.execution import ActionKind, StageSpec
from headway.core.execution.parts import StageOperators, cut_stages
from headway.core.execution.sharded import step_parts, unshared_operators
from headway.core.execution.shared_operators import SharedOperators
from headway.core.program import Program
from headway.core.training_run import plan_stages
from headway.programs.module import build_module
from headway.train.links import Links
from headway.train.team import Team
from tests.planner.certify.planned import cluster_of, mesh_of, plan_of
from tests.train.models import Branches, Gpt, inputs
from tests.train.plans import plan_of_stages
from tests.train.runs import Captured, captured

CPU = torch.device("cpu")
COUNT = 4
MESHES = {"1x2": mesh_of(1, 2, 1, 2), "2x2": mesh_of(1, 4, 2, 2), "1x4": mesh_of(1, 4, 1, 4)}


class Meeting:
    """Hands tensors between the threads of a row."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=60)
        self._given: dict[int, object] = {}

    def exchanged(self, place: int, value: object) -> list[object]:
        self._given[place] = value
        self._barrier.wait()
        found = [self._given[each] for each in sorted(self._given)]
        self._barrier.wait()
        return found


class ThreadLinks:
    """The moves of one thread."""

    def __init__(self, rank: int, meetings: dict[tuple[int, ...], Meeting], lock: threading.Lock) -> None:
        self._rank, self._meetings, self._lock = rank, meetings, lock

    def gather_row(self, tensor: Tensor, row: tuple[int, ...]) -> list[Tensor]:
        return cast("list[Tensor]", self._exchanged(tensor.clone(), row))

    def add_up_row(self, tensor: Tensor, row: tuple[int, ...]) -> Tensor:
        return torch.stack(self.gather_row(tensor, row)).sum(0)

    def add_up_own(self, parts: Sequence[Tensor], row: tuple[int, ...]) -> Tensor:
        return self.exchange_row(parts, row).sum(0)

    def exchange_row(self, parts: Sequence[Tensor], row: tuple[int, ...]) -> Tensor:
        given = cast("list[Sequence[Tensor]]", self._exchanged(parts, row))
        return torch.stack([each[row.index(self._rank)] for each in given])

    def _exchanged(self, value: object, row: tuple[int, ...]) -> list[object]:
        with self._lock:
            meeting = self._meetings.setdefault(row, Meeting(len(row)))
        return meeting.exchanged(row.index(self._rank), value)


def run_parts(step: Captured, stage: StageSpec, values: dict[int, Tensor]) -> int:
    """Runs all parts as wholes and in threads, and compares them; the number of moves."""
    program = step.programs[stage.examples]
    operators = [StageOperators(forward=stage.forward, backward=stage.backward, recomputes=stage.recomputes)]
    whole, local = (
        cut_stages(program, operators, splits=False),
        step_parts(program, [stage], stage.examples, splits=False),
    )
    assert stage.sharding is not None
    shared = SharedOperators(program, stage.sharding, whole.parts, {*whole.losses, *whole.seeds})
    meetings: dict[tuple[int, ...], Meeting] = {}
    lock = threading.Lock()
    links = [cast("Links", ThreadLinks(rank, meetings, lock)) for rank in stage.team(0)]
    teams = [Team(stage, rank, each) for rank, each in zip(stage.team(0), links, strict=True)]
    ((loss,), (seed,)) = whole.losses, whole.seeds
    values[seed] = torch.ones((), dtype=getattr(torch, program.value(loss).dtype))
    for each, own in zip(whole.parts, local.parts, strict=True):
        results = build_module(each.cut.program, CPU).forward(*(values[n] for n in each.cut.reads))
        made = dict(zip(each.writes, results, strict=False))

        given = [[team.own(values[n], shared.slot(n).spec) for n in own.cut.reads] for team in teams]
        modules = [build_module(own.cut.program, CPU, team.functions()) for team in teams]
        with ThreadPoolExecutor(len(teams)) as pool:
            found = list(pool.map(lambda module, values: module(*values), modules, given))
        for number, wanted in made.items():
            for team, results_of in zip(teams, found, strict=True):
                close(results_of[each.writes.index(number)], team.own(wanted, shared.slot(number).spec))
        for at, name in enumerate(each.gradients, start=len(each.writes)):
            spec = stage.sharding.parameter(name)
            tiles = [stage.sharding.tile(name, member) for member in range(len(teams))]
            for team, tile in zip(teams, tiles, strict=True):
                terms = [result[at] for result, other in zip(found, tiles, strict=True) if other == tile]
                close(torch.stack(list(terms)).sum(0), team.own(results[at], spec))
        values |= made
    return sum(i.target.startswith("headway.") for part in local.parts for i in part.cut.program.instructions)


def close(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-11)


def inputs_of(step: Captured, program: Program, count: int) -> dict[int, Tensor]:
    state = dict(step.model.named_parameters()) | dict(step.model.named_buffers())
    given = {**{name: each.detach() for name, each in state.items()}, **inputs(step.model, count)}
    return {number: given[name] for number, name in enumerate(program.names)}


@pytest.fixture(scope="module", params=[Gpt, Branches], ids=["gpt", "branches"])
def step(request: pytest.FixtureRequest) -> Captured:
    make: Callable[[], nn.Module] = request.param
    return captured(make(), (COUNT // 2, COUNT))


@pytest.mark.parametrize("mesh", MESHES.values(), ids=MESHES)
@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
def test_parts_of_a_team_are_the_parts_as_wholes(mesh: DeviceMesh, recomputes: bool, step: Captured) -> None:
    plan = plan_of(step.graph, cluster_of(1, 4), meshes=[mesh], num_micro_batches=2, layers=2 if recomputes else 0)
    (stage,) = plan_stages(plan, step.graph)
    assert stage.recomputes == recomputes
    kinds = {
        part.kind for part in step_parts(step.programs[stage.examples], [stage], stage.examples, splits=False).parts
    }
    assert (ActionKind.RECOMPUTE in kinds) == recomputes
    assert run_parts(step, stage, inputs_of(step, step.programs[stage.examples], stage.examples)) > 0


def test_what_a_plan_splits_and_no_rule_does_is_told() -> None:
    """A loss that is a mean over examples is computed as a whole; products never are."""
    step = captured(Gpt(), (COUNT,))
    plan = plan_of(step.graph, cluster_of(1, 4), meshes=[MESHES["1x2"]], num_micro_batches=2)
    (stage,) = plan_stages(plan, step.graph)
    found = {operator for _, operator in unshared_operators(step.programs[COUNT], [stage], COUNT)}
    assert "nll_loss_forward" in found
    assert not any("mm" in operator for operator in found)


def test_a_plan_that_shards_gradients_is_refused_by_its_stage_and_runs_where_the_job_says_less() -> None:
    step = captured(Gpt(), (COUNT // 2,))
    plan = plan_of_stages(step, ["mesh: 1x1", "mesh: 1x1"])
    shards = tuple(replace(each, zero_stage=2) for each in plan.stages[1].parameters)
    given = replace(plan, stages=(plan.stages[0], replace(plan.stages[1], parameters=shards)))
    with pytest.raises(FailedPreconditionError, match=r"Stage 1 shards its gradients or weights \(ZeRO stage 2\)"):
        plan_stages(given, step.graph)
    assert [each.shards_update for each in plan_stages(given, step.graph, zero=1)] == [True, True]
