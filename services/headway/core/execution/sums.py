"""Where a gradient's terms are added up when several stages make them. Pure."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from headway.core.execution.execution import StageSpec
from headway.core.program import Program


def with_own_sums(program: Program, stages: Sequence[StageSpec]) -> tuple[StageSpec, ...]:
    """Stages with each sum of gradients behind the backward passes whose terms it adds up.

    A sum goes with one of the operators that read the value. Where that is in a later stage, and an earlier one both
    makes a term and needs the sum, each would wait for the other: the sum is then the earlier one's. Stages whose ranks
    share operators stay as they are.
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
    plain = {number for number, stage in enumerate(stages) if stage.sharding is None}
    for at in sorted(stage_of, reverse=True):
        terms, needed = ({stage_of[each] for each in other} for other in (reads[at], readers[at]))
        earlier = {number for number in terms & needed & plain if number < stage_of[at]}
        if earlier and stage_of[at] in plain:
            stage_of[at] = min(earlier)
    names = {positions[name]: name for stage in stages for name in stage.backward}
    return tuple(
        replace(stage, backward=tuple(names[at] for at in sorted(names) if stage_of[at] == number))
        if {positions[name] for name in stage.backward} != {at for at in names if stage_of[at] == number}
        else stage
        for number, stage in enumerate(stages)
    )
