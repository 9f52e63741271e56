"""What the parts of a step take, give and need, as an execution says it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from headway.core.errors import InvalidArgumentError
from headway.core.execution.accumulation import accumulating
from headway.core.execution.execution import PartSpec, StageSpec, ValueSpec
from headway.core.execution.parts import StepParts
from headway.core.graph import dtype_bytes
from headway.core.program import Program

STATE_COPIES = {"adamw": 4, "sgd": 2, "momentum": 3}
"""By optimizer, of each parameter: itself, its gradient, and what is kept for it; all at least in float32."""

_MASTER_BYTES = 4
_HELD_COPIES = 2


def part_specs(cuts: Mapping[int, StepParts], num_inputs: int) -> tuple[PartSpec, ...]:
    """Args:
    cuts: by number of examples; InvalidArgumentError where they are not the same computation.
    """
    signatures = [[(p.stage, p.kind, p.cut.reads, p.cut.writes) for p in cut.parts] for cut in cuts.values()]
    if any(each != signatures[0] for each in signatures):
        raise InvalidArgumentError(
            f"The model is not the same computation with {', '.join(map(str, sorted(cuts)))} examples.",
            hint="Give all stages micro-batches of one size.",
            field="plan",
        )
    first = next(iter(cuts.values()))
    return tuple(
        PartSpec(
            stage=part.stage,
            kind=part.kind,
            reads=tuple(n for n in part.cut.reads if n >= num_inputs and n not in first.seeds),
            writes=part.writes,
            gradients=part.gradients,
        )
        for part in first.parts
    )


def with_workspace(
    parts: Sequence[PartSpec],
    given_up: Sequence[tuple[int, ...]],
    cuts: Mapping[int, StepParts],
    stages: Sequence[StageSpec],
) -> tuple[PartSpec, ...]:
    """The parts with what they give up, gather and scatter, and what they need then.

    Args:
        given_up: by part.
        cuts: by number of examples.
    """
    found = []
    for at, (part, numbers) in enumerate(zip(parts, given_up, strict=True)):
        own = cuts[stages[part.stage].examples].parts[at]
        cut = own.cut
        made = cut.program.results[len(part.writes) :]
        program = accumulating(cut.program, [sum_dtype(cut.program.value(number).dtype) for number in made])
        peak = program.peak_bytes_giving_up([cut.reads.index(number) for number in numbers])
        kept = sum(program.value(number).num_bytes for number in program.results)
        workspace = peak - program.input_bytes - kept
        made_so = replace(part, gathered=own.gathered, scattered=own.scattered)
        found.append(replace(made_so, gives_up=numbers, workspace_bytes=workspace))
    return tuple(found)


def sum_dtype(dtype: str) -> str:
    """Of a sum of gradients, which are added up in float32 at least."""
    return dtype if dtype_bytes(dtype) >= _MASTER_BYTES else "float32"


def batch_bytes(program: Program, examples: int, batch: int) -> int:
    """Of what a step takes beside parameters, for a batch; buffers have no examples.

    Args:
        examples: that the program was captured with.
    """
    fed = (value for value in program.inputs if not value.is_weight and value.shape[:1] == (examples,))
    return sum(value.num_bytes for value in fed) * batch // examples


def value_specs(
    programs: Mapping[int, Program], parts: Sequence[PartSpec], cut: Mapping[int, int]
) -> dict[int, ValueSpec]:
    """By number, all values that parts hand each other. Of several captures a value's examples lie along the one dim
    whose size goes with theirs.

    Args:
        cut: of values that teams have parts of, how many.
    """
    numbers = sorted({number for part in parts for number in (*part.reads, *part.writes)})
    examples, program = min(programs.items())
    found = {}
    for number in numbers:
        value = program.value(number)
        found[number] = ValueSpec(
            number=number,
            name=program.name_of(number),
            shape=value.shape,
            stride=value.stride,
            dtype=value.dtype,
            examples=examples,
            dim=_example_dim(programs, number),
            parts=cut.get(number, 1),
        )
    return found


def _example_dim(programs: Mapping[int, Program], number: int) -> int | None:
    shapes = {count: program.value(number).shape for count, program in programs.items()}
    dims = list(zip(*shapes.values(), strict=True)) if len({len(shape) for shape in shapes.values()}) == 1 else []
    growing = [dim for dim, sizes in enumerate(dims) if len(set(sizes)) > 1]
    if len(growing) != 1:
        return None
    rates = {shape[growing[0]] / count for count, shape in shapes.items()}
    return growing[0] if len(rates) == 1 else None


def with_state(
    stages: Sequence[StageSpec], cuts: StepParts, program: Program, *, optimizer: str
) -> tuple[StageSpec, ...]:
    """The stages with their parameters and what these take; one that several stages of the same ranks share counts for
    the first of them."""
    inputs = dict(zip(program.names, program.inputs, strict=True))
    named = [replace(stage, parameters=names) for stage, names in zip(stages, cuts.parameters, strict=True)]
    holders, levels = parameter_holders(named), zero_levels(named)

    def num_bytes(stage: StageSpec, name: str) -> int:
        kept = STATE_COPIES[optimizer] - _HELD_COPIES
        count = prod(inputs[name].shape) // num_tiles(stage, name)
        return _state_bytes(inputs[name].dtype, count, kept, zero=levels[name], num_parts=len(holders[name][0]))

    counted: set[tuple[tuple[int, ...], str]] = set()
    found = []
    for stage in named:
        own = [name for name in stage.parameters if (stage.ranks, name) not in counted]
        counted.update((stage.ranks, name) for name in own)
        found.append(replace(stage, state_bytes=sum(num_bytes(stage, name) for name in own)))
    return tuple(found)


def gradient_sums(stages: Sequence[StageSpec], program: Program) -> dict[str, tuple[int, str]]:
    """Of each parameter's gradient the elements that a rank would have without ZeRO, and the dtype of their sum."""
    inputs = dict(zip(program.names, program.inputs, strict=True))
    return {
        name: (prod(inputs[name].shape) // num_tiles(stage, name), sum_dtype(inputs[name].dtype))
        for stage in stages
        for name in stage.parameters
    }


def num_tiles(stage: StageSpec, name: str) -> int:
    """Into how many parts the ranks of a team cut a parameter."""
    sharding = stage.sharding
    return 1 if sharding is None else int(sharding.parameter(name).num_shards(sharding.mesh))


def parameter_holders(stages: Sequence[StageSpec]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Of each parameter the ranks that hold the same part of it, ascending: one group where all have all of it."""
    found: dict[str, dict[tuple[int, ...], set[int]]] = {}
    for stage in stages:
        for name in stage.parameters:
            groups = found.setdefault(name, {})
            for rank in stage.ranks:
                tile = () if num_tiles(stage, name) == 1 else stage.sharding.tile(name, stage.member(rank))  # type: ignore[union-attr]
                groups.setdefault(tile, set()).add(rank)
    return {name: tuple(tuple(sorted(ranks)) for _, ranks in sorted(tiles.items())) for name, tiles in found.items()}


def zero_levels(stages: Sequence[StageSpec]) -> dict[str, int]:
    """Of each parameter what the ranks that hold it share, as `StageSpec.zero` says it; 0 where one rank does."""
    found = {}
    for name, groups in parameter_holders(stages).items():
        own = [stage for stage in stages if name in stage.parameters]
        most = (3 if len({stage.ranks for stage in own}) == 1 else 1) if len(groups[0]) > 1 else 0
        found[name] = min(most, *(stage.zero for stage in own))
    return found


def _state_bytes(dtype: str, count: int, kept: int, *, zero: int, num_parts: int) -> int:
    """The parameter and its gradient, and what is kept for it, each whole or this rank's part of it; with the master of
    a parameter that is narrower than float32.

    Args:
        count: elements that the rank would have without ZeRO.
        kept: copies that the optimizer has.
    """
    own = dtype_bytes(dtype)
    wide = max(own, _MASTER_BYTES)
    part = -(-count // num_parts)
    held = (wide + (own if own < wide else 0)) * (part if zero == 3 else count)
    return held + wide * (part if zero >= 2 else count) + kept * wide * (part if zero else count)
