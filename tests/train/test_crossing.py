"""Values that cross between meshes: what each rank is sent, in how many bytes, and that meshes learn what one process
learns."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headway.core.execution.certifier import certify
from headway.core.execution.crossing import Crossing, Tile
from headway.core.execution.execution import Action, ActionKind, Execution, Slot, StageSpec, ValueSpec
from headway.core.execution.forward import forward_execution
from headway.core.execution.regions import Region, box, copies, is_covered, lengths, num_elements, overlap, split
from headway.core.execution.sharding import SplitOperator, StageSharding, TensorTile
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.execution.tiles import is_possible
from headway.core.graph import dtype_bytes
from headway.core.sharding_spec import Shard, ShardingSpec
from headway.core.training_run import CHECKPOINTS_DIRECTORY
from headway.train.checkpoint import Checkpoints
from tests.train.models import HIDDEN, SEQ, Gpt, gpt_stage
from tests.train.runs import (
    BATCH,
    Captured,
    captured,
    data_of,
    difference,
    execution_of,
    stages_of,
    train_alone,
    train_in_threads,
    write_run,
)
from tests.train.test_exact import SGD
from tests.train.test_tiles import MESH, coordinates, part, specs

COUNT, NUM_STEPS = 2, 8
VALUE_BYTES = BATCH * SEQ * HIDDEN * 8
"""What crosses between two stages in one direction, of a whole batch."""
Cuts = tuple[int | Shard | None, ...]
"""Of each axis of a mesh the dim that it cuts, or how it cuts inside of one."""
Indices = NDArray[np.int64]


@pytest.fixture(scope="module")
def step() -> Captured:
    return captured(Gpt(), (COUNT,))


def _spec(cuts: Cuts) -> ShardingSpec:
    return ShardingSpec(tuple(Shard(each) if isinstance(each, int) else each for each in cuts))


def _crossing(step: Captured, stages: Sequence[StageSpec]) -> list[tuple[int, int, int]]:
    """Hidden states and their gradients that stages hand each other: maker, reader and value."""
    made = _lists(step, stages)
    maker = {value: part.stage for part in made.parts for value in part.writes}
    shapes = {value.number: value.shape for value in made.values}
    found = {(maker[value], part.stage, value) for part in made.parts for value in part.reads}
    return sorted(each for each in found if each[0] != each[1] and shapes[each[2]] == (COUNT, SEQ, HIDDEN))


def _stages(
    step: Captured,
    ranks: Sequence[tuple[int, ...]],
    meshes: Sequence[tuple[int, ...]],
    cuts: Sequence[tuple[Cuts, Cuts]],
) -> list[StageSpec]:
    """Stages of which operators at the edges are split.

    Args:
        meshes: of each stage; empty where each of its ranks has runs of its own.
        cuts: of each stage, how it wants what comes, and how what it makes for others lies.
    """
    sizes = [COUNT * (1 if mesh else len(own)) for mesh, own in zip(meshes, ranks, strict=True)]
    plain = stages_of(step.graph, lambda module: gpt_stage(module, len(ranks)), ranks, sizes)
    teams = [_team(stage, mesh, ()) for stage, mesh in zip(plain, meshes, strict=True)]
    program = step.programs[COUNT]
    splits: dict[int, list[SplitOperator]] = {number: [] for number in range(len(ranks))}
    for maker, reader, value in _crossing(step, teams):
        name = program.name_of(value)
        if meshes[maker]:
            first = program.references(value - len(program.inputs))[0]
            tile = TensorTile(tensor=program.name_of(first), spec=_spec(cuts[maker][1]))
            splits[maker].append(SplitOperator(operator=name, reads=(tile,)))
        if meshes[reader]:
            own = {*plain[reader].forward, *plain[reader].backward}
            read_by = next(
                each.name
                for at, each in enumerate(program.instructions)
                if each.name in own and value in program.references(at)
            )
            tile = TensorTile(tensor=name, spec=_spec(cuts[reader][0]))
            splits[reader].append(SplitOperator(operator=read_by, reads=(tile,)))
    return [_team(stage, mesh, splits[number]) for number, (stage, mesh) in enumerate(zip(plain, meshes, strict=True))]


def _team(stage: StageSpec, mesh: tuple[int, ...], operators: Sequence[SplitOperator]) -> StageSpec:
    return replace(stage, sharding=StageSharding(mesh=mesh, operators=tuple(operators))) if mesh else stage


def _lists(step: Captured, stages: Sequence[StageSpec]) -> Execution:
    return execution_of(step, list(stages), successors=[*((n + 1,) for n in range(len(stages) - 1)), ()])


def _bytes(execution: Execution, source: int, target: int) -> tuple[int, int]:
    """That the ranks of one stage send those of another, and that these gather among themselves."""
    values = execution.values_by_number()
    sides = [set(execution.stages[number].ranks) for number in (source, target)]
    sent = gathered = 0
    for each in execution.ranks:
        for action in each.actions:
            if action.kind is ActionKind.SEND and each.rank in sides[0] and action.peer in sides[1]:
                spec = values[action.slots[0].value]
                sent += num_elements(spec.region(action.slots[0])) * dtype_bytes(spec.dtype)
            elif action.kind is ActionKind.GATHER and each.rank in sides[1]:
                spec = values[action.slots[0].value]
                own = spec.region(action.slots[1 + action.ranks.index(each.rank)])
                gathered += num_elements(own) * dtype_bytes(spec.dtype) * (len(action.ranks) - 1)
    return sent, gathered


WHOLE, TOKENS, CHANNELS = (None,), (1,), (2,)
HEADS = (Shard(2, outer=4),)
"""Of each of four runs of channels a part."""
CASES: dict[
    str, tuple[list[tuple[int, ...]], list[tuple[int, ...]], list[tuple[Cuts, Cuts]], tuple[int, int], tuple[int, int]]
] = {
    "2x1 to 1x2": ([(0, 1), (2, 3)], [(), (2,)], [((), ()), (TOKENS, CHANNELS)], (1, 0), (1, 0)),
    "replicated to split": ([(0, 1), (2, 3)], [(2,), (2,)], [(WHOLE, WHOLE), (CHANNELS, CHANNELS)], (1, 0), (1, 1)),
    "split to split": ([(0, 1), (2, 3)], [(2,), (2,)], [(TOKENS, CHANNELS), (TOKENS, CHANNELS)], (1, 0), (1, 0)),
    "split to replicated": ([(0, 1), (2, 3)], [(2,), (2,)], [(TOKENS, CHANNELS), (WHOLE, CHANNELS)], (1, 1), (1, 0)),
    "2 to 4": (
        [(0, 1), (2, 3, 4, 5)],
        [(2,), (2, 2)],
        [(TOKENS, CHANNELS), ((1, None), (None, 2))],
        (1, 1),
        (1, 0),
    ),
    "inside a dim": ([(0, 1), (2, 3)], [(2,), (2,)], [(TOKENS, HEADS), (CHANNELS, CHANNELS)], (1, 0), (1, 0)),
    "2 to 4 inside": ([(0, 1), (2, 3, 4, 5)], [(2,), (4,)], [(HEADS, CHANNELS), (HEADS, HEADS)], (1, 0), (1, 0)),
    "2 to 3": ([(0, 1), (2, 3, 4)], [(2,), (3,)], [(CHANNELS, CHANNELS), (TOKENS, TOKENS)], (1, 0), (1, 0)),
    "one to 5 that want the same": ([(0,), (1, 2, 3, 4, 5)], [(), (5,)], [((), ()), (WHOLE, WHOLE)], (1, 4), (1, 0)),
    "one to 4": ([(0,), (1, 2, 3, 4)], [(), (2, 2)], [((), ()), ((None, None), (2, 2))], (1, 3), (1, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_every_tile_is_sent_once_and_ranks_that_want_the_same_gather_it(name: str, step: Captured) -> None:
    """Once, however many ranks have or want it; with r ranks that want the same, r - 1 further copies among these."""
    ranks, meshes, cuts, forward, backward = CASES[name]
    made = _lists(step, _stages(step, ranks, meshes, cuts))
    assert certify(made).faults == ()
    assert certify(forward_execution(made), trains=False).faults == ()
    for (source, target), (sent, gathered) in {(0, 1): forward, (1, 0): backward}.items():
        assert _bytes(made, source, target) == (sent * VALUE_BYTES, gathered * VALUE_BYTES)
    assert simulate(made, ExecutionTimes(parts=(1.0,) * len(made.parts))).iteration_s > 0


def test_cuts_inside_a_dim_and_uneven_parts_learn_what_one_process_learns(step: Captured, tmp_path: Path) -> None:
    """Runs of channels to other runs of them, and whole values to five ranks, no dim of which divides by five."""
    stages = (
        _stages(step, [(0, 1), (2, 3, 4, 5, 6)], [(2,), (5,)], [(TOKENS, HEADS), (WHOLE, WHOLE)]),
        _stages(step, [(0, 1), (2, 3)], [(2,), (2,)], [(TOKENS, HEADS), ((Shard(2, outer=2),), HEADS)]),
    )
    for number, made in enumerate(_lists(step, each) for each in stages):
        assert certify(made).faults == ()
        _learns(write_run(tmp_path / str(number), step, made, optimizer=SGD, steps=NUM_STEPS), step)


def _learns(directory: Path, step: Captured) -> None:
    found = train_in_threads(directory)
    losses, weights = train_alone(step.model, data_of(directory), SGD, NUM_STEPS)
    assert found == pytest.approx(losses, rel=1e-10)
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    assert difference(checkpoint.state(), weights) < 1e-10


def test_meshes_that_cut_differently_learn_what_one_process_learns(step: Captured, tmp_path: Path) -> None:
    """Replicas to a team's channels, its tokens to four ranks of which two want the same, and all ways back."""
    stages = _stages(
        step,
        [(0,), (1, 2), (3, 4, 5, 6)],
        [(), (2,), (2, 2)],
        [((), ()), (CHANNELS, TOKENS), ((2, None), (None, 1))],
    )
    made = _lists(step, stages)
    assert certify(made).faults == ()
    kinds = [{action.kind for action in each.actions} for each in made.ranks]
    assert all(ActionKind.GATHER in own for own in kinds[3:])
    directory = write_run(tmp_path / "run", step, made, optimizer=SGD, steps=NUM_STEPS)
    script = Path(__file__).parent / "train_all.py"
    subprocess.run([sys.executable, str(script), str(directory)], check=True, timeout=500)
    told = json.loads((directory / "told.json").read_text())
    assert (told["error"], told["restarts"]) == ("", [])
    losses, weights = train_alone(step.model, data_of(directory), SGD, NUM_STEPS)
    assert [report["loss"] for report in told["reports"]] == pytest.approx(losses, rel=1e-10)
    checkpoint = Checkpoints(directory / CHECKPOINTS_DIRECTORY, keep=1).latest()
    assert checkpoint is not None
    assert difference(checkpoint.state(), weights) < 1e-10


def _first(actions: list[Action]) -> int:
    return next(at for at, action in enumerate(actions) if action.kind is ActionKind.GATHER)


def _swapped(actions: list[Action]) -> None:
    at = _first(actions)
    whole, *parts = actions[at].slots
    actions[at] = replace(actions[at], slots=(whole, *reversed(parts)))


def _late(actions: list[Action]) -> None:
    at = _first(actions)
    run = next(n for n in range(at, len(actions)) if actions[n].kind is ActionKind.FORWARD)
    actions.insert(run, actions.pop(at))


def _halved(actions: list[Action]) -> None:
    at = _first(actions)
    whole, own, other = actions[at].slots
    actions[at] = replace(actions[at], slots=(whole, own, own if other != own else other))


MUTANTS: dict[str, tuple[Callable[[list[Action]], object], str]] = {
    "a gather dropped": (lambda actions: actions.pop(_first(actions)), "rank 2, action .*value .*is not there"),
    "its parts swapped": (_swapped, "rank 2, action .*GATHER .*its parts are not in order"),
    "one part twice": (_halved, "rank 2, action .*GATHER .*its parts are not all of it"),
    "a gather behind its run": (_late, "rank 2, action .*FORWARD .*is not there"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_gather_is_refused_by_rank_and_action(name: str, step: Captured) -> None:
    ranks, meshes, cuts, *_ = CASES["split to replicated"]
    made = _lists(step, _stages(step, ranks, meshes, cuts))
    change, said = MUTANTS[name]
    actions = list(made.ranks[2].actions)
    change(actions)
    lists = list(made.ranks)
    lists[2] = replace(lists[2], actions=tuple(actions))
    faults = "\n".join(certify(replace(made, ranks=tuple(lists))).faults)
    assert re.search(said, faults), faults


def _grid(region: Region, chosen: random.Random) -> list[Region]:
    """Parts of a region along some dims, equal or nearly so."""
    parts = [region]
    for dim, size in enumerate(lengths(region)):
        count = chosen.choice([1, 1, 2, 3, 4])
        parts = [each for part in parts for each in split(part, dim, min(count, size))]
    return parts


def _strided(region: Region, chosen: random.Random) -> list[Region]:
    """What the devices of some mesh have of a region that they cut inside of dims, each part once."""
    shape, mesh = lengths(region), chosen.choice([(2,), (3,), (2, 2), (2, 3)])
    shards = [Shard(dim, outer) for dim in (0, 1) for outer in (1, 2, 3, 4)]
    specs = [ShardingSpec(axes) for axes in product(shards, repeat=len(mesh))]
    spec = chosen.choice([each for each in specs if is_possible(shape, each, mesh)])
    sharding = StageSharding(mesh=mesh, operators=())
    return sorted({sharding.part_of(region, spec, member) for member in range(sharding.num_devices)})


def _indices(region: Region) -> list[Indices]:
    return [np.concatenate([np.arange(first, end) for first, end in dim]) for dim in region]


def test_a_device_has_the_part_of_a_region_that_its_moves_say() -> None:
    """By the indices that `tests/train/test_tiles.py` finds along each dim."""
    shape = [24, 36]
    whole = torch.arange(24 * 36).view(shape)
    sharding = StageSharding(mesh=MESH, operators=())
    every = specs(shape)
    assert max(len(sharding.part_of(box(shape), spec, 1)[0]) for spec in every) > 1
    for spec in every:
        for member, at in enumerate(coordinates()):
            region = sharding.part_of(box(shape), spec, member)
            found = whole.numpy()[np.ix_(*_indices(region))]
            assert np.array_equal(found, part(whole, spec, at).numpy()), spec


def test_shares_are_what_is_wanted_of_any_tiles() -> None:
    """Random grids of tiles with random holders, and random tiles that random groups want, some of them in several
    ranges of a dim: put together from their pieces and gathered, they are right, and no element is sent to a group more
    than once where some dim has an element for each of it."""
    chosen = random.Random(0)
    value = ValueSpec(number=7, name="x", shape=(12, 12), stride=(12, 1), dtype="float32", examples=4, dim=0)
    full = np.arange(8 * 3 * 12).reshape(24, 12)
    num_gathered = num_uneven = num_strided = 0
    for _ in range(300):
        first = chosen.choice([0, 4])
        examples = Slot(value=7, first=first, count=4)
        makers = iter(chosen.sample(range(40), 40))
        regions = chosen.choice([_grid, _strided])(value.region(examples), chosen)[:20]
        if not is_covered(value.region(examples), regions):
            continue
        tiles = [
            Tile(replace(examples, tile=region), tuple(next(makers) for _ in range(chosen.choice([1, 1, 2]))))
            for region in regions
        ]
        wanted = replace(examples, tile=chosen.choice(chosen.choice([_grid, _strided])(value.region(examples), chosen)))
        group = chosen.sample(range(60), chosen.choice([1, 2, 3, 4]))
        shares = Crossing().shares(value, wanted, group, tiles)
        sent = 0
        for rank, share in zip(group, shares, strict=True):
            region = value.region(share.slot)
            own = _indices(region)
            made = np.full(lengths(region), -1)
            for piece in share.pieces:
                common = overlap(value.region(piece.source), region)
                assert common is not None
                assert overlap(value.region(piece.slot), region) == common
                places = [np.searchsorted(all_of, some) for all_of, some in zip(own, _indices(common), strict=True)]
                made[np.ix_(*places)] = full[np.ix_(*_indices(common))]
                holders = next(tile.holders for tile in tiles if tile.slot == piece.source)
                assert piece.owner in holders
                assert (piece.owner == rank) == (rank in holders)
                sent += num_elements(common) if piece.owner != rank else 0
            assert np.array_equal(made, full[np.ix_(*own)])
            num_strided += max(map(len, region)) > 1
        parts = [value.region(share.slot) for share in shares]
        if parts[0] != value.region(wanted):
            num_gathered += 1
            num_uneven += len(set(map(num_elements, parts))) > 1
            assert is_covered(value.region(wanted), parts)
            assert sum(map(num_elements, parts)) == num_elements(value.region(wanted))
            assert sent <= num_elements(value.region(wanted))
    assert min(num_gathered, num_uneven, num_strided) > 10


def test_what_goes_where_in_another_part_is_what_numpy_says() -> None:
    chosen = random.Random(1)
    full = np.arange(24 * 12).reshape(24, 12)
    for _ in range(200):
        source, target = (chosen.choice(chosen.choice([_grid, _strided])(box((24, 12)), chosen)) for _ in range(2))
        has, made = full[np.ix_(*_indices(source))], np.full(lengths(target), -1)
        for boxes in product(*copies(source, target)):
            to = tuple(slice(at, at + length) for _, at, length in boxes)
            made[to] = has[tuple(slice(at, at + length) for at, _, length in boxes)]
        wanted = full[np.ix_(*_indices(target))]
        assert np.array_equal(made, np.where(np.isin(wanted, has), wanted, -1))
