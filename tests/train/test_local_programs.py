"""What ranks that share operators compute together is what the part computes: all of a step's parts, run by threads."""

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import prod
from typing import cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from headway.core.device_mesh import DeviceMesh
from headway.core.execution.execution import ActionKind, StageSpec
from headway.core.execution.parts import StageOperators, cut_stages
from headway.core.execution.sharded import step_parts, unshared_operators
from headway.core.execution.sharding import SplitOperator, StageSharding, TensorTile
from headway.core.execution.shared_operators import SharedOperators
from headway.core.program import Program
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.core.training_run import plan_stages
from headway.programs.module import build_module
from headway.train.links import Links
from headway.train.team import Team
from tests.planner.certify.planned import cluster_of, mesh_of, plan_of
from tests.train.models import SEQ, Branches, Gpt, inputs
from tests.train.plans import plan_of_stages
from tests.train.runs import Captured, captured, stages_of

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

    device = torch.device("cpu")

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


def _binary(scores: Tensor, response: Tensor, *, reduction: str) -> Tensor:
    return functional.binary_cross_entropy(scores.sigmoid(), response.sigmoid(), reduction=reduction)


def _mean(scores: Tensor, response: Tensor, *, reduction: str) -> Tensor:
    squares = (scores - response) ** 2
    return squares.mean() if reduction == "mean" else squares.sum()


class Regression(Branches):
    """Both branches' sums, with some loss."""

    def __init__(self, loss: Callable[..., Tensor], reduction: str) -> None:
        super().__init__()
        self.loss, self.reduction = loss, reduction

    def forward(self, features: Tensor, entries: Tensor, response: Tensor) -> Tensor:
        both = self.join(self.dense(features), self.sparse(self.bag(entries).flatten(1)))
        return self.loss(self.top(both), response, reduction=self.reduction)


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


def _cut_everywhere(step: Captured, stage: StageSpec, size: int, mesh: tuple[int, ...]) -> StageSpec:
    """Operators cut along the dim of some size of what they read or make, and parameters too.

    Args:
        mesh: whose last axis cuts so; the first of two cuts examples.
    """
    program, names = step.programs[COUNT], {*stage.forward, *stage.backward}
    examples = (COUNT, COUNT * SEQ)

    def spec(shape: Sequence[int], *, rows: bool = True) -> ShardingSpec:
        dim = next((Shard(at) for at, length in enumerate(shape) if length == size), None)
        is_cut = rows and len(mesh) > 1 and bool(shape) and shape[0] in examples
        return ShardingSpec((*([Shard(0) if is_cut else None] * (len(mesh) - 1)), dim))

    def tile(number: int) -> TensorTile:
        """Of the tensor that a value is a view of."""
        while (at := number - len(program.inputs)) >= 0 and (view := program.instructions[at]).is_view:
            source = program.references(at)[0]
            if view.target == "getitem" and not program.instructions[source - len(program.inputs)].is_view:
                name = f"{program.name_of(source)}.{json.loads(view.arguments)['args'][1]}"
                return TensorTile(tensor=name, spec=spec(view.results[0].shape))
            number = source
        return TensorTile(tensor=program.name_of(number), spec=spec(program.value(number).shape))

    operators = []
    for at, each in enumerate(program.instructions):
        if each.name in names and not each.is_view:
            tiles = [tile(number) for number in program.references(at)]
            known = any(each.spec.axes[-1] for each in tiles)
            makes = None if known else spec(each.results[0].shape, rows=False)
            operators.append(SplitOperator(operator=each.name, reads=tuple(tiles), makes=makes))
    state = dict(step.model.named_parameters())
    parameters = tuple(TensorTile(tensor=name, spec=spec(each.shape, rows=False)) for name, each in state.items())
    return replace(stage, sharding=StageSharding(mesh=mesh, operators=tuple(operators), parameters=parameters))


@pytest.fixture(scope="module")
def vocabulary() -> Captured:
    return captured(Gpt(vocabulary=32), (COUNT,))


@pytest.mark.parametrize(("mesh", "is_padded"), [((2,), False), ((4,), True), ((2, 2), False), ((2, 2), True)])
def test_a_vocabulary_is_cut_by_its_rows_from_the_table_to_the_loss(
    mesh: tuple[int, ...], is_padded: bool, vocabulary: Captured
) -> None:
    """The embedding, the scores, their softmax, the loss and all gradients: what devices hand each other has no
    vocabulary (Megatron-LM)."""
    step = vocabulary
    (stage,) = stages_of(step.graph, lambda _: 0, [tuple(range(prod(mesh)))], [COUNT])
    made = _cut_everywhere(step, stage, 32, mesh)
    program = step.programs[COUNT]
    values = {**inputs_of(step, program, COUNT)}
    if is_padded:
        targets = values[program.names.index("targets")]
        targets[0, 3:] = -100
    assert run_parts(step, made, values) > 0
    whole = {name for _, name in unshared_operators(program, [made], COUNT)}
    assert not any(word in name for name in whole for word in ("mm", "softmax", "nll", "embedding")), whole
    for part in step_parts(program, [made], COUNT, splits=False).parts:
        moved = [each for each in part.cut.program.instructions if each.target.startswith("headway.")]
        sizes = {value.shape for each in moved for value in each.results if 32 in value.shape}
        assert not sizes, "scores and the table stay where they are"


@pytest.mark.parametrize(
    ("loss", "reduction"),
    [
        (functional.mse_loss, "mean"),
        (functional.smooth_l1_loss, "mean"),
        (functional.huber_loss, "sum"),
        (_binary, "mean"),
        (_mean, "mean"),
    ],
)
def test_losses_of_elements_are_added_up(loss: Callable[..., Tensor], reduction: str) -> None:
    torch.manual_seed(0)
    step = captured(Regression(loss, reduction), (COUNT,))
    (stage,) = stages_of(step.graph, lambda _: 0, [(0, 1)], [COUNT])
    made = _cut_everywhere(step, stage, COUNT, (2,))
    made = replace(made, sharding=replace(_sharding_of(made), parameters=()))
    program = step.programs[COUNT]
    assert run_parts(step, made, inputs_of(step, program, COUNT)) > 0
    found = {name for _, name in unshared_operators(program, [made], COUNT)}
    assert not any("loss" in name or "binary" in name or "mean" in name for name in found), found


def _sharding_of(stage: StageSpec) -> StageSharding:
    assert stage.sharding is not None
    return stage.sharding


def test_what_a_plan_splits_and_no_rule_does_is_told() -> None:
    """Dropout draws its numbers for all."""
    step = captured(Gpt(dropout=0.1), (COUNT,))
    (stage,) = stages_of(step.graph, lambda _: 0, [(0, 1)], [COUNT])
    made = _cut_everywhere(step, stage, COUNT, (2,))
    found = {operator for _, operator in unshared_operators(step.programs[COUNT], [made], COUNT)}
    assert any("bernoulli" in operator or "dropout" in operator for operator in found), found


def test_a_stage_shares_as_much_as_any_of_its_parameters_in_the_plan() -> None:
    step = captured(Gpt(), (COUNT // 2,))
    plan = plan_of_stages(step, ["mesh: 1x1, zero: 1", "mesh: 1x1, zero: 1"])
    first, *others = plan.stages[1].parameters
    shards = (replace(first, zero_stage=3), *others)
    given = replace(plan, stages=(plan.stages[0], replace(plan.stages[1], parameters=shards)))
    assert [each.zero for each in plan_stages(given, step.graph)] == [1, 3]
    assert [each.zero for each in plan_stages(given, step.graph, zero=2)] == [2, 2]
