"""Compiles a captured step, stages and their orders to the lists of actions of all ranks. Pure.

Runs are put into one order over all ranks, in which each comes behind what it needs. A send and its receive are posted
right behind the run that makes what they carry (Tessel section IV-D), so every pair of ranks sees its transfers in one
order; a slot is freed behind the last action that reads it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.core.errors import InvalidArgumentError
from headway.core.execution.crossing import Crossing, Piece, Share, Tile
from headway.core.execution.execution import (
    Action,
    ActionKind,
    Execution,
    PartSpec,
    RankList,
    Slot,
    StageSpec,
    ValueSpec,
)
from headway.core.execution.frees import given_up, with_frees
from headway.core.execution.orders import Order
from headway.core.execution.regions import lengths
from headway.core.execution.sharded import cut_slots, step_parts
from headway.core.execution.slots import SlotFinder
from headway.core.execution.specs import (
    batch_bytes,
    gradient_sums,
    parameter_holders,
    part_specs,
    value_specs,
    with_state,
    with_workspace,
    zero_levels,
)
from headway.core.execution.sums import with_own_sums
from headway.core.graph import dtype_bytes
from headway.core.program import Program

_SCATTERED = 2
"""The ZeRO stage from which on gradients are scattered by the runs that give them."""
_TIMES = {ActionKind.BACKWARD: 2.0}
_GRADIENTS = (ActionKind.BACKWARD, ActionKind.INPUT, ActionKind.WEIGHT)


@dataclass(frozen=True, slots=True, order=True)
class _Run:
    """A part on one rank, for some examples."""

    part: int
    first: int
    count: int
    rank: int


def compile_execution(
    programs: Mapping[int, Program],
    stages: Sequence[StageSpec],
    orders: Sequence[Order],
    *,
    batch: int,
    splits: bool,
    optimizer: str = "adamw",
    slices: Sequence[int] = (),
    sums_losses: bool = False,
) -> Execution:
    """Makes the lists.

    Args:
        programs: the step captured with as many examples as a run of a stage has, by that number.
        stages: their `parameters` and `state_bytes` are filled in.
        orders: each of the stages of some rank; a rank runs the one that names its stages.
        slices, sums_losses: of a step that is unrolled over slices; see `Execution`.

    Raises:
        InvalidArgumentError: the stages do not divide the batch, captures differ, a value cannot be cut where stages
            want different examples of it, or the orders never come to their end.
    """
    _check_stages(stages, batch)
    if not slices:
        stages = with_own_sums(next(iter(programs.values())), stages)
    cuts = {
        count: step_parts(program, stages, count, splits=splits, num_slices=len(slices) or 1)
        for count, program in programs.items()
    }
    count, program = next(iter(programs.items()))
    parts = part_specs(cuts, len(program.inputs))
    cut = {number: parts for count in cuts for number, parts in cut_slots(cuts[count], programs[count]).items()}
    values = value_specs(programs, parts, cut)
    filled = tuple(
        replace(stage, tiles=cuts[stage.examples].tiles.get(number, ()))
        for number, stage in enumerate(with_state(stages, cuts[count], program, optimizer=optimizer))
    )
    sums = gradient_sums(filled, program)
    ranks = _Lists(batch=batch, stages=filled, values=values, parts=parts, orders=orders, sums=sums).make()
    ended = given_up(ranks, SlotFinder(stages=filled, parts=parts, values=values))
    return Execution(
        batch=batch,
        losses=cuts[count].losses,
        seeds=cuts[count].seeds,
        splits=splits,
        stages=filled,
        values=tuple(values.values()),
        parts=with_workspace(parts, ended, cuts, filled),
        ranks=ranks,
        slices=tuple(slices),
        sums_losses=sums_losses,
        batch_bytes=batch_bytes(program, count, batch),
    )


def _check_stages(stages: Sequence[StageSpec], batch: int) -> None:
    for number, stage in enumerate(stages):
        if stage.micro_batch < 1 or batch % stage.micro_batch or stage.micro_batch % stage.num_replicas:
            raise InvalidArgumentError(
                f"Stage {number} has micro-batches of {stage.micro_batch} examples on {len(stage.ranks)} ranks, which "
                f"do not divide a batch of {batch} evenly.",
                hint="Let micro-batches divide the batch, and the ranks of a stage its micro-batch.",
                field="batch",
            )


@dataclass(kw_only=True)
class _Lists:
    """Writes the lists, in the order in which runs would end."""

    batch: int
    stages: tuple[StageSpec, ...]
    values: dict[int, ValueSpec]
    parts: tuple[PartSpec, ...]
    orders: Sequence[Order]
    sums: Mapping[str, tuple[int, str]]
    """Of each parameter's gradient the elements that a rank has, and the dtype of their sum."""
    made: dict[int, list[Action]] = field(default_factory=dict)
    makers: dict[int, int] = field(default_factory=dict)
    transfers: dict[tuple[int, int, int], list[tuple[Piece, int]]] = field(default_factory=dict)
    """By part, first example and rank of a run that makes something, the pieces that others get, with their ranks."""
    puts: dict[_Run, list[Action]] = field(default_factory=dict)
    """Before each run what it puts together."""
    there: set[tuple[int, Slot]] = field(default_factory=set)
    """What each rank is sent or puts together."""
    crossing: Crossing = field(default_factory=Crossing)
    shares: dict[tuple[Slot, tuple[int, ...]], list[Share]] = field(default_factory=dict)
    needs: dict[_Run, set[tuple[int, int, int]]] = field(default_factory=dict)

    def make(self) -> tuple[RankList, ...]:
        num_ranks = 1 + max(rank for stage in self.stages for rank in stage.ranks)
        self.made = {rank: [] for rank in range(num_ranks)}
        self.makers = {value: at for at, part in enumerate(self.parts) for value in part.writes}
        runs = {rank: list(self._runs(rank)) for rank in self.made}
        self._find_needs(runs)
        reductions = self._reductions(runs)
        for run in self._in_order(runs):
            self._emit(run)
            for action in reductions.get(run, ()):
                for rank in action.ranks:
                    self.made[rank].append(action)
        slots = SlotFinder(stages=self.stages, parts=self.parts, values=self.values)
        for rank, actions in self.made.items():
            self.made[rank] = [*with_frees(actions, rank, slots), Action(kind=ActionKind.UPDATE)]
        return tuple(RankList(rank=rank, actions=tuple(actions)) for rank, actions in sorted(self.made.items()))

    def _runs(self, rank: int) -> Iterator[_Run]:
        known = {(part.stage, part.kind): at for at, part in enumerate(self.parts)}
        again: set[tuple[int, int]] = set()
        for task in self._order(rank):
            stage = self.stages[task.stage]
            kinds: tuple[ActionKind, ...] = (task.kind,)
            if task.kind is ActionKind.BACKWARD and (task.stage, task.kind) not in known:
                kinds = (ActionKind.INPUT, ActionKind.WEIGHT)
            if task.kind in _GRADIENTS and (task.stage, task.micro_batch) not in again:
                again.add((task.stage, task.micro_batch))
                kinds = (ActionKind.RECOMPUTE, *kinds)
            first = task.micro_batch * stage.micro_batch + stage.replica(rank) * stage.examples
            for kind in kinds:
                if (task.stage, kind) in known:
                    yield _Run(known[task.stage, kind], first, stage.examples, rank)

    def _order(self, rank: int) -> Order:
        own = {number for number, stage in enumerate(self.stages) if rank in stage.ranks}
        found = {order for order in self.orders if {task.stage for task in order} == own}
        if len(found) != 1:
            raise InvalidArgumentError(
                f"Rank {rank} has stages {', '.join(map(str, sorted(own)))}, and there is not one order for them.",
                hint="Stages that share ranks need a schedule that orders them.",
                field="schedule",
            )
        return found.pop()

    def _find_needs(self, runs: Mapping[int, Sequence[_Run]]) -> None:
        """What each run waits for, what other ranks send it, and what it puts together."""
        for rank, own in runs.items():
            for run in own:
                stage = self.stages[self.parts[run.part].stage]
                needs = self.needs.setdefault(run, set())
                for value in self.parts[run.part].reads:
                    spec = self.values[value]
                    slot = stage.slot(spec, rank, run.first, run.count)
                    team = stage.team(rank)
                    group = tuple(each for each in team if stage.slot(spec, each, run.first, run.count) == slot)
                    shares = self._shares(spec, slot, group)
                    pieces = [piece for share in shares for piece in share.pieces]
                    needs.update((self.makers[value], piece.source.first, piece.owner) for piece in pieces)
                    if (rank, slot) not in self.there:
                        self._bring(run, slot, group, shares)
                        self.there.add((rank, slot))

    def _shares(self, spec: ValueSpec, slot: Slot, group: tuple[int, ...]) -> list[Share]:
        if (slot, group) not in self.shares:
            tiles = list(self._tiles(spec, slot))
            self.shares[slot, group] = self.crossing.shares(spec, slot, group, tiles)
        return self.shares[slot, group]

    def _bring(self, run: _Run, slot: Slot, group: tuple[int, ...], shares: Sequence[Share]) -> None:
        """Notes what a rank is sent of a slot, and how the slot is made of it."""
        own = shares[group.index(run.rank)]
        for piece in own.pieces:
            if piece.owner != run.rank and (run.rank, piece.slot) not in self.there:
                self.there.add((run.rank, piece.slot))
                maker = self.makers[slot.value], piece.source.first, piece.owner
                self.transfers.setdefault(maker, []).append((piece, run.rank))
        puts = self.puts.setdefault(run, [])
        pieces = tuple(piece.slot for piece in own.pieces)
        if pieces != (own.slot,) and (run.rank, own.slot) not in self.there:
            self.there.add((run.rank, own.slot))
            puts.append(Action(kind=ActionKind.JOIN, slots=(own.slot, *pieces)))
        if own.slot != slot:
            parts = tuple(share.slot for share in shares)
            puts.append(Action(kind=ActionKind.GATHER, slots=(slot, *parts), ranks=group))

    def _tiles(self, spec: ValueSpec, wanted: Slot) -> Iterator[Tile]:
        """The slots that makers of a value fill of these examples."""
        stage = self.stages[self.parts[self.makers[wanted.value]].stage]
        for run in range(wanted.first // stage.examples, -(-wanted.end // stage.examples)):
            first = run * stage.examples
            if spec.dim is None and (first, stage.examples) != (wanted.first, wanted.count):
                raise _uncut(spec)
            at = run % stage.num_replicas * stage.team_size
            holders: dict[Slot, list[int]] = {}
            for rank in stage.ranks[at : at + stage.team_size]:
                holders.setdefault(stage.slot(spec, rank, first, stage.examples), []).append(rank)
            yield from (Tile(slot, tuple(ranks)) for slot, ranks in holders.items())

    def _in_order(self, runs: Mapping[int, Sequence[_Run]]) -> list[_Run]:
        """All runs by their end, where each part takes about as long as any other of its kind."""
        ends: dict[tuple[int, int, int], float] = {}
        found: list[tuple[float, _Run]] = []
        place, free = dict.fromkeys(runs, 0), dict.fromkeys(runs, 0.0)
        is_moving = True
        while is_moving:
            is_moving = False
            for rank, own in runs.items():
                while place[rank] < len(own) and all(need in ends for need in self.needs[own[place[rank]]]):
                    run = own[place[rank]]
                    start = max([free[rank], *(ends[need] for need in self.needs[run])])
                    free[rank] = start + _TIMES.get(self.parts[run.part].kind, 1.0)
                    ends[run.part, run.first, rank] = free[rank]
                    found.append((free[rank], run))
                    place[rank] += 1
                    is_moving = True
        for rank, own in runs.items():
            if place[rank] < len(own):
                part = self.parts[own[place[rank]].part]
                raise InvalidArgumentError(
                    f"Rank {rank} waits for ever to run {part.kind} of stage {part.stage}.",
                    hint="The orders of the ranks do not fit together; make the schedule anew.",
                    field="schedule",
                )
        return [run for _, run in sorted(found)]

    def _emit(self, run: _Run) -> None:
        own = self.made[run.rank]
        own.extend(self.puts.get(run, ()))
        own.append(Action(kind=self.parts[run.part].kind, part=run.part, first=run.first, count=run.count))
        for piece, target in self.transfers.get((run.part, run.first, run.rank), ()):
            spec = self.values[piece.slot.value]
            received = Action(
                kind=ActionKind.RECV,
                slots=(piece.slot,),
                peer=run.rank,
                shape=lengths(spec.region(piece.slot)),
                dtype=spec.dtype,
            )
            self.made[target].append(received)
            sent = replace(received, kind=ActionKind.SEND, slots=(piece.slot, piece.source), peer=target)
            own.append(sent)

    def _reductions(self, runs: Mapping[int, Sequence[_Run]]) -> dict[_Run, list[Action]]:
        """Of parameters on several ranks, behind the last run that gives their gradient; where each run scatters it,
        none."""
        holders, levels = parameter_holders(self.stages), zero_levels(self.stages)
        order = self._in_order(runs)
        last = {(name, run.rank): at for at, run in enumerate(order) for name in self.parts[run.part].gradients}
        groups: dict[tuple[_Run, tuple[int, ...], bool], list[str]] = {}
        added = ((name, ranks) for name, tiles in holders.items() for ranks in tiles if levels[name] < _SCATTERED)
        for name, ranks in ((name, ranks) for name, ranks in added if len(ranks) > 1):
            run = order[max(last.get((name, rank), -1) for rank in ranks)]
            groups.setdefault((run, ranks, levels[name] == 1), []).append(name)
        found: dict[_Run, list[Action]] = {}
        for (run, group, shards), names in groups.items():
            sizes, dtypes = zip(*(self.sums[name] for name in names), strict=True)
            action = Action(
                kind=ActionKind.REDUCE,
                parameters=tuple(names),
                ranks=group,
                shards=shards,
                shape=(sum(sizes),),
                dtype=max(dtypes, key=dtype_bytes),
            )
            found.setdefault(run, []).append(action)
        return found


def _uncut(spec: ValueSpec) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The result of {spec.name} crosses between stages that want different examples of it, and has none along any "
        "of its dims.",
        hint="Give these stages micro-batches and ranks of one number.",
        field="plan",
    )
