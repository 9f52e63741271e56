"""Checks an execution before it runs; shares no code with the compiler. Pure.

A fault names the rank and the number of the action in its list.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import prod

from headway.core.execution.execution import RUNS, Action, ActionKind, Execution, Slot, StageSpec
from headway.core.execution.regions import is_covered, lengths, overlap
from headway.core.execution.settled import settled_sends
from headway.core.execution.slots import SlotFinder
from headway.core.graph import dtype_bytes

_LOSS_BYTES, _COUNT_BYTES = 8, 4
"""Of a rank's part of the loss, and of how often a parameter was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Attributes:
    faults: in sentences; empty where the lists are right.
    peak_bytes: of each rank: parameters, gradients and the optimizer's state, the batch, all slots that are held, what
        was sent and may not have arrived, what others' gradients need that are added up, and the workspace of what
        runs.
    """

    faults: tuple[str, ...]
    peak_bytes: tuple[int, ...]


def certify(execution: Execution, *, memory_bytes: int | None = None, trains: bool = True) -> Certificate:
    """Replays every list by itself, compares what ranks send and receive, and runs all lists at once.

    Args:
        memory_bytes: of each rank, where that is known.
        trains: whether backward passes and the addition of gradients have to be there too.
    """
    if faults := list(_structure(execution)):
        return Certificate(faults=tuple(faults), peak_bytes=())
    replays = [_Replay(execution, number) for number in range(len(execution.ranks))]
    faults = [fault for replay in replays for fault in replay.run()]
    faults += _matching(execution)
    faults += _gathering(execution)
    faults += _coverage(execution, RUNS if trains else (ActionKind.FORWARD,))
    faults += _additions(execution) if trains else ()
    if not faults:
        faults += _stuck(execution)
    peaks = tuple(replay.peak_bytes for replay in replays)
    for rank, peak in enumerate(peaks):
        if memory_bytes is not None and peak > memory_bytes:
            faults.append(f"Rank {rank} holds {peak} bytes at its peak, and has {memory_bytes}.")
    return Certificate(faults=tuple(faults), peak_bytes=peaks)


def _structure(execution: Execution) -> Iterator[str]:
    if [each.rank for each in execution.ranks] != list(range(len(execution.ranks))):
        yield "There is not one list for each rank, in order."
    known = execution.values_by_number()
    for rank, at, action in _actions(execution):
        where = f"rank {rank}, action {at}"
        if action.kind in RUNS:
            if not 0 <= action.part < len(execution.parts):
                yield f"{where}: there is no part {action.part}."
                continue
            part = execution.parts[action.part]
            stage = execution.stages[part.stage]
            if part.kind is not action.kind or rank not in stage.ranks or action.count != stage.examples:
                yield f"{where}: {execution.action_text(action)} is no work of this rank."
        elif any(slot.value not in known for slot in action.slots):
            yield f"{where}: {action} names a value that no part makes."
        elif any(slot.tile and len(slot.tile) != len(known[slot.value].shape) for slot in action.slots):
            yield f"{where}: {action} names a part with other dims than its value."
        else:
            yield from (f"{where}: {why}." for why in _malformed(action, len(execution.ranks)))


def _malformed(action: Action, num_ranks: int) -> Iterator[str]:
    """What an action that names known values lacks."""
    if action.kind in (ActionKind.SEND, ActionKind.RECV) and not 0 <= action.peer < num_ranks:
        yield f"{action}, which there is not"
    if len(action.slots) < _LEAST_SLOTS.get(action.kind, 0):
        yield f"{action.kind.upper()} names too few slots"
    if action.kind is ActionKind.GATHER and len(action.slots) != 1 + len(action.ranks):
        yield f"{action} does not name one part of each rank"


_LEAST_SLOTS = {
    ActionKind.SEND: 2,
    ActionKind.RECV: 1,
    ActionKind.JOIN: 2,
    ActionKind.GATHER: 2,
    ActionKind.FREE: 1,
}


def _actions(execution: Execution) -> Iterator[tuple[int, int, Action]]:
    for each in execution.ranks:
        for at, action in enumerate(each.actions):
            yield each.rank, at, action


@dataclass
class _Replay:
    """One rank's list by itself: every slot is there when it is read, made once, and given up."""

    execution: Execution
    rank: int
    held: dict[Slot, int] = field(default_factory=dict)
    given_up: set[Slot] = field(default_factory=set)
    """By the runs that read them last; to be freed behind these."""
    peak_bytes: int = 0

    def run(self) -> list[str]:
        faults = []
        execution = self.execution
        slots = SlotFinder.of(execution)
        sent = _Sent(slots, settled_sends(execution, self.rank))
        own = [stage for stage in execution.stages if self.rank in stage.ranks]
        counts_bytes = sum(_COUNT_BYTES * len(stage.parameters) for stage in own)
        fixed = _LOSS_BYTES + counts_bytes + execution.batch_bytes + sum(stage.state_bytes for stage in own)
        self.peak_bytes, rooms_bytes = fixed, 0
        for at, action in enumerate(execution.ranks[self.rank].actions):
            text = f"rank {self.rank}, action {at} ({execution.action_text(action)})"
            reads, writes = slots.reads(self.rank, action), slots.makes(self.rank, action)
            gone = self.given_up if action.kind is not ActionKind.FREE else set()
            faults += [f"{text}: {slot} is not there." for slot in reads if slot not in self.held or slot in gone]
            faults += [f"{text}: {slot} is there already." for slot in writes if slot in self.held]
            faults += [f"{text}: {why}." for why in self._wrong(slots, action)]
            for slot in writes:
                self.held[slot] = slots.values[slot.value].num_bytes(slot)
            sent.note(at, action, reads, self.held)
            rooms_bytes += _room_bytes(action)
            workspace = execution.parts[action.part].workspace_bytes if action.kind in RUNS else 0
            held_bytes = fixed + sum(self.held.values()) + sent.num_bytes + rooms_bytes + workspace
            self.peak_bytes = max(self.peak_bytes, held_bytes)
            if action.kind in RUNS:
                ended = slots.of_run(self.rank, action, execution.parts[action.part].gives_up)
                self.given_up.update(ended)
                self.held |= dict.fromkeys(ended, 0)
            elif action.kind is ActionKind.FREE:
                self.given_up.difference_update(action.slots)
                for slot in action.slots:
                    self.held.pop(slot, None)
        faults += [f"rank {self.rank}: {slot} is never given up." for slot in sorted(self.held)]
        actions = execution.ranks[self.rank].actions
        if [action.kind for action in actions].count(ActionKind.UPDATE) != 1 or actions[-1].kind is not (
            ActionKind.UPDATE
        ):
            faults.append(f"rank {self.rank} does not end with its one UPDATE.")
        return faults

    def _wrong(self, slots: SlotFinder, action: Action) -> Iterator[str]:
        """What an action of its kind may not be."""
        if action.kind in (ActionKind.SEND, ActionKind.RECV):
            if action.peer == self.rank:
                yield "a rank sends itself nothing"
            spec = slots.values[action.slots[0].value]
            want = lengths(spec.region(action.slots[0]))
            if (action.shape, action.dtype) != (want, spec.dtype):
                yield f"it is {list(want)} of {spec.dtype}, not {list(action.shape)} of {action.dtype}"
        if action.kind is ActionKind.SEND and not _have(slots, action.slots[0], action.slots[1:]):
            yield f"{action.slots[1]} has not all of it"
        if action.kind is ActionKind.JOIN and not _have(slots, action.slots[0], action.slots[1:]):
            yield "its sources have not all of it"
        if action.kind in (ActionKind.REDUCE, ActionKind.GATHER) and self.rank not in action.ranks:
            yield "this rank is not among them"
        if action.kind is ActionKind.GATHER:
            yield from _wrong_parts(slots, action)


def _room_bytes(action: Action) -> int:
    """What a rank needs from a REDUCE on for another one's terms of its own part; nothing for sums in place."""
    if action.kind is not ActionKind.REDUCE or not action.shards:
        return 0
    return -(-prod(action.shape) // len(action.ranks)) * dtype_bytes(action.dtype)


class _Sent:
    """What a rank has sent and keeps, as it may not have arrived: parts at once, whole slots once they are given up."""

    def __init__(self, slots: SlotFinder, settled: Mapping[int, int]) -> None:
        self._slots, self._settled = slots, settled
        self._coming: dict[Slot, tuple[int, int]] = {}
        self._kept: dict[int, list[int]] = {}
        self._whole: dict[Slot, tuple[int, int]] = {}

    @property
    def num_bytes(self) -> int:
        return sum(sum(kept) for kept in self._kept.values())

    def note(self, at: int, action: Action, reads: Sequence[Slot], held: Mapping[Slot, int]) -> None:
        for peer, count in [self._coming.pop(slot) for slot in reads if slot in self._coming]:
            kept = self._kept.setdefault(peer, [])
            kept[:count] = [0] * min(count, len(kept))
            self._whole = {slot: place for slot, place in self._whole.items() if place[0] != peer or place[1] >= count}
        if action.kind is ActionKind.RECV:
            self._coming[action.slots[0]] = action.peer, self._settled.get(at, 0)
        elif action.kind is ActionKind.SEND:
            kept = self._kept.setdefault(action.peer, [])
            piece, source = action.slots[:2]
            if piece == source:
                self._whole[source] = action.peer, len(kept)
            kept.append(0 if piece == source else self._slots.values[piece.value].num_bytes(piece))
        elif action.kind is ActionKind.FREE:
            for slot in action.slots:
                if slot in self._whole:
                    peer, place = self._whole.pop(slot)
                    self._kept[peer][place] = held.get(slot, 0)


def _have(slots: SlotFinder, wanted: Slot, sources: Sequence[Slot]) -> bool:
    """Whether some slots have all of one between them. Of a value without examples only those of the same ones do."""
    spec = slots.values[wanted.value]
    alike = [slot for slot in sources if slot.value == wanted.value]
    if spec.dim is None:
        alike = [slot for slot in alike if (slot.first, slot.count) == (wanted.first, wanted.count)]
    return is_covered(spec.region(wanted), [spec.region(slot) for slot in alike])


def _wrong_parts(slots: SlotFinder, action: Action) -> Iterator[str]:
    wanted, *parts = action.slots
    if not _have(slots, wanted, parts):
        yield "its parts are not all of it"
    spec = slots.values[wanted.value]
    regions, whole = [spec.region(slot) for slot in parts], spec.region(wanted)
    if any(overlap(a, b) for at, a in enumerate(regions) for b in regions[:at]):
        yield "two ranks have the same of it"
    dims = {dim for region in regions for dim, own in enumerate(region) if own != whole[dim]}
    if len(dims) > 1:
        yield "its parts are cut along several dims"
    elif any(before[dim][-1][1] > behind[dim][0][0] for dim in dims for before, behind in pairwise(regions)):
        yield "its parts are not in order"


def _matching(execution: Execution) -> Iterator[str]:
    """Between two ranks, what one sends the other receives, in the same order, of the same shape and dtype; ranks add
    gradients up together, in one order."""
    sides: dict[tuple[int, int], tuple[list[tuple[int, Action]], list[tuple[int, Action]]]] = {}
    sums: dict[tuple[int, ...], dict[int, list[tuple[object, ...]]]] = {}
    for rank, at, action in _actions(execution):
        if action.kind is ActionKind.SEND:
            sides.setdefault((rank, action.peer), ([], []))[0].append((at, action))
        elif action.kind is ActionKind.RECV:
            sides.setdefault((action.peer, rank), ([], []))[1].append((at, action))
        elif action.kind is ActionKind.REDUCE:
            what = action.parameters, action.shards, action.shape, action.dtype
            sums.setdefault(action.ranks, {}).setdefault(rank, []).append(what)
    for (source, target), (sent, received) in sorted(sides.items()):
        yield from _unlike(source, sent, target, received)
    for ranks, by_rank in sorted(sums.items()):
        lists = [by_rank.get(rank, []) for rank in ranks]
        for rank, own in zip(ranks, lists, strict=True):
            if own != lists[0]:
                yield f"rank {rank} does not add up the same gradients as rank {ranks[0]}, in the same order."


def _gathering(execution: Execution) -> Iterator[str]:
    """Ranks gather the same values together, in one order."""
    gathers: dict[tuple[int, ...], dict[int, list[tuple[Slot, ...]]]] = {}
    for rank, _, action in _actions(execution):
        if action.kind is ActionKind.GATHER:
            gathers.setdefault(action.ranks, {}).setdefault(rank, []).append(action.slots)
    for ranks, by_rank in sorted(gathers.items()):
        for rank in ranks:
            if by_rank.get(rank) != by_rank.get(ranks[0]):
                yield f"rank {rank} does not gather the same values as rank {ranks[0]}, in the same order."


def _unlike(
    source: int, sent: Sequence[tuple[int, Action]], target: int, received: Sequence[tuple[int, Action]]
) -> Iterator[str]:
    """The first place where what is sent and what is received differ."""
    for (at, send), (where, receive) in zip(sent, received, strict=False):
        if (send.slots[0], send.shape, send.dtype) != (receive.slots[0], receive.shape, receive.dtype):
            there = f"rank {target}, action {where} ({receive})"
            yield f"rank {source}, action {at} ({send}) meets {there}: they are not the same."
            return
    for at, send in sent[len(received) :][:1]:
        yield f"rank {source}, action {at} ({send}) is received by nobody."
    for at, receive in received[len(sent) :][:1]:
        yield f"rank {target}, action {at} ({receive}) is sent by nobody."


def _coverage(execution: Execution, kinds: Sequence[ActionKind]) -> Iterator[str]:
    """Every part of these kinds runs once for every example, on each rank of a team."""
    runs: dict[tuple[int, int], list[int]] = {}
    for rank, _, action in _actions(execution):
        if action.kind in RUNS:
            runs.setdefault((action.part, action.first), []).append(rank)
    for number, part in enumerate(execution.parts):
        stage = execution.stages[part.stage]
        for first in range(0, execution.batch, stage.examples) if part.kind in kinds else ():
            ranks = runs.pop((number, first), [])
            team = stage.team(ranks[0]) if ranks else ()
            if not ranks or sorted(ranks) != sorted(team):
                often = (
                    f"{len(ranks)} times"
                    if stage.team_size == 1
                    else f"on ranks {', '.join(map(str, ranks)) or 'none'}"
                )
                where = execution.stage_text(part.stage)
                yield f"{part.kind.upper()} of {where} runs {often} for example {first}."
    yield from (f"A part runs for examples from {first} on, which are no run of it." for _, first in sorted(runs))


def _additions(execution: Execution) -> Iterator[str]:
    """Gradients of what several ranks hold are added up once, behind the last run that gives them, or scattered by
    every run that does."""
    scattered = {name for part in execution.parts for name in part.scattered}
    for part in execution.parts:
        where = f"{part.kind.upper()} of {execution.stage_text(part.stage)}"
        whole = scattered & {*part.gradients} - {*part.scattered}
        yield from (f"{where} does not scatter the gradient of {name}." for name in sorted(whole))
        strange = {*part.gathered, *part.scattered} - {*execution.stages[part.stage].parameters}
        yield from (f"{where} has no part of {name}." for name in sorted(strange))
    tiles: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    own: dict[tuple[int, str], tuple[int, ...]] = {}
    for stage in execution.stages:
        for name in stage.parameters:
            for rank in stage.ranks:
                own[rank, name] = _tile(stage, name, rank)
                tiles.setdefault((name, own[rank, name]), set()).add(rank)
    for each in execution.ranks:
        holders = {name: tiles[name, tile] for (rank, name), tile in own.items() if rank == each.rank}
        pending = {name for name, ranks in holders.items() if len(ranks) > 1} - scattered
        for at, action in enumerate(each.actions):
            where = f"rank {each.rank}, action {at}"
            if action.kind is ActionKind.REDUCE:
                wrong = [n for n in action.parameters if holders.get(n) != set(action.ranks) or n not in pending]
                yield from (f"{where}: {name} is not to be added up here." for name in wrong)
                pending.difference_update(action.parameters)
            elif action.kind in RUNS:
                given = set(execution.parts[action.part].gradients) - pending
                late = sorted(name for name in given - scattered if len(holders[name]) > 1)
                yield from (f"{where}: the gradient of {name} was added up before." for name in late)
        yield from (f"rank {each.rank} never adds up the gradient of {name}." for name in sorted(pending))


def _tile(stage: StageSpec, name: str, rank: int) -> tuple[int, ...]:
    """Which part of a parameter a rank has."""
    if stage.sharding is None or stage.sharding.parameter(name).is_replicated:
        return ()
    return stage.sharding.tile(name, stage.member(rank))


def _stuck(execution: Execution) -> Iterator[str]:
    """Runs all lists at once: a send waits for nobody, what reads a slot waits until it was sent, ranks wait for each
    other in every run that they take part in together, those of a gather in it, and all ranks of an addition before
    they change parameters."""
    meeting = _Meeting(execution)
    place = [0] * len(execution.ranks)
    is_moving = True
    while is_moving:
        is_moving = False
        for rank, each in enumerate(execution.ranks):
            while place[rank] < len(each.actions) and meeting.may(rank, each.actions[place[rank]]):
                meeting.do(rank, each.actions[place[rank]])
                place[rank] += 1
                is_moving = True
    for rank, each in enumerate(execution.ranks):
        if place[rank] < len(each.actions):
            text = execution.action_text(each.actions[place[rank]])
            yield f"rank {rank} waits for ever at action {place[rank]} ({text})."


@dataclass
class _Meeting:
    """What ranks have sent each other, and whose gradients are added up."""

    execution: Execution
    sent: set[tuple[int, int, Slot]] = field(default_factory=set)
    incoming: dict[tuple[int, Slot], int] = field(default_factory=dict)
    added: dict[tuple[tuple[int, ...], tuple[str, ...]], set[int]] = field(default_factory=dict)
    gathered: dict[Hashable, set[int]] = field(default_factory=dict)

    @cached_property
    def slots(self) -> SlotFinder:
        return SlotFinder.of(self.execution)

    def may(self, rank: int, action: Action) -> bool:
        for slot in self.slots.reads(rank, action):
            source = self.incoming.get((rank, slot))
            if source is not None and (source, rank, slot) not in self.sent:
                return False
        if action.kind in RUNS:
            return self._are_there(rank, *self.execution.together(rank, action))
        if action.kind is ActionKind.GATHER:
            return self._are_there(rank, (action.slots[0], action.ranks), action.ranks)
        own = (there for (ranks, _), there in self.added.items() if rank in ranks and set(ranks) - there)
        return action.kind is not ActionKind.UPDATE or not any(True for _ in own)

    def _are_there(self, rank: int, what: Hashable, ranks: Sequence[int]) -> bool:
        there = self.gathered.setdefault(what, set())
        there.add(rank)
        return there.issuperset(ranks)

    def do(self, rank: int, action: Action) -> None:
        if action.kind is ActionKind.SEND:
            self.sent.add((rank, action.peer, action.slots[0]))
        elif action.kind is ActionKind.RECV:
            self.incoming[rank, action.slots[0]] = action.peer
        elif action.kind is ActionKind.REDUCE:
            self.added.setdefault((action.ranks, action.parameters), set()).add(rank)
