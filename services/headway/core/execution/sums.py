"""Where a gradient's terms are added up when several stages make them. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from headway.core.execution.execution import StageSpec
from headway.core.program import Program

_SUM = "aten.add.Tensor"


def with_own_sums(program: Program, stages: Sequence[StageSpec]) -> tuple[StageSpec, ...]:
    """Stages with each sum of gradients behind the backward passes whose terms it adds up.

    A sum goes with one of the operators that read the value. Where that is in a later stage, and an earlier one both
    makes a term of it, or of a sum that it adds to, and needs the sum, each would wait for the other: the sum is then
    the earlier one's. Where the ranks of that share operators, it is shared as its terms lie.
    """
    positions, num_inputs = program.positions(), len(program.inputs)
    stage_of = {positions[name]: number for number, stage in enumerate(stages) for name in stage.backward}
    reads = {
        at: {each - num_inputs for each in program.read_from_outside((at,)) if each - num_inputs in stage_of}
        for at in stage_of
    }
    readers: dict[int, set[int]] = defaultdict(set)
    for at, read in reads.items():
        for each in read:
            readers[each].add(at)
    sums = {at for at in stage_of if program.instructions[at].target == _SUM}
    made_of: dict[int, set[int]] = {}
    for at in sorted(stage_of):
        made_of[at] = {term for each in reads[at] for term in (made_of[each] if each in sums else {each})}
    for at in sorted(stage_of, reverse=True):
        terms, needed = ({stage_of[each] for each in other} for other in (made_of[at], readers[at]))
        earlier = {number for number in terms & needed if number < stage_of[at]}
        if earlier:
            stage_of[at] = min(earlier)
    names = {positions[name]: name for stage in stages for name in stage.backward}
    own: list[list[str]] = [[] for _ in stages]
    for at in sorted(names):
        own[stage_of[at]].append(names[at])
    return tuple(_with_backward(stage, backward) for stage, backward in zip(stages, own, strict=True))


def _with_backward(stage: StageSpec, names: Sequence[str]) -> StageSpec:
    gained, lost = set(names) - set(stage.backward), set(stage.backward) - set(names)
    if not gained and not lost:
        return stage
    sharding = stage.sharding
    if sharding is not None:
        following = (*sharding.following, *(name for name in names if name in gained))
        operators = tuple(each for each in sharding.operators if each.operator not in lost)
        sharding = replace(sharding, operators=operators, following=following)
    return replace(stage, backward=tuple(names), sharding=sharding)
