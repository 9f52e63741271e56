"""One iteration of training as lists of actions, one list a rank: what is checked, simulated, slept through and run.

A stage's work on some of the batch's examples is a run of one of its parts. What parts hand each other lies in slots:
a value of the captured program, for a range of examples.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from headway.core.execution.regions import Region, box, lengths
from headway.core.execution.sharding import SlotTile, StageSharding
from headway.core.graph import dtype_bytes


class ActionKind(StrEnum):
    """What a rank does; the first five run a part of a stage."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    INPUT = "input"
    """The gradient of what the stage received."""
    WEIGHT = "weight"
    """The gradient of the stage's parameters."""
    RECV = "recv"
    """Makes room and begins to receive; what reads the slot waits for it."""
    SEND = "send"
    """Begins to send a slot, or the part of one that the receiver wants."""
    JOIN = "join"
    """Makes a slot of others that have all of it between them."""
    GATHER = "gather"
    """Ranks that want the same make it of the equal parts that each of them has."""
    FREE = "free"
    REDUCE = "reduce"
    """Begins to add up gradients over all ranks that hold the parameters; where they share the update, each rank gets
    the sum of its own part only."""
    UPDATE = "update"
    """Waits for all gradients, clips them, and changes the parameters; gathers what other ranks have changed."""


RUNS = (ActionKind.FORWARD, ActionKind.RECOMPUTE, ActionKind.BACKWARD, ActionKind.INPUT, ActionKind.WEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Slot:
    """A value of the program for the batch's examples from `first` on, `count` of them, or a part of it.

    Attributes:
        tile: the part, in elements of the value for the whole batch; of values that are not known to have examples, in
            elements of what these examples have. Empty for all of it.
    """

    value: int
    first: int
    count: int
    tile: Region = ()

    @property
    def end(self) -> int:
        return self.first + self.count

    def __str__(self) -> str:
        part = " x ".join("+".join(f"{first}:{end}" for first, end in dim) for dim in self.tile)
        return f"value {self.value}{f' [{part}]' if part else ''} of examples {self.first} to {self.end - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Attributes:
    part: of a run, its place in the execution's parts.
    first, count: of a run, its examples.
    slots: of RECV the one to fill; of SEND what is sent, and the slot that has it; of JOIN the one to make, then its
        sources; of GATHER the one to make, then the part of each rank; of FREE those that are given up.
    peer: of RECV and SEND the other rank.
    shape, dtype: of RECV and SEND, what travels; of REDUCE, the gradients behind each other.
    parameters: of REDUCE.
    ranks: of REDUCE and GATHER, all that take part.
    shards: of REDUCE, whether each of them changes a part of the parameters (ZeRO stage 1).
    """

    kind: ActionKind
    part: int = -1
    first: int = 0
    count: int = 0
    slots: tuple[Slot, ...] = ()
    peer: int = -1
    shape: tuple[int, ...] = ()
    dtype: str = ""
    parameters: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    shards: bool = False

    def __str__(self) -> str:
        match self.kind:
            case ActionKind.RECV:
                return f"RECV {self.slots[0]} from rank {self.peer}"
            case ActionKind.SEND:
                return f"SEND {self.slots[0]} to rank {self.peer}"
            case ActionKind.JOIN | ActionKind.GATHER | ActionKind.FREE:
                return f"{self.kind.upper()} {self.slots[0]}"
            case ActionKind.REDUCE:
                shared = ", each a part" if self.shards else ""
                return f"REDUCE {len(self.parameters)} gradients over ranks {', '.join(map(str, self.ranks))}{shared}"
            case ActionKind.UPDATE:
                return "UPDATE"
            case _:
                return f"{self.kind.upper()} of examples {self.first} to {self.first + self.count - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSpec:
    """Attributes:
    name: of the operator that makes it.
    shape: for `examples` examples.
    stride: elements between neighbours along each dim, as the operator makes it.
    dim: along which it has its examples; None where it is not known to have any.
    parts: into which the ranks of a team cut it, where only they hold it; 1 where each has all of it.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    examples: int
    dim: int | None = None
    parts: int = 1

    def shape_of(self, count: int) -> tuple[int, ...]:
        """Its shape for so many examples; the one that it has where it is not known to have any."""
        if self.dim is None or count == self.examples:
            return self.shape
        per_example = self.shape[self.dim] // self.examples
        return (*self.shape[: self.dim], per_example * count, *self.shape[self.dim + 1 :])

    def region(self, slot: Slot) -> Region:
        """Where a slot is in the value; see `Slot.tile`."""
        if slot.tile:
            return slot.tile
        found = box(self.shape_of(slot.count))
        if self.dim is None:
            return found
        first = self.shape[self.dim] // self.examples * slot.first
        ((_, size),) = found[self.dim]
        return (*found[: self.dim], ((first, first + size),), *found[self.dim + 1 :])

    def num_bytes(self, slot: Slot) -> int:
        """Of what one rank has of a slot."""
        return prod(lengths(self.region(slot))) * dtype_bytes(self.dtype) // (1 if slot.tile else self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpec:
    """A part of a stage.

    Attributes:
        reads: values of slots that it takes, in order.
        writes: values of slots that it fills, in order.
        gradients: parameters whose gradients it adds to their sums, in order; one may come several times.
        gives_up: of `reads` those that nothing reads behind it: it drops each where it has read it last.
        workspace_bytes: that one run of it needs beside all that it takes and gives; below 0 where it never holds all
            of that at once.
        gathered: parameters of which its ranks hold parts: gathered before the first operator that reads them, and
            given up behind the last one (ZeRO stage 3).
        scattered: of `gradients` those of which each rank keeps the sum of a part only, over all that hold the
            parameter (ZeRO stages 2 and 3).
    """

    stage: int
    kind: ActionKind
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    gradients: tuple[str, ...] = ()
    gives_up: tuple[int, ...] = ()
    workspace_bytes: int = 0
    gathered: tuple[str, ...] = ()
    scattered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """A stage and where it runs.

    Attributes:
        forward, backward: names of its operators in the captured program.
        ranks: that hold it, each for an equal part of every micro-batch; where it is sharded, as many of them as its
            mesh has devices, one behind the other, for each part.
        micro_batch: examples, over all of its ranks.
        zero: what the ranks that hold a parameter share, each with a part of it: 0 nothing, 1 the optimizer's state, 2
            the gradient too, 3 the parameter too (ZeRO); of a parameter that other stages hold as well the least of
            theirs, and 1 at most where these are on other ranks.
        parameters: that it reads, by name.
        state_bytes: of its parameters, their gradients and the optimizer's state, on each rank.
        sharding: how the ranks that compute a run together share its operators; None where each computes by itself.
        tiles: how they hold values that they have of other stages or other stages of them, where not whole.
    """

    forward: tuple[str, ...]
    backward: tuple[str, ...]
    ranks: tuple[int, ...]
    micro_batch: int
    recomputes: bool = False
    zero: int = 0
    parameters: tuple[str, ...] = ()
    state_bytes: int = 0
    sharding: StageSharding | None = None
    tiles: tuple[SlotTile, ...] = ()

    @property
    def team_size(self) -> int:
        """Ranks that compute a run together."""
        return 1 if self.sharding is None else self.sharding.num_devices

    @property
    def num_replicas(self) -> int:
        return len(self.ranks) // self.team_size

    @property
    def examples(self) -> int:
        """Of one run."""
        return self.micro_batch // self.num_replicas

    def team(self, rank: int) -> tuple[int, ...]:
        """The ranks that compute runs together with this one, itself included."""
        first = self.ranks.index(rank) // self.team_size * self.team_size
        return self.ranks[first : first + self.team_size]

    def replica(self, rank: int) -> int:
        return self.ranks.index(rank) // self.team_size

    def member(self, rank: int) -> int:
        """Its place in its team."""
        return self.ranks.index(rank) % self.team_size

    def slot(self, value: ValueSpec, rank: int, first: int, count: int) -> Slot:
        """What a rank has of a value for the examples of a run."""
        whole = Slot(value=value.number, first=first, count=count)
        spec = next((each.spec for each in self.tiles if each.value == value.number), None)
        if spec is None:
            return whole
        assert self.sharding is not None, "tiles are those of a mesh"
        return replace(whole, tile=self.sharding.part_of(value.region(whole), spec, self.member(rank)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankList:
    """What one rank does in an iteration, in order."""

    rank: int
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Attributes:
    batch: examples of an iteration.
    losses: values of the program that are its loss, one number each, of each slice; the mean over what a run has.
    seeds: values that the backward pass begins with: the gradients of the losses.
    splits: whether gradients of inputs and of weights are parts of their own.
    slices: tokens of each slice that sequences are cut into; empty where they are whole. Slice j of the plan's stage i
        is then a stage of its own, number i x slices + j.
    sums_losses: whether losses are sums over targets instead.
    batch_bytes: of the examples, which every rank has.
    """

    batch: int
    losses: tuple[int, ...]
    seeds: tuple[int, ...]
    splits: bool
    stages: tuple[StageSpec, ...]
    values: tuple[ValueSpec, ...]
    parts: tuple[PartSpec, ...]
    ranks: tuple[RankList, ...]
    slices: tuple[int, ...] = ()
    sums_losses: bool = False
    batch_bytes: int = 0

    @property
    def num_slices(self) -> int:
        """1 where sequences are whole."""
        return len(self.slices) or 1

    def planned_stage(self, number: int) -> int:
        """The plan's stage that a stage is, or is a slice of."""
        return number // self.num_slices

    def stage_text(self, number: int) -> str:
        """'stage 1', or 'slice 2 of stage 1'."""
        stage, at = divmod(number, self.num_slices)
        return f"slice {at} of stage {stage}" if self.slices else f"stage {stage}"

    def values_by_number(self) -> dict[int, ValueSpec]:
        return {value.number: value for value in self.values}

    def together(self, rank: int, action: Action) -> tuple[tuple[int, int], tuple[int, ...]]:
        """Of a run what it is to all that take part in it at once, and these ranks: a team, or where they gather
        parameters or scatter gradients, all of the stage's with as many examples of the same micro-batch."""
        part = self.parts[action.part]
        stage = self.stages[part.stage]
        if part.gathered or part.scattered:
            return (action.part, action.first // stage.micro_batch), stage.ranks
        return (action.part, action.first), stage.team(rank)

    def action_text(self, action: Action) -> str:
        """As text, with the stage of a run, and what it gathers and scatters."""
        if action.kind not in RUNS or not 0 <= action.part < len(self.parts):
            return str(action)
        part = self.parts[action.part]
        text = f"{action} in {self.stage_text(part.stage)}"
        gathers = f", gathers {len(part.gathered)} parameters" if part.gathered else ""
        scatters = f", scatters {len(part.scattered)} gradients" if part.scattered else ""
        return f"{text}{gathers}{scatters}"
