"""Parts add gradients to their sums where they make them, and ranks hold nothing longer than they need it."""

import weakref
from collections import Counter
from dataclasses import replace

import pytest
import torch

from headway.backends.inputs import make_input
from headway.core.execution.accumulation import accumulating
from headway.core.execution.certifier import certify
from headway.core.execution.execution import ActionKind, Execution
from headway.core.execution.settled import settled_sends
from headway.core.program import Instruction, Program, Value
from headway.programs.module import build_module
from headway.train.parts import stage_cuts
from tests.train.models import Gpt, gpt_stage
from tests.train.runs import Captured, captured, execution_of, stages_of

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def step() -> Captured:
    return captured(Gpt(), (2,))


@pytest.fixture(scope="module")
def execution(step: Captured) -> Execution:
    stages = stages_of(step.graph, lambda module: gpt_stage(module, 2), [(0,), (1,)], [2, 2])
    return execution_of(step, stages, successors=[(1,), ()])


@pytest.mark.parametrize("stage", [0, 1])
def test_what_is_added_up_is_what_was_given(stage: int, step: Captured, execution: Execution) -> None:
    (cut,) = stage_cuts(execution, step.programs, stage).values()
    (part,) = (part for part in cut.parts if part.stage == stage and part.kind is ActionKind.BACKWARD)
    program, num_kept = part.cut.program, len(part.writes)
    random = torch.Generator().manual_seed(0)
    given = [make_input(value, device=CPU, generator=random) for value in program.inputs]
    results = build_module(program, CPU)(*given)
    sums = [torch.rand(each.shape, generator=random, dtype=each.dtype) for each in results[num_kept:]]
    wanted = [total + each for total, each in zip(sums, results[num_kept:], strict=True)]
    added = accumulating(program, ["float64"] * len(sums))
    found = build_module(added, CPU, takes_list=True)([*given, *sums])
    torch.testing.assert_close(sums, wanted, rtol=1e-12, atol=1e-12)
    if part.writes:
        torch.testing.assert_close(list(found), list(results[:num_kept]))
    calls = Counter(instruction.target for instruction in added.instructions)
    assert calls["aten.addmm_.default"] + calls["aten.add_.Tensor"] == len(sums)
    products = {
        name for name in part.gradients if name.endswith(("qkv.weight", "out.weight", "up.weight", "down.weight"))
    }
    assert len(products) <= calls["aten.addmm_.default"] <= len(products) + 1, "the head's too, where it is no sum"


def test_a_value_is_dropped_behind_the_last_call_that_reads_it() -> None:
    value = Value(shape=(2,), stride=(1,), dtype="float32")

    def call(target: str, number: int) -> Instruction:
        return Instruction(
            target=target, arguments=f'{{"args":[{{"value":{number}}}],"kwargs":{{}}}}', results=(value,)
        )

    program = Program(
        inputs=(value, value), instructions=(call("aten.neg.default", 0), call("probe", 1)), results=(2, 3)
    )
    given = [torch.ones(2), torch.ones(2)]
    first, is_there = weakref.ref(given[0]), []

    def probe(tensor: torch.Tensor) -> torch.Tensor:
        is_there.append(first() is not None)
        return tensor

    module = build_module(program, CPU, {"probe": probe}, takes_list=True)
    module.forward(given)
    assert (is_there, given) == ([False], [])
    assert program.peak_bytes_giving_up([0]) < program.peak_bytes


def test_what_a_part_gives_up_may_not_be_read_behind_it(execution: Execution) -> None:
    """The second stage's backward pass reads what its forward pass was sent."""
    parts = [
        replace(part, gives_up=part.reads) if part.kind is ActionKind.FORWARD else part for part in execution.parts
    ]
    faults = certify(replace(execution, parts=tuple(parts))).faults
    assert any("rank 1" in fault and "BACKWARD" in fault and "is not there" in fault for fault in faults), faults


def test_what_was_sent_is_kept_until_an_answer_that_the_receiver_gave_behind_it(execution: Execution) -> None:
    """1F1B over two stages: by its first gradient the second one has asked for two micro-batches."""
    assert list(settled_sends(execution, 0).values()) == [2, 3, 4, 4]
