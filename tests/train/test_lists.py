"""Lists of actions: what the certifier refuses, what the simulator says of them, and what parts are cut."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from headway.core.errors import InvalidArgumentError
from headway.core.execution.certifier import certify
from headway.core.execution.execution import Action, ActionKind, Execution
from headway.core.execution.orders import scheduled_orders
from headway.core.execution.parts import StageOperators, cut_stages
from headway.core.execution.sharding import StageSharding
from headway.core.execution.simulator import ExecutionTimes, simulate
from headway.core.pipeline_shapes import ShapeOptions, named_placement
from headway.planner.schedule.predefined.methods import predefined
from tests.train.models import Branches, Gpt, branch_stage, gpt_stage
from tests.train.runs import BATCH, Captured, captured, execution_of, stages_of

_TIMES = {ActionKind.FORWARD: 1.0, ActionKind.BACKWARD: 2.0, ActionKind.INPUT: 1.0, ActionKind.WEIGHT: 1.0}


@pytest.fixture(scope="module")
def gpt() -> Captured:
    return captured(Gpt(), (2,))


@pytest.fixture(scope="module")
def execution(gpt: Captured) -> Execution:
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 3), [(0,), (1,), (2,)], [2] * 3)
    return execution_of(gpt, stages, successors=[(1,), (2,), ()])


def _times(execution: Execution, **changes: float) -> ExecutionTimes:
    return ExecutionTimes(parts=tuple(_TIMES[part.kind] for part in execution.parts), **changes)  # type: ignore[arg-type]


def _mutated(execution: Execution, rank: int, change: Callable[[list[Action]], object]) -> Execution:
    actions = list(execution.ranks[rank].actions)
    change(actions)
    lists = list(execution.ranks)
    lists[rank] = replace(lists[rank], actions=tuple(actions))
    return replace(execution, ranks=tuple(lists))


def _places(actions: list[Action], kind: ActionKind) -> list[int]:
    return [at for at, action in enumerate(actions) if action.kind is kind]


def _drop(kind: ActionKind, number: int = 0) -> Callable[[list[Action]], object]:
    return lambda actions: actions.pop(_places(actions, kind)[number])


def _double(kind: ActionKind) -> Callable[[list[Action]], object]:
    return lambda actions: actions.insert(_places(actions, kind)[0], actions[_places(actions, kind)[0]])


def _swap_sends(actions: list[Action]) -> None:
    """The second forward pass and its send before the first one's."""
    first, second = _places(actions, ActionKind.SEND)[:2]
    actions[first], actions[second] = actions[second], actions[first]


def _shorten(kind: ActionKind) -> Callable[[list[Action]], None]:
    def change(actions: list[Action]) -> None:
        at = _places(actions, kind)[0]
        actions[at] = replace(actions[at], shape=(1, *actions[at].shape[1:]))

    return change


def _free_early(actions: list[Action]) -> None:
    """What the first backward pass reads is given up before it runs."""
    backward = _places(actions, ActionKind.BACKWARD)[0]
    later = next(at for at in _places(actions, ActionKind.FREE) if at > backward)
    actions.insert(backward, actions.pop(later))


MUTANTS: dict[str, tuple[int, Callable[[list[Action]], object], str]] = {
    "a send dropped": (
        0,
        _drop(ActionKind.SEND, -1),
        r"rank 1, action \d+ \(RECV value \d+ .* from rank 0\) is sent by",
    ),
    "a receive dropped": (1, _drop(ActionKind.RECV), r"rank 1, action \d+ \(FORWARD .*\): value \d+ .* is not there"),
    "a send doubled": (0, _double(ActionKind.SEND), r"rank 0, action \d+ \(SEND value .* to rank 1\)"),
    "sends swapped": (0, _swap_sends, r"rank 0, action \d+ \(SEND .* of examples [2-9].*is not there"),
    "a sent shape shortened": (0, _shorten(ActionKind.SEND), r"rank 0, action \d+ \(SEND .*not \[1, "),
    "a received shape shortened": (1, _shorten(ActionKind.RECV), r"rank 1, action \d+ \(RECV .*not \[1, "),
    "given up too early": (2, _free_early, r"rank 2, action \d+ \(BACKWARD .* in stage 2\): value \d+ .* is not there"),
    "never given up": (2, _drop(ActionKind.FREE), r"rank 2: value \d+ .* is never given up"),
    "a pass dropped": (1, _drop(ActionKind.BACKWARD), "BACKWARD of stage 1 runs 0 times for example 0"),
    "a pass doubled": (1, _double(ActionKind.FORWARD), "FORWARD of stage 1 runs 2 times for example 0"),
    "an addition dropped": (2, _drop(ActionKind.REDUCE), "rank 2 never adds up the gradient of tokens.weight"),
    "no update": (1, _drop(ActionKind.UPDATE), "rank 1 does not end with its one UPDATE"),
}


def test_the_lists_of_a_plan_are_certified(execution: Execution) -> None:
    certificate = certify(execution)
    assert certificate.faults == ()
    assert all(peak > 0 for peak in certificate.peak_bytes)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_list_is_refused_by_rank_and_action(name: str, execution: Execution) -> None:
    rank, change, said = MUTANTS[name]
    faults = "\n".join(certify(_mutated(execution, rank, change)).faults)
    assert faults
    assert re.search(said, faults), faults


def test_lists_that_wait_for_each_other_are_refused(execution: Execution) -> None:
    """Rank 0 wants its first gradient before it sends what that rests on."""

    def change(actions: list[Action]) -> None:
        own = [at for at, action in enumerate(actions) if action.kind in (ActionKind.RECV, ActionKind.BACKWARD)][:2]
        moved = [actions[at] for at in own]
        for at in reversed(own):
            del actions[at]
        send = _places(actions, ActionKind.SEND)[0]
        actions[send:send] = moved

    faults = certify(_mutated(execution, 0, change)).faults
    assert any("rank 0 waits for ever at action" in fault and "BACKWARD" in fault for fault in faults), faults


def test_less_memory_than_the_peak_is_refused(execution: Execution) -> None:
    peak = max(certify(execution).peak_bytes)
    assert certify(execution, memory_bytes=peak).faults == ()
    assert "at its peak" in certify(execution, memory_bytes=peak - 1).faults[0]


def test_1f1b_holds_less_than_gpipe_and_takes_as_long(gpt: Captured, execution: Execution) -> None:
    stages = execution.stages
    gpipe = execution_of(gpt, stages, successors=[(1,), (2,), ()], method="gpipe")
    assert certify(execution).peak_bytes[0] < certify(gpipe).peak_bytes[0]
    count = BATCH // 2
    for each in (execution, gpipe):
        assert simulate(each, _times(each)).iteration_s == 3 * (count + len(stages) - 1)  # (F + B) (m + p - 1)


@pytest.mark.parametrize("method", ["zb-h1", "zb-h2"])
def test_a_schedules_lists_take_what_the_schedule_takes(method: str, gpt: Captured) -> None:
    placement = named_placement("V", 3, ShapeOptions(backward=2, splits_backward=True))
    schedule = predefined(method, placement, BATCH // 2)
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 3), [(0,), (1,), (2,)], [2] * 3)
    made = execution_of(gpt, stages, successors=[], splits=True, orders=scheduled_orders(schedule))
    assert certify(made).faults == ()
    # The first stage has no input whose gradient somebody wants: its weights' gradient is all of its backward pass.
    times = [2.0 if (part.stage, part.kind) == (0, ActionKind.WEIGHT) else _TIMES[part.kind] for part in made.parts]
    assert simulate(made, ExecutionTimes(parts=tuple(times))).iteration_s == pytest.approx(schedule.makespan, abs=1)


def test_ranks_that_share_operators_run_together(gpt: Captured) -> None:
    """Two of them behind a stage of one; each run waits for both, and one without the other is refused."""
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 2), [(0,), (1, 2)], [2, 2])
    team = replace(stages[1], sharding=StageSharding(mesh=(2,), operators=()))
    made = execution_of(gpt, [stages[0], team], successors=[(1,), ()])
    assert certify(made).faults == ()
    assert {action.count for action in made.ranks[2].actions if action.kind is ActionKind.FORWARD} == {2}
    spans = simulate(made, _times(made)).spans
    assert [s.start_s for s in spans if s.rank == 1] == [s.start_s for s in spans if s.rank == 2]
    alone = _mutated(made, 2, _drop(ActionKind.BACKWARD))
    assert "BACKWARD of stage 1 runs on ranks 1 for example 0." in certify(alone).faults

    gpipe = execution_of(gpt, [stages[0], team], successors=[(1,), ()], method="gpipe")
    mixed = replace(made, ranks=(*made.ranks[:2], gpipe.ranks[2]))
    assert any("rank 1 waits for ever at action" in fault for fault in certify(mixed).faults), certify(mixed).faults


def test_blocking_transfers_take_longer(execution: Execution) -> None:
    size = 2 * 6 * 16 * 8
    link = {"bytes_per_s": size / 0.5, "latency_s": 0.1}
    non_blocking = simulate(execution, _times(execution, **link))
    blocking = simulate(execution, replace(_times(execution, **link), blocks=True))
    assert blocking.iteration_s > non_blocking.iteration_s
    assert all(wait >= 0 for wait in non_blocking.waits_s)


def test_branches_run_side_by_side_with_micro_batches_of_their_own() -> None:
    step = captured(Branches(), (2, 4, 8))
    stages = stages_of(step.graph, branch_stage, [(0,), (1,), (2,)], [2, 8, 4])
    made = execution_of(step, stages, successors=[(2,), (2,), ()])
    assert certify(made).faults == ()
    joined = [action for action in made.ranks[2].actions if action.kind is ActionKind.JOIN]
    assert {len(action.slots) for action in joined} == {3}, "two small micro-batches make one"
    spans = simulate(made, _times(made)).spans
    assert {span.rank for span in spans if span.start_s == 0} == {0, 1}


def test_values_without_examples_do_not_cross_between_different_sizes(gpt: Captured) -> None:
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 4])
    with pytest.raises(InvalidArgumentError, match="different examples"):
        execution_of(replace(gpt, programs={2: gpt.programs[2], 4: gpt.programs[2]}), stages, successors=[(1,), ()])


def test_an_operator_in_no_stage_is_named(gpt: Captured) -> None:
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    first, second = (StageOperators(forward=s.forward, backward=s.backward) for s in stages)
    with pytest.raises(InvalidArgumentError, match=f"Operator {first.forward[-1]} is in no stage"):
        cut_stages(gpt.programs[2], [replace(first, forward=first.forward[:-1]), second], splits=False)
    with pytest.raises(InvalidArgumentError, match="is in stage 0 too"):
        cut_stages(gpt.programs[2], [first, replace(second, forward=first.forward)], splits=False)


def test_parts_of_a_split_backward_pass_are_its_whole(gpt: Captured) -> None:
    """Every operator of the backward pass is in one of both parts, the recomputed ones in a part of their own."""
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    operators = [StageOperators(forward=s.forward, backward=s.backward) for s in stages]

    def counted(splits: bool) -> int:
        parts = cut_stages(gpt.programs[2], operators, splits=splits).parts
        cuts = (part.cut.program for part in parts if part.kind is not ActionKind.FORWARD)
        return sum(not instruction.is_view for program in cuts for instruction in program.instructions)

    assert counted(splits=True) == counted(splits=False)


def test_stages_that_share_ranks_need_a_schedule(gpt: Captured) -> None:
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 2), [(0,), (0,)], [2, 2])
    with pytest.raises(InvalidArgumentError, match="not one order for them"):
        execution_of(gpt, stages, successors=[(1,), ()])


def test_stages_that_do_not_divide_the_batch_are_refused(gpt: Captured) -> None:
    stages = stages_of(gpt.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 3])
    with pytest.raises(InvalidArgumentError, match="Stage 1 has micro-batches of 3 examples on 1 ranks"):
        execution_of(replace(gpt, programs={2: gpt.programs[2], 3: gpt.programs[2]}), stages, successors=[(1,), ()])
