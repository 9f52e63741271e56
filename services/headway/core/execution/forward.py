"""An execution that only computes its loss: what a model is validated by. Pure.

The lists are the training ones without what no forward pass reads; parts keep their numbers.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from headway.core.execution.execution import Action, ActionKind, Execution, RankList, Slot
from headway.core.execution.frees import with_frees
from headway.core.execution.slots import SlotFinder
from headway.core.program import Instruction, Program


def forward_execution(execution: Execution) -> Execution:
    """The forward passes of all lists, with what they are sent; slots are given up where they were last read."""
    slots = SlotFinder.of(execution)
    kept = [_kept(slots, each.rank, each.actions) for each in execution.ranks]
    wanted = {
        (action.peer, each.rank, action.slots[0])
        for each, actions in zip(execution.ranks, kept, strict=True)
        for action in actions
        if action.kind is ActionKind.RECV
    }
    lists = []
    for each, actions in zip(execution.ranks, kept, strict=True):
        own = [
            action
            for action in actions
            if action.kind is not ActionKind.SEND or (each.rank, action.peer, action.slots[0]) in wanted
        ]
        ended = [*with_frees(own, each.rank, slots), Action(kind=ActionKind.UPDATE)]
        lists.append(RankList(rank=each.rank, actions=tuple(ended)))
    return replace(execution, ranks=tuple(lists))


def _kept(slots: SlotFinder, rank: int, actions: Sequence[Action]) -> list[Action]:
    """Forward passes, what they read of other ranks, and all sends."""
    needed: set[Slot] = set()
    found: list[Action] = []
    for action in reversed(actions):
        is_put = action.kind in (ActionKind.JOIN, ActionKind.GATHER) and action.slots[0] in needed
        if action.kind is ActionKind.FORWARD or is_put:
            needed.update(slots.reads(rank, action))
        elif action.kind is not ActionKind.SEND and (
            action.kind is not ActionKind.RECV or action.slots[0] not in needed
        ):
            continue
        found.append(action)
    return found[::-1]


def without_dropout(program: Program) -> Program:
    """The same program in which every mask of a dropout is its mean: what is kept of it is what goes in."""
    return replace(program, instructions=tuple(_expected(each) for each in program.instructions))


def _expected(instruction: Instruction) -> Instruction:
    arguments = json.loads(instruction.arguments)
    match instruction.target:
        case "aten.bernoulli_.float":
            return _calling(instruction, "aten.fill_.Scalar", arguments["args"][:2])
        case "aten.bernoulli.p":
            tensor, share = arguments["args"][:2]
            return _calling(instruction, "aten.full_like.default", [tensor, share])
        case "aten.native_dropout.default":
            return _calling(instruction, instruction.target, [*arguments["args"][:2], False])
        case _:
            return instruction


def _calling(instruction: Instruction, target: str, arguments: Sequence[object]) -> Instruction:
    text = json.dumps({"args": arguments, "kwargs": {}}, separators=(",", ":"))
    return replace(instruction, target=target, arguments=text)
